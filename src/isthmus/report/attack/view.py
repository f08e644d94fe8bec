"""One attack read for page and terminal: figures computed, nothing rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.runs.folder import AttackFile
from isthmus.summaries.attack import (
    BudgetCurve,
    Summary,
    budget_curve,
    shares_of_words_changed,
    summarise,
    without_candidates,
)

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult


@dataclass(frozen=True)
class AttackView:
    """One attack: its header, its results and derived figures."""

    key: str
    header: Mapping[str, Any]
    results: Sequence[AttackResult]

    @property
    def attack(self) -> str:
        """The method's name."""
        return self.key.split("@")[0]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that determine the results."""
        settings = self.header.get("settings")
        return settings if isinstance(settings, Mapping) else {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, in the order of the scores."""
        return tuple(str(label) for label in self.header.get("labels") or ())

    @property
    def resources(self) -> Mapping[str, str]:
        """Word lists and models the attack used, by role."""
        return _texts(self.settings.get("resources"))

    @property
    def preset(self) -> str | None:
        """Name of the preset of constraints."""
        preset = self.settings.get("preset")
        return str(preset) if preset else None

    @property
    def goal(self) -> Mapping[str, Any]:
        """The goal of the attack."""
        goal = self.settings.get("goal")
        return goal if isinstance(goal, Mapping) else {}

    @property
    def question(self) -> tuple[Any, ...]:
        """Goal, model and data: attacks that agree in it can be combined."""
        settings = self.settings
        return self.goal, self.threshold, settings.get("data"), settings.get("model"), settings.get("victim")

    @property
    def threshold(self) -> float | None:
        """The detection threshold of an evasion goal, given or chosen."""
        value = self.header.get("threshold")
        return float(value) if isinstance(value, int | float) else None

    @property
    def detection(self) -> Mapping[str, Any] | None:
        """Figures of an evasion: true- and false-positive rates, AUC."""
        value = self.header.get("detection")
        return value if isinstance(value, Mapping) else None

    @cached_property
    def summary(self) -> Summary:
        """The figures."""
        return summarise(self.results, self.threshold)

    @cached_property
    def curve(self) -> BudgetCurve:
        """Robust accuracy against the query budget."""
        return budget_curve(self.results, self.threshold)

    @property
    def shares(self) -> list[float]:
        """Share of words changed in each success."""
        return [] if self.is_of_images else shares_of_words_changed(self.results)

    @property
    def is_of_images(self) -> bool:
        """Whether pixels were perturbed instead of words."""
        return any(result.linf is not None for result in self.results)

    @property
    def successes(self) -> list[AttackResult]:
        """Results in which the classifier was fooled, in the order of the sample, not selected."""
        return [result for result in self.results if result.outcome == "succeeded"]

    @property
    def is_answered(self) -> bool:
        """Whether the model answered at least one example: without an answer there is no accuracy."""
        return any(result.prediction_before is not None for result in self.results)

    @property
    def is_randomised(self) -> bool:
        """Whether any result has fresh draws."""
        return any(result.fresh or result.clean for result in self.results)

    def without_candidates(self) -> dict[str, int]:
        """Numbers of examples without candidates, by reason."""
        counts = {"no words": 0, "budget": 0, "candidates": 0}
        for result in filter(without_candidates, self.results):
            why = "no words" if not result.words else "budget" if result.budget_spent else "candidates"
            counts[why] += 1
        return counts

    @property
    def is_complete(self) -> bool:
        """Whether every requested example has its result."""
        return len(self.results) >= int(self.header.get("n") or 0)

    def label(self, index: Any) -> str:
        """The name of a class."""
        if isinstance(index, int) and 0 <= index < len(self.labels):
            return self.labels[index]
        return "?" if index is None else str(index)

    def reasons(self) -> list[tuple[str, int]]:
        """Reasons for examples without a result, most frequent first."""
        counts: dict[str, int] = {}
        for result in self.results:
            if result.outcome in ("error", "timed_out"):
                reason = str(result.reason or result.outcome.replace("_", " "))
                counts[reason] = counts.get(reason, 0) + 1
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def read_attack(file: AttackFile) -> AttackView:
    """One attack of a run."""
    return AttackView(file.key, file.header(), file.results())


def _texts(value: Any) -> dict[str, str]:
    """A mapping of a header as strings; empty if it is not a mapping."""
    return {str(key): str(part) for key, part in value.items()} if isinstance(value, Mapping) else {}
