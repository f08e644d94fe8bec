"""The Hugging Face Trainer, with a training step that walks a defence's losses.

One trainer runs one stage: consecutive epochs over the same examples. The optimiser is carried from stage to stage and
the schedule spans them all. What the Trainer would do by itself is taken from it where a run must be repeatable to
the last bit: the order of the examples comes from (seed, epoch), evaluation draws no random numbers, a checkpoint ends
a row of the log, and gradients are averaged over processes once per optimiser step, after the walk.

This module is imported only to train: the Trainer takes seconds to load.
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isthmus.core.errors import RunError, UsageError
from isthmus.core.seeds import derive
from isthmus.defences.base import Batch, Defence
from isthmus.models import Classifier
from isthmus.training import processes
from isthmus.training.checkpoints import CheckpointFolder, Position, load_weights, save_weights
from isthmus.training.encoded import EncodedExamples
from isthmus.training.evaluation import DevMetrics, Selection, evaluate
from isthmus.training.information import Information, Tally
from isthmus.training.log import TrainLog
from isthmus.training.numerics import Autocast
from isthmus.training.questions import AnswerMetrics, EncodedWindows, evaluate_windows
from isthmus.training.settings import Progress, TrainingSettings
from isthmus.training.walk import Ledger, not_finite, walk

_WEIGHTS = "model.safetensors"
MARKER = "trainer_state.json"
"""The file the Trainer writes last into a checkpoint."""


@dataclass
class Run:
    """What the stages of one training share."""

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
    information: Information
    snapshot: Callable[[int], None] | None = None
    """Keeps the weights after so many epochs."""
    checkpoints: CheckpointFolder | None = None
    progress: Progress | None = None
    latest: dict[str, float] = field(default_factory=dict)
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


def make_arguments(
    settings: TrainingSettings, folder: Path, device: str | None, *, epochs: int = 1, seed: int = 0
) -> TrainingArguments:
    """What the Trainer is told; making this joins the process group where there is one."""
    present = torch.accelerator.current_accelerator(check_available=True)
    offered = ["cpu"] if present is None else ["cpu", present.type]
    if device is not None and device.split(":")[0] not in offered:
        raise UsageError(f"no {device} here: this machine offers {' and '.join(offered)}")
    cpu = device == "cpu" or present is None
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        seed=seed,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        max_grad_norm=settings.max_grad_norm,
        train_sampling_strategy="group_by_length" if settings.group_by_length else "random",
        logging_strategy="no",
        eval_strategy="no",
        save_strategy="no",
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        dataloader_pin_memory=not cpu,
        disable_tqdm=True,
        report_to="none",
        log_level="error",
        log_level_replica="error",
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and processes.count() > 1 else None,
        # Losses do not pass through the wrapper, so it must not wonder which parameters they used.
        ddp_find_unused_parameters=False,
    )
    if arguments.mixed_precision == "fp16":
        raise UsageError("mixed precision fp16 (asked for by accelerate's configuration) is refused: use bf16 or no")
    # Autocast is the walk's business: it must cover what a defence computes around the model as well.
    arguments.mixed_precision = "no"
    if arguments.n_gpu > 1:
        # One process trains on one device; several devices take several processes (accelerate launch, torchrun).
        arguments._n_gpu = 1
    return arguments


class WalkingTrainer(Trainer):
    """Trains one stage of a run."""

    def __init__(
        self, run: Run, stage: Stage, examples: EncodedExamples, optimizer: torch.optim.Optimizer, device: str | None
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
            callbacks=[_Flow(self)],
        )
        self.remove_callback(PrinterCallback)
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise UsageError("training with DeepSpeed or FSDP is not supported: each process must hold the whole model")
        self._ledger = Ledger(_mean_over(self.accelerator))
        self._pass = 0
        self._examples_in_step = 0

    @property
    def step(self) -> int:
        """Optimiser steps done in all stages."""
        return self.stage.steps_before + int(self.state.global_step)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one epoch of this stage."""
        return int(self.state.max_steps) // self.stage.epochs

    @property
    def epochs_done(self) -> float:
        """Epochs done in all stages, with the fraction of the present one."""
        return self.stage.first_epoch + int(self.state.global_step) / self.steps_per_epoch

    # What decides the result: order, schedule, step.

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        sampler = super()._get_train_sampler(train_dataset)
        return None if sampler is None else _Ordered(sampler, lambda: derive(self.run.seed, "order", self.epoch))

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> torch.optim.lr_scheduler.LRScheduler:
        """The run's schedule, from the first epoch of this stage on; a step takes the rate at its middle."""
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
        """Walk the losses of one pass; the last pass of a step averages the gradients over the processes."""
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
        )
        weight = len(batch) / self._examples_in_step
        with self.accelerator.no_sync(model):
            terms = walk(run.defence, run.model, batch, backward=self._backward, autocast=run.autocast, weight=weight)
        self._pass += 1
        self._ledger.add(step, terms, weight)
        if self._looks_often:
            self._ledger.settle()
        if self.accelerator.sync_gradients and self.accelerator.num_processes > 1:
            average_gradients(run.model, self.accelerator)
        return torch.stack(list(terms.values())).sum() * weight

    def _backward(self, loss: Tensor, retain_graph: bool) -> None:
        self.accelerator.backward(loss, retain_graph=retain_graph)

    @property
    def _looks_often(self) -> bool:
        """On one CPU a look at a number is free; elsewhere it waits for the device or for other processes."""
        return bool(self.args.device.type == "cpu" and self.args.world_size == 1)

    # What is recorded.

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Write a row of the log; the Trainer's closing summary, which holds clock times, is left out."""
        if "grad_norm" in logs:
            norm = float(logs["grad_norm"])
            row = self._ledger.take()
            if not math.isfinite(norm):
                raise not_finite("the gradient norm", norm, self.step)
            self._write({**row, "learning_rate": logs["learning_rate"], "gradient_norm": norm})
            self.run.latest.update(loss=row["loss"])
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def _write(self, row: dict[str, Any]) -> None:
        if self.is_world_process_zero():
            self.run.log.write({"step": self.step, "epoch": round(self.epochs_done, 6), **row})

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Evaluate on the development data, keep the best weights, and stop when patience is at its end."""
        run = self.run
        ends = int(self.state.global_step) % self.steps_per_epoch == 0
        run.information.total = _sum_over(self.accelerator)
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
        total = _sum_over(self.accelerator)
        if isinstance(run.dev, EncodedWindows):
            return evaluate_windows(
                run.model, run.dev, size, autocast=run.autocast, part=part, parts=parts, total=total
            )
        batches = run.dev.batches(size, self.args.device, part=part, parts=parts)
        return evaluate(run.model, batches, autocast=run.autocast, total=total, watch=watch)

    # Checkpoints: weights as safetensors, and where the run stands.

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError) as error:
            raise RunError(
                f"cannot write a checkpoint to {self.args.output_dir}: {error}. Is the disk full?"
            ) from error

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


class _Flow(TrainerCallback):
    """Decides when to log, evaluate and save, and reports progress."""

    def __init__(self, trainer: WalkingTrainer) -> None:
        self.trainer = trainer
        self.saved = -1
        """Step of the last checkpoint: written twice, it would lose the first before the second is whole."""

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Tell the sampler which epoch it orders."""
        trainer = self.trainer
        trainer.epoch = trainer.stage.first_epoch + int(state.global_step) // trainer.steps_per_epoch
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Whatever is due at this step, unless the epoch ends with it."""
        trainer, settings = self.trainer, self.trainer.run.settings
        if int(state.global_step) % trainer.steps_per_epoch:
            control.should_log |= _due(trainer.step, settings.log_every)
            control.should_evaluate |= _due(trainer.step, settings.evaluate_every)
            control.should_save |= trainer.run.checkpoints is not None and _due(trainer.step, settings.checkpoint_every)
            control.should_log |= control.should_save or control.should_evaluate
        self._report(int(state.max_steps))
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Log, evaluate and save; but not twice where early stopping has just ended the epoch."""
        run = self.trainer.run
        control.should_log = True
        control.should_evaluate = not run.finished
        control.should_save = run.checkpoints is not None and self.trainer.step != self.saved
        return control

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Show the new figures."""
        self._report(int(state.max_steps))
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """With a newer checkpoint whole, older ones can go."""
        run, self.saved = self.trainer.run, self.trainer.step
        if run.checkpoints is not None and self.trainer.is_world_process_zero():
            run.checkpoints.prune()
            run.selection.tidy()
        return control

    def _report(self, steps_of_stage: int) -> None:
        trainer, run = self.trainer, self.trainer.run
        if run.progress is not None and trainer.is_world_process_zero():
            later = run.settings.epochs - trainer.stage.first_epoch - trainer.stage.epochs
            total = trainer.stage.steps_before + steps_of_stage + later * trainer.steps_per_epoch
            run.progress.on_step(trainer.step, total, dict(run.latest))


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


class _Ordered(Sampler[int]):
    """Gives another sampler its own stream, so that the order depends on nothing drawn before."""

    def __init__(self, sampler: Any, seed: Callable[[], int]) -> None:
        self.sampler, self.seed = sampler, seed

    def __iter__(self) -> Iterator[int]:
        seed = self.seed()
        self.sampler.generator = torch.Generator().manual_seed(seed)
        # Length grouping draws from python's stream in some versions.
        state = random.getstate()
        random.seed(seed)
        order = list(self.sampler)
        random.setstate(state)
        return iter(order)

    def __len__(self) -> int:
        return len(self.sampler)


def average_gradients(model: nn.Module, accelerator: Any) -> None:
    """Replace every gradient by its mean over the processes, in one reduction."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    here = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
    # A parameter used in one process only must be updated in all, or their weights part; one used in none, in none.
    anywhere = accelerator.reduce(here.to(accelerator.device), reduction="sum").tolist()
    used = [parameter for parameter, count in zip(parameters, anywhere, strict=True) if count]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in used]
    flat = accelerator.reduce(torch.cat([gradient.reshape(-1) for gradient in gradients]), reduction="mean")
    start = 0
    for parameter, gradient in zip(used, gradients, strict=True):
        parameter.grad = flat[start : start + gradient.numel()].view_as(gradient)
        start += gradient.numel()


def _mean_over(accelerator: Any) -> Callable[[Tensor], Tensor] | None:
    if accelerator.num_processes == 1:
        return None
    return lambda values: accelerator.reduce(values, reduction="mean")


def _sum_over(accelerator: Any) -> Callable[[Tensor], Tensor] | None:
    if accelerator.num_processes == 1:
        return None
    return lambda values: accelerator.reduce(values.to(accelerator.device), reduction="sum")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Hold back what the libraries would say, and put transformers' verbosity, which the Trainer sets, back."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="OMP_NUM_THREADS")
        try:
            yield
        finally:
            logging.set_verbosity(level)
