"""Goals of an attack, progress towards them, and which examples to attack.

    Untargeted      any class but the true one           progress = 1 - p(true)     margin = max p(other) - p(true)
    Targeted(t)     class t                              progress = p(t)            margin = p(t) - max p(other)
    Evasion(c, τ)   not to be flagged as c at τ          progress = 1 - p(c)        margin = τ - p(c)

A class is given by its number or by its name; names are looked up among the victim's labels when an attack begins
(`bound`), and a class that the victim does not have is refused.

A detector has a direction and a threshold: `Evasion` attacks only what it flags (p(c) >= τ), and an evasion counts when
p(c) < τ, whatever class is then the most likely.

A victim that may decline to answer has a column for that (`abstains`): declining is no wrong answer, and reaches
nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import ABSTAINS, Floats

Labels = int | NDArray[np.int64]
Truths = Any
"""An array of truth values, or a single one for a single row."""


class Goal(Protocol):
    """The goal of an attack.

    `scores` are class probabilities, one row or many; `label` is the true class, one for all rows or one each.
    """

    def progress(self, scores: Floats, label: int) -> Floats:
        """Progress of each row towards the goal: larger is better."""

    def is_reached(self, scores: Floats, label: Labels) -> Truths:
        """Which rows reach the goal (for one row: whether it does)."""

    def margin(self, scores: Floats, label: int) -> Floats:
        """Distance of each row beyond the goal: above 0 if it is reached, below 0 if not."""

    def loss(self, label: int) -> tuple[int, int]:
        """The class whose loss matters, and whether it should rise (1) or fall (-1)."""

    def right(self, scores: Floats, label: Labels) -> Truths:
        """Which rows of clean scores are correct; an abstention is not."""

    def applies(self, scores: Floats, label: int) -> bool:
        """Whether an example with these clean scores (one row) should be attacked."""


@dataclass(frozen=True, slots=True)
class Untargeted:
    """Any class but the true one; examples that are already misclassified are skipped."""

    abstains: int | None = None

    def progress(self, scores: Floats, label: int) -> Floats:
        """1 - p(true class)."""
        return 1 - scores[..., label]

    def is_reached(self, scores: Floats, label: Labels) -> Truths:
        """Another class is the most likely."""
        if scores.ndim == 1 and self.abstains is None:
            return int(scores.argmax()) != label
        top = scores.argmax(axis=-1)
        return top != label if self.abstains is None else (top != label) & (top != self.abstains)

    def margin(self, scores: Floats, label: int) -> Floats:
        """The most likely other class against the true one, or against abstention if that is more likely."""
        return _lead(scores, [label] if self.abstains is None else [label, self.abstains])

    def loss(self, label: int) -> tuple[int, int]:
        """The loss of the true class rises."""
        return label, 1

    def right(self, scores: Floats, label: Labels) -> Truths:
        """The true class is the most likely."""
        return scores.argmax(axis=-1) == label

    def applies(self, scores: Floats, label: int) -> bool:
        """Whether the clean prediction is correct."""
        return int(scores.argmax()) == label


@dataclass(frozen=True, slots=True)
class Targeted:
    """One given class; examples of that class, or already classified as it, are skipped."""

    target: int | str
    """Number or name of the class."""

    @property
    def column(self) -> int:
        """The target's column of the scores."""
        return _class_number(self.target)

    def progress(self, scores: Floats, label: int) -> Floats:
        """p(target)."""
        del label
        return scores[..., self.column]

    def is_reached(self, scores: Floats, label: Labels) -> Truths:
        """The target is the most likely class."""
        del label
        return scores.argmax(axis=-1) == self.column

    def margin(self, scores: Floats, label: int) -> Floats:
        """The target against the most likely of all others."""
        del label
        return _lead(scores, [index for index in range(scores.shape[-1]) if index != self.column])

    def loss(self, label: int) -> tuple[int, int]:
        """The loss of the target falls."""
        del label
        return self.column, -1

    def right(self, scores: Floats, label: Labels) -> Truths:
        """The true class is the most likely."""
        return scores.argmax(axis=-1) == label

    def applies(self, scores: Floats, label: int) -> bool:
        """Whether the clean prediction is correct and not the target."""
        return int(scores.argmax()) == label != self.column


