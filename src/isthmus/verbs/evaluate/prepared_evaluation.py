"""Prepares an evaluate command: names are checked at once, the model is loaded on first use."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import RunError, UsageError
from isthmus.core.files import make_folder
from isthmus.core.types import ImageClassification
from isthmus.runs.folder import DataRecord, ModelRecord, RunFolder, RunRecord, default_path
from isthmus.verbs.evaluate.sets import EvaluationSet, open_sets
from isthmus.verbs.evaluate.ways import Ways
from isthmus.verbs.model_loading import check_inputs, check_precision, deciding, suit_fields
from isthmus.verbs.prepared_model import PreparedModel
from isthmus.verbs.request import EvaluateRequest
from isthmus.verbs.sources import ModelSource

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.data.load import TaskName
    from isthmus.models import Classifier


class PreparedEvaluation(PreparedModel[EvaluateRequest]):
    """A prepared evaluate command."""

    verb = "evaluate"

    def check(self) -> None:
        """Check the command before anything is loaded or written."""
        request = self.request
        check_precision(request.precision)
        if request.n is not None and request.n < 1:
            raise UsageError(f"--n is the number of examples to evaluate on and must be at least 1, not {request.n}")
        if request.draws < 1:
            raise UsageError(f"--draws is the number of draws to average and must be at least 1, not {request.draws}")
        if request.latency is not None and request.latency < 0:
            raise UsageError(f"--latency is the number of texts to time and at least 0, not {request.latency}")
        if request.price_per_hour is not None and not 0 <= request.price_per_hour < math.inf:
            raise UsageError(f"--price-per-hour is a price and at least 0, not {request.price_per_hour}")
        if "latent" in request.victim:
            raise UsageError(
                "-V latent: a stochastic model is evaluated in every inference mode; --draws sets the number of draws"
            )
        self._check_task()
        _ = self.source, self.sets, self.folder

    def _check_task(self) -> None:
        asked, trained = self.request.task, _task_of(self.source)
        if asked is not None and trained is not None and asked != trained:
            what = "answers questions" if trained == "qa" else "classifies texts"
            raise UsageError(f"{self.source.shown} {what}: remove --task {asked}")
        if self.task == "qa" and self.request.precision != "fp32":
            raise UsageError("questions are answered in fp32: remove --precision")

    @cached_property
    def sets(self) -> tuple[EvaluationSet, ...]:
        """The sets, with their data."""
        sets = open_sets(self.request.sets, self.source, self.task)
        for part in sets:
            if self._was_trained_on(part):
                self.observer.note(
                    f"{part.source} is the training data of this model: without --on it is evaluated on the part that "
                    "was held out"
                )
        return sets

    def _was_trained_on(self, part: EvaluationSet) -> bool:
        if part.kind == "own" or self.source.run is None or part.data.split not in ("train", "all"):
            return False
        record = self.source.run.record()
        return record.training is not None and Path(record.data.source).resolve() == Path(part.source).resolve()

    @cached_property
    def task(self) -> TaskName:
        """The task of the model."""
        return self.request.task or _task_of(self.source) or "classification"

    @cached_property
    def folder(self) -> RunFolder:
        """The folder of the rows: the model's own run, or a folder that holds no other model."""
        run, first, known = self.source.run, self.sets[0], self.fingerprint
        out = self.request.out or (run.path if run is not None else default_path(self.source.name, first.data.name))
        folder = RunFolder(out)
        self.hold(folder)
        if run is None or folder.path.resolve() != run.path.resolve():
            self._claim(folder, first, known)
        make_folder(folder.evaluations_path)
        return folder

    def _claim(self, folder: RunFolder, first: EvaluationSet, known: str | None) -> None:
        model = ModelRecord(self.source.shown, self.request.labels or (), known)
        if folder.exists:
            there = folder.record().model
            if (there.spec, there.fingerprint) != (model.spec, model.fingerprint):
                what = there.spec if there.spec != model.spec else f"{there.spec}, whose files have changed since"
                raise RunError(f"{folder.path} holds another model ({what}): choose another --out")
        if known is None and self.task != "qa":
            suit_fields(self.victim, self.source, first.data.fields)
            self.recognise(folder, self.victim, first.data)
        if not folder.exists:
            self._write_record(folder, first, model)
        self.keep_probes(folder)

    def _write_record(self, folder: RunFolder, first: EvaluationSet, model: ModelRecord) -> None:
        data = DataRecord(
            source=first.source,
            name=first.data.name,
            labels=first.data.labels,
            fields=first.data.fields,
            options={"task": "qa"} if self.task == "qa" else {},
            fingerprints={first.data.split: first.data.fingerprint},
            sizes={first.data.split: len(first.data)},
        )
        folder.write(RunRecord(model=model, data=data, command=self.request.command))

    @cached_property
    def victim(self) -> Victim:
        """The model, loaded."""
        data = self.sets[0].data
        victim = self.load_victim(data.labels, images=isinstance(data.task, ImageClassification))
        for part in self.sets:
            check_inputs(victim, self.source, part.data)
        return victim

    @cached_property
    def answerer(self) -> Classifier:
        """The model that answers questions, loaded."""
        import torch

        from isthmus.models import load_model

        self.observer.note(f"loading {self.source.shown}")
        device = self.request.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return load_model(self.source.spec, device=device).eval()

    @property
    def device_type(self) -> str | None:
        """The device of the model, as far as it is known."""
        return str(self.answerer.device.type) if self.task == "qa" else getattr(self.victim, "device_type", None)

    @cached_property
    def ways(self) -> Ways:
        """The ways in which the model can predict."""
        ways = Ways(self.victim, self.request.draws, self.request.seed)
        if "draws" in self.request.victim and "mean" in ways.names:
            raise UsageError(
                "-V draws: one draw and the average are evaluated anyway; --draws sets the number of draws"
            )
        return ways

    def settings(self, part: EvaluationSet) -> dict[str, Any]:
        """The settings that decide the rows of a set."""
        request = self.request
        return {
            "set": {"fingerprint": part.fingerprint, "rows": part.about.get("rows")},
            "model": self.identity,
            "labels": request.labels,
            "precision": request.precision,
            "victim": deciding(request.victim),
            "draws": request.draws,
            "seed": request.seed,
        }


def _task_of(source: ModelSource) -> TaskName | None:
    """The task of a run; None if the model is not a run of ours."""
    if source.run is None or source.run.record().training is None:
        return None
    return "qa" if source.run.record().data.options.get("task") == "qa" else "classification"
