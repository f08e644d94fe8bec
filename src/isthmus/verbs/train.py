"""`train`: trains a model in a run folder, and continues interrupted work."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core import progress as work
from isthmus.core.errors import DataError, ModelError, UsageError
from isthmus.core.files import remove_file
from isthmus.runs.folder import MethodRecord, ModelRecord, RunFolder, RunRecord, default_path
from isthmus.runs.provenance import fingerprint, machine
from isthmus.runs.settings import to_plain
from isthmus.verbs.sources import DataRequest

if TYPE_CHECKING:
    from isthmus.data import Dataset, Rejected, Splits
    from isthmus.defences.base import Defence
    from isthmus.models import Classifier, ImageClassifier
    from isthmus.training.settings import Progress, TrainingSettings


@dataclass(frozen=True)
class TrainRequest:
    """All options of a ``train`` command."""

    data: DataRequest
    backbone: str = "minilm"
    defence: str = "standard"
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: TrainingSettings | None = None
    limit: int | None = None
    """Train on the first N examples of a stratified order; None trains on all."""
    seed: int = 0
    out: Path | None = None
    device: str | None = None
    command: str | None = None


@dataclass(frozen=True)
class TrainReport:
    """Result of the command."""

    folder: RunFolder
    record: RunRecord
    was_finished: bool
    """Whether the folder held the finished model already."""
    rejected: tuple[Rejected, ...] = ()
    """Rows of the data that could not be used."""
    made_splits: tuple[str, ...] = ()
    """Splits that the data did not have and that were cut for this training."""


def train(request: TrainRequest, progress: Progress | None = None, *, defence: Defence | None = None) -> TrainReport:
    """Train in a run folder; a finished run with the same settings is left as it is.

    A `defence` at hand takes the place of the one that the request names.
    """
    from isthmus.defences import build_defence
    from isthmus.defences.parts.composition import name_for_record, name_of_spec
    from isthmus.training import processes
    from isthmus.training.settings import settings_for

    settings = request.settings or settings_for(request.data.task, request.backbone)
    name = (
        name_of_spec(request.defence) if defence is None or request.defence != "standard" else name_for_record(defence)
    )
    defence = build_defence(request.defence, request.parameters) if defence is None else defence
    loaded = request.data.load()
    splits = _limit_training(loaded.for_training(request.seed), request.limit, request.seed)
    defence = defence.adapt_to(splits.task)
    folder = RunFolder(request.out or default_path(request.backbone, splits.name, name))
    rejected = tuple(row for data in loaded.values() for row in data.rejected)
    made = tuple(part for part in splits if part not in loaded)
    # Of several processes that train together one holds the folder for all.
    alone = not _is_finished(folder)  # Who measures a finished run need not be waited for.
    with folder.hold("train", exclusive=alone) if processes.is_main() else contextlib.nullcontext():
        fresh = not folder.exists
        record = folder.claim(_record(request, splits, MethodRecord(name, to_plain(defence.parameters)), settings))
        if record.results is not None and folder.model_path.is_dir():
            if processes.is_main():
                record = _complete(request, splits, settings, folder, record)
            return TrainReport(folder, record, True, rejected, made)
        try:
            record = _train(request, splits, defence, settings, folder, record, progress, len(rejected))
        except (DataError, ModelError, UsageError):
            if fresh and not folder.train_log():
                _give_up(folder)
            raise
    return TrainReport(folder, record, False, rejected, made)


def _train(
    request: TrainRequest,
    splits: Splits,
    defence: Defence,
    settings: TrainingSettings,
    folder: RunFolder,
    record: RunRecord,
    progress: Progress | None,
    rejected: int,
) -> RunRecord:
    from isthmus.training import train as fit

    began = time.perf_counter()

    def finish(model: Classifier) -> None:
        """Write all that is known of the finished model in one piece, so that nothing can be lost."""
        log = folder.train_log()
        results: dict[str, Any] = {
            "examples": len(splits.train),
            "steps": max((int(row["step"]) for row in log if "step" in row), default=0),
            **_best(log, "dev_f1" if model.answers_questions else "dev_accuracy"),
            "dev_examples": len(splits.dev),
            "dev_single_pass": model.deployment is not None and not model.deployment.in_one_pass,
            "rejected": rejected,
            "wall_s": round(time.perf_counter() - began, 2),
        }
        if not model.answers_questions:
            with work.announce(f"calibration on {len(splits.dev):,} development examples"):
                results["dev_calibration"] = _calibration(model, splits.dev, settings)
        folder.write(
            dataclasses.replace(
                record,
                model=dataclasses.replace(record.model, labels=tuple(model.labels)),
                results=results,
                machine=machine(str(model.device)),
            )
        )

    fit(
        splits,
        request.backbone,
        defence,
        settings=settings,
        folder=folder.path,
        seed=request.seed,
        progress=progress,
        device=request.device,
        finish=finish,
    )
    return folder.record()


def _is_finished(folder: RunFolder) -> bool:
    """Whether a training has left nothing undone."""
    results = (folder.record().results or {}) if folder.exists else {}
    whole = any(name in results for name in ("dev_calibration", "dev_f1"))
    return whole and folder.model_path.is_dir() and not (folder.path / "checkpoints").exists()


def _complete(
    request: TrainRequest, splits: Splits, settings: TrainingSettings, folder: RunFolder, record: RunRecord
) -> RunRecord:
    """Complete what a kill after the training left undone: delete checkpoints, compute missing figures."""
    import torch

    from isthmus.models import load_model
    from isthmus.training.checkpoints import CheckpointFolder

    CheckpointFolder(folder.path / "checkpoints").delete()
    results = record.results or {}
    if "dev_calibration" in results or "dev_f1" in results:
        return record
    model = load_model(folder.model_path, device=request.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found = _calibration(model, splits.dev, settings)
    record = dataclasses.replace(record, results={**results, "dev_calibration": found})
    folder.write(record)
    return record


def _calibration(model: Classifier | ImageClassifier, dev: Dataset, settings: TrainingSettings) -> dict[str, Any]:
    """Calibration of the finished model on the development data."""
    from isthmus.models import ImageClassifier
    from isthmus.summaries.evaluation import CalibrationSummary
    from isthmus.training.encoded import EncodedExamples
    from isthmus.training.evaluation import read_confidence
    from isthmus.training.images import resident_images
    from isthmus.training.numerics import autocast_on

    data, size = dev.align_labels(model.labels), settings.evaluation_batch_size
    if isinstance(model, ImageClassifier):
        batches = resident_images(data, model).batches(size)
    else:
        batches = EncodedExamples(model, data.examples, data.fields).batches(size, model.device)
    found = read_confidence(model, batches, autocast=autocast_on(model.device, settings.precision))
    return CalibrationSummary.of(*found).to_json()


def _give_up(folder: RunFolder) -> None:
    """Delete the files of an invalid command, so that the corrected one may use the same folder."""
    from isthmus.training.checkpoints import CheckpointFolder

    CheckpointFolder(folder.path / "checkpoints").delete()
    for path in (folder.train_log_path, folder.record_path):
        remove_file(path)


def _best(log: Sequence[Mapping[str, Any]], chooses: str) -> dict[str, float | None]:
    """The development figures of the selected weights: those of the first best row."""
    from isthmus.training.log import select_judged

    rows = [row for row in select_judged(log) if chooses in row]
    if not rows:
        return {chooses: None}
    best = max(rows, key=lambda row: float(row[chooses]))
    return {name: float(best[name]) for name in (chooses, "dev_exact_match", "dev_ece") if name in best}


def _limit_training(splits: Splits, limit: int | None, seed: int) -> Splits:
    from isthmus.data import Splits

    if limit is None or limit >= len(splits.train):
        return splits  # A sample of everything would only be another order of it.
    return Splits(splits.name, {**splits, "train": splits.train.sample(limit, seed)})


def _record(request: TrainRequest, splits: Splits, defence: MethodRecord, settings: TrainingSettings) -> RunRecord:
    return RunRecord(
        model=ModelRecord(request.backbone, (), _backbone_fingerprint(request.backbone)),
        data=request.data.record(dict(splits)),
        defence=defence,
        training=to_plain(settings),
        seed=request.seed,
        command=request.command,
    )


def _backbone_fingerprint(backbone: str) -> str | None:
    """Fingerprint of a backbone that is a local folder, so that changed weights are another run."""
    path = Path(backbone).expanduser()
    return fingerprint(path) if (path / "config.json").is_file() else None
