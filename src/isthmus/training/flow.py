"""Decides when a training logs, evaluates and saves: at the steps in its settings, and after each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from isthmus.core.progress import Watcher
from isthmus.training.settings import is_due

if TYPE_CHECKING:
    from isthmus.training.trainer import WalkingTrainer


class Flow(TrainerCallback):
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
        """Do what is due at this step, unless it is the last of the epoch."""
        trainer, settings = self.trainer, self.trainer.run.settings
        if int(state.global_step) % trainer.steps_per_epoch:
            control.should_log |= is_due(trainer.step, settings.log_every)
            control.should_evaluate |= is_due(trainer.step, settings.evaluate_every)
            control.should_save |= trainer.run.checkpoints is not None and is_due(
                trainer.step, settings.checkpoint_every
            )
            control.should_log |= control.should_save or control.should_evaluate
        self._report(int(state.max_steps))
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Log, evaluate and save; but not twice if early stopping has just ended the epoch."""
        run = self.trainer.run
        control.should_log = True
        control.should_evaluate = not run.finished
        control.should_save = run.checkpoints is not None and self.trainer.step != self.saved
        if control.should_evaluate and int(state.global_step) >= int(state.max_steps) and self._is_last_stage():
            self._say("all steps are done; evaluating on the development data")
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
        """Delete older checkpoints once a newer one is complete."""
        run, self.saved = self.trainer.run, self.trainer.step
        if run.checkpoints is not None and self.trainer.is_world_process_zero():
            run.checkpoints.prune()
            run.selection.tidy(run.checkpoints.best_steps())
        return control

    def _is_last_stage(self) -> bool:
        stage = self.trainer.stage
        return stage.first_epoch + stage.epochs >= self.trainer.run.settings.epochs

    def _say(self, message: str) -> None:
        """Send a note to whoever shows the training; without a watcher it is dropped."""
        progress = self.trainer.run.progress
        if isinstance(progress, Watcher) and self.trainer.is_world_process_zero():
            progress.on_note(message)

    def _report(self, steps_of_stage: int) -> None:
        trainer, run = self.trainer, self.trainer.run
        if run.progress is not None and trainer.is_world_process_zero():
            later = run.settings.epochs - trainer.stage.first_epoch - trainer.stage.epochs
            total = trainer.stage.steps_before + steps_of_stage + later * trainer.steps_per_epoch
            run.progress.on_step(trainer.step, total, dict(run.latest))
