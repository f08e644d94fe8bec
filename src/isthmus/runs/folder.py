"""The run folder: everything about one model on one data set, and nothing executable.

    run.json                    names, parameters, data fingerprints, seed, versions, machine
    model/                      the classifier (absent where a foreign model was attacked)
    train.jsonl                 the training log
    averaged/                   the classifier with the moving average of its weights, where that was asked for
    snapshots/<epoch>.safetensors  the trainable weights after each epoch, where that was asked for
    attacks/<name>.jsonl        one row per example; <name>.json beside it is the header
    attacks/<name>@<hex>.jsonl  the same attack with other settings
    attacks/<name>.trace.jsonl  every query, where that was asked for
    evaluations/<name>.jsonl    one row per example of a set the model was evaluated on; header and names as above
    certificates/<name>.jsonl   one row per example; header and names as above
    certificates/<name>.challenges.jsonl  what the certified classifier says of texts that attacks found
    measures.json               what was measured on the model; its figures are in figures/
    explanations.json           which words drive the prediction, of texts that attacks changed; figures in figures/
    probes.json                 answers of a model without files of its own to eight texts, to know it again
    report.html                 the page
    .lock                       who is at work in it, while somebody is

Everything after `train` and `attack` only reads it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import isthmus
from isthmus.core.errors import NewerRun, RunError
from isthmus.core.files import make_folder
from isthmus.core.lock import hold
from isthmus.core.records import read_record, write_record
from isthmus.runs.journal import is_being_written, read_rows
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.settings import differences, short_hash, to_plain

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

SCHEMA = 1
Read = TypeVar("Read")


@dataclass(frozen=True)
class DataRecord:
    """The data, and a fingerprint of each split that was used."""

    source: str
    name: str
    labels: tuple[str, ...] = ()
    fields: tuple[str, ...] = ("text",)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Columns and label names as they were given, so that the data can be loaded again."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRecord:
    """The model: the trained backbone, or the given victim."""

    spec: str
    labels: tuple[str, ...] = ()
    fingerprint: str | None = None


@dataclass(frozen=True)
class MethodRecord:
    """A defence or an attack with its parameters."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json."""

    model: ModelRecord
    data: DataRecord
    defence: MethodRecord | None = None
    training: Mapping[str, Any] | None = None
    """Training settings; None where the run holds no model of its own."""
    results: Mapping[str, Any] | None = None
    """Figures of the finished training; None while it is under way."""
    command: str | None = None
    """The command line that made the run, without secrets."""
    seed: int = 0
    created: str = field(default_factory=now)
    versions: Mapping[str, str] = field(default_factory=versions)
    machine: Mapping[str, Any] = field(default_factory=machine)
    isthmus: str = isthmus.__version__
    schema: int = SCHEMA

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the model: equal settings give equal weights.

        For a foreign model that was only attacked it names the model and the data; each attack has its own settings.
        """
        data: dict[str, Any] = {"source": self.data.source}
        if self.training is None:
            return {"model": {"spec": self.model.spec, "fingerprint": self.model.fingerprint}, "data": data}
        data |= {"fingerprints": self.data.fingerprints, "labels": self.data.labels}
        parts = {
            "model": {"spec": self.model.spec, "fingerprint": self.model.fingerprint},
            "data": data,
            "defence": self.defence,
            "training": self.training,
            "seed": self.seed,
        }
        settings = to_plain(parts)
        assert isinstance(settings, dict)
        return settings

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: Path) -> Self:
        """Read run.json, leaving out keys this version does not know."""
        try:
            record = cls(
                **{
                    **_select_known(cls, value),
                    "model": ModelRecord(**_select_known(ModelRecord, value["model"])),
                    "data": DataRecord(**_select_known(DataRecord, value["data"])),
                    "defence": MethodRecord(**_select_known(MethodRecord, value["defence"]))
                    if value.get("defence")
                    else None,
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is not a run.json written by isthmus: {error}") from error
        return record


def _select_known(kind: type[Any], value: Mapping[str, Any]) -> dict[str, Any]:
    names = {entry.name for entry in dataclasses.fields(kind)}
    return {key: tuple(part) if isinstance(part, list) else part for key, part in value.items() if key in names}


@dataclass(frozen=True)
class AttackFile:
    """The rows of one attack (or evaluation, or certificate) with one set of settings, and their header."""

    folder: Path
    key: str
    """``pwws``, or ``pwws@1a2b3c4d`` for other settings."""

    @property
    def rows_path(self) -> Path:
        """The file of rows: one JSON line per example."""
        return self.folder / f"{self.key}.jsonl"

    @property
    def header_path(self) -> Path:
        """The header: settings, effort and summary."""
        return self.folder / f"{self.key}.json"

    @property
    def challenges_path(self) -> Path:
        """One JSON line per adversarial text checked against a certificate."""
        return self.folder / f"{self.key}.challenges.jsonl"

    @property
    def images_path(self) -> Path:
        """The adversarial images of an attack on images."""
        return self.folder / f"{self.key}.npz"

    @property
    def trace_path(self) -> Path:
        """The trace: one JSON line per query."""
        return self.folder / f"{self.key}.trace.jsonl"

    @property
    def attack(self) -> str:
        """The method's name."""
        return self.key.split("@")[0]

    def header(self) -> dict[str, Any]:
        """The header's content; a newer format version is an error."""
        return _read_versioned(self.header_path)

    def rows(self) -> list[dict[str, Any]]:
        """The rows so far, as the journal holds them."""
        return read_rows(self.rows_path)

    def results(self) -> list[AttackResult]:
        """The results of an attack so far."""
        from isthmus.attacks.result import AttackResult

        return self.read(AttackResult.from_row, "an attack")

    def read(self, reader: Callable[[Mapping[str, Any]], Read], verb: str) -> list[Read]:
        """Read every row with `reader`; a row of another kind than `verb` is an error that names its line."""
        found = []
        for number, row in enumerate(self.rows(), start=1):
            try:
                found.append(reader(row))
            except RunError as error:
                raise RunError(f"{self.rows_path} line {number} is not a row of {verb}") from error
        return found


