"""A training loop for texts on one accelerator: the Hugging Face Trainer's steps with less overhead.

    for each epoch: the Trainer's own order; for each step: gather the rows on the device, walk, clip, step

On a GPU a small encoder is done before the Trainer's hooks, data loader and wrappers are. The tokens lie on the device,
batches are padded to few lengths, steps are recorded where the defence allows it (`captured.py`), and checkpoints that
fall due soon after one another are left out. Order, schedule, randomness, log and stages are those of `WalkingTrainer`;
on a CPU and without dropout both give the same weights and the same log to the last bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import RandomSampler

from isthmus.core.progress import Watcher
from isthmus.core.seeds import derive
from isthmus.defences.base import Batch
from isthmus.training import processes
from isthmus.training.captured import RecordedSteps, is_recordable, own_stream
from isthmus.training.checkpoints import Position, load_tensors, load_weights, save_tensors, save_weights
from isthmus.training.evaluation import DevMetrics, evaluate
from isthmus.training.numerics import seed_everything
from isthmus.training.questions import AnswerMetrics, EncodedWindows, evaluate_windows
from isthmus.training.resident import load_optimizer, load_random, optimizer_tensors, random_tensors
from isthmus.training.settings import is_due
from isthmus.training.walk import Ledger, backward, not_finite, walk

if TYPE_CHECKING:
    from isthmus.training.checkpoints import Checkpoint
    from isthmus.training.encoded import EncodedExamples
    from isthmus.training.shares import GradientShares
    from isthmus.training.trainer import Stage, TrainingRun

ENABLED = True
"""Whether texts on a GPU train here and not by the Trainer."""
_STATE = "state.safetensors"
_ROOM = 4 << 30
"""Bytes of tokens that are kept on the device; more than that are sent batch by batch."""
_SHARE = 0.05
"""Part of the time that checkpoints may take."""
_USUAL = 0.5
"""Seconds that a checkpoint is taken to take before one has been written."""


def is_lean(device: torch.device, start: Checkpoint | None) -> bool:
    """Whether a training uses this loop; a continued one stays with the loop it began with."""
    if start is not None:
        return (start.path / _STATE).is_file()
    return ENABLED and device.type == "cuda" and processes.count() == 1


class LeanTrainer:
    """Trains one stage of a run on one device."""

    def __init__(
        self,
        run: TrainingRun,
        stage: Stage,
        examples: EncodedExamples,
        optimizer: torch.optim.Optimizer,
        device: str | None,
    ) -> None:
        del device  # The model is where it trains.
        self.run, self.stage, self.examples, self.optimizer = run, stage, examples, optimizer
        self.device = run.model.device
        self.done = 0
        """Optimiser steps of this stage."""
        self.saved = -1
        self.parameters = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
        self._ledger = Ledger()
        self._due = Due()
        settings = run.settings
        self._size = settings.batch_size * settings.accumulation
        self.steps_per_epoch = math.ceil(len(examples) / self._size)
        begins, ends = stage.stretch
        self._schedule = dataclasses.replace(settings, epochs=ends - begins)
        self._rates = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
        seed_everything(derive(run.seed, "stage", stage.first_epoch) % 2**32)

    @property
    def step(self) -> int:
        """Number of optimiser steps in all stages so far."""
        return self.stage.steps_before + self.done

    @property
    def epochs_done(self) -> float:
        """Number of epochs in all stages so far, with the fraction of the current one."""
        return self.stage.first_epoch + self.done / self.steps_per_epoch

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Run the remaining steps of the stage."""
        run, settings = self.run, self.run.settings
        if resume_from_checkpoint is not None:
            self._load(Path(resume_from_checkpoint))
        run.model.train()
        fits = fits_on_device(self.examples)
        records = fits and is_recordable(run.model, run.defence, self.device, settings.accumulation)
        self._steps = RecordedSteps(
            run.model, run.defence, self.optimizer, run.autocast, settings.max_grad_norm, self.device, records
        )
        with own_stream(self.device, records):
            self._tokens = (_Placed if fits else _Sent)(self.examples, self.device)
            while self.done < self.steps_per_epoch * self.stage.epochs and not run.finished:
                self._epoch()

    def _epoch(self) -> None:
        run = self.run
        number, begun = divmod(self.done, self.steps_per_epoch)
        epoch = self.stage.first_epoch + number
        order = self._order(epoch)
        placed = torch.tensor(order).to(self.device)
        for start in range(begun * self._size, len(order), self._size):
            rows = slice(start, start + self._size)
            self._step(order[rows], placed[rows], epoch)
            if run.finished:
                # Early stopping leaves a checkpoint, as the end of a stage does.
                if run.checkpoints is not None and self.saved != self.step:
                    self._save()
                break

    def _order(self, epoch: int) -> list[int]:
        """The order of the examples in the Trainer."""
        from isthmus.training.order import Ordered

        sampler: Any = RandomSampler(self.examples)
        if self.run.settings.group_by_length:
            from transformers.trainer_pt_utils import LengthGroupedSampler

            lengths = [len(row["input_ids"]) for row in self.examples.rows]
            sampler = LengthGroupedSampler(self._size, lengths=lengths)
        return list(Ordered(sampler, lambda: derive(self.run.seed, "order", epoch)))

    # A step.

    def _step(self, order: Sequence[int], rows: Tensor, epoch: int) -> None:
        run, step = self.run, self.step + 1
        settings = run.settings
        if not run.model.training:
            run.model.train()
        rates = self._rates_at()
        shares = run.shares if run.shares.is_wanted(step) else None
        if self._steps.records and shares is None and len(order) == settings.batch_size:
            length = self._tokens.length(order)
            seed = derive(run.seed, "batch", step, 0, 0)
            taken = self._steps.take(length, rows, lambda some: self._tokens.batch(some, length), rates, seed)
            self._ledger.note(step, 1.0, taken.names, taken.terms)
            norm = taken.norm
        else:
            norm = self._ordinary(order, rows, epoch, rates)
        self.done += 1
        self._record(rates[0], norm)

    def _rates_at(self) -> list[float]:
        """The step size of every group; a step uses the rate at its middle."""
        first = self.stage.first_epoch - self.stage.stretch[0]
        rate = self._schedule.rate(first + (self.done + 0.5) / self.steps_per_epoch)
        return [own * (rate / self._schedule.learning_rate) for own in self._rates]

    def _ordinary(self, order: Sequence[int], rows: Tensor, epoch: int, rates: Sequence[float]) -> Tensor:
        run, step, size = self.run, self.step + 1, self.run.settings.batch_size
        self.optimizer.zero_grad()
        shares = run.shares if run.shares.is_wanted(step) else None
        for number, start in enumerate(range(0, len(order), size)):
            part = order[start : start + size]
            place, weight = rows[start : start + size], len(part) / len(order)
            terms = self._steps.make_room_for(
                "ordinary steps", functools.partial(self._walk, part, place, epoch, number, weight, shares)
            )
            self._ledger.add(step, terms, weight)
        if shares is not None and (found := shares.take(step)):
            self._write({"gradient_shares": found}, ahead=1)
        if self.device.type == "cpu":
            self._ledger.settle()  # A look at a number is free here.
        norm = nn.utils.clip_grad_norm_(self.parameters, run.settings.max_grad_norm or math.inf)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.optimizer.step()
        return norm

    def _walk(
        self, order: Sequence[int], rows: Tensor, epoch: int, number: int, weight: float, shares: GradientShares | None
    ) -> dict[str, Tensor]:
        """Back-propagate the losses of a step's batch with this `number`."""
        run = self.run
        if shares is not None and number == 0:
            shares.forget()
        batch = self._tokens.batch(rows, self._tokens.length(order), order)
        batch.examples = tuple(self.examples.examples[index] for index in order)
        batch.ids = tuple(example.id for example in batch.examples)
        batch.seed = derive(run.seed, "batch", self.step + 1, number, 0)
        batch.opens_step, batch.epoch = number == 0, epoch
        return walk(
            run.defence, run.model, batch, backward=backward, autocast=run.autocast, weight=weight, shares=shares
        )

    # What follows a step.

    def _record(self, rate: float, norm: Tensor) -> None:
        run, settings = self.run, self.run.settings
        ends = self.done % self.steps_per_epoch == 0
        keeps = run.checkpoints is not None
        saves = keeps and (ends or is_due(self.step, settings.checkpoint_every))
        evaluates = ends or is_due(self.step, settings.evaluate_every)
        if not ends:
            self._report()
        if saves or evaluates or is_due(self.step, settings.log_every):
            self._log(rate, norm)
        if ends:
            self._report()
        if evaluates:
            self._evaluate(ends)
        if saves and (self._is_last or self._due.is_due()):
            self._save()

    @property
    def _is_last(self) -> bool:
        """Whether the stage is complete: the next one may take long, and starts from here."""
        return self.run.finished or self.done == self.steps_per_epoch * self.stage.epochs

    def _log(self, rate: float, norm: Tensor) -> None:
        row = self._ledger.take()
        if not math.isfinite(length := float(norm)):
            raise not_finite("the gradient norm", length, self.step)
        self._write({**row, "learning_rate": rate, "gradient_norm": length})
        self.run.latest.update(loss=row["loss"])

    def _evaluate(self, ends: bool) -> None:
        run = self.run
        last = self.stage.first_epoch + self.stage.epochs >= run.settings.epochs
        if last and self._is_last and isinstance(run.progress, Watcher):
            run.progress.on_note("all steps are done; evaluating on the development data")
        metrics, information = self._steps.make_room_for("evaluations", functools.partial(self._measure, ends))
        row = metrics.row()
        self._write({**row, **information})
        if ends and run.snapshot is not None:
            run.snapshot(round(self.epochs_done))
        run.latest.update({name: value for name, value in row.items() if name != "dev_loss"})
        spent = run.selection.judge(self.step, metrics.score, run.model)
        run.finished = spent and self.stage.first_epoch >= run.judged_from
        self._report()

    def _measure(self, ends: bool) -> tuple[DevMetrics | AnswerMetrics, dict[str, Any]]:
        """Figures on the development data, and at the end of an epoch those of information."""
        run, size = self.run, self.run.settings.evaluation_batch_size
        metrics: DevMetrics | AnswerMetrics
        with run.information.watching(ends) as watch:
            if isinstance(run.dev, EncodedWindows):
                metrics = evaluate_windows(run.model, run.dev, size, autocast=run.autocast)
            else:
                metrics = evaluate(run.model, run.dev.batches(size, self.device), autocast=run.autocast, watch=watch)
        return metrics, run.information.row(watch)

    def _write(self, row: dict[str, Any], ahead: int = 0) -> None:
        epoch = self.epochs_done + ahead / self.steps_per_epoch
        self.run.log.write({"step": self.step + ahead, "epoch": round(epoch, 6), **row})

    def _report(self) -> None:
        run = self.run
        if run.progress is not None:
            later = run.settings.epochs - self.stage.first_epoch
            run.progress.on_step(self.step, self.stage.steps_before + later * self.steps_per_epoch, dict(run.latest))

    # Checkpoints: safetensors and JSON.

    def _save(self) -> None:
        run = self.run
        assert run.checkpoints is not None
        with self._due.measure():
            folder = run.folder / f"epoch-{self.stage.first_epoch}" / f"checkpoint-{self.done}"
            save_weights(run.model, folder / "model.safetensors")
            save_tensors(optimizer_tensors(self.optimizer) | random_tensors(), folder / _STATE)
            Position(
                self.stage.first_epoch, self.stage.steps_before, self.step,
                run.log.length, run.selection.state(), run.finished,
            ).write(folder)  # fmt: skip
            run.checkpoints.seal(folder, run.selection.file)
            run.checkpoints.prune()
            run.selection.tidy(run.checkpoints.best_steps())
        self.saved = self.step

    def _load(self, folder: Path) -> None:
        load_weights(self.run.model, folder / "model.safetensors")
        tensors = load_tensors(folder / _STATE)
        load_optimizer(self.optimizer, tensors)
        load_random(tensors)
        self.done = int(folder.name.rpartition("-")[2])


