"""The search on a randomised victim over fixed draws: it sees their mean.

A search that is given another draw for every query climbs in the dark, and stops at the first draw that goes its way.
Here it sees, of every candidate x,

    s(x) = 1/K Σ_k s(x; ω_k)                               the same ω_1 … ω_K for every query about one example
    m_k  = margin of s(x; ω_k)                             above 0 where this draw is fooled
    low  = mean(m) - t(0.975; K - 1) · sd(m) / √K          the goal counts as reached when low > 0

so that it goes on from the text as it stands, past the boundary, until the lower end of the 95 % interval of its mean
margin is beyond it. Attacks know nothing of this: their requests are for K draws of each candidate, rows of scores have
`low` as a last column, and the goal is `OverDraws`. A candidate costs K queries.

A vote shows nothing as long as all draws agree: there is no slope to climb. Of a victim that votes the search sees the
mean probabilities behind the votes (`Voting`), and what seems to reach the goal by these is asked about once more, as
it is deployed, on the same draws: `low` is the lower of both.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from isthmus.attacks.parts.candidates import Candidates, Rule
from isthmus.attacks.parts.goals import Goal, Labels, Truths
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Floats
from isthmus.engine.requests import Gradient, Request, Score
from isthmus.engine.tasks import BudgetSpent, no_progress
from isthmus.text.draft import Draft

SEARCH_DRAWS = 8
"""Draws that a search sees of a randomised victim unless it is told otherwise."""
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class OverDraws:
    """A goal, for rows of scores [classes + 1] that `summarise` made of several draws."""

    goal: Goal

    def summarise(self, scores: Floats, label: int) -> Floats:
        """The mean of scores [candidates, draws, classes] over the draws, and `low`."""
        margins = np.asarray(self.goal.margin(scores, label), np.float64)
        draws = margins.shape[1]
        spread = margins.std(axis=1, ddof=1) / math.sqrt(draws)
        low = margins.mean(axis=1) - _quantile(draws - 1) * spread
        means = scores.mean(axis=1, dtype=np.float64)
        return np.concatenate([means, low[:, None]], axis=1).astype(np.float32)

    def plain(self, rows: Floats) -> Floats:
        """The scores without `low`."""
        return rows[..., :-1]

    def progress(self, scores: Floats, label: int) -> Floats:
        """Progress of the mean."""
        return self.goal.progress(self.plain(scores), label)

    def margin(self, scores: Floats, label: int) -> Floats:
        """Lower end of the interval of the margin."""
        del label
        return scores[..., -1]

    def is_reached(self, scores: Floats, label: Labels) -> Truths:
        """Whether the lower end is above zero."""
        del label
        return scores[..., -1] > 0

    def right(self, scores: Floats, label: Labels) -> Truths:
        """Whether the mean is correct."""
        return self.goal.right(self.plain(scores), label)

    def applies(self, scores: Floats, label: int) -> bool:
        """Whether the goal applies to the mean."""
        return self.goal.applies(self.plain(scores), label)

    def loss(self, label: int) -> tuple[int, int]:
        """The class whose loss matters and its direction, as in the original goal."""
        return self.goal.loss(label)


def choose_search_draws(asked: int | None, *, randomised: bool) -> int:
    """Number of fixed draws of a search, requested or by default; 0: a new draw for every query."""
    if asked is None:
        return SEARCH_DRAWS if randomised else 0
    if asked > 1 and not randomised:
        raise UsageError(
            f"--search-draws (search_draws) is {asked}, but this model draws nothing: it gives a text the same scores "
            "every time. Leave the option out"
        )
    return asked if asked > 1 else 0


@cache
def _quantile(freedom: int) -> float:
    # As in `core.statistics`: scipy.special is imported in a tenth of the time of scipy.stats.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


def begin_trial(
    goal: Goal, label: int, original: Draft, clean: Floats, rng: random.Random, rules: Sequence[Rule], draws: int
) -> Trial:
    """Make a trial after one draw of the clean text; with `draws` its goal is over fixed draws."""
    if not draws:
        return Trial(goal, label, original, clean, rng, rules)
    return Trial(OverDraws(goal), label, original, np.append(clean, np.float32(0)), rng, rules)


def conclude_trial(trial: Trial) -> Trial:
    """The trial with the original goal, and scores as means over the draws."""
    if isinstance(trial.goal, OverDraws):
        trial.scores, trial.goal = trial.goal.plain(trial.scores), trial.goal.goal
    return trial


def over_draws(search: Callable[[Trial], Search], trial: Trial, draws: int, votes: bool = False) -> Search:
    """Run a search whose every score is over `draws` fixed draws; the trial's goal is an `OverDraws`.

    `votes` says that the victim votes, so that what the search sees is not what is deployed.
    """
    goal, label = trial.goal, trial.label
    assert isinstance(goal, OverDraws)
    clean = yield Score(trial.original, draws=draws)
    start = row = goal.summarise(clean[None], label)[0]
    if goal.is_reached(row, label):  # Only the first draw was right: any change that leaves it wrong will do.
        start = goal.summarise(no_progress(clean, label, draws)[None], label)[0]
    trial.scores, trial.progress = start, float(goal.progress(start, label))
    try:
        yield from _search_over_draws(search(trial), trial, draws, votes)
    finally:
        if trial.draft is trial.original:  # An attack has to change something.
            trial.scores = np.append(goal.plain(row), min(row[-1], np.float32(0)))


def _search_over_draws(steps: Search, trial: Trial, draws: int, votes: bool) -> Search:
    """The steps of a search, every score of which is over the draws."""
    goal, label = trial.goal, trial.label
    assert isinstance(goal, OverDraws)
    resume: Callable[[Any], Request] = steps.send
    answer: Any = None
    while True:
        try:
            request = resume(answer)
        except StopIteration:
            return
        try:
            answer, resume = (yield _ask_for_draws(request, draws)), steps.send
            if isinstance(request, Score):
                answer = goal.summarise(answer.reshape(request.count, draws, -1), label)
                if votes:
                    yield from _look_at_votes(trial, request, answer)
        except Exception as error:
            answer, resume = error, steps.throw  # The search may have a last word.


def _look_at_votes(trial: Trial, request: Score, rows: Floats) -> Search:
    """Query the votes for candidates that reach the goal by the means behind the votes."""
    goal, label = trial.goal, trial.label
    assert isinstance(goal, OverDraws)
    reached = np.asarray(goal.is_reached(rows, label))
    if not reached.any():
        return
    ends = Candidates(request.base, request.edits, request.count).keep(reached)
    try:
        votes = yield Score(ends.base, ends.edits, ends.count, draws=request.draws, as_deployed=True)
    except BudgetSpent:  # Not seen is not reached; the search will hear of it when it asks for more.
        rows[reached, -1] = 0
        return
    low = goal.summarise(votes.reshape(ends.count, request.draws, -1), label)[:, -1]
    rows[reached, -1] = np.minimum(rows[reached, -1], low)


def _ask_for_draws(request: Request, draws: int) -> Request:
    """The request, for fixed draws if it goes to the victim."""
    if isinstance(request, Score):
        request.ask_for(draws)
    elif isinstance(request, Gradient):
        return Gradient(request.base, request.label, draws, shared=True)
    return request