def is_attack_file(path: Path) -> bool:
    """Whether a file holds the rows of an attack."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open("rb") as stream:
        try:
            row = json.loads(stream.readline())
        except ValueError:
            return False
    return isinstance(row, dict) and {"outcome", "original", "perturbed", "label"} <= set(row)


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.record_path = self.path / "run.json"
        self.model_path = self.path / "model"
        """The folder of the trained classifier."""
        self.train_log_path = self.path / "train.jsonl"
        self.attacks_path = self.path / "attacks"
        """The folder of the attacks' rows."""
        self.embeddings_path = self.path / "embeddings"
        """The folder of the rows of attacks on embeddings: nobody can send one, so they are kept apart."""
        self.evaluations_path = self.path / "evaluations"
        """The folder of the evaluations' rows."""
        self.certificates_path = self.path / "certificates"
        """The folder of the certificates' rows."""
        self.snapshots_path = self.path / "snapshots"
        """The folder of the weights of single epochs."""
        self.probes_path = self.path / "probes.json"
        """Answers by which a model without files of its own is recognised."""
        self.measures_path = self.path / "measures.json"
        """The measurements."""
        self.explanations_path = self.path / "explanations.json"
        """The explanations."""
        self.figures_path = self.path / "figures"
        """The folder of the figures of measures and explanations."""
        self.report_path = self.path / "report.html"
        """The report as a page."""

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def exists(self) -> bool:
        """Whether this is a run folder."""
        return self.record_path.is_file()

    def record(self) -> RunRecord:
        """Read run.json."""
        if not self.path.exists():
            raise RunError(f"no run folder {self.path}: make one with `isthmus train --out {self.path}`")
        if not self.exists:
            raise RunError(f"{self.path} is not a run folder: it has no run.json")
        return RunRecord.from_json(_read_versioned(self.record_path), self.record_path)

    def write(self, record: RunRecord) -> None:
        """Write run.json; the folder is made if missing."""
        make_folder(self.path)
        write_record(self.record_path, to_plain(record))

    def hold(self, verb: str, *, exclusive: bool = False) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from training in the folder; with `exclusive`, from writing anything in it."""
        return hold(self.path, verb, exclusive=exclusive)

    def claim(self, record: RunRecord) -> RunRecord:
        """Write run.json, or continue the existing run if its settings are the same.

        The first record stays, so that a continued run names the moment and the machine it began on.
        """
        if not self.exists:
            self.write(record)
            return record
        there = self.record()
        changed = differences(there.settings, record.settings)
        if len(changed) == 1 and changed[0].startswith("model.fingerprint:"):
            raise RunError(
                f"the files of {record.model.spec} have changed since the results in {self.path} were made "
                f"(fingerprint {there.model.fingerprint}, now {record.model.fingerprint}): choose another "
                f"--out for the new model; isthmus report {self.path} shows the old results"
            )
        if changed:
            shown = "; ".join(changed[:4])
            raise RunError(f"{self.path} holds a run with other settings ({shown}): choose another --out")
        return there

    def train_log(self) -> list[dict[str, Any]]:
        """The rows of the training log; empty if nothing was trained."""
        return read_rows(self.train_log_path, "its step is then missing from the curves")

    def attack_files(self) -> tuple[AttackFile, ...]:
        """Every attack that has a header, plain names before other settings of the same attack."""
        return _list_files(self.attacks_path)

    def evaluation_files(self) -> tuple[AttackFile, ...]:
        """Every evaluation that has a header."""
        return _list_files(self.evaluations_path)

    def attack_file(self, attack: str, settings: Mapping[str, Any]) -> AttackFile:
        """The file for rows of `attack` with these settings.

        The first settings used take the plain name; others get their hash. A name without any row is free, unless
        another process is about to write it.
        """
        return _file(self.attacks_path, attack, settings)

    def embedding_files(self) -> tuple[AttackFile, ...]:
        """Every attack on embeddings that has a header."""
        return _list_files(self.embeddings_path)

    def embedding_file(self, attack: str, settings: Mapping[str, Any]) -> AttackFile:
        """The file for rows of an attack on embeddings with these settings, by the same rule."""
        return _file(self.embeddings_path, attack, settings)

    def evaluation_file(self, name: str, settings: Mapping[str, Any]) -> AttackFile:
        """The file for rows of the set `name` with these settings, by the same rule."""
        return _file(self.evaluations_path, name, settings)

    def certificate_files(self) -> tuple[AttackFile, ...]:
        """Every certificate that has a header."""
        return _list_files(self.certificates_path)

    def certificate_file(self, certificate: str, settings: Mapping[str, Any]) -> AttackFile:
        """The file for rows of `certificate` with these settings, by the same rule."""
        return _file(self.certificates_path, certificate, settings)


def _list_files(folder: Path) -> tuple[AttackFile, ...]:
    return tuple(AttackFile(folder, key) for key in sorted(path.stem for path in folder.glob("*.json")))


def _file(folder: Path, name: str, settings: Mapping[str, Any]) -> AttackFile:
    name = name.replace(":", ".")  # A class of another package, on a system that has no such file names.
    file, code = AttackFile(folder, name), short_hash(settings)
    if _owner(file) == code:
        return file
    has_rows = bool(file.rows())
    # Another process may have begun since we looked. It writes its header first, so the header is read after the rows.
    owner = _owner(file)
    if owner == code:
        return file
    # Rows without a header are of nobody knows which settings.
    if not has_rows and not (owner is not None and is_being_written(file.rows_path)):
        return file
    return AttackFile(folder, f"{name}@{code}")


def _owner(file: AttackFile) -> str | None:
    """The settings hash in a file's header, which owns the rows; None without a header."""
    return str(file.header().get("hash")) if file.header_path.exists() else None