class Due:
    """Decides whether a checkpoint is worth its time: on a fast device 100 steps may take less than writing one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.ended, self.took = clock(), _USUAL

    def is_due(self) -> bool:
        """Whether enough time has passed since the last checkpoint."""
        return (self.clock() - self.ended) * _SHARE >= self.took

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Inside, the writing of a checkpoint is timed."""
        begun = self.clock()
        yield
        self.ended = self.clock()
        self.took = self.ended - begun


class _Placed:
    """Token rows on the device, and batches of them."""

    def __init__(self, examples: EncodedExamples, device: torch.device) -> None:
        self.examples, self.left = examples, examples.padding.on_the_left
        self.lengths = [len(row["input_ids"]) for row in examples.rows]
        self.width = examples.padded_length(max(self.lengths))
        self.labels = torch.tensor(examples.labels, dtype=torch.int64).to(device)
        self.columns: dict[str, Tensor] = {}
        for name in examples.rows[0]:
            whole = np.full((len(examples), self.width), examples.padding.values.get(name, 0), dtype=np.int32)
            for target, row in zip(whole, examples.rows, strict=True):
                start = self.width - len(row[name]) if self.left else 0
                target[start : start + len(row[name])] = row[name]
            self.columns[name] = torch.from_numpy(whole).to(device)

    def length(self, order: Sequence[int]) -> int:
        """Length after padding of a batch of these examples."""
        return self.examples.padded_length(max(self.lengths[index] for index in order))

    def batch(self, rows: Tensor, length: int, order: Sequence[int] = ()) -> Batch:
        """The batch of `rows`, which are `order` on the device."""
        del order
        start = self.width - length if self.left else 0
        inputs = {
            name: column[:, start : start + length].index_select(0, rows).long()
            for name, column in self.columns.items()
        }
        return Batch(inputs, self.labels.index_select(0, rows))


class _Sent:
    """Token rows that are sent to the device batch by batch, because there are too many of them."""

    def __init__(self, examples: EncodedExamples, device: torch.device) -> None:
        self.examples, self.device = examples, device
        self.lengths = [len(row["input_ids"]) for row in examples.rows]

    def length(self, order: Sequence[int]) -> int:
        """Length after padding of a batch of these examples."""
        return self.examples.padded_length(max(self.lengths[index] for index in order))

    def batch(self, rows: Tensor, length: int, order: Sequence[int] = ()) -> Batch:
        """The batch of `order`; without it, as in a recorded step, the rows are read."""
        del length
        chosen = order or rows.tolist()
        batch = self.examples.collate([self.examples[index] for index in chosen])
        return Batch(
            {name: self._send(tensor) for name, tensor in batch["inputs"].items()}, self._send(batch["labels"])
        )

    def _send(self, tensor: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)


def fits_on_device(examples: EncodedExamples, room: int = _ROOM) -> bool:
    """Whether all token rows fit in the device's memory."""
    width = examples.padded_length(max(len(row["input_ids"]) for row in examples.rows))
    return len(examples) * width * len(examples.rows[0]) * 4 <= room
