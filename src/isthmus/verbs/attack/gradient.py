"""Gradient attacks of a command: shared by images and text embeddings.

Rows are attacked in cohorts: blocks of `COHORT` rows of the one seeded order that every sample is cut from. A cohort is
attacked as a whole, even where only some of its rows are asked for, so that no row depends on how often the command was
interrupted or on how many were asked for before.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.attacks.options import AttackOptions, flag
from isthmus.core import catalog
from isthmus.core.errors import UsageError, VictimError
from isthmus.core.seeds import derive
from isthmus.runs.settings import to_plain
from isthmus.verbs.attack.prepared_attacks import PreparedAttacks, parameters_of
from isthmus.verbs.attack.suite import ALL, Suite
from isthmus.verbs.model_loading import deciding

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.attacks.gradient.base import GradientAttack, GradientResult, GradientSettings
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Example

COHORT = 100
OF_WORDS = {
    "protect": "--protect", "protect_pattern": "--protect-pattern", "protect_kinds": "--protect-kind",
    **{one.name: flag(one.name) for one in dataclasses.fields(AttackOptions) if one.metadata["of_words"]},
}  # fmt: skip
"""What a command can say of attacks that edit words, and of no others."""


def gradient_attacks() -> dict[str, catalog.Entry]:
    """Every attack on tensors, by name."""
    return {entry.name: entry for entry in catalog.entries("attacks") if entry.kind == "gradient"}


@dataclass(frozen=True)
class Cohort:
    """Examples that were attacked together, with one result each."""

    results: list[AttackResult]
    images: dict[str, np.ndarray[Any, Any]]
    """By id, of those that were attempted; none where what was moved is not kept."""


class PreparedGradientAttacks(PreparedAttacks, ABC):
    """A prepared command of gradient attacks."""

    moved: str
    """What they move."""

    def check(self) -> None:
        """Find all errors before anything is loaded or written."""
        request = self.request
        for name, option in OF_WORDS.items():
            if getattr(request, name):
                raise UsageError(f"{option} is for attacks that edit words: leave it out")
        if request.precision != "fp32":
            raise UsageError(f"{self.moved} are attacked in fp32, not in {request.precision!r}")
        goal = request.goal
        if goal.threshold is not None or goal.at_fpr is not None:
            raise UsageError(
                f"--threshold and --at-fpr are for attacks that edit words; --target-label works for {self.moved}"
            )
        _ = self.methods, self.sample
        self.check_data()
        goal.target(self.data)
        goal.check_positive(self.data)
        _ = self.folder

    def check_data(self) -> None:
        """Refuse data that cannot be attacked."""

    @cached_property
    def methods(self) -> dict[str, Any]:
        """The attacks by name, with their parameters."""
        every = gradient_attacks()
        named = [catalog.find("attacks", name) for name in self.request.attacks if name != ALL]
        entries = every if ALL in self.request.attacks else {entry.name: entry for entry in named}
        if not entries:
            raise UsageError(f"name at least one attack: --attack {','.join(every)}")
        for entry in entries.values():
            if entry.kind != "gradient":
                raise UsageError(f"{entry.name} edits words, and these are {self.moved}: --attack {','.join(every)}")
        given = parameters_of(self.request.parameters, entries)
        return {name: catalog.build("attacks", name, given[name]) for name in entries}

    @abstractmethod
    def one(self) -> Tensor:
        """One row of what is moved, or zeros of its shape."""

    def suite(self) -> Suite:
        """The attacks that fit what is moved; one of ``all`` that does not is left out."""
        one = self.one()
        chosen, left_out = [], {}
        for name, attack in self.methods.items():
            try:
                attack.check(one, self.gradient_settings())
                if self.request.goal.target_label is not None and not attack.takes_targets:
                    raise UsageError("it is untargeted, and --target-label asks for one class")
                chosen.append(name)
            except UsageError as error:
                if ALL not in self.request.attacks:
                    raise UsageError(f"{name} cannot run: {error}") from error
                left_out[name] = str(error)
                self.observer.note(f"{name} is left out: {error}")
        if not chosen:
            raise UsageError(f"no attack can run; {next(iter(left_out))}: {next(iter(left_out.values()))}")
        return Suite(tuple(chosen), left_out)

    @cached_property
    def search_draws(self) -> int:
        """Gradient attacks always use fixed draws."""
        return 0

    @property
    def draws(self) -> int:
        """Draws of a randomised model over which gradients are averaged."""
        return self.request.search_draws or 10

    @abstractmethod
    def gradient_settings(self) -> GradientSettings:
        """The settings of an attack."""

    def settings(self, name: str, search_draws: int) -> dict[str, Any]:
        """The settings that determine the rows of an attack."""
        del search_draws
        request = self.request
        return {
            "attack": name,
            "parameters": to_plain(self.methods[name]),
            "resources": {},
            "goal": request.goal.settings(),
            "seed": request.seed,
            "cohort": COHORT,
            "randomised": {"fresh": request.fresh, "draws": self.draws},
            "labels": request.labels,
            "data": {"split": self.data.split, "fingerprint": self.data.fingerprint},
            "victim": deciding(request.victim),
            "model": self.identity,
        }

    def cohorts(self, missing: set[str]) -> Iterator[tuple[int, list[Example]]]:
        """Yield the cohorts that have a missing row, complete, with their numbers."""
        order = self.first(None).align_labels(self.victim.labels).examples
        for start in range(0, len(order), COHORT):
            cohort = list(order[start : start + COHORT])
            if any(example.id in missing for example in cohort):
                yield start // COHORT, cohort

    def facts(self) -> dict[str, Any]:
        """Facts besides the settings, for the header of every result."""
        return {}

    @abstractmethod
    def attack_at_once(self, attack: GradientAttack, cohort: list[Example]) -> Cohort:
        """Attack a cohort at once."""

    def attack_cohort(self, name: str, cohort: list[Example]) -> Cohort:
        """Attack a cohort; if the model fails, halve it until the failing examples are alone."""
        try:
            return self.attack_at_once(self.methods[name], cohort)
        except VictimError as error:
            if len(cohort) == 1:
                return Cohort([_make_error(cohort[0], str(error), self.request.seed)], {})
            middle = len(cohort) // 2
            first, second = (self.attack_cohort(name, half) for half in (cohort[:middle], cohort[middle:]))
            return Cohort([*first.results, *second.results], first.images | second.images)

    def keys(self, cohort: list[Example]) -> list[int]:
        """The keys of the random numbers of each example."""
        return [derive(self.request.seed, "victim", example.id) >> 1 for example in cohort]

    def targets(self, labels: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The class that each row should be taken for, and which rows are of that class already.

        A row of the class asked for has nowhere to go; it is attacked towards another class and then skipped.
        """
        import torch

        wanted = self.request.goal.target(self.data)
        if wanted is None:
            return None, None
        index = self.numbering[wanted]
        own = labels == index
        return torch.where(own, (labels + 1) % len(self.victim.labels), index), own

    def result(
        self,
        example: Example,
        found: GradientResult,
        place: int,
        before: list[float],
        after: list[float],
        own: bool,
        tokens: int | None = None,
    ) -> AttackResult:
        """The result of one example of a cohort; `own`: its class is the target."""
        from isthmus.attacks.result import AttackResult, Fresh

        assert isinstance(example.label, int)
        skipped = bool(found.skipped[place]) or own
        success = bool(found.success[place]) and not skipped
        passes = round(found.forward / max(1, len(found.success)))
        draws = max(1, self.request.fresh)
        fresh = None
        if self.victim.stochastic and not skipped:
            fresh = Fresh.of(draws, round(float(found.fooled[place]) * draws), 0, claimed=success)
        wrong = bool(found.skipped[place]) and self.request.goal.target_label is None
        return AttackResult(
            example.id,
            "skipped" if skipped else "succeeded" if success else "failed",
            example.label,
            example.texts,
            example.texts,
            prediction_before=_choose_prediction(before, example.label, wrong) if skipped else example.label,
            prediction_after=int(found.predicted[place]) if not skipped else int(np.argmax(after)),
            score_before=tuple(before),
            score_after=tuple(after),
            logical_queries=passes,
            physical_queries=passes,
            candidates=max(1, passes - 1),
            seed=self.request.seed,
            fresh=fresh,
            l2=float(f"{found.l2[place]:.6g}"),
            linf=float(f"{found.linf[place]:.6g}"),
            blind=bool(found.blind[place]),
            tokens=tokens,
        )


def _choose_prediction(scores: list[float], label: int, wrong: bool) -> int:
    """The most likely class; if a randomised model is wrong on most draws, the most likely other than the label."""
    order = np.argsort(scores)[::-1].tolist()
    return int(next(index for index in order if index != label)) if wrong else int(order[0])


def _make_error(example: Example, reason: str, seed: int) -> AttackResult:
    from isthmus.attacks.result import AttackResult

    label = example.label if isinstance(example.label, int) else None
    return AttackResult(example.id, "error", label, {}, {}, seed=seed, reason=reason)
