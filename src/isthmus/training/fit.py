"""`train`: from data and the name of a backbone to a trained classifier, stage by stage.

A defence that replaces examples gets one stage per epoch, every other defence one stage in all. Everything a killed run
needs lies in ``<folder>/checkpoints`` and ``<folder>/examples``; the same call again continues from there and ends
with the same weights and the same log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from isthmus.core import progress as work
from isthmus.core.errors import DataError, TrainingError, UsageError
from isthmus.core.lock import hold
from isthmus.core.seeds import derive
from isthmus.core.types import Example, ImageClassification, QuestionAnswering
from isthmus.data import Splits
from isthmus.defences import compose
from isthmus.defences.base import Defence, Made, Plan
from isthmus.models.image_names import is_image_backbone
from isthmus.training import processes
from isthmus.training.checkpoints import Checkpoint, CheckpointFolder
from isthmus.training.encoded import EncodedExamples
from isthmus.training.encoding import encode_examples
from isthmus.training.evaluation import Selection
from isthmus.training.examples import ExampleStore
from isthmus.training.log import TrainLog
from isthmus.training.numerics import (
    autocast_on,
    avoid_planned_attention,
    digest,
    make_optimizer,
    preserve_randomness,
    seed_everything,
    thaw_afterwards,
)
from isthmus.training.settings import Progress, TrainingSettings, settings_for
from isthmus.training.snapshots import clear_snapshots, snapshots_into

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.core.types import Autocast
    from isthmus.data import Dataset
    from isthmus.models import Classifier
    from isthmus.training.epoch_information import EpochInformation
    from isthmus.training.trainer import TrainingRun


def train(
    data: Splits,
    backbone: str | Path | Classifier = "minilm",
    defence: Defence | Sequence[Defence] | None = None,
    *,
    settings: TrainingSettings | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    device: str | None = None,
    finish: Callable[[Classifier], None] | None = None,
) -> Classifier:
    """Train a model with a defence, and return it with the weights of the best development accuracy (F1 of answers).

    Args:
        data: splits with at least ``train``; where there is no ``dev``, a tenth of ``train`` becomes it. One file that
            nobody has split is cut 8 : 1 : 1 (`Splits.for_training`); to get hold of its test part, cut it first.
        backbone: a name, a folder, or a classifier, which is then trained in place.
        defence: how to train; plain fine-tuning by default. Several are composed in the order given.
        settings: how long, how fast, in which precision; by default `settings_for` task and backbone.
        folder: where to write ``train.jsonl``, ``model/``, generated examples and, until the end, checkpoints. An
            unfinished training found there is continued. Without a folder nothing is written.
        seed: of initialisation, order, dropout and everything a defence draws.
        progress: told about every step.
        device: ``cpu`` or ``cuda``; by default the accelerator if there is one.
        finish: called with the model once it is saved in `folder`, and before the checkpoints go: after a kill the
            same call comes here again.
    """
    defence = _default_defence() if defence is None else compose(defence)
    settings = settings_for(data.task.name, backbone) if settings is None else settings
    _check_data(data, device)
    splits = data.for_training(seed)
    defence = defence.adapt_to(splits.task)
    defence.plan(settings.epochs)  # refuses too few epochs before anything is written
    held = _hold(folder)
    with held, preserve_randomness(), _folder_or_temporary(folder) as place, work.watch(progress):
        session = _Session(splits, defence, settings, place, folder is not None, seed, progress, device, finish)
        return session.run(backbone)


def _default_defence() -> Defence:
    from isthmus.defences.standard import Standard

    return Standard()


def _check_data(data: Splits, device: str | None) -> None:
    if device not in (None, "cpu", "cuda", "cuda:0", "mps"):
        raise UsageError(
            f"device is {device!r}; it must be cpu, cuda or mps. To train on another GPU than the first, set "
            "CUDA_VISIBLE_DEVICES"
        )
    if "train" in data and len(data.train) == 0:
        raise DataError(f"{data.name} has no training examples")
    if "dev" in data and len(data.dev) == 0:
        raise DataError(f"{data.name} has an empty dev split: remove it, and a tenth of train is taken instead")
    if "train" in data and "dev" in data and len(data.dev.fields) != len(data.train.fields):
        raise DataError(
            f"train of {data.name} has the fields {', '.join(data.train.fields)}, and dev has "
            f"{', '.join(data.dev.fields)}: no model reads both. Remove dev, and a tenth of train is taken instead"
        )


def _hold(folder: str | Path | None) -> contextlib.AbstractContextManager[None]:
    """Lock the folder for this training; of several processes that train together, one holds the lock for all."""
    if folder is None or not processes.is_main():
        return contextlib.nullcontext()
    return hold(folder, "train", exclusive=True)


@contextlib.contextmanager
def _folder_or_temporary(folder: str | Path | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="isthmus-") as temporary:
        yield Path(temporary)


@dataclass
class _Session:
    """One call of `train`."""

    splits: Splits
    defence: Defence
    settings: TrainingSettings
    folder: Path
    keeps: bool
    """Whether the folder outlives the call."""
    seed: int
    progress: Progress | None
    device: str | None
    finish: Callable[[Classifier], None] | None = None

    def run(self, backbone: str | Path | Classifier) -> Classifier:
        """Start or continue, run the remaining stages, select the best weights, and clean up."""
        if isinstance(self.splits.task, ImageClassification):
            return self._run_images(backbone)
        if is_image_backbone(backbone):
            raise UsageError(f"{backbone} reads images, and {self.splits.name} holds texts: take minilm, lstm or cnn")
        if self.settings.average_weights is not None:
            raise UsageError(f"average_weights is for images, and {self.splits.name} holds texts: leave it out")
        if self.settings.trains == "head":
            return self._run_head(backbone)
        from isthmus.training.arguments import make_arguments, silence
        from isthmus.training.trainer import MARKER

        checkpoints = CheckpointFolder(self.folder / "checkpoints", MARKER)
        with silence():
            # Before anything else: it joins the other processes, if there are any.
            device = make_arguments(self.settings, checkpoints.path, self.device).device
            model = self._model(backbone).to(device)
            start = self._open(checkpoints, backbone, model) if self.keeps else None
            seed_everything(derive(self.seed, "prepare"))
            with thaw_afterwards(model), avoid_planned_attention(device):
                self.defence.prepare(model, self.train_data)
                run = self._shared(model, checkpoints, start)
                if not run.finished:
                    with checkpoints.naming_the_last() if self.keeps else contextlib.nullcontext():
                        self._run_stages(run, start)
        processes.wait()
        run.selection.restore(model)
        model.eval()
        processes.wait()
        if self.keeps and processes.is_main():
            self._save(model, checkpoints)
        processes.wait()
        return model

    def _save(self, model: Classifier, checkpoints: CheckpointFolder) -> None:
        """Save the model and its files; only then may the checkpoints be deleted."""
        with work.announce("saving the model"):
            model.save(self.folder / "model")
        if self.finish is not None:
            self.finish(model)
        checkpoints.delete()

    def _run_head(self, backbone: str | Path | Classifier) -> Classifier:
        """Train the layers after the encoder, on vectors computed once."""
        import torch

        from isthmus.training.head import train_head

        default = "cuda" if torch.cuda.is_available() else "cpu"
        if isinstance(self.splits.task, QuestionAnswering):
            raise UsageError("trains=head is for classifiers, whose head reads one vector a text: take trains=all")
        model = self._model(backbone).to(self.device or default)
        if self.keeps and not CheckpointFolder(self.folder / "checkpoints").is_begun:
            clear_snapshots(self.folder)
        seed_everything(derive(self.seed, "prepare"))
        self.defence.prepare(model, self.train_data)
        train_head(
            model,
            self.train_data,
            self.dev_data,
            self.defence,
            self.settings,
            folder=self.folder if self.keeps else None,
            seed=self.seed,
            progress=self.progress,
        )
        model.eval()
        if self.keeps:
            self._save(model, CheckpointFolder(self.folder / "checkpoints"))
        return model

    def _run_images(self, backbone: str | Path | Classifier) -> Classifier:
        """Train an image classifier."""
        from isthmus.training.images import train_images

        model = train_images(
            self.splits,
            backbone,
            self.defence,
            self.settings,
            folder=self.folder if self.keeps else None,
            seed=self.seed,
            progress=self.progress,
            device=self.device,
            finish=self.finish,
        )
        return cast("Classifier", model)

    def _model(self, backbone: str | Path | Classifier) -> Classifier:
        from isthmus.models import Classifier

        data = self.splits.train
        if isinstance(backbone, Classifier):
            model = backbone
        else:
            texts = [text for texts in data.texts() for text in texts.values()]
            task = data.task
            if isinstance(task, QuestionAnswering) and self.settings.stride is not None:
                task = dataclasses.replace(task, stride=self.settings.stride)
            options = {"more": more} if (more := self.settings.more_words) else None
            model = Classifier.create(
                backbone, task=task, seed=self.seed, texts=texts, max_tokens=self.settings.max_tokens, options=options
            )
        self.train_data, self.dev_data = data.align_labels(model.labels), self.splits.dev.align_labels(model.labels)
        return model

    def _open(
        self, checkpoints: CheckpointFolder, backbone: str | Path | Classifier, model: Classifier
    ) -> Checkpoint | None:
        """The checkpoint to continue from, if there is one."""
        if processes.is_main():
            if not checkpoints.is_begun:
                self._store.clear()
                clear_snapshots(self.folder)
            checkpoints.open(
                {
                    "model": digest(model.state_dict()) if backbone is model else str(backbone),
                    "defence": repr(self.defence),
                    "seed": self.seed,
                    "training data": self.train_data.fingerprint,
                    "development data": self.dev_data.fingerprint,
                    **dataclasses.asdict(self.settings),
                }
            )
        processes.wait()
        return checkpoints.newest()

    @property
    def _plan(self) -> Plan:
        return self.defence.plan(self.settings.epochs)

    @property
    def _store(self) -> ExampleStore:
        return ExampleStore(self.folder / "examples")

    def _shared(self, model: Classifier, checkpoints: CheckpointFolder, start: Checkpoint | None) -> TrainingRun:
        from isthmus.training.trainer import TrainingRun

        writes = self.keeps and processes.is_main()
        log = TrainLog(self.folder / "train.jsonl" if writes else None, start.position.log_length if start else 0)
        selection = Selection(
            self.settings.patience, checkpoints.path if self.keeps else None, writes=processes.is_main()
        )
        if start is not None:
            selection.load_state(start.position.selection)
        autocast = autocast_on(model.device, self.settings.precision)
        return TrainingRun(
            model=model,
            defence=self.defence,
            settings=self.settings,
            seed=self.seed,
            dev=encode_examples(model, self.dev_data.examples, self.dev_data.fields),
            autocast=autocast,
            information=self._information(model, autocast),
            snapshot=snapshots_into(self.folder if writes else None, model, model.parameters, self.settings),
            log=log,
            selection=selection,
            folder=checkpoints.path,
            checkpoints=checkpoints if self.keeps else None,
            progress=self.progress,
            judged_from=self._plan.judged_from,
            finished=start is not None and start.position.finished,
        )

    def _information(self, model: Classifier, autocast: Autocast) -> EpochInformation:
        from isthmus.training.epoch_information import of_classifier

        noted, data = self.settings.information, self.train_data
        sample = encode_examples(model, data.sample(noted, self.seed).examples, data.fields) if noted else None
        part, parts = processes.rank(), processes.count()
        size = self.settings.evaluation_batch_size
        return of_classifier(model, sample, size, autocast, self.seed, part, parts)

    def _run_stages(self, run: TrainingRun, start: Checkpoint | None) -> None:
        from isthmus.training.lean import LeanTrainer, is_lean
        from isthmus.training.trainer import Stage, WalkingTrainer

        driver = LeanTrainer if is_lean(run.model.device, start) else WalkingTrainer
        plan, epochs = self._plan, self.settings.epochs
        length = 1 if self.defence.replaces_examples or plan != Plan() else epochs
        first, steps = (start.position.stage, start.position.steps_before) if start else (0, 0)
        optimizer = make_optimizer(run.model, self.settings)
        initial = _on_host(run.model.state_dict()) if plan.again else {}
        encoded: EncodedExamples | None = None
        for epoch in range(first, epochs, length):
            resumed = start if epoch == first else None
            starts_over = resumed is None and epoch in plan.again
            if starts_over:
                processes.wait()
                run.selection.restore(run.model)
            examples = self._examples(run, epoch, steps, resumed)
            if starts_over:
                run.model.load_state_dict(initial)
                optimizer = make_optimizer(run.model, self.settings)
            if resumed is None and epoch == plan.judged_from:
                run.selection.forget()
                if epoch:
                    run.log.write({"step": steps, "epoch": epoch, "selection": "begins"})
            if examples is not None or encoded is None:
                examples = self.train_data.examples if examples is None else examples
                encoded = encode_examples(run.model, examples, self.train_data.fields)
            stage = Stage(epoch, length, steps, plan.stretch(epoch, epochs))
            trainer = driver(run, stage, encoded, optimizer, self.device)
            trainer.train(resume_from_checkpoint=str(resumed.path) if resumed else None)
            steps = trainer.step
            if run.finished:
                break

    def _examples(
        self, run: TrainingRun, epoch: int, steps: int, resumed: Checkpoint | None
    ) -> Sequence[Example] | None:
        """Examples that replace those of the epoch before, or None."""
        if not self.defence.replaces_examples:
            return None
        if resumed is not None:
            return self._store.latest(epoch)
        make = functools.partial(self._make_all, run, epoch)
        made = self._store.of_epoch(epoch, make) if self.keeps else make()
        if made is None:
            return None
        run.log.write({"step": steps, "epoch": epoch, "examples": len(made.examples), **made.notes})
        return made.examples

    def _make_all(self, run: TrainingRun, epoch: int) -> Made | None:
        """Make the defence's examples, or those of the makers of a composition, one after the other."""
        makers = self.defence.makers
        if len(makers) == 1:
            return self._make(makers[0], run, self.train_data, epoch)
        parts = [self._store.part(f"{place}-{maker.name}") for place, maker in enumerate(makers)]
        given, is_new = self.train_data, False
        notes: dict[str, Any] = {}
        for maker, part in zip(makers, parts, strict=True):
            made = part.keep(epoch, functools.partial(self._make, maker, run, given, epoch))
            if made is not None:
                is_new, notes = True, {**notes, **made.notes}
            else:
                # It leaves what it made before: of additions those alone, since what it is given may be new.
                made = part.newest(epoch)
            if made is not None:
                added = None if made.added is None else made.examples[len(made.examples) - made.added :]
                kept = made.examples if added is None else (*given.examples, *added)
                given = dataclasses.replace(given, examples=tuple(kept))
        return Made(given.examples, notes) if is_new else None

    def _make(self, maker: Defence, run: TrainingRun, data: Dataset, epoch: int) -> Made | None:
        run.model.eval()
        seed_everything(derive(self.seed, "examples", epoch))
        made = maker.examples(run.model, data, epoch, self.seed)
        if made is None:
            return None
        made = made if isinstance(made, Made) else Made(made)
        if len(made.examples) == 0:
            raise TrainingError(f"{maker.name} made no training examples for epoch {epoch}")
        return made


def _on_host(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of weights in host memory."""
    return {name: value.detach().cpu().clone() for name, value in state.items()}
