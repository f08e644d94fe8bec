"""The folder from which an interrupted training continues.

    checkpoints/
        settings.json                   what is being trained; another run cannot continue in this folder
        epoch-0/checkpoint-100/         one stage per folder, one checkpoint every few of its steps
        best-200.safetensors            the best weights so far

A checkpoint counts only if it holds ``checksums.json``, the file written last. Before one is resumed its files, and the
best weights it refers to, are compared with their checksums. The newest that is as it was written is resumed, the one
before it is kept as well, and all are deleted when the training is over. The presence of ``settings.json`` is what says
that a training is unfinished.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core import progress
from isthmus.core.errors import IsthmusError, RunError, TrainingError, UsageError
from isthmus.core.files import make_folder, read_json, remove_tree, write_json, writing

if TYPE_CHECKING:
    from torch import Tensor, nn

KEPT = 2
_IDENTITY = "settings.json"
_POSITION = "position.json"
_CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class Position:
    """The position of a run: what a checkpoint stores besides weights, optimiser and random state."""

    stage: int
    """First epoch of the stage."""
    steps_before: int
    """Optimiser steps of the stages before."""
    step: int
    """Optimiser steps in all."""
    log_length: int
    """Bytes of ``train.jsonl``."""
    selection: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    """Whether early stopping ended the run here."""

    def write(self, folder: Path) -> None:
        """Write the position beside the weights of a checkpoint."""
        write_json(folder / _POSITION, asdict(self))


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint."""

    path: Path
    position: Position


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, path: Path, marker: str = _POSITION) -> None:
        self.path, self.marker = path, marker

    def open(self, identity: dict[str, Any]) -> None:
        """Open the folder, to begin or to continue.

        What was left half-written or is damaged is removed. A folder that holds the unfinished training of something
        else is refused.
        """
        if self.is_begun:
            make_folder(self.path)
            if self._is_usable(identity):
                return
        self.delete()
        make_folder(self.path)
        write_json(self.path / _IDENTITY, {**identity, _CHECKSUMS: True})

    def _is_usable(self, identity: dict[str, Any]) -> bool:
        """Remove what cannot be continued from; False if the training must start again."""
        try:
            self._check(identity)
        except RunError as error:
            progress.note(f"{error}: the training begins again")
            return False
        counting = {checkpoint.path: checkpoint for checkpoint in self.found()}
        damaged: list[str] = []
        for path in sorted(self.path.glob("epoch-*/checkpoint-*")):
            fault = self._fault(path, counting.get(path))
            if fault is not None:
                remove_tree(path)
                counting.pop(path, None)
                damaged += [fault] if fault else []
        if damaged:
            last = self.newest()
            step = "begins again" if last is None else f"continues from step {last.position.step}"
            progress.note(f"damaged: {', '.join(damaged)}. The training {step}")
        return bool(counting) or not damaged

    def _fault(self, path: Path, checkpoint: Checkpoint | None) -> str | None:
        """The damage of a checkpoint: None, a damaged file, or empty if it is incomplete."""
        try:
            sums = read_json(path / _CHECKSUMS) if (path / _CHECKSUMS).is_file() else None
        except RunError:
            return str(path / _CHECKSUMS)
        if sums is None:  # Written before there were checksums, or killed before all was written.
            return None if checkpoint is not None else ""
        for name, code in sums.items() if isinstance(sums, dict) else ():
            file = self.path / name
            if not file.is_file() or _digest(file) != code:
                return str(file)
        return None if checkpoint is not None else str(path / _POSITION)

    def seal(self, path: Path, best: Path | None) -> None:
        """Make a checkpoint valid: write the checksums of its files, and of the best weights so far."""
        files = [*sorted(path.iterdir()), *([] if best is None else [best])]
        sums = {file.relative_to(self.path).as_posix(): _digest(file) for file in files if file.name != _CHECKSUMS}
        write_json(path / _CHECKSUMS, sums)

    @property
    def is_begun(self) -> bool:
        """Whether the folder holds an unfinished training."""
        return (self.path / _IDENTITY).is_file()

    def _check(self, identity: dict[str, Any]) -> None:
        known = read_json(self.path / _IDENTITY)
        expected = json.loads(json.dumps(identity))
        for name in expected:
            before = known.get(name) if isinstance(known, dict) else None
            if before != expected[name]:
                raise UsageError(
                    f"{self.path} holds an unfinished training with other settings: {name} was {before!r} and is now "
                    f"{expected[name]!r}. Use the same settings to continue it, delete the folder, or choose another"
                )

    def found(self) -> list[Checkpoint]:
        """The valid checkpoints, oldest first."""
        found = []
        for path in self.path.glob("epoch-*/checkpoint-*"):
            try:
                read_json(path / (_CHECKSUMS if self._has_checksums else self.marker))
                found.append(Checkpoint(path, Position(**read_json(path / _POSITION))))
            except (IsthmusError, TypeError):
                continue
        return sorted(found, key=lambda checkpoint: checkpoint.position.step)

    @property
    def _has_checksums(self) -> bool:
        """Whether the training was started by a version that writes checksums."""
        known = read_json(self.path / _IDENTITY) if self.is_begun else None
        return isinstance(known, dict) and _CHECKSUMS in known

    def newest(self) -> Checkpoint | None:
        """The checkpoint to continue from."""
        found = self.found()
        return found[-1] if found else None

    @contextlib.contextmanager
    def naming_the_last(self) -> Iterator[None]:
        """Inside, an error of the training also names the checkpoint that is left."""
        try:
            yield
        except TrainingError as error:
            last = self.newest()
            left = "No checkpoint had been written before."
            if last is not None:
                left = f"What was learnt until step {last.position.step} is kept in {last.path}."
            raise TrainingError(f"{error} {left}") from error

    def best_steps(self) -> set[int]:
        """Steps with weights that a checkpoint refers to as the best."""
        return {int(each.position.selection["best_step"] or 0) for each in self.found()}

    def prune(self) -> None:
        """Delete all but the newest two checkpoints."""
        for checkpoint in self.found()[:-KEPT]:
            remove_tree(checkpoint.path)

    def delete(self) -> None:
        """Delete the folder; the mark of an unfinished training goes first, in case the process is killed."""
        with writing(self.path):
            (self.path / _IDENTITY).unlink(missing_ok=True)
        remove_tree(self.path)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the state of `model` to a safetensors file, which is complete or absent."""
    from safetensors.torch import save_file

    _write_file(path, lambda temporary: save_file(_copy_state(model), temporary))


def _copy_state(model: nn.Module) -> dict[str, Tensor]:
    """Copy the state of a model: tied tensors once, and each tensor in memory of its own.

    On a GPU the weights of an LSTM are views of one buffer, which safetensors refuses to write.
    """
    found: dict[str, Tensor] = {}
    seen: set[tuple[object, ...]] = set()
    for name, value in sorted(model.state_dict().items()):
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if value.numel() and place in seen:
            continue
        seen.add(place)
        whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        found[name] = value.contiguous() if whole else value.contiguous().clone()
    return found


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors to a safetensors file, which is complete or absent."""
    from safetensors.torch import save_file

    _write_file(path, lambda temporary: save_file(dict(tensors), temporary))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read what `save_weights` wrote."""
    from safetensors.torch import load_file

    with _read_errors(path):
        tensors = load_file(path)
        missing, unknown = model.load_state_dict(tensors, strict=False)
        if lacking := sorted({*missing} & _copy_state(model).keys()) or unknown:
            raise RuntimeError(f"its tensors are not those of the model: {', '.join(lacking[:3])}")


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `save_tensors` wrote."""
    from safetensors.torch import load_file

    with _read_errors(path):
        return load_file(path)


def _write_file(path: Path, write: Callable[[str], None]) -> None:
    from safetensors import SafetensorError

    temporary = path.with_name(f".{path.name}.part")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)  # A link there would be followed.
            write(str(temporary))
            temporary.replace(path)
    except SafetensorError as error:
        raise RunError(f"cannot write {path} ({error}): is the disk full?") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        raise RunError(f"cannot continue from {path} ({error}): delete the folder of checkpoints") from error
