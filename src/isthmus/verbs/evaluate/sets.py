"""The data sets of an evaluation.

    (nothing named)        the run's own test data
    a data set             a name, a file, a folder of splits: one set per split that is asked for
    questions              the same, of a model that answers them (SQuAD, Adversarial SQuAD)
    original_* columns     adversarial texts beside the texts they were made from (AdvGLUE, `isthmus export`)
    TextAttack's CSV       likewise
    attacks/<name>.jsonl   the rows of an attack in any run folder

Of an attack the adversarial texts of its successes are taken, with their true labels: a static set made on one model
and put to another (InfoBERT, Table 3). ``rows="all"`` takes every attempted example with whatever text the attack
reached; examples the attacked model got wrong by itself were never attempted, and errors and time-outs reached nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isthmus.core.errors import RunError, UnknownName, UsageError
from isthmus.runs.folder import AttackFile, RunFolder, is_attack_file, short_name
from isthmus.verbs.request import RowsWanted, SetRequest
from isthmus.verbs.sources import DataRequest, ModelSource
from isthmus.verbs.subject import load_run_data

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Texts
    from isthmus.data import Dataset, Splits
    from isthmus.data.adversarial import Paired
    from isthmus.data.load import TaskName

SetKind = Literal["own", "data", "paired", "attack"]
ALL = "all"
_OUTCOMES: dict[RowsWanted, tuple[str, ...]] = {"successes": ("succeeded",), "all": ("succeeded", "failed")}
_RESULT_TYPES: dict[RowsWanted, tuple[str, ...]] = {"successes": ("Successful",), "all": ("Successful", "Failed")}


@dataclass(frozen=True)
class EvaluationSet:
    """Examples with true labels, and their originals if known."""

    name: str
    """Of the file its results go to."""
    kind: SetKind
    source: str
    data: Dataset
    originals: Mapping[str, Texts] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from, for those who read the results."""

    @property
    def fingerprint(self) -> str:
        """A hash that changes with any text, label or original."""
        if not self.originals:
            return self.data.fingerprint
        digest = hashlib.sha256(self.data.fingerprint.encode())
        for key, texts in self.originals.items():
            digest.update(json.dumps([key, dict(texts)]).encode())
        return digest.hexdigest()[:16]

    def clean(self) -> Dataset | None:
        """Unattacked texts with their labels, to check the label map; None if there are none."""
        if self.kind == "own":
            return self.data
        if not self.originals:
            return None
        examples = [replace(e, fields=dict(self.originals[e.id])) for e in self.data if e.id in self.originals]
        return replace(self.data, examples=tuple(examples), rejected=())

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for the header of the results."""
        return {
            "name": self.name, "kind": self.kind, "source": self.source, "data": self.data.name,
            "split": self.data.split, "fingerprint": self.fingerprint, "examples": len(self.data),
            "rejected": len(self.data.rejected), "originals": len(self.originals), **self.about,
        }  # fmt: skip


def open_sets(request: SetRequest, model: ModelSource, task: TaskName = "classification") -> tuple[EvaluationSet, ...]:
    """Read every set of the command; equal names are made distinct."""
    if request.rows not in _OUTCOMES:
        raise UnknownName("kind of rows", str(request.rows), _OUTCOMES)
    found: list[EvaluationSet] = []
    for source in request.on or (None,):
        parts = _own(request, model) if source is None else find_sets(source, request, task)
        for part in parts:
            if not len(part.data) and not part.data.rejected:
                raise UsageError(f"{part.source} has no examples to evaluate on")
            taken = {other.name for other in found}
            names = [part.name, *(f"{part.name}-{number}" for number in range(2, len(found) + 3))]
            found.append(replace(part, name=next(name for name in names if name not in taken)))
    return tuple(found)


def _own(request: SetRequest, model: ModelSource) -> list[EvaluationSet]:
    """The run's own data, with the same splits as in training."""
    if model.run is None:
        raise UsageError(f"{model.given} is not a run folder: pass the data to evaluate on with --on")
    if request.text or request.label or request.pair:
        raise UsageError("--text, --label and --pair name columns of --on, but --on is missing")
    record = model.run.record()
    splits = load_run_data(record)
    chosen = _choose_splits(splits, request.split)
    return [EvaluationSet(_name_set(data.name, data.split), "own", record.data.source, data) for data in chosen]


def find_sets(source: str, request: SetRequest, task: TaskName) -> list[EvaluationSet]:
    """The sets of one source: a data set's splits, or the texts of an attack."""
    from isthmus.data.adversarial import is_textattack
    from isthmus.data.load import names_images

    path = Path(source).expanduser()
    if (path / "run.json").is_file():
        attacks = ", ".join(file.rows_path.as_posix() for file in RunFolder(path).attack_files())
        remedy = f"name the rows of one of its attacks ({attacks})" if attacks else "it holds no attack"
        raise UsageError(f"{source} is a run folder, not a data set: {remedy}")
    if task == "qa":
        return _questions(source, request)
    if names_images(source):
        splits = DataRequest(source, request.text, request.label, request.pair).load()
        parts = _choose_splits(splits, request.split)
        return [EvaluationSet(_name_set(data.name, data.split), "data", source, data) for data in parts]
    if is_attack_file(path):
        return [_from_journal(path, request)]
    if is_textattack(source):
        return [_from_textattack(path, request)]
    return _from_data(source, request)


