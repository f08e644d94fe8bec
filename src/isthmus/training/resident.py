"""A training loop over tensors on the device: cached embeddings, images.

    for each epoch: a seeded permutation; for each mini-batch: walk, clip, step

It walks the same generators as the Trainer and writes the same log, without data loaders, callbacks or hooks: the
Trainer's own work, about a millisecond a step, is more than such a model takes. Randomness, early stopping and
resuming follow the same rules; a checkpoint is safetensors and JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.core.errors import DataError
from isthmus.core.lock import hold
from isthmus.core.seeds import derive
from isthmus.core.types import Ints
from isthmus.defences.base import Batch, Defence
from isthmus.training.averages import AveragedWeights
from isthmus.training.captured import RecordedSteps, is_recordable, own_stream
from isthmus.training.checkpoints import (
    Checkpoint,
    CheckpointFolder,
    Position,
    load_tensors,
    load_weights,
    save_tensors,
    save_weights,
)
from isthmus.training.epoch_information import of_resident
from isthmus.training.evaluation import DevMetrics, Selection, evaluate
from isthmus.training.log import TrainLog
from isthmus.training.numerics import (
    OWN,
    autocast_on,
    avoid_planned_attention,
    digest,
    make_optimizer,
    preserve_randomness,
    seed_everything,
)
from isthmus.training.settings import Progress, TrainingSettings, is_due
from isthmus.training.shares import GradientShares
from isthmus.training.walk import Ledger, backward, not_finite, walk

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True, eq=False)
class Resident:
    """A model's inputs by name, and labels, all on one device; row i of each belongs to example i."""

    inputs: Mapping[str, Tensor]
    labels: Tensor  # [examples]

    def __post_init__(self) -> None:
        for name, tensor in self.inputs.items():
            if len(tensor) != len(self.labels):
                raise DataError(f"{name} has {len(tensor)} rows and there are {len(self.labels)} labels")
            if tensor.device != self.labels.device:
                raise DataError(f"{name} is on {tensor.device} and the labels are on {self.labels.device}")

    def __len__(self) -> int:
        return len(self.labels)

    def label_indices(self) -> Ints:
        """The class index of every example."""
        return self.labels.cpu().numpy().astype(np.int64)

    def batch(self, rows: Tensor | slice, seed: int = 0) -> Batch:
        """The mini-batch of `rows`."""
        return Batch({name: tensor[rows] for name, tensor in self.inputs.items()}, self.labels[rows], seed=seed)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))


def train_resident(
    data: Resident,
    model: nn.Module,
    defence: Defence | None = None,
    *,
    dev: Resident,
    settings: TrainingSettings | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    whole: bool = True,
    snapshot: Callable[[int], None] | None = None,
    averaged: Callable[[int | None], None] | None = None,
) -> nn.Module:
    """Train `model`, from the inputs to an `Output`, in place; it ends with its best weights on `dev`.

    The tensors say on which device. With a folder the run can be killed and continued, and leaves ``train.jsonl`` and
    ``model/model.safetensors``. `Defence.examples` is not asked: it speaks of texts. A model that is not `whole` is
    part of one that the caller prepares and saves. `snapshot` is called with the number of epochs after each of them;
    `averaged` as well, and with None at the end, while the model has the moving average of its weights
    (`TrainingSettings.average_weights`). A whole model leaves that in ``averaged/model.safetensors``.
    """
    if defence is None:
        from isthmus.defences.standard import Standard

        defence = Standard()
    if len(data) == 0 or len(dev) == 0:
        raise DataError(f"{len(data)} training and {len(dev)} development examples: at least one of each is needed")
    place = None if folder is None else Path(folder)
    with contextlib.nullcontext() if place is None else hold(place, "train", exclusive=True), preserve_randomness():
        chosen = settings or TrainingSettings()
        loop = _Loop(data, model, defence, dev, chosen, place, seed, progress, whole, snapshot, averaged)
        return loop.run()


