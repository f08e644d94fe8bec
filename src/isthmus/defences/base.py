"""The base class of defences: a frozen record of hyper-parameters with three moments.

    prepare(model, data)                  fill slots of the model and say how it answers, before training
    examples(model, data, epoch, seed)    may replace the training examples, before each epoch
    losses(model, batch)                  yields the terms of the loss, each back-propagated before it is resumed

How a trained model answers is no moment: a method that votes, smooths or reads texts through a front end sets
``model.deployment`` in `prepare`. It is saved with the model, and it is what is attacked (`isthmus.models.deployment`).

The defaults are plain fine-tuning, so a method writes only the moment its idea lives in. `losses` has three smaller
moments inside it, and a method whose idea fits into one of them combines with more of the others:

    transform(model, batch)               what the model reads at this step
    objective(model, output, batch, terms)  the terms of one pass, made of those before it
    penalties(model, batch)               terms that need no pass over the batch

`losses` is a generator because some methods need gradients in the middle of a step: what it yields has been
back-propagated when it goes on, so FreeLB reads the gradient of its perturbation after each ``yield`` and takes the
next ascent step. A method that needs more than one training says so by `plan`, before the first of the three.

Whoever walks the generator scales what is yielded (by gradient accumulation, say). A method that needs the gradient of
an unscaled loss asks `torch.autograd.grad` for it inside `losses`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from isthmus.core import catalog
from isthmus.core.seeds import derive
from isthmus.core.types import Example, Ints, Output, Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from isthmus.arithmetic.randomness import BatchStream, Tap
    from isthmus.data import Dataset
    from isthmus.models import Classifier


@dataclass(frozen=True, slots=True)
class Terms:
    """Named parts of the loss; their sum is back-propagated.

    A term of zero strength is left out rather than yielded as zero: what is not computed draws no random numbers and
    leaves no trace in the last bit.
    """

    values: Mapping[str, Tensor]
    """Scalars. The same name may be yielded several times in a step; the log shows the sum."""
    retain_graph: bool = False
    """Whether a later yield of this step differentiates through the same graph again."""

    def total(self) -> Tensor:
        """The sum of the terms."""
        first, *rest = self.values.values()
        for value in rest:
            first = first + value
        return first


@dataclass(slots=True)
class Batch:
    """One mini-batch: inputs and targets."""

    inputs: dict[str, Tensor]
    labels: Tensor  # [batch]; question answering: first and last token of the answer [batch, 2], 0 where it is not
    ids: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    """The examples themselves, for a method that pairs them with other texts; empty for resident tensors."""
    seed: int = 0
    """Different for every batch, step and process; `stream` draws from it."""
    opens_step: bool = True
    """Whether the weights moved since the last batch; False for the later ones of an accumulated step."""
    epoch: int = 0
    """In which epoch of the run, counted from 0."""
    is_measured: bool = False
    """True while terms are differentiated only to be compared: nothing of it reaches the weights."""
    objective: Objective | None = None
    """What one pass costs, where other defences of a composition have a say in it; None: its cross-entropy."""
    tap: Tap | None = None
    """Who hears of the draws from `draws`, and may hand them out; None: nobody."""

    def __len__(self) -> int:
        return len(self.labels)

    def stream(self, name: str) -> torch.Generator:
        """A random stream for the term called `name`, on the device of the batch.

        It depends on the run's seed, the step and the name alone. So switching a term on shifts nobody else's
        randomness, and a resumed run needs no stored state to draw the same numbers.
        """
        import torch

        return torch.Generator(self.labels.device).manual_seed(derive(self.seed, name) >> 1)

    def draws(self, name: str) -> BatchStream:
        """The same stream for one draw in a step that may be recorded (`Defence.is_steady`)."""
        from isthmus.arithmetic.randomness import BatchStream

        return BatchStream(name, self.seed, self.tap)


Objective = Callable[["Classifier", Output, Batch], "dict[str, Tensor]"]
"""From the model's answer to a batch to the terms of that pass."""


@dataclass(frozen=True)
class Made:
    """Training examples that a defence made, and notes for the training log."""

    examples: Sequence[Example]
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able; written into the row of the log that says how many examples there are."""
    added: int | None = None
    """How many of the last examples were added to those it was given; None where it replaced them. Another defence
    may then change what was given from epoch to epoch, and what was added stays."""


@dataclass(frozen=True)
class Plan:
    """How a defence divides the epochs of a run into trainings."""

    again: tuple[int, ...] = ()
    """Epochs (counted from 0) at which training starts over: the training before ends with its best weights, `examples`
    sees those, and then weights, optimiser and schedule are as they were at the beginning."""
    judged_from: int = 0
    """First epoch whose weights may be the run's; earlier ones are not defended yet, and would win by it."""

    def stretch(self, epoch: int, epochs: int) -> tuple[int, int]:
        """First epoch, and the epoch after the last, of the training that `epoch` of `epochs` belongs to."""
        bounds = (0, *self.again, epochs)
        begins = max(bound for bound in bounds if bound <= epoch)
        return begins, min(bound for bound in bounds if bound > epoch)


class Labelled(Protocol):
    """What `Defence.prepare` can use, whether the data are texts or resident tensors."""

    def __len__(self) -> int: ...

    def label_indices(self) -> Ints:
        """The class index of every example."""


