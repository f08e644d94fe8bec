"""The search over draws of a randomised victim that stay the same throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest
from engine_toys import TextVictim, examples
from numpy.typing import NDArray
from scipy.stats import t

from isthmus.attacks.base import AttackSettings, WordAttack
from isthmus.attacks.parts.goals import Evasion, Goal, Targeted, Untargeted
from isthmus.attacks.parts.searches import Search, greedy
from isthmus.attacks.parts.shared_draws import SEARCH_DRAWS, OverDraws
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.result import AttackResult
from isthmus.core.errors import UsageError
from isthmus.core.hashing import splitmix
from isthmus.core.seeds import derive
from isthmus.core.types import Floats, Texts
from isthmus.engine.requests import Edits, replacing
from isthmus.engine.scheduler import EngineSettings
from isthmus.engine.scoring import shared_streams

WORDS = 9
TEXTS = [" ".join(["brisk"] * (WORDS - 1)) + f" {number}" for number in range(60)]


def normal(key: int) -> float:
    """A standard normal number, from the key of a draw."""
    bits = int(splitmix(np.array([key], np.uint64))[0]) >> 11
    return NormalDist().inv_cdf((bits + 0.5) / 2**53)


class Noisy:
    """p(positive) - p(negative) = start - gain * number of "slow" + noise * z(key)."""

    labels = ("negative", "positive")
    stochastic = True

    def __init__(self, start: float = 0.3, gain: float = 0.1, noise: float = 0.2) -> None:
        self.start, self.gain, self.noise = start, gain, noise
        self.asked: list[tuple[str, int]] = []

    def margin(self, slow: int, key: int) -> float:
        return self.start - self.gain * slow + self.noise * normal(key)

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        assert keys is not None
        self.asked += [(text["text"], int(key)) for text, key in zip(texts, keys, strict=True)]
        margins = [
            self.margin(text["text"].count("slow"), int(key)) for text, key in zip(texts, keys.tolist(), strict=True)
        ]
        positive = np.clip(0.5 + np.array(margins) / 2, 0, 1)
        return np.stack([1 - positive, positive], axis=1).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Slow(WordAttack):
    """Writes "slow" for one word after the other, where that helps."""

    def search(self, trial: Trial) -> Search:
        yield from greedy(trial, trial.positions().tolist(), slow)


def slow(trial: Trial, position: int) -> Edits:
    return replacing(position, trial.vocabulary.ids(["slow"]))


def attacked(victim: object, texts: Sequence[str] = TEXTS, **options: object) -> list[AttackResult]:
    results = list(Slow()(victim, examples(*texts), AttackSettings(**options)))  # type: ignore[arg-type]
    return sorted(results, key=lambda result: int(result.id.split(":")[1]))


def slowed(result: AttackResult) -> int:
    return result.perturbed["text"].count("slow")


def test_what_a_search_of_single_draws_leaves_the_mean_over_shared_ones_finds():
    """Nine words turn every text for good; noise of two words' worth hides which of them help, and stops too early."""
    before, now = attacked(Noisy(), search_draws=0), attacked(Noisy(), search_draws=16)
    tried = [(old, new) for old, new in zip(before, now, strict=True) if old.outcome != "skipped"]
    assert len(tried) > 50
    assert np.mean([old.outcome == "failed" for old, _ in tried]) > 0.3
    assert np.mean([new.outcome == "failed" for _, new in tried]) < 0.05


@pytest.mark.parametrize("draws", [2, 5, 16])
def test_it_goes_on_until_the_lower_end_of_the_interval_is_past_zero(draws: int):
    victim = Noisy(gain=0.12)
    early = 0
    for result in attacked(victim, search_draws=draws):
        if result.outcome == "skipped":
            continue
        noise = noise_of(result, draws)
        needed = next((n for n in range(1, WORDS + 1) if lower(noise, 0.12 * n - 0.3) > 0), WORDS)
        assert slowed(result) == needed
        boundary = next(n for n in range(1, WORDS + 1) if np.mean(noise) + 0.12 * n - 0.3 > 0)
        early += boundary < needed
    assert early > 40


def noise_of(result: AttackResult, draws: int) -> list[float]:
    """What the shared draws add to the margin of another class."""
    return [-0.2 * normal(int(key)) for key in shared_streams(derive(0, "victim", result.id), draws)]


def lower(noise: list[float], shift: float) -> float:
    """By scipy: the lower end of the 95 % interval of the mean."""
    values = np.clip(np.array(noise) + shift, -1, 1)
    interval = t.interval(0.95, len(values) - 1, values.mean(), values.std(ddof=1) / math.sqrt(len(values)))
    return float(interval[0])


