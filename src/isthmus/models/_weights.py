"""Checks which files of a model folder may be read as weights: only safetensors inside the folder.

transformers looks for ``model.safetensors``, or for an index of several files by name. It opens whatever the index
names: files outside the folder, and pickles, whose reading can run code. So names are checked before it looks.

    model.safetensors                a file of the folder
    model.safetensors.index.json     names files of the folder, each ending in .safetensors
    pytorch_model.bin, other forms   refused; `isthmus convert` writes safetensors of them

A link may not lead out of the folder, but for the hub's own cache, where snapshots are links to the blobs beside them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from isthmus.core.errors import ModelError, RunError
from isthmus.core.files import read_json

SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
ADAPTER = "adapter_config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of files that torch would unpickle."""


def check_weights(folder: Path) -> None:
    """Refuse a local folder whose weights are not safetensors inside it."""
    if (folder / ADAPTER).exists():
        raise ModelError(is_adapter(str(folder)))
    if (folder / SAFE).is_file():
        check_inside(folder / SAFE, folder)
    elif (folder / SAFE_INDEX).is_file():
        for name in shards(folder / SAFE_INDEX):
            _check_shard(name, folder / SAFE_INDEX, folder)
    else:
        found = next((file.name for file in sorted(folder.glob("*")) if file.suffix in PICKLES), None)
        if found is not None:
            raise ModelError(_is_pickled(folder, f"{folder / found} holds them as a pickle"))


def check_name_in(config: Any, source: str) -> None:
    """Refuse a configuration that names another file of weights."""
    named = getattr(config, "transformers_weights", None)
    if named is not None:
        raise ModelError(
            f"transformers_weights in the config.json of {source} is {named!r:.80}: weights are read from {SAFE} or "
            f"{SAFE_INDEX} alone. Rename the file and remove the entry"
        )


def is_adapter(source: str) -> str:
    """The error for an adapter."""
    return (
        f"{source} holds an adapter ({ADAPTER}), which names a model elsewhere: merge the two and save the result, "
        "model.merge_and_unload().save_pretrained(...)"
    )


def check_index(file: Path, source: str) -> None:
    """Refuse an index in the hub's cache that names anything but safetensors of its own repository."""
    for name in shards(file):
        _check_name(name, file, f"{source} (after downloading it into a folder)")


def shards(index: Path) -> list[str]:
    """The files that an index names, each once."""
    content = _json(index)
    names = content.get("weight_map") if isinstance(content, Mapping) else None
    if not isinstance(names, Mapping) or not names or not all(isinstance(name, str) for name in names.values()):
        raise ModelError(f"{index} is not an index of weights: it should hold a weight_map from names to files")
    return sorted(set(names.values()))


def is_bare(name: str) -> bool:
    """Whether a name is a file name, not a path."""
    return name not in ("", ".", "..") and all(kind(name).name == name for kind in (PurePosixPath, PureWindowsPath))


def _check_shard(name: str, index: Path, folder: Path) -> None:
    _check_name(name, index, str(folder))
    if not (folder / name).is_file():
        raise ModelError(f"{index} names {name!r}, which is not in the folder: copy or download it again")
    check_inside(folder / name, folder)


def _check_name(name: str, index: Path, source: str) -> None:
    if not is_bare(name):
        raise ModelError(f"{index} names {name!r:.200}: weights are read from files of the folder itself alone")
    if not name.endswith(".safetensors"):
        raise ModelError(_is_pickled(source, f"{index} names {name!r}, which is not a safetensors"))


def _is_pickled(source: Path | str, found: str) -> str:
    return (
        f"the weights are not read: {found}, and reading a pickle can run code. Write safetensors of them once: "
        f"isthmus convert {shlex.quote(str(source))} --out NEW"
    )


def check_inside(file: Path, folder: Path) -> None:
    """Refuse a link that leads out of the folder; the hub's own cache may link snapshots to its blobs."""
    real, home = file.resolve(), folder.resolve()
    places = [home]
    if home.parent.name == "snapshots":
        places.append(home.parents[1] / "blobs")
    if not any(real.is_relative_to(place) for place in places):
        raise ModelError(f"{file} is a link to {real}, outside of its folder: copy the file there instead")


def _json(file: Path) -> Any:
    try:
        return read_json(file)
    except RunError as error:
        raise ModelError(str(error)) from error
