"""A run folder as the subject of a measure: model, data, log, snapshots and attacks, read on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import DataError, RunError, UnknownName, UsageError
from isthmus.core.types import Example
from isthmus.measures.base import (
    AdversarialTexts,
    Asked,
    Facts,
    Robustness,
    SourceName,
    Step,
    Subject,
    TextPair,
    TextPairs,
)
from isthmus.runs.folder import AttackFile, RunFolder, RunRecord, is_attack_file
from isthmus.runs.provenance import fingerprint
from isthmus.summaries.attack import is_correct
from isthmus.verbs.sources import DataRequest, ModelSource

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult
    from isthmus.data import Dataset, Splits
    from isthmus.models import Classifier


def make_subject(folder: RunFolder, asked: Asked, device: str | None = None, step: Step | None = None) -> Subject:
    """Make the subject of a run; nothing large is loaded yet."""
    record = folder.record()
    defence = record.defence
    subject = Subject(
        name=folder.name,
        load_model=lambda: load_run_model(folder, device),
        load_splits=lambda: load_run_data(record),
        facts=Facts(
            defence=None if defence is None else defence.name,
            parameters={} if defence is None else defence.parameters,
            settings=record.training or {},
            seed=record.seed,
            log=folder.train_log(),
        ),
        asked=asked,
        snapshots=snapshots(folder),
    )
    subject.adversarial = lambda name: _adversarial(folder, subject, name)
    subject.pairs = lambda name: _make_pairs(folder, subject, name)
    subject.substitutions = lambda: _substitutions(folder)
    subject.robustness = lambda name: _robustness(folder, name)
    if step is not None:
        subject.step = step
    return subject


def stamp_of(folder: RunFolder, reads: tuple[SourceName, ...]) -> dict[str, Any]:
    """A stamp that changes when the source changes after a measurement."""
    every: dict[SourceName, Callable[[], Any]] = {
        "model": lambda: fingerprint(folder.model_path),
        "data": lambda: folder.record().data.fingerprints,
        "log": lambda: len(folder.train_log()),
        "snapshots": lambda: sorted(snapshots(folder)),
        "attacks": lambda: _describe_files(folder.attack_files()),
        "evaluations": lambda: _describe_files(folder.evaluation_files()),
    }
    return {source: every[source]() for source in reads}


def _describe_files(files: Iterable[AttackFile]) -> dict[str, Any]:
    return {file.key: [file.header().get("hash"), len(file.rows())] for file in files}


def load_run_model(folder: RunFolder, device: str | None = None) -> Classifier:
    """Load the trained classifier of a run, on the accelerator if there is one."""
    import torch

    from isthmus.models import load_model

    if folder.record().training is None:
        raise RunError(
            f"{folder.path} holds attacks on a model that was not trained here, so there is no model to measure: train "
            "one with `isthmus train --out …`"
        )
    return load_model(
        ModelSource.of(str(folder.path)).spec, device=device or ("cuda" if torch.cuda.is_available() else "cpu")
    )


def load_run_data(record: RunRecord) -> Splits:
    """Load the data of a run, with the splits of its training."""
    from isthmus.data import Splits

    splits = DataRequest.from_record(record.data).load()
    if record.training is None:
        return splits
    splits = splits.for_training(record.seed)
    size = record.data.sizes.get("train")
    if size is not None and "train" in splits and size < len(splits.train):
        splits = Splits(splits.name, {**splits, "train": splits.train.sample(size, record.seed)})
    for split, code in record.data.fingerprints.items():
        if split in splits and splits[split].fingerprint != code:
            raise DataError(
                f"the {split} split of {record.data.source} is not what the model was trained with: its fingerprint is "
                f"{splits[split].fingerprint} and was {code}. Put the old data back, or train again"
            )
    return splits


def snapshots(folder: RunFolder) -> Mapping[int, Callable[[Classifier], None]]:
    """The epochs with saved weights, and a function that loads them into the model."""
    from isthmus.training.snapshots import load_snapshot

    found = {int(path.stem): path for path in folder.snapshots_path.glob("*.safetensors") if path.stem.isdigit()}
    return {
        epoch: lambda model, path=path: load_snapshot(model, path)  # type: ignore[misc]
        for epoch, path in sorted(found.items())
    }


def _find_attack(folder: RunFolder, name: str | None, purpose: str) -> AttackFile:
    files = {file.key: file for file in folder.attack_files() if file.rows()}
    if not files:
        attack = name or "textfooler"
        raise UsageError(
            f"{folder.path} was not attacked yet, and {purpose}: isthmus attack {folder.path} --attack {attack}"
        )
    if name is None:
        return next(iter(files.values()))
    if name not in files:
        raise UnknownName(f"attack in {folder.path}", name, files)
    return files[name]


def _adversarial(folder: RunFolder, subject: Subject, name: str | None) -> AdversarialTexts:
    """Texts that fooled the run's model, with their originals; or those of a file."""
    file = _rows_of(folder, name)
    if not isinstance(file, AttackFile):
        return _of_file(str(file), subject)
    fooled = [result for result in file.results() if result.outcome == "succeeded"]
    if not fooled:
        raise UsageError(f"{file.key} fooled nothing in {file.folder.parent}: there are no adversarial texts")
    return AdversarialTexts(file.key, *_both_sides(subject, file, fooled))