def _read_versioned(path: Path) -> dict[str, Any]:
    value = read_record(path)
    schema = value.get("schema")
    if not isinstance(schema, int):
        raise RunError(f"{path} was damaged, or not written by isthmus: its schema should be a number, not {schema!r}")
    if schema > SCHEMA:
        writer = value.get("isthmus", "a newer version")
        raise NewerRun(
            f"{path} was written by isthmus {writer} (schema {schema}); this is isthmus {isthmus.__version__}, which "
            f"reads up to schema {SCHEMA}: upgrade isthmus to read it"
        )
    return value


def default_path(model: str, data: str, defence: str | None = None) -> Path:
    """The default folder ``runs/<model>-<data>``, with the defence between them if there is one."""
    parts = [model, defence if defence not in (None, "standard") else None, data]
    return Path("runs") / "-".join(short_name(part) for part in parts if part)


def short_name(spec: str) -> str:
    """A folder-safe name for a model or data set given by path, hub name, address or module."""
    stem = spec.split("://")[-1].split("?")[0].rstrip("/\\").replace("\\", "/")
    parts = [part for part in stem.split("/") if part not in ("", ".", "..")]
    last = parts[-1] if parts else "model"
    # .../runs/demo/model says less than .../runs/demo
    if last == "model" and len(parts) > 1:
        last = parts[-2]
    last = re.sub(r"\.(csv|tsv|jsonl|json|parquet|onnx)(\.gz)?$", "", last)
    return re.sub(r"[^A-Za-z0-9._-]+", "_", last).strip("._-") or "model"
