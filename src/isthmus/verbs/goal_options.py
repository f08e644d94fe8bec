"""Turns a command's options into the goal of an attack.

nothing                              any wrong class
--target-label L                     class L
--from-label L                       examples of L only; any other class
--from-label L --threshold t         examples of L only; a score of L under t
--from-label L --at-fpr f            the same, t chosen on the clean development split
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import UsageError

if TYPE_CHECKING:
    from isthmus.attacks.parts.goals import Goal
    from isthmus.data import Dataset


@dataclass(frozen=True)
class GoalRequest:
    """Which examples are attacked, and what counts as success.

    >>> from isthmus import GoalRequest, attack
    >>> def is_spam(texts):
    ...     return [[0.1, 0.9] if "prize" in text else [0.9, 0.1] for text in texts]
    >>> rows = [("win a prize", "spam"), ("see you soon", "ham")]
    >>> found = attack(is_spam, "deepwordbug", rows, labels=("ham", "spam"),
    ...                goal=GoalRequest(from_label="spam", threshold=0.5))
    >>> len(found), found[0].outcome
    (1, 'succeeded')
    """

    target_label: str | None = None
    from_label: str | None = None
    threshold: float | None = None
    at_fpr: float | None = None
    positive: str | None = None
    """The class whose true-positive rate a gate judges; it changes no attack."""

    def __post_init__(self) -> None:
        for name in ("target_label", "from_label", "positive"):
            if not isinstance(label := getattr(self, name), str | None):
                raise UsageError(f"{name} is a class by its name, or by its number as a name ('1'), not {label!r:.80}")
        for name in ("threshold", "at_fpr"):
            if not isinstance(rate := getattr(self, name), Real | None):
                raise UsageError(f"{name} is a number, not {rate!r:.80}")
        if self.target_label is not None and (self.threshold is not None or self.at_fpr is not None):
            raise UsageError("--target-label asks for one class, --threshold and --at-fpr for any other: give one")
        if self.threshold is not None and self.at_fpr is not None:
            raise UsageError("--threshold gives the threshold and --at-fpr chooses it: give one of them")
        if self.from_label is None and (self.threshold is not None or self.at_fpr is not None):
            raise UsageError("--threshold and --at-fpr need --from-label: the class that must be detected")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise UsageError(f"--threshold is a score in (0, 1], not {self.threshold}")
        if self.at_fpr is not None and not 0 <= self.at_fpr < 1:
            raise UsageError(f"--at-fpr is a rate in [0, 1), not {self.at_fpr}")
        if self.target_label is not None and self.target_label == self.from_label:
            raise UsageError(f"--from-label and --target-label are both {self.from_label!r}: nothing would change")
        if self.positive is not None and self.from_label not in (None, self.positive):
            raise UsageError(
                f"--positive {self.positive}: with --from-label {self.from_label} no example of it is attacked. "
                "Leave one of them out"
            )

    @property
    def is_evasion(self) -> bool:
        """Whether the model is a detector, whose detection rates are of interest."""
        return self.from_label is not None and self.target_label is None

    def target(self, data: Dataset) -> int | None:
        """Index of the target class; an unknown one is an error."""
        return None if self.target_label is None else data.label_index(_parse_label(self.target_label, data))

    def find_attacked_class(self, data: Dataset) -> int | None:
        """Index of the class whose examples are attacked, or None for all."""
        return None if self.from_label is None else data.label_index(_parse_label(self.from_label, data))

    def check_positive(self, data: Dataset) -> None:
        """Refuse a class that the data do not have."""
        if self.positive is not None:
            data.label_index(_parse_label(self.positive, data))

    def settings(self) -> dict[str, Any]:
        """For the header and the hash: labels by name, so that their order does not matter."""
        if self.target_label is not None:
            return {"kind": "targeted", "target": self.target_label, "from_label": self.from_label}
        if self.threshold is None and self.at_fpr is None:
            return {"kind": "untargeted", "from_label": self.from_label}
        return {
            "kind": "evasion",
            "from_label": self.from_label,
            "threshold": self.threshold,
            "at_fpr": self.at_fpr,
        }


def make_goal(target: int | None, flagged: int | None, threshold: float | None) -> Goal:
    """The goal with the victim's class numbers; `threshold` is the final one, however it was chosen."""
    from isthmus.attacks.parts.goals import Evasion, Targeted, Untargeted

    if target is not None:
        return Targeted(target)
    if threshold is not None and flagged is not None:
        return Evasion(flagged, threshold)
    return Untargeted()


def _parse_label(name: str, data: Dataset) -> int | str:
    """A label by name, or by number if no label has that name."""
    if name.isascii() and name.isdigit() and name not in data.labels:
        return int(name)
    return name