@dataclass
class _Loop:
    data: Resident
    model: nn.Module
    defence: Defence
    dev: Resident
    settings: TrainingSettings
    folder: Path | None
    seed: int
    progress: Progress | None
    whole: bool = True
    snapshot: Callable[[int], None] | None = None
    averaged: Callable[[int | None], None] | None = None
    step: int = 0
    finished: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    shares: GradientShares = field(default_factory=GradientShares)
    latest: dict[str, float] = field(default_factory=dict)

    def run(self) -> nn.Module:
        """Start or continue, train, select the best weights, and clean up."""
        device = self.data.labels.device
        self.model.to(device)
        checkpoints, start = self._open()
        if self.whole:
            seed_everything(derive(self.seed, "prepare"))
            self.defence.prepare(cast("Classifier", self.model), self.data)
        self.autocast = autocast_on(device, self.settings.precision)
        noted, size = self.settings.information, self.settings.evaluation_batch_size
        self.information = of_resident(self.model, self.data, self.dev, noted, size, self.autocast, self.seed)
        self.optimizer = make_optimizer(self.model, self.settings)
        records = is_recordable(self.model, self.defence, device, self.settings.accumulation)
        self.steps = RecordedSteps(
            self.model, self.defence, self.optimizer, self.autocast, self.settings.max_grad_norm, device, records
        )
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        decay = self.settings.average_weights
        self.averages = None if decay is None else AveragedWeights(self.model, decay)
        self.checkpoints = checkpoints
        self.selection = Selection(self.settings.patience, checkpoints.path if checkpoints else None)
        path = self.folder / "train.jsonl" if self.folder else None
        self.log = TrainLog(path, start.position.log_length if start else 0)
        seed_everything(derive(self.seed, "stage", 0))
        if start is not None:
            self._load(start)
        # Its parts may be in another mode than itself, which a look at its own flag would not show.
        self.model.train()
        with (
            checkpoints.naming_the_last() if checkpoints else contextlib.nullcontext(),
            avoid_planned_attention(device),
            own_stream(device, records),
        ):
            self._train()
        self._tell_averages(None)
        self.selection.restore(self.model)
        self.model.eval()
        if self.folder is not None and checkpoints is not None and self.whole:
            save_weights(self.model, self.folder / "model" / "model.safetensors")
            checkpoints.delete()
        return self.model

    def _open(self) -> tuple[CheckpointFolder | None, Checkpoint | None]:
        if self.folder is None:
            return None, None
        checkpoints = CheckpointFolder(self.folder / "checkpoints")
        checkpoints.open(
            {
                "model": digest(self.model.state_dict()),
                "defence": repr(self.defence),
                "seed": self.seed,
                "training data": digest({**self.data.inputs, "labels": self.data.labels}),
                "development data": digest({**self.dev.inputs, "labels": self.dev.labels}),
                **dataclasses.asdict(self.settings),
            }
        )
        return checkpoints, checkpoints.newest()

    def _train(self) -> None:
        size = self.settings.batch_size * self.settings.accumulation
        self.per_epoch = math.ceil(len(self.data) / size)
        device = self.data.labels.device
        while self.step < self.per_epoch * self.settings.epochs and not self.finished:
            epoch, done = divmod(self.step, self.per_epoch)
            stream = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
            order = torch.randperm(len(self.data), generator=stream).to(device)
            for start in range(done * size, len(order), size):
                self._step(order[start : start + size])
                if self.finished:
                    break

    def _step(self, rows: Tensor) -> None:
        settings = self.settings
        rate = settings.rate((self.step + 0.5) / self.per_epoch)
        self.step += 1
        if not self.model.training:
            self.model.train()
        shares = self.shares if self.shares.is_wanted(self.step) else None
        if self.steps.records and shares is None and len(rows) == settings.batch_size:
            rates = [rate * group.get(OWN, 1.0) for group in self.optimizer.param_groups]
            taken = self.steps.take(
                len(rows), rows, self.data.batch, rates, derive(self.seed, "batch", self.step, 0, 0)
            )
            self.ledger.note(self.step, 1.0, taken.names, taken.terms)
            if self.averages is not None:
                self.averages.update()
            self._record(rate, taken.norm)
            return
        self.optimizer.zero_grad()
        for number, part in enumerate(torch.split(rows, settings.batch_size)):
            weight = len(part) / len(rows)
            terms = self.steps.make_room_for(
                "ordinary steps", functools.partial(self._walk, part, number, weight, shares)
            )
            self.ledger.add(self.step, terms, weight)
        if shares is not None and (found := shares.take(self.step)):
            self._write({"gradient_shares": found})
        norm = nn.utils.clip_grad_norm_(self.parameters, settings.max_grad_norm or math.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get(OWN, 1.0)
        self.optimizer.step()
        if self.averages is not None:
            self.averages.update()
        self._record(rate, norm)

    def _walk(self, rows: Tensor, number: int, weight: float, shares: GradientShares | None) -> dict[str, Tensor]:
        """Back-propagate the losses of a step's batch with this `number`."""
        if shares is not None and number == 0:
            shares.forget()
        batch = self.data.batch(rows, derive(self.seed, "batch", self.step, number, 0))
        batch.opens_step, batch.epoch = number == 0, (self.step - 1) // self.per_epoch
        model = cast("Classifier", self.model)
        return walk(self.defence, model, batch, backward=backward, autocast=self.autocast, weight=weight, shares=shares)

    def _record(self, rate: float, norm: Tensor) -> None:
        settings = self.settings
        ends = self.step % self.per_epoch == 0
        saves = self.checkpoints is not None and (ends or is_due(self.step, settings.checkpoint_every))
        evaluates = ends or is_due(self.step, settings.evaluate_every)
        if saves or evaluates or is_due(self.step, settings.log_every):
            row = self.ledger.take()
            if not math.isfinite(length := float(norm)):
                raise not_finite("the gradient norm", length, self.step)
            self._write({**row, "learning_rate": rate, "gradient_norm": length})
            self.latest["loss"] = row["loss"]
        if evaluates:
            metrics, information = self.steps.make_room_for("evaluations", functools.partial(self._measure, ends))
            self._write({**metrics.row(), **information})
            self.latest["dev_accuracy"] = metrics.accuracy
            self.finished = self.selection.judge(self.step, metrics.accuracy, self.model)
        if ends and self.snapshot is not None:
            self.snapshot(self.step // self.per_epoch)
        if ends:
            self._tell_averages(self.step // self.per_epoch)
        if saves:
            self._save()
        if self.progress is not None:
            self.progress.on_step(self.step, self.per_epoch * settings.epochs, dict(self.latest))

    def _measure(self, ends: bool) -> tuple[DevMetrics, dict[str, Any]]:
        """Figures on the development data, and at the end of an epoch those of information."""
        batches = self.dev.batches(self.settings.evaluation_batch_size)
        with self.information.watching(ends) as watch:
            metrics = evaluate(self.model, batches, autocast=self.autocast, watch=watch)
        return metrics, self.information.row(watch)

    def _tell_averages(self, epoch: int | None) -> None:
        """Pass the averaged weights on, after an epoch or at the end."""
        if self.averages is None:
            return
        saves = epoch is None and self.whole and self.folder is not None
        if saves or self.averaged is not None:
            with self.averages.in_place():
                if saves:
                    assert self.folder is not None
                    save_weights(self.model, self.folder / "averaged" / "model.safetensors")
                if self.averaged is not None:
                    self.averaged(epoch)

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write({"step": self.step, "epoch": round(self.step / self.per_epoch, 6), **row})

    def _save(self) -> None:
        assert self.checkpoints is not None
        folder = self.checkpoints.path / "epoch-0" / f"checkpoint-{self.step}"
        save_weights(self.model, folder / "model.safetensors")
        averages = {} if self.averages is None else self.averages.tensors()
        save_tensors(optimizer_tensors(self.optimizer) | random_tensors() | averages, folder / "state.safetensors")
        Position(0, 0, self.step, self.log.length, self.selection.state(), self.finished).write(folder)
        self.checkpoints.seal(folder, self.selection.file)
        self.checkpoints.prune()
        self.selection.tidy(self.checkpoints.best_steps())

    def _load(self, start: Checkpoint) -> None:
        load_weights(self.model, start.path / "model.safetensors")
        tensors = load_tensors(start.path / "state.safetensors")
        load_optimizer(self.optimizer, tensors)
        load_random(tensors)
        if self.averages is not None:
            self.averages.load(tensors)
        self.step, self.finished = start.position.step, start.position.finished
        self.selection.load_state(start.position.selection)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"optimizer.{index}.{name}": value for index, parts in state.items() for name, value in parts.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore an optimiser from `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, rest = key.partition(".")
        if kind == "optimizer":
            index, _, name = rest.partition(".")
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def random_tensors() -> dict[str, Tensor]:
    """The states of the global random streams, as tensors."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    rest = {"python": [version, list(words), gauss], "numpy": [name, position, has_gauss, cached]}
    tensors = {
        "random.torch": torch.random.get_rng_state(),
        "random.numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "random.rest": torch.frombuffer(bytearray(json.dumps(rest).encode()), dtype=torch.uint8),
    }
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.random.get_rng_state()
    return tensors


def load_random(tensors: Mapping[str, Tensor]) -> None:
    """Restore the global random streams."""
    rest: dict[str, Any] = json.loads(bytes(tensors["random.rest"].tolist()))
    version, words, gauss = rest["python"]
    random.setstate((version, tuple(words), gauss))
    name, position, has_gauss, cached = rest["numpy"]
    np.random.set_state((name, tensors["random.numpy"].numpy().astype(np.uint32), position, has_gauss, cached))
    torch.random.set_rng_state(tensors["random.torch"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.random.set_rng_state(tensors["random.cuda"])
