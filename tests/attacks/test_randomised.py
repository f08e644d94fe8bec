"""Attacks on victims that answer the same text now one way, now another, with another draw for every query."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from engine_toys import TextVictim, examples
from numpy.typing import NDArray
from scipy.stats import binomtest

from isthmus.attacks.base import AttackSettings, WordAttack
from isthmus.attacks.options import FRESH_DRAWS
from isthmus.attacks.parts.goals import Evasion, Targeted, Untargeted, bound
from isthmus.attacks.parts.randomised import SECOND_LOOKS
from isthmus.attacks.parts.searches import Search, greedy
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.result import AttackResult, Clean, Fresh
from isthmus.core.errors import UsageError
from isthmus.core.hashing import splitmix
from isthmus.core.types import ABSTAINS, Floats, Texts
from isthmus.engine.requests import Edits, replacing
from isthmus.engine.scheduler import EngineSettings
from isthmus.summaries.attack import summarise


class Coin:
    """Right about every text, but about one with "slow" in it only with a certain probability; draws by key."""

    stochastic = True

    def __init__(self, fooled: float, declines: float = 0.0, at: Callable[[str], float] | None = None) -> None:
        self.fooled, self.share = fooled, declines
        self.at = at or (lambda text: float("slow" in text))
        self.labels = ("negative", "positive", ABSTAINS) if declines else ("negative", "positive")
        self.asked: list[tuple[str, int]] = []

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        assert keys is not None
        self.asked += [(text["text"], int(key)) for text, key in zip(texts, keys, strict=True)]
        rows = np.zeros((len(texts), len(self.labels)), np.float32)
        for row, text, key in zip(rows, texts, keys, strict=True):
            draw = float(splitmix(np.array([key], np.uint64))[0] >> np.uint64(11)) / 2**53
            at = self.at(text["text"])
            answer = 0 if draw < at * self.fooled else 2 if draw < at * (self.fooled + self.share) else 1
            row[:] = 0.1 / len(row)
            row[answer] += 0.9
        return rows


@dataclass(frozen=True, kw_only=True)
class Slow(WordAttack):
    """Writes "slow" for the first word."""

    def search(self, trial: Trial) -> Search:
        yield from greedy(trial, trial.positions()[:1], slow)


def slow(trial: Trial, position: int) -> Edits:
    return replacing(position, trial.vocabulary.ids(["slow"]))


TEXTS = [f"brisk film number {number}" for number in range(120)]


def attacked(victim: object, texts: Sequence[str] = TEXTS, **options: object) -> list[AttackResult]:
    results = list(Slow()(victim, examples(*texts), AttackSettings(**{"search_draws": 0, **options})))
    return sorted(results, key=lambda result: int(result.id.split(":")[1]))


def test_a_text_that_always_fools_is_a_success_and_one_that_never_does_is_none():
    for always in (1.0, 0.0):
        for result in attacked(Coin(always), TEXTS[:10]):
            assert result.outcome == ("succeeded" if always else "failed")
            assert result.fresh == (Fresh.of(20, 20, 0) if always else None)


def test_lucky_draws_are_looked_at_again_and_do_not_count():
    results = attacked(Coin(0.3))
    claimed = [result for result in results if result.fresh]
    assert 0 < len(claimed) < len(results)
    for result in claimed:
        assert (result.outcome == "succeeded") == (2 * result.fresh.reached > result.fresh.draws)
    # A fair look: over all texts the share of fresh draws is the probability itself.
    reached = sum(result.fresh.reached for result in claimed)
    assert binomtest(reached, FRESH_DRAWS * len(claimed), 0.3).pvalue > 1e-3
    assert sum(result.outcome == "succeeded" for result in claimed) < 0.15 * len(claimed)


def test_the_intervals_cover_the_probability():
    results = attacked(Coin(0.8), fresh=12)
    fresh = [result.fresh for result in results if result.fresh]
    assert np.mean([each.low <= 0.8 <= each.high for each in fresh]) >= 0.93
    assert all(each.draws == 12 for each in fresh)


def test_what_the_attack_saw_and_what_judges_it_are_other_draws():
    victim = Coin(0.6)
    attacked(victim, TEXTS[:20], restarts=0)
    keys = [key for _, key in victim.asked]
    assert len(set(keys)) == len(keys)


def test_second_looks_cost_queries_and_fresh_draws_do_not():
    victim = Coin(1.0)
    (result,) = attacked(victim, TEXTS[:1])
    assert result.logical_queries == 2 + SECOND_LOOKS
    assert result.physical_queries == 2
    assert len(victim.asked) == 2 + SECOND_LOOKS + 2 * FRESH_DRAWS  # of the clean text, and of the other
    victim = Coin(1.0)
    (result,) = attacked(victim, TEXTS[:1], fresh=0)
    assert result.outcome == "succeeded"
    assert result.fresh is None
    assert result.clean is None
    assert len(victim.asked) == 2 + SECOND_LOOKS


def test_an_attack_begins_anew_after_a_lucky_draw():
    wins = [{result.id for result in attacked(Coin(0.4), restarts=n) if result.fresh} for n in (0, 6)]
    assert wins[0] < wins[1]  # a success is kept, whatever comes after, and a failure is tried again
    more = [np.mean([result.logical_queries for result in attacked(Coin(0.4), restarts=n)]) for n in (0, 6)]
    assert more[1] > more[0]


def test_fresh_draws_are_looked_at_though_budget_is_spent():
    for result in attacked(Coin(1.0), TEXTS[:5], budget=2):
        assert result.outcome == "succeeded"
        assert result.budget_spent
        assert result.fresh == Fresh.of(20, 20, 0)


def test_a_time_limit_leaves_the_judge_and_the_similarity_their_turn():
    class Slowly(Coin):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            time.sleep(0.6 if len(texts) == SECOND_LOOKS else 0)
            return super().scores(texts, keys)

    class Same:
        name = "all alike"

        def encode(self, texts: Sequence[str]) -> Floats:
            return np.ones((len(texts), 1), np.float32)

    settings = AttackSettings(engine=EngineSettings(time_limit=0.5, in_flight=1), search_draws=0)
    (result,) = Slow()(Slowly(1.0), examples(TEXTS[0]), settings, encoder=Same())
    assert result.outcome == "succeeded"
    assert result.fresh == Fresh.of(20, 20, 0)
    assert result.similarity == 1.0


def test_the_judges_time_is_not_the_attacks():
    class Slowly(Coin):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            time.sleep(0.6 if len(texts) == FRESH_DRAWS else 0)
            return super().scores(texts, keys)

    (result,) = attacked(Slowly(1.0), TEXTS[:1], engine=EngineSettings(time_limit=0.5, in_flight=1))
    assert result.outcome == "succeeded"
    assert (result.fresh, result.clean) == (Fresh.of(20, 20, 0), Clean.of(20, 20, 0))


def test_remembered_scores_do_not_answer_the_judge():
    victim = Coin(0.5)
    attacked(victim, TEXTS[:30], engine=EngineSettings(cache_stochastic=True), restarts=0)
    looks = {text: sum(other == text for other, _ in victim.asked) for text, _ in victim.asked if "slow" in text}
    assert set(looks.values()) == {1, 1 + FRESH_DRAWS}


def test_results_do_not_depend_on_company():
    together = attacked(Coin(0.5))
    alone = attacked(Coin(0.5), engine=EngineSettings(in_flight=1))
    assert together == alone


def test_a_deterministic_victim_is_asked_what_it_was_always_asked():
    victim = TextVictim(lambda text: 0.1 if "slow" in text["text"] else 0.9)
    (result,) = attacked(victim, TEXTS[:1])
    assert result.outcome == "succeeded"
    assert (result.logical_queries, result.physical_queries) == (2, 2)
    assert len(victim.asked) == 2
    assert not {"fresh", "clean"} & set(result.to_row())


def test_the_clean_side_is_the_probability_of_a_right_answer_unattacked():
    """A model that is fooled by every text with probability 0.3: the texts it got wrong at first are looked at too."""
    results = attacked(Coin(0.3, at=lambda _: 1.0))
    assert {"skipped"} < {result.outcome for result in results}
    clean = [result.clean for result in results]
    assert all(each is not None and each.draws == FRESH_DRAWS and each.abstained == 0 for each in clean)
    right = sum(each.right for each in clean)
    assert binomtest(right, FRESH_DRAWS * len(clean), 0.7).pvalue > 1e-3
    assert np.mean([each.low <= 0.7 <= each.high for each in clean]) >= 0.93
    summary = summarise(results)
    assert summary.fresh.expected_sacc.estimate == pytest.approx(right / FRESH_DRAWS / len(clean))
    # The first look alone selects the texts that were lucky: no such luck in fresh draws.
    held = [result.clean.right for result in results if result.outcome != "skipped"]
    assert binomtest(sum(held), FRESH_DRAWS * len(held), 0.7).pvalue > 1e-3


def test_the_clean_side_does_not_depend_on_what_the_attack_did():
    tried, not_tried = attacked(Coin(0.4), restarts=5), attacked(Coin(0.4), budget=1)
    assert [result.clean for result in tried] == [result.clean for result in not_tried]
    assert all(result.clean == Clean.of(20, 20, 0) for result in tried)


def test_a_clean_text_that_is_declined_is_not_right():
    results = attacked(Coin(0.0, declines=0.5, at=lambda _: 1.0))
    assert all(result.clean.right + result.clean.abstained == FRESH_DRAWS for result in results)
    assert 0 < np.mean([result.clean.abstained for result in results]) < FRESH_DRAWS


def test_what_is_right_is_what_the_goal_is_about():
    scores = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.1, 0.9, 0.0]], np.float32)
    labels = ("no", "yes", ABSTAINS)
    assert bound(Untargeted(), labels).right(scores, 1).tolist() == [False, False, True]
    assert bound(Targeted(0), labels).right(scores, 1).tolist() == [False, False, True]
    assert bound(Evasion(1, 0.25), labels).right(scores, 1).tolist() == [False, True, True]
    assert Evasion(1, 0.25).right(scores, 1).tolist() == [True, True, True]


def test_declining_is_its_own_outcome():
    results = attacked(Coin(0.0, declines=1.0), TEXTS[:10])
    assert {result.outcome for result in results} == {"abstained"}
    assert results[0].fresh == Fresh.of(20, 0, 20)
    clean = attacked(Coin(0.0, declines=1.0, at=lambda _: 1.0), TEXTS[:3])
    assert [(result.outcome, result.logical_queries) for result in clean] == [("abstained", 1)] * 3
    before, after = (summarise(each) for each in (clean, results))
    assert (before.abstained_before, before.abstained_after, before.sacc.estimate) == (3, 0, 0.0)
    assert (after.abstained_before, after.abstained_after, after.sacc.estimate) == (0, 10, 1.0)
    for each in (before, after):
        assert each.racc.estimate == 0.0
        assert each.attacked == 0
        counts = each.to_json()
        assert counts["abstained"] == {"before": each.abstained_before, "after": each.abstained_after}
        assert counts["outcomes"]["abstained"] == each.abstained
    mixed = attacked(Coin(0.35, declines=0.35))
    assert {"abstained"} < {result.outcome for result in mixed}
    for result in mixed:
        if result.outcome == "abstained":
            assert 2 * result.fresh.reached <= result.fresh.draws < 2 * (result.fresh.reached + result.fresh.abstained)


def test_declining_reaches_no_goal():
    scores = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.9, 0.0]], np.float32)
    labels = ("no", "yes", ABSTAINS)
    assert bound(Untargeted(), labels).is_reached(scores, 1).tolist() == [False, True, False]
    assert bound(Evasion(1, 0.5), labels).is_reached(scores, 1).tolist() == [False, True, False]
    assert bound(Targeted(0), labels).is_reached(scores, 1).tolist() == [False, True, False]
    assert bound(Untargeted(), labels[:2]) == Untargeted()


@pytest.mark.parametrize(("fooled", "most"), [(0.8, 0.05), (0.95, 0.01)])
def test_one_draw_in_the_victims_favour_makes_no_text_robust(fooled: float, most: float):
    results = attacked(Coin(fooled))
    assert np.mean([result.outcome == "failed" for result in results]) <= most
    once = attacked(Coin(fooled), restarts=0)
    assert np.mean([result.outcome == "failed" for result in once]) > most


def test_a_text_that_the_attack_gave_up_on_is_judged_too():
    @dataclass(frozen=True, kw_only=True)
    class GivesUp(Slow):
        """Moves to its text, and takes no notice of what is said about it."""

        def search(self, trial: Trial) -> Search:
            yield from greedy(trial, trial.positions()[:1], slow)
            if not trial.moves:
                draft = trial.original.replace(0, trial.vocabulary.id("slow"))
                trial.accept(draft, trial.scores, trial.progress)

    results = list(GivesUp()(Coin(0.7), examples(*TEXTS), AttackSettings(restarts=0, search_draws=0)))
    given_up = [result for result in results if result.fresh and not result.fresh.claimed]
    assert given_up
    for result in given_up:
        assert (result.outcome == "succeeded") == (2 * result.fresh.reached > result.fresh.draws)
    assert any(result.outcome == "succeeded" for result in given_up)
    summary = summarise(results)
    assert summary.fresh.claimed == len(results) - len(given_up)


def test_an_attack_that_does_nothing_changes_no_expectation():
    """Every text is right with the same probability, whatever is done to it."""
    results = attacked(Coin(0.3, at=lambda _: 1.0), [f"brisk film number {number}" for number in range(200)])
    summary = summarise(results)
    for found in (summary.fresh.expected_sacc, summary.fresh.expected_racc):
        assert found.estimate == pytest.approx(0.7, abs=0.04)


def test_what_is_expected_under_attack_is_what_the_texts_are_worth():
    results = attacked(Coin(0.8))
    summary = summarise(results)
    assert summary.fresh.expected_sacc.estimate == 1.0
    assert summary.fresh.expected_racc.estimate == pytest.approx(0.2, abs=0.05)


def test_rows_are_read_back_and_summarised():
    results = attacked(Coin(0.6, declines=0.1))
    rows = [json.loads(json.dumps(result.to_row())) for result in results]
    assert [AttackResult.from_row(row) for row in rows] == results
    summary = summarise(results)
    fresh = [result.fresh for result in results if result.fresh]
    probabilities = [each.reached / each.draws for each in fresh]
    holding = [
        1 - (each.fresh.reached + each.fresh.abstained) / each.fresh.draws if each.fresh else each.clean.right / 20
        for each in results
    ]
    assert summary.fresh.claimed == len(fresh)
    assert summary.fresh.held == summary.succeeded
    assert summary.fresh.success_probability.estimate == pytest.approx(np.mean(probabilities))
    assert summary.fresh.expected_racc.estimate == pytest.approx(np.mean(holding))
    assert summary.abstained == sum(result.outcome == "abstained" for result in results)
    assert summary.to_json()["fresh"]["claimed"] == len(fresh)
    assert summary.abstained_before == 0
    total = summary.succeeded + summary.failed + summary.skipped + summary.abstained
    assert total == len(rows)


def test_numbers_that_count_nothing_are_refused():
    for name in ("fresh", "restarts"):
        with pytest.raises(UsageError, match=name):
            AttackSettings(**{name: -1})