def _make_pairs(folder: RunFolder, subject: Subject, name: str | None) -> TextPairs:
    """Texts and their attacked versions, of failed attacks too; a file of adversarial texts has only successes."""
    file = _rows_of(folder, name)
    if not isinstance(file, AttackFile):
        found = _of_file(str(file), subject)
        if found.benign is None:
            raise UsageError(
                f"{found.name} does not say which texts its adversarial texts were made from; `isthmus export` writes "
                "them as original_… columns"
            )
        sides, outcomes, skipped, key = (
            (found.adversarial, found.benign),
            ["succeeded"] * len(found.adversarial),
            0,
            found.name,
        )
    else:
        every = file.results()
        # A search that found nothing to change, or could not afford to, has no text to show.
        changed = [each for each in every if each.outcome in ("succeeded", "failed") and each.is_changed]
        if not changed:
            raise UsageError(f"{file.key} changed no text in {file.folder.parent}: there is nothing to compare")
        sides, outcomes = _both_sides(subject, file, changed), [str(each.outcome) for each in changed]
        skipped, key = sum(each.outcome == "skipped" for each in every), file.key
    pairs = zip(outcomes, *sides, strict=True)
    return TextPairs(
        key,
        tuple(
            TextPair(new.id, int(new.label), outcome, old.texts, new.texts)  # type: ignore[arg-type]
            for outcome, new, old in pairs
        ),
        skipped,
    )


def _substitutions(folder: RunFolder) -> Counter[str]:
    """Number of replacements of each word by any attack of the run."""
    return Counter(
        edit.original
        for file in folder.attack_files()
        for result in file.results()
        for edit in result.edits
        if edit.kind == "replace" and edit.original
    )


def _rows_of(folder: RunFolder, name: str | None) -> AttackFile | Path:
    """The rows of an attack, by name or path; the path itself if it holds other adversarial texts."""
    path = Path(name or "").expanduser()
    if is_attack_file(path):
        return AttackFile(path.parent, path.stem)
    if path.suffix in (".jsonl", ".csv", ".tsv", ".json", ".parquet"):
        return path
    return _find_attack(folder, name, f"adversarial texts come from an attack on it, or from a file{_such_as(folder)}")


def _both_sides(subject: Subject, file: AttackFile, results: Sequence[AttackResult]) -> tuple[Dataset, Dataset]:
    """The attacked texts, and the originals."""
    header = file.header() if file.header_path.is_file() else {}
    labels = tuple(str(label) for label in header.get("labels") or ())
    perturbed, original = [each.perturbed for each in results], [each.original for each in results]
    return _make_texts(subject, results, perturbed, "perturbed", labels), _make_texts(
        subject, results, original, "original", labels
    )


def _such_as(folder: RunFolder) -> str:
    """A hint at files of adversarial texts in folders below the run, which may hold attacks on other data."""
    below = sorted(folder.path.glob("*/attacks/*.jsonl"))
    return f" that is named instead, such as {below[0]}" if below else " that is named instead"


def _of_file(name: str, subject: Subject) -> AdversarialTexts:
    """Adversarial texts of a file, with the originals if every row has one."""
    from isthmus.data.adversarial import is_textattack, open_paired, read_textattack

    if is_textattack(name):
        paired = read_textattack(name, ("Successful",))
    else:
        source = open_paired(name)
        if len(source.splits) > 1:
            raise UsageError(f"{name} has several splits: give a single file of adversarial texts")
        paired = source.read(source.splits[0])
    data, made_from = paired.data.align_labels(subject.model.labels), paired.originals
    benign = None
    if all(example.id in made_from for example in data):
        examples = tuple(replace(example, fields=dict(made_from[example.id])) for example in data)
        benign = replace(data, examples=examples)
    return AdversarialTexts(Path(name).name, data, benign)


def _make_texts(
    subject: Subject,
    results: Sequence[AttackResult],
    texts: Sequence[Mapping[str, str]],
    side: str,
    labels: tuple[str, ...],
) -> Dataset:
    from isthmus.core.types import Classification
    from isthmus.data import Dataset

    pairs = zip(results, texts, strict=True)
    examples = tuple(Example(each.id, dict(fields), int(each.label or 0)) for each, fields in pairs)
    task = Classification(labels or subject.model.labels, tuple(texts[0]))
    return Dataset(subject.name, side, task, examples).align_labels(subject.model.labels)


def _robustness(folder: RunFolder, name: str | None) -> Robustness:
    """The result of an attack, or of an evaluation if no attack has that name."""
    attacked = {file.key for file in folder.attack_files()}
    evaluated = {file.key: file for file in folder.evaluation_files() if file.rows()}
    if name is not None and name not in attacked and evaluated:
        if name not in evaluated:
            raise UnknownName(f"attack or evaluation in {folder.path}", name, [*attacked, *evaluated])
        return _read_evaluated(evaluated[name])
    file = _find_attack(folder, name, "robust accuracy comes from an attack")
    threshold = file.header().get("threshold")
    results = file.results()
    clean = np.array([is_correct(result, threshold) for result in results], dtype=np.bool_)
    held = np.array([result.outcome == "failed" for result in results], dtype=np.bool_)
    return Robustness(file.key, clean & held, clean)


def _read_evaluated(file: AttackFile) -> Robustness:
    """The correct predictions on a fixed set, and on its originals if every row has one."""
    from isthmus.runs.evaluated import Evaluated

    results = file.read(Evaluated.from_row, "an evaluation")
    way = str((file.header().get("summary") or {}).get("headline"))
    robust = np.array([result.outcome == "right" for result in results], dtype=np.bool_)
    before = [((result.original.scores if result.original else None) or {}).get(way) for result in results]
    clean = [int(np.argmax(scores)) == result.label for scores, result in zip(before, results, strict=True) if scores]
    if len(clean) < len(results):
        return Robustness(file.key, robust)
    return Robustness(file.key, robust, np.array(clean, dtype=np.bool_))