def test_the_draws_are_the_same_throughout_and_the_judge_has_others():
    victim = Noisy(start=0.5)
    attacked(victim, TEXTS[:1], search_draws=6)
    shared = set(shared_streams(derive(0, "victim", "test:0"), 6).tolist())
    seen: dict[str, list[int]] = {}
    for text, key in victim.asked:
        seen.setdefault(text, []).append(key)
    for keys in seen.values():
        assert shared <= set(keys)
        assert sum(key in shared for key in keys) == 6  # each of them once
    others = [key for _, key in victim.asked if key not in shared]
    assert len(others) == len(set(others)) == 1 + 2 * 20  # the first look, and those of the judge


def test_every_draw_is_a_query():
    victim = Noisy(start=0.5)
    (result,) = attacked(victim, TEXTS[:1], search_draws=6, fresh=0)
    assert result.logical_queries == len(victim.asked) == 1 + 6 * (1 + slowed(result))
    assert result.physical_queries == 1 + slowed(result)


def test_a_budget_counts_draws():
    for budget, asked in ((1, 1), (6, 1), (7, 7), (18, 13), (19, 19), (24, 19)):
        (result,) = attacked(Noisy(noise=0.01), TEXTS[:1], search_draws=6, budget=budget)
        assert result.logical_queries == asked
        assert slowed(result) == max(0, (asked - 7) // 6)
        assert result.budget_spent
    (result,) = attacked(Noisy(start=0.5), TEXTS[:1], search_draws=6, budget_per_word=2)
    assert result.logical_queries == 1 + 6 * 2


def test_the_part_of_a_request_that_a_budget_covers_is_whole_candidates():
    @dataclass(frozen=True, kw_only=True)
    class Ranks(WordAttack):
        def search(self, trial: Trial) -> Search:
            from isthmus.attacks.parts.searches import by_importance

            yield from by_importance(trial, trial.positions())

    victim = Noisy(start=0.5)
    (result,) = Ranks()(victim, examples(TEXTS[0]), AttackSettings(search_draws=5, budget=1 + 5 * 4 + 3, fresh=0))
    assert result.logical_queries == 1 + 5 * 4
    assert len({text for text, _ in victim.asked}) == 4


def test_an_attack_has_to_change_something():
    """A text that the first draw got right by luck: its mean is wrong already."""
    for gain in (0.1, -0.01):  # A change may help, or make it a little less wrong.
        results = attacked(Noisy(start=-0.25, gain=gain), search_draws=8)
        tried = [result for result in results if result.outcome != "skipped" and lower(noise_of(result, 8), 0.24) > 0]
        assert tried
        for result in tried:
            assert slowed(result) == 1
            assert (result.outcome, result.fresh.claimed) == ("succeeded", True)


def test_a_text_that_is_wrong_by_itself_is_no_success_where_nothing_can_be_changed():
    @dataclass(frozen=True, kw_only=True)
    class Idle(WordAttack):
        def search(self, trial: Trial) -> Search:
            assert not trial.reached
            yield from ()

    results = list(Idle()(Noisy(start=-0.25), examples(*TEXTS), AttackSettings(search_draws=8)))
    tried = [result for result in results if result.outcome != "skipped"]
    assert {(result.outcome, result.prediction_after) for result in tried} == {("failed", 0)}


def test_results_do_not_depend_on_company_or_memory():
    together = attacked(Noisy(), search_draws=7)
    assert attacked(Noisy(), search_draws=7, engine=EngineSettings(in_flight=1)) == together
    assert attacked(Noisy(), search_draws=7, engine=EngineSettings(cache_stochastic=True)) == together
    assert attacked(Noisy(), search_draws=7, seed=1) != together


def test_what_is_shown_of_the_end_is_the_mean():
    (result,) = attacked(Noisy(start=0.5), TEXTS[:1], search_draws=9)
    keys = shared_streams(derive(0, "victim", "test:0"), 9).tolist()
    margin = np.mean([Noisy(start=0.5).margin(slowed(result), key) for key in keys])
    assert result.score_after == pytest.approx([0.5 - margin / 2, 0.5 + margin / 2], abs=1e-6)
    assert result.prediction_after == 0


def test_a_deterministic_victim_has_no_draws_to_share():
    victim = TextVictim(lambda text: 0.1 if "slow" in text["text"] else 0.9)
    with pytest.raises(UsageError, match="draws nothing"):
        attacked(victim, TEXTS[:1], search_draws=8)
    (usual,) = attacked(victim, TEXTS[:1])
    for same in (0, 1):
        assert attacked(victim, TEXTS[:1], search_draws=same) == [usual]
    assert usual.logical_queries == 2


def test_shared_draws_are_the_default_against_a_randomised_victim():
    assert SEARCH_DRAWS == 8
    assert attacked(Noisy(), TEXTS[:10]) == attacked(Noisy(), TEXTS[:10], search_draws=8)


def test_one_draw_is_the_search_as_it_was():
    assert attacked(Noisy(), search_draws=1) == attacked(Noisy(), search_draws=0)


@pytest.mark.parametrize("goal", [Untargeted(), Untargeted(2), Targeted(0), Evasion(1, 0.4), Evasion(1, 0.4, 2)])
def test_a_margin_is_above_zero_where_the_goal_is_reached(goal: Goal):
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 500).astype(np.float32)
    margins = goal.margin(scores, 1)
    assert np.array_equal(margins > 0, goal.is_reached(scores, 1))
    assert np.array_equal(goal.margin(scores[None], 1)[0], margins)


