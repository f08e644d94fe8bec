"""`measure`: measures runs, and keeps the measurements in measures.json.

    {"information": {"settings": …, "hash": …, "stamp": …, "measurement": …}, "information@1a2b3c4d": …}

The first settings of a measure take its plain name, others get their hash. An entry whose settings are the same and
whose sources (weights, data, log, attacks, named files) have not changed since is read and not computed again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import isthmus
from isthmus.core import catalog
from isthmus.core.errors import RunError, UnknownName, UsageError
from isthmus.core.files import remove_file
from isthmus.core.lock import serialise, sweep
from isthmus.core.records import read_record, write_record
from isthmus.measures.base import Asked, Measure, Measurement, Option, Step
from isthmus.runs.folder import RunFolder
from isthmus.runs.provenance import hash_named_files
from isthmus.runs.settings import short_hash, to_plain
from isthmus.verbs.subject import make_subject, stamp_of


@dataclass(frozen=True)
class MeasureRequest:
    """All options of a ``measure`` command."""

    runs: tuple[str, ...]
    measures: tuple[str, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    asked: Asked = field(default_factory=Asked)
    against: str | None = None
    """A run to compare with."""
    device: str | None = None
    command: str | None = None


@dataclass(frozen=True)
class Measured:
    """One measurement of one run."""

    folder: RunFolder
    key: str
    settings: Mapping[str, Any]
    measurement: Measurement
    was_there: bool = True
    """Whether it was read and not taken."""
    command: str | None = None

    @property
    def measure(self) -> str:
        """The method's name."""
        return self.key.split("@")[0]

    def figure_files(self, plot: str) -> tuple[Path, Path]:
        """The SVG and PNG files of a plot."""
        stem = self.key if plot == self.measure else f"{self.key}-{plot}"
        return self.folder.figures_path / f"{stem}.svg", self.folder.figures_path / f"{stem}.png"


def measure(request: MeasureRequest, step: Step | None = None) -> list[Measured]:
    """Take every measure of every run; stored measurements are read."""
    folders = [_folder(run) for run in request.runs]
    against = _folder(request.against) if request.against is not None else None
    methods = _methods(request)
    _check_request(request, methods)
    found: list[Measured] = []
    for method in methods:
        if method.compares:
            found.append(_take(method, folders, against, request, step))
        else:
            found += [_take(method, [folder], against, request, step) for folder in folders]
    return found


_OPTIONS: dict[Option, str] = {
    "n": "--n", "splits": "--split", "seed": "--seed", "every_epoch": "--epochs", "texts": "--text",
    "against": "--against",
}  # fmt: skip


def _check_request(request: MeasureRequest, methods: Sequence[Measure]) -> None:
    """Refuse options that none of the measures uses."""
    given = {**request.asked.non_defaults(), **({"against": request.against} if request.against is not None else {})}
    for option, flag in _OPTIONS.items():
        if option in given and not any(method.heeds(option) for method in methods):
            names = ", ".join(method.name for method in methods)
            raise UsageError(f"{names} does not use {flag}: remove it (isthmus show {methods[0].name})")


def _folder(run: str) -> RunFolder:
    folder = RunFolder(run)
    folder.record()
    return folder


def _methods(request: MeasureRequest) -> list[Measure]:
    """The measures, each with its parameters; a parameter that none of them has is an error."""
    if not request.measures:
        raise UsageError(f"no measure named: --measure {','.join(catalog.names('measures'))}")
    entries = [catalog.find("measures", name) for name in request.measures]
    known = {parameter.name for entry in entries for parameter in entry.parameters}
    for key in request.parameters:
        if key not in known:
            raise UnknownName(f"parameter of {', '.join(entry.name for entry in entries)}", key, known)
    return [
        catalog.build(
            "measures",
            entry.name,
            {
                key: value
                for key, value in request.parameters.items()
                if key in {each.name for each in entry.parameters}
            },
        )
        for entry in entries
    ]


def _take(
    method: Measure,
    folders: Sequence[RunFolder],
    against: RunFolder | None,
    request: MeasureRequest,
    step: Step | None,
) -> Measured:
    """Take one measure of one run, or of several runs that it compares."""
    first, *rest = folders
    others = [*rest, *([against] if against is not None and method.heeds("against") else ())]
    asked = Asked(**{name: value for name, value in request.asked.non_defaults().items() if name in method.takes})
    settings = _settings(method, asked, [_path_from(first, other) for other in others])
    stamp: dict[str, Any] = hash_named_files(method)
    stamp |= {_path_from(first, folder): stamp_of(folder, method.reads) for folder in (first, *others)}
    known = _read_entries(first)
    key = _key(method.name, short_hash(settings), known)
    if key in known and known[key].get("stamp") == to_plain(stamp):
        sweep(first.path)
        return _read_measured(first, key, known[key])
    with first.hold("measure"):
        subject = make_subject(first, asked, request.device, step)
        subject.others = tuple(make_subject(other, asked, request.device, step) for other in others)
        entry = _make_entry(settings, stamp, request, method.measure(subject))
        # One at a time, and read again: another command may have measured something else in the meantime.
        with serialise(first.measures_path, "measure"):
            known = _read_entries(first)
            key = _key(method.name, short_hash(settings), known)
            measured = _read_measured(first, key, entry)
            for plot in measured.measurement.plots:
                for file in measured.figure_files(plot.name):
                    remove_file(file)  # It may show an older measurement; if we are killed now, nobody draws it again.
            write_record(first.measures_path, {**known, key: entry})
    return dataclasses.replace(measured, was_there=False)


def _make_entry(
    settings: Mapping[str, Any], stamp: Mapping[str, Any], request: MeasureRequest, measurement: Measurement
) -> dict[str, Any]:
    return {
        "settings": to_plain(settings),
        "hash": short_hash(settings),
        "stamp": to_plain(stamp),
        "isthmus": isthmus.__version__,
        "command": request.command,
        "measurement": measurement.to_json(),
    }


def _path_from(first: RunFolder, folder: RunFolder) -> str:
    """The path of a run relative to another: the same whatever names the user gave."""
    return Path(os.path.relpath(folder.path.resolve(), first.path.resolve())).as_posix()


def _settings(method: Measure, asked: Asked, others: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"measure": method.name, "parameters": to_plain(method), "asked": asked.non_defaults()}
    if others:
        settings["with"] = list(others)
    return settings


def _key(name: str, code: str, known: Mapping[str, Mapping[str, Any]]) -> str:
    return name if name not in known or known[name].get("hash") == code else f"{name}@{code}"


def _read_entries(folder: RunFolder) -> dict[str, dict[str, Any]]:
    if not folder.measures_path.is_file():
        return {}
    value = read_record(folder.measures_path)
    if not value or not all(isinstance(entry, dict) for entry in value.values()):
        raise RunError(f"{folder.measures_path} should hold an object of measurements: move it away to measure again")
    return value


def _read_measured(folder: RunFolder, key: str, entry: Mapping[str, Any]) -> Measured:
    try:
        measurement = Measurement.from_json(entry["measurement"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{folder.measures_path}: {key} is not a measurement ({error}): move the file away") from error
    return Measured(folder, key, entry.get("settings") or {}, measurement, command=entry.get("command"))


def measurements(folder: RunFolder) -> list[Measured]:
    """The measurements of a run, by name."""
    return [_read_measured(folder, key, entry) for key, entry in sorted(_read_entries(folder).items())]