def _questions(source: str, request: SetRequest) -> list[EvaluationSet]:
    """Questions with their contexts and answers."""
    splits = DataRequest(source, request.text, request.label, request.pair, task="qa").load()
    return [
        EvaluationSet(_name_set(data.name, data.split), "data", source, data)
        for data in _choose_splits(splits, request.split)
    ]


def _choose_splits(splits: Splits, asked: tuple[str, ...]) -> list[Dataset]:
    if asked == (ALL,):
        return list(splits.values())
    return [splits.find_split(split) for split in asked] or [splits.evaluation()]


def _from_data(source: str, request: SetRequest) -> list[EvaluationSet]:
    from isthmus.data.adversarial import holds_successes_only, open_paired

    if request.rows == "all" and holds_successes_only(source):
        raise UsageError(
            f"{source} holds the successes of an attack only, so --rows all cannot take the others from it: name the "
            "attack's own rows (attacks/<name>.jsonl in its run folder), or export it as .csv"
        )
    opened = open_paired(source, text=request.text, label=request.label, pair=request.pair)
    found = []
    for split in _splits(opened, request.split):
        read = opened.read(split)
        kind: SetKind = "paired" if read.originals else "data"
        found.append(EvaluationSet(_name_set(opened.name, split), kind, source, read.data, read.originals))
    return found


def _splits(opened: Any, asked: tuple[str, ...]) -> list[str]:
    """The requested splits of a source."""
    there: tuple[str, ...] = opened.splits
    if asked == (ALL,):
        return [split for split in there if opened.is_labelled(split)] or list(there)
    if asked:
        for split in asked:
            if opened.canonical(split) not in there:
                raise UnknownName(f"split in {opened.name}", split, there)
        return [opened.canonical(split) for split in asked]
    for split in ("test", "dev"):
        if split in there and opened.is_labelled(split):
            return [split]
    if len(there) > 1:
        shown = ",".join(there[:8])
        raise UsageError(f"{opened.name} has neither test nor dev: choose splits of it with --split {shown} or all")
    return list(there)


def _from_journal(path: Path, request: SetRequest) -> EvaluationSet:
    """The final texts of an attack, from a run folder."""
    from isthmus.core.types import Classification, Example
    from isthmus.data import Dataset

    _refuse_columns(path, request)
    file = AttackFile(path.parent, path.stem)
    header = file.header() if file.header_path.is_file() else {}
    every = file.results()
    results = [each for each in every if each.outcome in _OUTCOMES[request.rows] and isinstance(each.label, int)]
    if not results:
        raise UsageError(_explain_nothing(path, every, request.rows))
    true = [int(each.label or 0) for each in results]
    labels = tuple(str(label) for label in header.get("labels") or ())
    # Without a header nobody knows what the classes are called: their numbers are positions in the model's own order.
    labels = labels or tuple(str(number) for number in range(1 + max(true)))
    if any(not 0 <= label < len(labels) for label in true):
        raise RunError(f"{path} has labels beyond the {len(labels)} classes its header names")
    fields = tuple(results[0].original)
    examples = [Example(each.id, dict(each.perturbed), label) for each, label in zip(results, true, strict=True)]
    run = path.parent.parent.name if path.parent.name == "attacks" else ""
    name = _name_set(run, path.stem)
    return EvaluationSet(
        name,
        "attack",
        path.as_posix(),
        Dataset(name, ALL, Classification(labels, fields), tuple(examples)),
        {each.id: dict(each.original) for each in results},
        _describe_attack(
            request.rows, len(every), header.get("attack") or path.stem.split("@")[0], header.get("model")
        ),
    )


def _from_textattack(path: Path, request: SetRequest) -> EvaluationSet:
    from isthmus.data.adversarial import read_textattack

    _refuse_columns(path, request)
    read: Paired = read_textattack(path, _RESULT_TYPES[request.rows])
    if not len(read.data) and not read.data.rejected:
        wanted = " or ".join(_RESULT_TYPES[request.rows])
        raise UsageError(f"{path} has nothing to evaluate on: no row has the result type {wanted}")
    return EvaluationSet(
        _name_set(read.data.name), "attack", path.as_posix(), read.data, read.originals, _describe_attack(request.rows)
    )


def _refuse_columns(path: Path, request: SetRequest) -> None:
    """Refuse columns and splits if no set has any."""
    if len(request.on) > 1:
        return
    if request.text or request.label or request.pair:
        raise UsageError(f"{path} holds rows of an attack, whose columns are known: remove --text, --label, --pair")
    if request.split:
        raise UsageError(f"{path} holds rows of an attack and has no splits: remove --split")


def _describe_attack(
    rows: RowsWanted, attempted: int | None = None, attack: Any = None, model: Any = None
) -> dict[str, Any]:
    known = {"rows": rows, "rows_of_attack": attempted, "attack": attack, "attacked_model": model}
    return {key: value for key, value in known.items() if value is not None}


def _explain_nothing(path: Path, results: Sequence[AttackResult], wanted: RowsWanted) -> str:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no rows"
    remedy = "; --rows all also takes failed attempts" if wanted == "successes" else ""
    return f"{path} has nothing to evaluate on ({shown}){remedy}"


def _name_set(data: str, split: str = ALL) -> str:
    return short_name("-".join(part for part in (short_name(data) if data else "", split) if part and part != ALL))
