"""The Hugging Face Trainer, with a training step that computes a defence's losses.

One trainer runs one stage: consecutive epochs over the same examples. The optimiser is carried from stage to stage and
the schedule spans them all. What the Trainer would do by itself is taken from it where a run must be repeatable to
the last bit: the order of the examples comes from (seed, epoch), evaluation draws no random numbers, a checkpoint ends
a row of the log, and gradients are averaged over processes once per optimiser step, after the walk.

This module is imported only to train: the Trainer takes seconds to load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from isthmus.core.errors import RunError, UsageError
from isthmus.core.files import remove_tree
from isthmus.core.seeds import derive
from isthmus.core.types import Autocast
from isthmus.defences.base import Batch, Defence
from isthmus.models import Classifier
from isthmus.training import processes
from isthmus.training.arguments import make_arguments
from isthmus.training.checkpoints import CheckpointFolder, Position, load_weights, save_weights
from isthmus.training.encoded import EncodedExamples
from isthmus.training.epoch_information import EpochInformation, Tally
from isthmus.training.evaluation import DevMetrics, Selection, evaluate
from isthmus.training.flow import Flow
from isthmus.training.log import TrainLog
from isthmus.training.order import Ordered
from isthmus.training.questions import AnswerMetrics, EncodedWindows, evaluate_windows
from isthmus.training.settings import Progress, TrainingSettings
from isthmus.training.shares import GradientShares
from isthmus.training.walk import Ledger, not_finite, walk

_WEIGHTS = "model.safetensors"
MARKER = "trainer_state.json"
"""The file the Trainer writes last into a checkpoint."""


@dataclass
class TrainingRun:
    """Shared by the stages of one training."""

    model: Classifier
    defence: Defence
    settings: TrainingSettings
    seed: int
    dev: EncodedExamples
    autocast: Autocast
    log: TrainLog
    selection: Selection
    folder: Path
    """Where checkpoints go, or would go."""
    information: EpochInformation
    snapshot: Callable[[int], None] | None = None
    """Keeps the weights after an epoch; called with the number of epochs done."""
    checkpoints: CheckpointFolder | None = None
    progress: Progress | None = None
    latest: dict[str, float] = field(default_factory=dict)
    shares: GradientShares = field(default_factory=GradientShares)
    judged_from: int = 0
    """Epoch before which early stopping does not end it."""
    finished: bool = False
    """Whether early stopping has ended it."""


@dataclass(frozen=True)
class Stage:
    """Consecutive epochs over the same examples."""

    first_epoch: int
    epochs: int
    steps_before: int
    stretch: tuple[int, int]
    """First epoch, and the one behind the last, that the schedule spans."""


class WalkingTrainer(Trainer):
    """Trains one stage of a run."""

    def __init__(
        self,
        run: TrainingRun,
        stage: Stage,
        examples: EncodedExamples,
        optimizer: torch.optim.Optimizer,
        device: str | None,
    ) -> None:
        self.run, self.stage = run, stage
        self.epoch = stage.first_epoch
        folder = run.folder / f"epoch-{stage.first_epoch}"
        seed = derive(run.seed, "stage", stage.first_epoch) % 2**32
        super().__init__(
            model=run.model,
            args=make_arguments(run.settings, folder, device, epochs=stage.epochs, seed=seed),
            train_dataset=examples,
            data_collator=examples.collate,
            optimizers=(optimizer, None),
            callbacks=[Flow(self)],
        )
        self.remove_callback(PrinterCallback)
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise UsageError("training with DeepSpeed or FSDP is not supported: each process must hold the whole model")
        self._ledger = Ledger(processes.mean_over(self.accelerator))
        self._pass = 0
        self._examples_in_step = 0

    @property
    def step(self) -> int:
        """Number of optimiser steps in all stages so far."""
        return self.stage.steps_before + int(self.state.global_step)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one epoch of this stage."""
        return int(self.state.max_steps) // self.stage.epochs

    @property
    def epochs_done(self) -> float:
        """Number of epochs in all stages so far, with the fraction of the current one."""
        return self.stage.first_epoch + int(self.state.global_step) / self.steps_per_epoch

    # What decides the result: order, schedule, step.

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        sampler = super()._get_train_sampler(train_dataset)
        return None if sampler is None else Ordered(sampler, lambda: derive(self.run.seed, "order", self.epoch))

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> torch.optim.lr_scheduler.LRScheduler:
        """Make the run's schedule, from the first epoch of this stage on; a step uses the rate at its middle."""
        begins, ends = self.stage.stretch
        settings, first = replace(self.run.settings, epochs=ends - begins), self.stage.first_epoch - begins
        per_epoch = num_training_steps // self.stage.epochs
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer,  # type: ignore[arg-type]
            lambda step: settings.rate(first + (step + 0.5) / per_epoch) / settings.learning_rate,
        )
        return self.lr_scheduler

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[list[Any], None]:
        """The passes of one step; each is weighted by its share of the step's examples."""
        samples = [sample for _, sample in zip(range(num_batches), epoch_iterator, strict=False)]
        self._pass, self._examples_in_step = 0, sum(len(sample["labels"]) for sample in samples)
        return samples, None

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Compute the losses of one pass; the last pass of a step averages the gradients over the processes."""
        run, step = self.run, self.step + 1
        if not run.model.training:
            run.model.train()
        inputs = self._prepare_inputs(inputs)
        examples = inputs["examples"]
        batch = Batch(
            inputs["inputs"],
            inputs["labels"],
            tuple(example.id for example in examples),
            examples,
            derive(run.seed, "batch", step, self._pass, self.args.process_index),
            opens_step=self._pass == 0,
            epoch=self.epoch,
        )
        weight = len(batch) / self._examples_in_step
        shares = run.shares if run.shares.is_wanted(step) and self.is_world_process_zero() else None
        with self.accelerator.no_sync(model):
            terms = walk(
                run.defence, run.model, batch,
                backward=self._backward, autocast=run.autocast, weight=weight, shares=shares,
            )  # fmt: skip
        self._pass += 1
        self._ledger.add(step, terms, weight)
        if shares is not None and self.accelerator.sync_gradients and (found := shares.take(step)):
            self._write({"gradient_shares": found}, ahead=1)
        if self._looks_often:
            self._ledger.settle()
        if self.accelerator.sync_gradients and self.accelerator.num_processes > 1:
            processes.average_gradients(run.model, self.accelerator)
        return torch.stack(list(terms.values())).sum() * weight

    def _backward(self, loss: Tensor, retain_graph: bool) -> None:
        self.accelerator.backward(loss, retain_graph=retain_graph)

    @property
    def _looks_often(self) -> bool:
        """Whether reading a number is free: on one CPU it is; elsewhere it waits for the device or other processes."""
        return bool(self.args.device.type == "cpu" and self.args.world_size == 1)

    # What is recorded.

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Write a row of the log, but not the Trainer's closing summary, which has clock times."""
        if "grad_norm" in logs:
            norm = float(logs["grad_norm"])
            row = self._ledger.take()
            if not math.isfinite(norm):
                raise not_finite("the gradient norm", norm, self.step)
            self._write({**row, "learning_rate": logs["learning_rate"], "gradient_norm": norm})
            self.run.latest.update(loss=row["loss"])
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def _write(self, row: dict[str, Any], ahead: int = 0) -> None:
        """Write a row of the last step, or of the one that is `ahead`."""
        if self.is_world_process_zero():
            epoch = self.epochs_done + ahead / self.steps_per_epoch
            self.run.log.write({"step": self.step + ahead, "epoch": round(epoch, 6), **row})

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Evaluate on the development data, keep the best weights, and stop if patience is used up."""
        run = self.run
        ends = int(self.state.global_step) % self.steps_per_epoch == 0
        run.information.total = processes.sum_over(self.accelerator)
        with run.information.watching(ends) as watch:
            metrics = self._measure(watch)
        row = metrics.row()
        self._write({**row, **run.information.row(watch)})
        if ends and run.snapshot is not None and self.is_world_process_zero():
            run.snapshot(round(self.epochs_done))
        run.latest.update({name: value for name, value in row.items() if name != "dev_loss"})
        spent = run.selection.judge(self.step, metrics.score, run.model)
        run.finished = spent and self.stage.first_epoch >= run.judged_from
        named = {name.replace("dev_", "eval_", 1): value for name, value in row.items()}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, named)
        if run.finished:
            self.control.should_training_stop = True
        return named

    def _measure(self, watch: Tally | None) -> DevMetrics | AnswerMetrics:
        run, size = self.run, self.run.settings.evaluation_batch_size
        part, parts = self.args.process_index, self.args.world_size
        total = processes.sum_over(self.accelerator)
        if isinstance(run.dev, EncodedWindows):
            return evaluate_windows(
                run.model, run.dev, size, autocast=run.autocast, part=part, parts=parts, total=total
            )
        batches = run.dev.batches(size, self.args.device, part=part, parts=parts)
        return evaluate(run.model, batches, autocast=run.autocast, total=total, watch=watch)

    # Checkpoints: weights as safetensors, and where the run stands.

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.is_world_process_zero():
            remove_tree(folder)  # Whatever lies there, nothing is written through it.
        processes.wait()
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError) as error:
            raise RunError(
                f"cannot write a checkpoint to {self.args.output_dir}: {error}. Is the disk full?"
            ) from error
        processes.wait()  # Each process writes its own random state.
        if self.is_world_process_zero() and self.run.checkpoints is not None:
            self.run.checkpoints.seal(folder, self.run.selection.file)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        save_weights(self.run.model, folder / _WEIGHTS)
        Position(
            stage=self.stage.first_epoch,
            steps_before=self.stage.steps_before,
            step=self.step,
            log_length=self.run.log.length,
            selection=self.run.selection.state(),
            finished=self.run.finished,
        ).write(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(self.run.model, Path(resume_from_checkpoint) / _WEIGHTS)
