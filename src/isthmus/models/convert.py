"""Converts weights saved as a pickle to safetensors.

A pickle is read with ``weights_only``: torch makes tensors and plain containers of it, and refuses everything else
before it runs. What shares memory in it (tied weights, views) is written out in full, name by name.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import ModelError, RunError, UsageError
from isthmus.core.files import explain_error, replacing_folder, write_json
from isthmus.models._weights import PICKLE, PICKLE_INDEX, PICKLES, SAFE, SAFE_INDEX, check_inside, is_bare, shards

if TYPE_CHECKING:
    from torch import Tensor

_BESIDE = (".json", ".txt", ".model", ".md")
"""Endings of what is copied: configuration, tokenizer, readme. Code is not."""
_INSIDE = ("state_dict", "model_state_dict", "model")
"""Under which training scripts put the weights among other things."""


@dataclass(frozen=True)
class Converted:
    """The converted model: its new folder, and what was converted and copied."""

    folder: Path
    sources: tuple[str, ...]
    tensors: int
    size: int
    copied: tuple[str, ...]


def convert(source: Path | str, out: Path | str) -> Converted:
    """Convert the model folder `source` to the new folder `out`, with safetensors weights."""
    source, out = Path(source), Path(out)
    if not source.is_dir():
        raise ModelError(f"no model folder {source}")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} is there already: name a new folder")
    files = _pickles(source)
    with replacing_folder(out) as fresh:
        tensors, size = _write_files(files, fresh)
        copied = _copy_rest(source, fresh)
    return Converted(out, tuple(file.name for file in files), tensors, size, copied)


def _pickles(folder: Path) -> list[Path]:
    """The pickles with the weights, sorted by name."""
    indices = [folder / name for name in (PICKLE_INDEX, SAFE_INDEX) if (folder / name).is_file()]
    if (folder / PICKLE).is_file():
        names = [PICKLE]
    elif (folder / SAFE).is_file():
        raise UsageError(f"{folder / SAFE} holds the weights as safetensors already")
    elif indices:
        names = shards(indices[0])
        if all(name.endswith(".safetensors") for name in names):
            raise UsageError(f"{indices[0]} names safetensors already")
    else:
        names = [file.name for file in sorted(folder.iterdir()) if file.suffix in PICKLES]
        if len(names) != 1:
            found = f"there are {', '.join(names)}" if names else "there is no file such as pytorch_model.bin"
            raise ModelError(f"{folder} has no weights to convert: {found}, and no {PICKLE_INDEX}")
    for name in names:
        if not is_bare(name):
            raise ModelError(
                f"{indices[0]} names {name!r:.200}: weights are read from files of the folder itself alone"
            )
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name} is missing: copy or download it again")
        check_inside(folder / name, folder)
    return [folder / name for name in names]


def _write_files(files: list[Path], out: Path) -> tuple[int, int]:
    """Write a safetensors file per pickle, and an index of several; return the numbers of tensors and bytes."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    weight_map: dict[str, str] = {}
    size = 0
    for number, file in enumerate(files, start=1):
        name = SAFE if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        # Tied weights are one tensor under several names, which safetensors does not have.
        tensors = {key: tensor.detach().clone().contiguous() for key, tensor in _read_pickle(file).items()}
        again = next((key for key in tensors if key in weight_map), None)
        if again is not None:
            raise ModelError(f"{again!r} is in {file} and in another file as well")
        try:
            save_file(tensors, out / name, metadata={"format": "pt"})
        except SafetensorError as error:
            raise RunError(f"cannot write {out / name}: {error}; is the disk full?") from error
        (out / name).chmod(out.stat().st_mode & 0o666)  # The weights come private.
        weight_map |= dict.fromkeys(tensors, name)
        size += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if len(files) > 1:
        write_json(out / SAFE_INDEX, {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))})
    return len(weight_map), size


def _read_pickle(file: Path) -> Mapping[str, Tensor]:
    """Read the tensors of a pickle by name."""
    import torch

    try:
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"cannot read {file}: {explain_error(error)}") from error
    except Exception as error:  # A pickle that is damaged, or that holds something else, fails in many ways.
        first = next((line.strip() for line in str(error).splitlines() if "nsupported" in line), None)
        first = first or next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"{file} is not a plain file of weights, and what it holds was not run: {first:.300}"
        ) from error
    for name in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
            break
    if not isinstance(content, Mapping) or not content:
        raise ModelError(f"{file} holds a {type(content).__name__}, not weights by name")
    odd = next((key for key, value in content.items() if not (isinstance(key, str) and torch.is_tensor(value))), None)
    if odd is not None:
        raise ModelError(f"{file} holds a {type(content[odd]).__name__} under {odd!r:.80}, which is not a tensor")
    return content


def _copy_rest(source: Path, out: Path) -> tuple[str, ...]:
    """Copy the other files of a model, but neither links that lead out of the folder nor code."""
    copied = []
    for file in sorted([*source.glob("*"), *source.glob("*/config.json")]):
        name = file.relative_to(source)
        if file.suffix not in _BESIDE or not file.is_file() or file.name in (PICKLE_INDEX, SAFE_INDEX):
            continue
        check_inside(file, source)
        (out / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(file, out / name)
        copied.append(name.as_posix())
    return tuple(copied)