@dataclass(frozen=True, slots=True)
class Evasion:
    """Not to be flagged as `flagged` by a detector with a threshold."""

    flagged: int | str
    """Number or name of the class."""
    threshold: float = 0.5
    abstains: int | None = None

    @property
    def column(self) -> int:
        """The flagged class's column of the scores."""
        return _class_number(self.flagged)

    def __post_init__(self) -> None:
        if not isinstance(self.threshold, Real) or not 0 < self.threshold <= 1:
            raise UsageError(f"a detection threshold lies in (0, 1], not {self.threshold}")

    def progress(self, scores: Floats, label: int) -> Floats:
        """1 - p(flagged class)."""
        del label
        return 1 - scores[..., self.column]

    def is_reached(self, scores: Floats, label: Labels) -> Truths:
        """The detector does not fire."""
        del label
        below = scores[..., self.column] < self.threshold
        return below if self.abstains is None else below & (scores.argmax(axis=-1) != self.abstains)

    def margin(self, scores: Floats, label: int) -> Floats:
        """Distance below the threshold; if it may abstain, at most the distance to abstention."""
        del label
        below = self.threshold - scores[..., self.column]
        return below if self.abstains is None else np.minimum(below, _lead(scores, [self.abstains]))

    def loss(self, label: int) -> tuple[int, int]:
        """The loss of the flagged class rises."""
        del label
        return self.column, 1

    def right(self, scores: Floats, label: Labels) -> Truths:
        """The detector fires."""
        del label
        fires = scores[..., self.column] >= self.threshold
        return fires if self.abstains is None else fires & (scores.argmax(axis=-1) != self.abstains)

    def applies(self, scores: Floats, label: int) -> bool:
        """Whether the example is of the flagged class and is detected."""
        return label == self.column and float(scores[self.column]) >= self.threshold


def _lead(scores: Floats, against: Sequence[int]) -> Floats:
    """The largest score of any other class, less the largest of those it is checked against."""
    others = [index for index in range(scores.shape[-1]) if index not in against]
    return np.asarray(scores[..., others].max(axis=-1) - scores[..., list(against)].max(axis=-1))


def bound(goal: Goal, labels: Sequence[str]) -> Goal:
    """The goal for a victim with these labels, which may be one that abstains.

    Class names become numbers. A class that is none of the victim's is an error: no example would ever be attacked.
    """
    classes = [label for label in labels if label != ABSTAINS]
    if isinstance(goal, Targeted):
        goal = dataclasses.replace(goal, target=_class(goal.target, "Targeted", classes))
    elif isinstance(goal, Evasion):
        goal = dataclasses.replace(goal, flagged=_class(goal.flagged, "Evasion", classes))
    if ABSTAINS not in labels or not hasattr(goal, "abstains"):
        return goal
    changed: Goal = dataclasses.replace(goal, abstains=list(labels).index(ABSTAINS))  # type: ignore[type-var]
    return changed


def _class(given: int | str, goal: str, classes: Sequence[str]) -> int:
    """The number of a class of the victim, given by number or name."""
    if isinstance(given, str):
        found = [number for number, name in enumerate(classes) if name == given]
        found = found or [number for number, name in enumerate(classes) if name.casefold() == given.casefold()]
        if len(found) != 1:
            raise UnknownName(f"class of the victim for {goal}", given, classes)
        return found[0]
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 0 <= given < len(classes):
        known = ", ".join(f"{number} {name}" for number, name in enumerate(classes[:20]))
        raise UsageError(f"{goal}({given!r}): the victim has no such class; it has {known}")
    return int(given)


def _class_number(given: int | str) -> int:
    if isinstance(given, str):
        raise UsageError(
            f"the class {given!r} is known by name only: an attack looks up its number in the victim's labels"
        )
    return given