@dataclass(frozen=True)
class Defence:
    """Base class of all defences; without overrides it is plain fine-tuning."""

    slots: ClassVar[tuple[str, ...]] = ()
    """Slots of the model that `prepare` may fill; two defences cannot fill the same."""
    deploys: ClassVar[Literal["reads", "answers"] | None] = None
    """Whether the trained model ``reads`` its texts through this defence, or ``answers`` by it; None: neither."""
    exclusive: ClassVar[str | None] = None
    """What it does that only one defence of a composition can do, in words; None: nothing of that kind."""
    copies_model: ClassVar[bool] = False
    """Whether `prepare` copies the model, so that whatever fills slots must come before it."""
    takes_objective: ClassVar[bool] = False
    """Whether its own `losses` take the terms of a pass from `pass_terms`, so that other defences can change them."""

    @property
    def name(self) -> str:
        """The name `isthmus list defences` shows: the file's name, or the class's for a class of your own."""
        return catalog.name_of(self, "defences")

    @property
    def parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Fill slots of `model`, and set ``model.deployment`` if it answers by more than a single pass.

        It is called before training, and again when a run is resumed.

        Everything trainable must live in the model, so that one checkpoint holds it. The caller has seeded torch's
        global stream, so freshly initialised layers are the same each time.
        """

    def adapt_to(self, task: Task) -> Self:
        """The defence with open parameters (None) filled in for a task; a run records this."""
        return self

    def plan(self, epochs: int) -> Plan:
        """How a run of `epochs` epochs is divided into trainings; too few epochs for the defence are an error."""
        return Plan()

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | Made | None:
        """The training examples of `epoch` (counted from 0); None: those of the epoch before.

        `data` are the original training examples and `seed` is the run's. A field the task does not name is not read
        by the model but reaches `losses` in ``batch.examples``.
        """
        return None

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Yield the loss of one mini-batch, term by term."""
        batch = self.transform(model, batch)
        output: Output = model(**batch.inputs)
        yield Terms(self.objective(model, output, batch, pass_terms(model, output, batch)))
        if terms := self.penalties(model, batch):
            yield Terms(terms)

    def transform(self, model: Classifier, batch: Batch) -> Batch:
        """The batch as the model reads it at this step; unchanged by default."""
        return batch

    def objective(self, model: Classifier, output: Output, batch: Batch, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The terms of one pass; `terms` are those without this defence: the cross-entropy."""
        return terms

    def penalties(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Terms that need no pass over the batch; none by default."""
        return {}

    @property
    def moves_inputs(self) -> bool:
        """Whether its losses need the word embeddings, not only the encoder's output."""
        return False

    @property
    def is_steady(self) -> bool:
        """Whether every step is the same work on the device, so that a GPU may record and replay it.

        That is: no look at a number, no shape that depends on one, no draw but those of the model's own streams and
        layers and of `Batch.draws`, nothing else taken from the batch but inputs and labels. What a step changes
        besides the trained weights (a teacher, say) must be a parameter or a buffer of the model.
        """
        return False

    @property
    def asks_evaluated(self) -> bool:
        """Whether its losses also use the model in evaluation mode; a randomised one then draws by the batch's seed."""
        return False

    @property
    def trains_images(self) -> bool:
        """Whether it can train image classifiers; a defence that needs words or makes texts cannot."""
        return not self.moves_inputs and not self.replaces_examples

    @property
    def needs_images(self) -> bool:
        """Whether it can train image classifiers only."""
        return False

    @property
    def replaces_examples(self) -> bool:
        """Whether it has its own `examples`, which are then called before every epoch."""
        return type(self).examples is not Defence.examples

    @property
    def makers(self) -> tuple[Defence, ...]:
        """The defences that make examples, in order: each works on the examples of the one before."""
        return (self,) if self.replaces_examples else ()

    @property
    def walks(self) -> bool:
        """Whether it makes passes of its own over a batch (it has its own `losses`)."""
        return type(self).losses is not Defence.losses

    @property
    def transforms(self) -> bool:
        """Whether it changes the model's input at a step (it has its own `transform`)."""
        return type(self).transform is not Defence.transform

    @property
    def weighs(self) -> bool:
        """Whether it changes the terms of a pass (it has its own `objective`)."""
        return type(self).objective is not Defence.objective


def speaks_for_itself(kind: type[Defence]) -> bool:
    """Whether `is_steady` describes the losses that are computed, and no subclass has replaced them."""
    computing = ("losses", "transform", "objective", "penalties")
    steady, *others = (
        next(place for place, each in enumerate(kind.__mro__) if name in vars(each))
        for name in ("is_steady", *computing)
    )
    return steady <= min(others)


def pass_terms(model: Classifier, output: Output, batch: Batch) -> dict[str, Tensor]:
    """The terms of one pass: the cross-entropy, as changed by the other defences of a composition."""
    if batch.objective is None:
        return {"cross_entropy": cross_entropy(output, batch)}
    return batch.objective(model, output, batch)


def cross_entropy(output: Output, batch: Batch) -> Tensor:
    """Mean cross-entropy of the true labels, in float32 whatever the model computes in.

    Of question answering it is the mean of the two ends' cross-entropies, each over the positions of the window.
    """
    from torch.nn import functional

    logits = output.logits.float()
    return functional.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())
