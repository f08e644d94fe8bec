"""Two-step Monte-Carlo inference: a few noisy passes over a masked text, and many more if these disagree.

    step 1   k₀ draws of the text with its M most salient words masked;  n_a = votes of the most likely class
    accept   if n_a passes the rule
    step 2   else k₁ draws, each with M words masked that are drawn from the N most salient

    average  softmax(mean logits)          vote  shares of the votes, ties broken by the mean probability

Rules for accepting n_a of k₀ votes:

    released    P[Bin(k₀, ½) ≤ n_a] ≥ 0.98     as the authors' code reads the test: for k₀ = 5 all must agree
    greater     P[Bin(k₀, ½) ≥ n_a] ≤ level    the usual one-sided test; at 0.05 and k₀ = 5 all must agree
    min_count   n_a ≥ min_count
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError
from isthmus.models.deployment import Deployment

if TYPE_CHECKING:
    from isthmus.inference.two_step_victim import TwoStepVictim
    from isthmus.models.classifier import Classifier

Masking = Literal["gradient", "random", "none"]
AcceptRule = Literal["released", "greater", "min_count"]
Aggregate = Literal["average", "vote"]
_LEVELS = {"released": 0.98, "greater": 0.05}


@dataclass(frozen=True)
class TwoStep(Deployment):
    """The settings; a model's folder stores them, and ``-V name=value`` changes one for one use."""

    kind = "two_step"

    masked: int = 2
    """M: words masked in every draw; a shorter text has all of its words masked."""
    candidates: int = 5
    """N: the most salient words, from which the second step draws its masks."""
    masking: Masking = "gradient"
    """Which words: the most salient, any at random (again for every draw), or none."""
    k0: int = 5
    """Draws of the first step."""
    k1: int = 50
    """Draws of the second."""
    two_step: bool = True
    """Whether there is a second step; without, the first always decides."""
    accept_rule: AcceptRule = "released"
    """When the first step decides."""
    level: float | None = None
    """Level of the rule's test: by default 0.98 (released) or 0.05 (greater)."""
    min_count: int | None = None
    """Votes that the rule `min_count` needs; by default all k0."""
    aggregate: Aggregate = "average"
    """Mean logits, or a vote."""
    abstain: float | None = None
    """With a vote: decline to answer unless the two most likely classes differ at this level (Cohen's two-sided test of
    the votes that decide). A first step that was accepted has passed its own test, at that test's level."""

    def __post_init__(self) -> None:
        if self.masking is None:  # What a command line makes of the word none.
            object.__setattr__(self, "masking", "none")
        for name, choices in (("masking", Masking), ("accept_rule", AcceptRule), ("aggregate", Aggregate)):
            if getattr(self, name) not in get_args(choices):
                raise UsageError(f"{name} is one of {', '.join(get_args(choices))}, not {getattr(self, name)!r}")
        for name, least in (("masked", 0), ("candidates", 1), ("k0", 1), ("k1", 1)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise UsageError(f"{name} is a whole number that is at least {least}, not {getattr(self, name)!r}")
        if self.masking == "gradient" and self.candidates < self.masked:
            raise UsageError(
                f"{self.masked} words cannot be masked of {self.candidates} candidates: raise candidates, or lower "
                "masked"
            )
        if self.min_count is not None and not 1 <= self.min_count <= self.k0:
            raise UsageError(f"min_count lies between 1 and k0 = {self.k0}, not {self.min_count}")
        for name in ("level", "abstain"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 < value < 1):
                raise UsageError(f"{name} is the level of a test and lies strictly between 0 and 1, not {value}")
        if self.abstain is not None and self.aggregate != "vote":
            raise UsageError("abstain needs votes: choose aggregate=vote")
        if self.abstain is not None and self.two_step and self.accept_rule == "min_count":
            raise UsageError(
                "abstain declines what a test leaves open, and accept_rule=min_count accepts without one: choose "
                "accept_rule=released or greater, or two_step=false"
            )

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> TwoStepVictim:
        """The classifier with two-step inference as a victim; `draws` and `fixed` as for any randomised classifier."""
        from isthmus.inference.two_step_victim import TwoStepVictim

        how = {name: options.pop(name) for name in ("draws", "fixed") if name in options}
        settings = self.change(options)
        assert isinstance(settings, TwoStep)
        return TwoStepVictim(model, settings, precision, **how)

    @property
    def masks(self) -> bool:
        """Whether any word is masked."""
        return self.masking != "none" and self.masked > 0

    def find_accepted(self) -> NDArray[np.bool_]:
        """Whether n_a votes of the first step are enough for a prediction, for n_a = 0 … k0."""
        from scipy.special import bdtr, bdtrc

        votes = np.arange(self.k0 + 1)
        if not self.two_step:
            return np.ones(self.k0 + 1, bool)
        if self.accept_rule == "min_count":
            return votes >= (self.min_count or self.k0)
        level = self.level or _LEVELS[self.accept_rule]
        if self.accept_rule == "released":
            return np.asarray(bdtr(votes, self.k0, 0.5) >= level)
        at_least = np.where(votes > 0, bdtrc(np.maximum(votes - 1, 0), self.k0, 0.5), 1.0)
        return np.asarray(at_least <= level)