def test_rows_over_draws_are_means_with_their_lower_end():
    scores = np.random.default_rng(1).dirichlet(np.ones(3), (4, 6)).astype(np.float32)
    goal = OverDraws(Untargeted())
    rows = goal.summarise(scores, 1)
    assert goal.plain(rows) == pytest.approx(scores.mean(axis=1), abs=1e-6)
    margins = np.delete(scores, 1, axis=2).max(axis=2) - scores[..., 1]
    assert rows[:, -1] == pytest.approx([lower(row.tolist(), 0.0) for row in margins], abs=1e-6)
    assert np.array_equal(goal.is_reached(rows, 1), rows[:, -1] > 0)
    assert goal.progress(rows, 1) == pytest.approx(1 - scores.mean(axis=1)[:, 1], abs=1e-6)


def test_negative_numbers_of_draws_are_refused():
    with pytest.raises(UsageError, match="search_draws"):
        AttackSettings(search_draws=-1)


class Voter(Noisy):
    """Five passes vote; their mean margin falls with every "slow", and their votes all agree until it is nearly zero.

    `drag` is the margin that the first pass has of its own, so that it may outweigh the others in the mean alone.
    """

    def __init__(self, by_means: bool = False, drag: float = 0.0) -> None:
        super().__init__(start=0.5, noise=0.02)
        self.by_means, self.drag = by_means, drag
        self.labels = ("negative", "positive")

    @property
    def graded(self) -> Voter | None:
        if self.by_means:
            return None
        other = Voter(True, self.drag)
        other.asked = self.asked
        return other

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        assert keys is not None
        passes = []
        for number in range(5):
            own = super().scores(texts, splitmix(keys + np.uint64(number)))
            passes.append(np.clip(own + (self.drag if not number else 0) * np.array([1, -1], np.float32), 0, 1))
        del self.asked[-5 * len(texts) :]
        self.asked += [(text["text"], int(key)) for text, key in zip(texts, keys, strict=True)]
        if self.by_means:
            return np.mean(passes, axis=0)
        return np.mean([np.eye(2)[each.argmax(axis=1)] for each in passes], axis=0).astype(np.float32)


class Mute(Voter):
    """The same without a way to see behind the votes."""

    graded = None  # type: ignore[assignment]


def test_a_vote_is_climbed_by_the_means_behind_it():
    assert {result.outcome for result in attacked(Mute(), TEXTS[:8], search_draws=6)} == {"failed"}
    for result in attacked(Voter(), TEXTS[:8], search_draws=6):
        assert result.outcome == "succeeded"
        assert slowed(result) in (5, 6)


def test_a_mean_that_is_past_zero_is_not_enough_where_votes_decide():
    for result in attacked(Voter(drag=0.9), TEXTS[:8], search_draws=6):
        assert slowed(result) in (5, 6)  # by the mean, (4 m - 1) / 5 < 0, it would be 3
        assert result.outcome == "succeeded"
        assert result.fresh.claimed


def test_looks_at_votes_are_queries_and_end_with_the_budget():
    victim = Voter()
    (result,) = attacked(victim, TEXTS[:1], search_draws=6, fresh=0)
    looks = len(victim.asked) - 1 - 6 * (1 + slowed(result))
    assert result.logical_queries == len(victim.asked)
    assert looks > 0
    assert looks % 6 == 0
    short = 1 + 6 * (1 + slowed(result))
    (cut,) = attacked(Voter(), TEXTS[:1], search_draws=6, budget=short)
    assert slowed(cut) == slowed(result)  # the last text was seen by its mean, and its votes were not
    assert (cut.logical_queries, cut.budget_spent, cut.fresh.claimed) == (short, True, False)
    assert cut.outcome == "succeeded"
