"""Several defences as one: each moment of a composition is the composition of the moments, in the order given.

    prepare     one after the other
    examples    each works on what the one before it made (`Defence.makers`)
    transform   each works on what the one before it returned; so does `objective`
    losses      those of the one part that makes passes of its own, on the transformed batch, each pass with the terms
                of the composed objective; one plain pass where no part does. Then the penalties of every part.
    plan        training starts over where one part asks for it; weights count from where all of them are at work

What cannot be combined is refused here, before anything is loaded.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import Example, Output, Task
from isthmus.defences.base import Batch, Defence, Labelled, Made, Plan, Terms, pass_terms

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.data import Dataset
    from isthmus.models import Classifier

JOINT = "+"


def compose(parts: Defence | Sequence[Defence]) -> Defence:
    """Combine several defences into one, in the given order; a single one is returned as it is.

    >>> from isthmus.defences import FreeLB, LabelSmoothing, compose
    >>> compose((LabelSmoothing(), FreeLB(steps=2))).name
    'label_smoothing+freelb'
    """
    if isinstance(parts, Defence):
        return parts
    if isinstance(parts, type) or not isinstance(parts, Iterable):
        raise UsageError(f"a defence is a name or an object such as FreeLB(), or several of them; {parts!r} is none")
    for part in parts:
        if not isinstance(part, Defence):
            raise UsageError(f"a composition is made of defences, such as (Normalise(), FreeLB()); {part!r} is none")
    if not parts:
        raise UsageError("a composition needs at least one defence")
    return parts[0] if len(parts) == 1 else Composed(tuple(parts))


def build_defence(spec: str, parameters: Mapping[str, Any] | None = None) -> Defence:
    """Build the defence named ``normalise+freelb``; parameters are ``freelb.steps``, or ``steps`` if that is unique.

    >>> from isthmus.defences import build_defence
    >>> build_defence("label_smoothing+freelb", {"freelb.steps": 2, "epsilon": "0.2"}).parameters["freelb.steps"]
    2
    """
    names = [name.strip() for name in spec.split(JOINT)]
    if not all(names):
        raise UsageError(f"a composition is names joined by {JOINT}, such as normalise+freelb, not {spec!r}")
    entries = [catalog.find("defences", name) for name in names]
    given = _address_parameters(parameters or {}, entries)
    return compose([catalog.build("defences", name, own) for name, own in zip(names, given, strict=True)])


def name_of_spec(spec: str) -> str:
    """The name that a run records: every part by its name in the catalogue, from which it can be built again."""
    return JOINT.join(catalog.find("defences", name.strip()).name for name in spec.split(JOINT))


def name_for_record(defence: Defence) -> str:
    """The recorded name of a defence object; a class outside the catalogue is named by its module."""
    parts = defence.parts if isinstance(defence, Composed) else (defence,)
    own = [f"{type(part).__module__}:{type(part).__qualname__}" for part in parts]
    known = catalog.names("defences")
    return JOINT.join(part.name if part.name in known else spec for part, spec in zip(parts, own, strict=True))


def _address_parameters(parameters: Mapping[str, Any], entries: Sequence[catalog.Entry]) -> list[dict[str, Any]]:
    """The parameters of each part."""
    found: list[dict[str, Any]] = [{} for _ in entries]
    addresses = [entry.address for entry in entries]
    for key, value in parameters.items():
        owner, _, own = key.rpartition(".")
        owners = [place for place, entry in enumerate(entries) if owner in (entry.name, entry.address)]
        if owner and not owners:
            raise UnknownName("part of the defence", owner, addresses)
        if owner:
            found[owners[0]][own] = value
            continue
        takers = [place for place, entry in enumerate(entries) if key in {each.name for each in entry.parameters}]
        if len(takers) > 1:
            choices = " or ".join(f"{addresses[place]}.{key}" for place in takers)
            raise UsageError(f"several parts have a parameter {key}: say {choices}")
        if not takers and len(entries) > 1:
            known = [f"{entry.address}.{each.name}" for entry in entries for each in entry.parameters]
            raise UnknownName(f"parameter of {JOINT.join(addresses)}", key, known)
        # Of a single defence an unknown key is left to whoever builds it, who knows what it does take.
        found[takers[0] if takers else 0][own] = value
    return found


@dataclass(frozen=True)
class Composed(Defence):
    """Several defences in order; `compose` makes one, and `train` takes a tuple."""

    parts: tuple[Defence, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if any(isinstance(part, Composed) for part in self.parts):
            raise UsageError(f"a composition cannot contain another one: list the parts of {', '.join(names)}")
        for part in self.parts:
            if (base := getattr(part, "base", "standard")) != "standard":
                raise UsageError(
                    f"{part.name} has base={base}: in a composition write {part.name}{JOINT}{base} instead"
                )
        for first, second in itertools.combinations(self.parts, 2):
            if (reason := why_not(first, second)) is not None:
                raise UsageError(f"{first.name}{JOINT}{second.name}: {reason}")

    @property
    def name(self) -> str:
        """The names of the parts, joined."""
        return JOINT.join(part.name for part in self.parts)

    @property
    def parameters(self) -> dict[str, Any]:
        """The hyper-parameters of all parts, as ``freelb.steps``."""
        return {f"{part.name}.{name}": value for part in self.parts for name, value in part.parameters.items()}

    def adapt_to(self, task: Task) -> Self:
        """Let every part fill in its open parameters."""
        return replace(self, parts=tuple(part.adapt_to(task) for part in self.parts))

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Prepare every part in order; a front end stays before the deployment that answers."""
        from isthmus.inference.chained import chain

        own = None
        for part in self.parts:
            before = model.deployment
            part.prepare(model, data)
            if model.deployment is not before:
                own = model.deployment = chain(own, model.deployment)

    def plan(self, epochs: int) -> Plan:
        """Train again if one part does; select the best epoch from where the last part is active."""
        plans = [part.plan(epochs) for part in self.parts]
        return Plan(
            tuple(sorted({epoch for plan in plans for epoch in plan.again})), max(plan.judged_from for plan in plans)
        )

    @property
    def makers(self) -> tuple[Defence, ...]:
        """The makers of all parts."""
        return tuple(maker for part in self.parts for maker in part.makers)

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | Made | None:
        """The makers' examples of one epoch alone; `train` also keeps those of earlier epochs."""
        made: Made | None = None
        for maker in self.makers:
            given = data if made is None else replace(data, examples=tuple(made.examples))
            found = maker.examples(model, given, epoch, seed)
            if found is not None:
                found = found if isinstance(found, Made) else Made(found)
                made = Made(found.examples, {**(made.notes if made else {}), **found.notes})
        return made

    def transform(self, model: Classifier, batch: Batch) -> Batch:
        """Let every part transform the batch, in order."""
        for part in self.parts:
            batch = part.transform(model, batch)
        return batch

    def objective(self, model: Classifier, output: Output, batch: Batch, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Let every part change the terms, in order, but the part that makes the passes, which knows its own."""
        for part in self.parts:
            if not part.walks:
                terms = part.objective(model, output, batch, terms)
        return terms

    def penalties(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The penalties of all parts; equal names get the part's name."""
        found: dict[str, Tensor] = {}
        for part in self.parts:
            for name, value in part.penalties(model, batch).items():
                found[f"{part.name}_{name}" if name in found else name] = value
        return found

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """The losses of the part that makes passes; each pass includes the terms of the other parts."""
        walker = self._walker
        if walker is None:
            yield from super().losses(model, batch)
            return
        moved = self.transform(model, batch)
        if any(part.weighs for part in self.parts if part is not walker):
            moved = replace(moved, objective=self._objective)
        yield from walker.losses(model, moved)
        if terms := self.penalties(model, batch):
            yield Terms(terms)

    def _objective(self, model: Classifier, output: Output, batch: Batch) -> dict[str, Tensor]:
        return self.objective(model, output, batch, pass_terms(model, output, replace(batch, objective=None)))

    @functools.cached_property
    def _walker(self) -> Defence | None:
        return next((part for part in self.parts if part.walks), None)

    @property
    def moves_inputs(self) -> bool:
        """True if one part needs the word embeddings."""
        return any(part.moves_inputs for part in self.parts)

    @property
    def trains_images(self) -> bool:
        """True if all parts train images."""
        return all(part.trains_images for part in self.parts)

    @property
    def needs_images(self) -> bool:
        """True if one part needs images."""
        return any(part.needs_images for part in self.parts)

    @property
    def replaces_examples(self) -> bool:
        """True if one part replaces examples."""
        return bool(self.makers)


def why_not(first: Defence, second: Defence) -> str | None:
    """The reason why two defences cannot be combined in this order; None if they can."""
    return (
        _alike(first, second)
        or _answering(first, second)
        or _passes(first, second)
        or _refuse_reading(first, second)
        or _refuse_order(first, second)
    )


def _alike(first: Defence, second: Defence) -> str | None:
    if first.name == second.name:
        return f"{first.name} is named twice: name it once"
    if first.exclusive is not None and first.exclusive == second.exclusive:
        return f"each of them {first.exclusive}, and one composition can do so once: take one of them"
    if both := set(first.slots) & set(second.slots):
        return f"both fill the model's slot {', '.join(sorted(both))}: take one of them"
    return None


def _answering(first: Defence, second: Defence) -> str | None:
    ways = first.deploys, second.deploys
    if ways == ("answers", "answers"):
        return "each of them decides how the trained model answers: take one of them"
    if ways == ("reads", "reads"):
        return "each of them is a front end that the trained model reads through: take one of them"
    if ways == ("answers", "reads"):
        return f"{second.name} reads a text before anything else does: write {second.name}{JOINT}{first.name}"
    return None


def _passes(first: Defence, second: Defence) -> str | None:
    if first.walks and second.walks:
        hint = "take one of them"
        for one, other in ((first, second), (second, first)):
            if hasattr(one, "adversary") and other.name in ("freelb", "pgd"):
                hint = f"{one.name} takes this climb as a parameter, adversary={other.name}"
        return f"each of them makes its own passes over a batch: {hint}"
    for walker, other in ((first, second), (second, first)):
        if walker.walks and other.weighs and not walker.takes_objective:
            return f"{walker.name} computes its loss by itself and would leave out that of {other.name}"
    return None


def _refuse_reading(first: Defence, second: Defence) -> str | None:
    for one, other in ((first, second), (second, first)):
        if one.needs_images and not other.trains_images:
            return f"{one.name} trains on images here, and {other.name} cannot"
        if one.transforms and other.walks and other.moves_inputs:
            return f"{one.name} and {other.name} each put their own embeddings in place of the words': take one of them"
    return None


def _refuse_order(first: Defence, second: Defence) -> str | None:
    if first.copies_model and second.slots:
        return f"{first.name} copies the model, and {second.name} changes it: write {second.name}{JOINT}{first.name}"
    if first.transforms and second.transforms and second.needs_images:
        swapped = f"{second.name}{JOINT}{first.name}"
        return f"{second.name} moves pixels inside [0, 1], which {first.name} leaves: write {swapped}"
    return None
