"""Accuracy, cross-entropy and calibration on development data, and the selection of the best weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.calibration import BINS
from isthmus.core.files import remove_file
from isthmus.core.types import Autocast, Bools, Doubles, Output
from isthmus.defences.base import Batch

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class DevMetrics:
    """Figures of a model on the development data."""

    accuracy: float
    loss: float
    ece: float = math.nan
    """Expected calibration error; its interval is computed of the weights that are kept."""

    @property
    def score(self) -> float:
        """The score that selects the best weights."""
        return self.accuracy

    def row(self) -> dict[str, float]:
        """A row of the log, the selecting score first."""
        return {"dev_accuracy": self.accuracy, "dev_loss": self.loss, "dev_ece": self.ece}


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    autocast: Autocast,
    total: Callable[[Tensor], Tensor] | None = None,
    watch: Callable[[Output, Batch], None] | None = None,
) -> DevMetrics:
    """Accuracy, cross-entropy and calibration error over `batches`.

    `total` sums counts over processes, `watch` sees every pass.
    """
    import torch
    from torch.nn import functional

    was_training = model.training
    model.eval()
    counts = torch.zeros(3 + BINS, dtype=torch.float64)
    with torch.no_grad():
        for batch in batches:
            with autocast():
                output: Output = model(**batch.inputs)
            if watch is not None:
                watch(output, batch)
            logits = output.logits.float()
            confidence, answer = functional.softmax(logits, dim=-1).max(dim=-1)
            right = answer == batch.labels
            loss = functional.cross_entropy(logits, batch.labels, reduction="sum")
            sums = torch.stack([right.sum().double(), loss.double(), loss.new_tensor(len(batch)).double()])
            # As in core.calibration: what a bin's answers lack to its confidences, summed.
            place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
            gaps = sums.new_zeros(BINS).index_add_(0, place, right.double() - confidence.double())
            counts += torch.cat([sums, gaps]).cpu()
    model.train(was_training)
    right_sum, loss_sum, n, *gap_sums = (counts if total is None else total(counts)).tolist()
    return DevMetrics(right_sum / n, loss_sum / n, sum(map(abs, gap_sums)) / n)


def read_confidence(model: nn.Module, batches: Iterable[Batch], *, autocast: Autocast) -> tuple[Doubles, Bools]:
    """The model's confidence for every example of `batches`, and whether it is right."""
    import torch

    was_training = model.training
    model.eval()
    sure, right = [], []
    with torch.no_grad():
        for batch in batches:
            with autocast():
                output: Output = model(**batch.inputs)
            confidence, answer = output.logits.float().softmax(dim=-1).max(dim=-1)
            sure.append(confidence)
            right.append(answer == batch.labels)
    model.train(was_training)
    return torch.cat(sure).double().cpu().numpy(), torch.cat(right).cpu().numpy()


class Selection:
    """Keeps the weights with the best development score (among equals the first), and counts evaluations since.

    The score is accuracy, or F1 of questions.

    With a folder the weights are a file there named after their step, which a checkpoint can refer to; else a copy in
    memory.
    """

    def __init__(self, patience: int | None, folder: Path | None, *, writes: bool = True) -> None:
        self.patience, self.folder, self.writes = patience, folder, writes
        self.best_step: int | None = None
        self.best_score = -1.0
        self.stale = 0
        self._copy: dict[str, Any] = {}

    def judge(self, step: int, score: float, model: nn.Module) -> bool:
        """Record an evaluation; True if patience is used up."""
        if score > self.best_score:
            self.best_step, self.best_score, self.stale = step, score, 0
            self._keep(step, model)
        else:
            self.stale += 1
        return self.patience is not None and self.stale >= self.patience

    def forget(self) -> None:
        """Forget the best; select from here on."""
        self.best_step, self.best_score, self.stale = None, -1.0, 0

    def _keep(self, step: int, model: nn.Module) -> None:
        if self.folder is None:
            self._copy = {name: _copy(value) for name, value in model.state_dict().items()}
        elif self.writes:
            from isthmus.training.checkpoints import save_weights

            save_weights(model, self._file(step))

    def restore(self, model: nn.Module) -> None:
        """Load the best weights into `model`."""
        if self.best_step is None:
            return
        if self.folder is None:
            model.load_state_dict(self._copy)
        else:
            from isthmus.training.checkpoints import load_weights

            load_weights(model, self._file(self.best_step))

    @property
    def file(self) -> Path | None:
        """The file of the best weights."""
        return None if self.folder is None or self.best_step is None else self._file(self.best_step)

    def tidy(self, referred: Iterable[int]) -> None:
        """Delete weights that no checkpoint refers to; called when a checkpoint is complete."""
        if self.folder is not None and self.writes and self.best_step is not None:
            kept = {self._file(step) for step in (*referred, self.best_step)}
            for path in self.folder.glob("best-*.safetensors"):
                if path not in kept:
                    remove_file(path)

    def _file(self, step: int) -> Path:
        assert self.folder is not None
        return self.folder / f"best-{step}.safetensors"

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint stores."""
        return {"best_step": self.best_step, "best_score": self.best_score, "stale": self.stale}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        self.best_step, self.best_score, self.stale = state["best_step"], state["best_score"], state["stale"]


def _copy(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value
