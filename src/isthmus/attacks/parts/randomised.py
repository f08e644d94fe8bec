"""Attacks on randomised victims: fresh draws confirm successes, failed searches restart.

A search stops at the first draw that goes its way, and a lucky draw is no adversarial text; nor is a text robust
because one draw went the victim's way. So

    second looks   the attack asks again, at the price of queries, and restarts where its success was luck
    restarts       the attack begins again after a search that failed, too
    fresh draws    whoever judges looks at draws that the attack never saw, at whatever text it ended with: the attack
                   has succeeded if more than half of them say so, and reached / draws is the probability that the
                   text fools the victim
    the clean side as many fresh draws of the unattacked text: right / draws is the probability that it is answered
                   correctly, so that the noise of the model can be told from the effect of the attack

Scores an attack has seen are selected for being favourable; fresh ones are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.goals import Goal
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.result import Clean, Fresh, Outcome
from isthmus.core.types import Floats
from isthmus.engine.requests import Request, Score
from isthmus.text.draft import Draft

SECOND_LOOKS = 5


class Attempts:
    """Searches for the same example, one after the other."""

    def __init__(self, trial: Trial) -> None:
        self.trials, self.shares = [trial], [0.0]
        self.clean = trial.scores

    def begin(self, rng: random.Random, rules: Sequence[Rule]) -> Trial:
        """Restart from the original text."""
        first = self.trials[0]
        trial = Trial(first.goal, first.label, first.original, self.clean, rng, rules)
        self.trials.append(trial)
        self.shares.append(0.0)
        return trial

    @property
    def best(self) -> Trial:
        """The final result of the attack.

        A success rather than none, of successes that which held on the most second looks, of failures the nearest.
        """
        if len(self.trials) == 1:
            return self.trials[0]
        ranks = [
            (trial.reached, self.shares[number] if trial.reached else trial.progress, number)
            for number, trial in enumerate(self.trials)
        ]
        return self.trials[max(ranks)[2]]

    @property
    def candidates(self) -> int:
        """Candidates that passed the rules, in all searches."""
        return sum(trial.candidates for trial in self.trials)


def insist(
    attempts: Attempts, search: Callable[[Trial], Search], rules: Sequence[Rule], streams: Iterable[random.Random]
) -> Search:
    """Confirm a success by more queries, and restart the search until more than half of them confirm one.

    Second looks are queries like any other. Where there is nothing to try, nothing is tried again.
    """
    left = iter(streams)
    while (trial := attempts.trials[-1]).reached or trial.candidates:
        if trial.reached:
            again = yield Score(trial.draft, count=SECOND_LOOKS)
            attempts.shares[-1] = float(np.mean(trial.goal.is_reached(again, trial.label)))
        rng = next(left, None)
        if attempts.shares[-1] > 0.5 or rng is None:
            return
        yield from search(attempts.begin(rng, rules))


def score_clean(
    goal: Goal, original: Draft, label: int, draws: int, declines: Callable[[Floats], bool]
) -> Generator[Request, Any, Clean]:
    """The share of fresh draws on which the victim is right about the unattacked text."""
    scores = yield Score(original, count=draws, exact=True, fresh=True)
    right = int(np.sum(goal.right(scores, label)))
    return Clean.of(draws, right, sum(declines(row) for row in scores))


def judge_outcome(
    trial: Trial, outcome: Outcome, draws: int, declines: Callable[[Floats], bool]
) -> Generator[Request, Any, tuple[Outcome, Fresh | None]]:
    """The outcome of the final text on fresh draws, and their counts; no counts if the text is unchanged.

    Even the text of a failed attack may fool the victim on more than half of the draws.
    """
    if trial.draft is trial.original:
        return outcome, None
    scores = yield Score(trial.draft, count=draws, exact=True, fresh=True)
    reached = int(np.sum(trial.goal.is_reached(scores, trial.label)))
    abstained = sum(declines(row) for row in scores)
    fresh = Fresh.of(draws, reached, abstained, claimed=outcome == "succeeded" or declines(trial.scores))
    if 2 * reached > draws:
        return "succeeded", fresh
    if abstained and 2 * (reached + abstained) > draws:
        return "abstained", fresh
    return ("timed_out" if outcome == "timed_out" else "failed"), fresh
