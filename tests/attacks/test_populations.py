"""Laws of the genetic searches and of the particle swarm that the contract does not reach."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attack_toys import masked_lm, vectors_file
from cases_population import sememes_file
from engine_toys import BertVictim, TextVictim, examples, labelled_by

from isthmus.attacks.parts.goals import Untargeted
from isthmus.attacks.parts.limits import Limits
from isthmus.attacks.parts.members import Substitutes, Swaps, best_of_each, candidates_of, draw_weighted
from isthmus.attacks.parts.population import Breeding, Evolution, Population, selection
from isthmus.attacks.parts.rules import MaxShare
from isthmus.attacks.parts.swarm import Flight, Swarm, mutation, steer
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.words.genetic import Genetic
from isthmus.attacks.words.iga import IGA
from isthmus.attacks.words.pso import PSO
from isthmus.core.errors import UsageError
from isthmus.engine.requests import Score
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

TEXT = "the great movie has a dull plot and terrible acting they say"
STREAM = np.random.default_rng(7)


def trial_of(text: str = TEXT, seed: int = 0, rules: tuple[Any, ...] = ()) -> Trial:
    draft = Draft.of({"text": text}, Vocabulary())
    return Trial(Untargeted(), 1, draft, np.array([0.1, 0.9], np.float32), random.Random(seed), rules)


def drive(steps: Generator[Any, Any, Any], positive: Callable[[str], float]) -> tuple[Any, list[int]]:
    """Run a search by hand; what it returned, and how many candidates each of its requests had."""
    sizes: list[int] = []
    answer = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as ended:
            return ended.value, sizes
        assert isinstance(request, Score)
        sizes.append(request.count)
        own: list[list[tuple[int, int, int]]] = [[] for _ in range(request.count)]
        for index, *edit in request.edits.tolist():
            own[index].append(tuple(edit))
        p = np.array([positive(request.base.apply(edits).texts["text"]) for edits in own], np.float32)
        answer = np.stack([1 - p, p], axis=1)


def hashed(text: str) -> float:
    """Any score, the same for the same text, that never flips the label."""
    return 0.55 + 0.4 * random.Random(text).random()


def substitutes_of(trial: Trial, each: int = 3) -> Substitutes:
    """Made-up words for every second word."""
    found = {
        at: trial.vocabulary.ids(f"{trial.original.word(at)}{number}" for number in range(each))
        for at in range(1, len(trial.original), 2)
    }
    return Substitutes(trial.original.ids, found)


def members_of(trial: Trial, size: int, share: float = 0.3) -> np.ndarray[Any, Any]:
    """Rows in which some words are changed to others."""
    words = np.tile(trial.original.ids, (size, 1))
    changed = STREAM.random(words.shape) < share
    return np.where(changed, trial.vocabulary.ids(["other"])[0], words).astype(np.int32)


# ---------------------------------------------------------------------- members


def test_members_are_written_as_edits_of_the_original() -> None:
    trial = trial_of()
    words = members_of(trial, 9)
    other = trial.vocabulary.ids(["new", "other"])
    rows = np.sort(STREAM.integers(0, 9, 60))
    at = STREAM.integers(-1, len(trial.original), 60)
    new = np.where(STREAM.random(60) < 0.3, trial.original.ids[at], STREAM.choice(other, 60)).astype(np.int32)
    candidates = candidates_of(trial, words, Swaps(rows, at, new))
    assert candidates.count == 60
    for index in range(60):
        expected = words[rows[index]].copy()
        if at[index] >= 0:
            expected[at[index]] = new[index]
        assert candidates.draft(index).ids.tolist() == expected.tolist()
    mask = STREAM.random(60) < 0.5
    kept = candidates.keep(mask)
    assert kept.numbers is not None
    assert kept.numbers.tolist() == np.flatnonzero(mask).tolist()
    for index, number in enumerate(kept.numbers.tolist()):
        assert kept.edits_of(index) == candidates.edits_of(number)
    changed = [int((candidates.draft(index).ids != trial.original.ids).sum()) for index in range(60)]
    assert MaxShare(0.25).holds(trial, candidates).tolist() == [count <= 3 for count in changed]


def test_the_best_of_each_group_is_the_first_of_its_largest() -> None:
    groups = np.array([0, 0, 0, 2, 5, 5])
    assert best_of_each(groups, np.array([1, 3, 3, -1, 0, 2], np.float32)).tolist() == [1, 3, 5]
    assert best_of_each(groups[:0], np.zeros(0, np.float32)).tolist() == []


def close(counts: np.ndarray[Any, Any], chances: np.ndarray[Any, Any]) -> bool:
    """Whether counts are what draws with these chances give, within five standard errors."""
    total = counts.sum()
    return bool((np.abs(counts / total - chances) <= 5 * np.sqrt(chances * (1 - chances) / total)).all())


def test_draws_follow_their_weights() -> None:
    weights = np.array([0.0, 3.0, 0.0, 1.0, 0.5, 0.0])
    counts = np.bincount(draw_weighted(np.tile(weights, (40_000, 1)), STREAM), minlength=6)
    assert close(counts, weights / weights.sum())


# ---------------------------------------------------------------------- breeding


def test_parents_are_drawn_by_the_formula() -> None:
    progress = np.array([0.7, 0.4, 0.1], np.float32)
    for parents, sign in (("weaker", -1), ("fitter", 1)):
        expected = [math.exp(sign * value / 0.3) for value in (0.7, 0.4, 0.1)]
        found = selection(progress, 0.3, parents)  # type: ignore[arg-type]
        assert found == pytest.approx(np.array(expected) / sum(expected), rel=1e-6)


def evolution_of(trial: Trial, **settings: Any) -> Evolution:
    return Evolution(trial, Breeding(**settings), substitutes_of(trial))


def test_crossovers_take_each_word_with_its_weight_from_one_of_the_parents() -> None:
    trial = trial_of()
    words = len(trial.original)
    for kind in ("uniform", "cut"):
        evolution = evolution_of(trial, crossover=kind)
        one = Population.of_original(trial, 20_000, np.arange(words, dtype=float))
        other = Population.of_original(trial, 20_000, -np.arange(words, dtype=float) - 1)
        other.words = other.words + 1000
        child = evolution._cross(one, other)
        swapped = child.words >= 1000
        assert ((child.weights < 0) == swapped).all()
        assert np.isnan(child.progress).all()
        if kind == "uniform":
            assert close(np.bincount(swapped.sum(axis=1), minlength=words + 1), binomial(words))
        else:
            assert (np.diff(swapped.astype(int), axis=1) >= 0).all()
            assert close(np.bincount(swapped.sum(axis=1), minlength=words + 1)[1:], np.full(words, 1 / words))


def binomial(n: int) -> np.ndarray[Any, Any]:
    return np.array([math.comb(n, k) / 2**n for k in range(n + 1)])


def test_words_are_drawn_as_if_one_after_the_other() -> None:
    """A member draws words by weight, those without substitutes too, until one has some or its tries are spent."""
    trial = trial_of()
    evolution = evolution_of(trial, max_share=1.0)
    words, tries, size = len(trial.original), 3, 40_000
    weights = np.where(np.arange(words) % 2, np.arange(words), 4.0)
    useful = np.where(np.arange(words) % 2, weights, 0)
    left = np.full(size, tries)
    rows = np.tile(trial.original.ids, (size, 1))
    swaps = evolution._swaps(rows, np.tile(weights, (size, 1)), left)
    chance = useful.sum() / weights.sum()
    # Every try costs one; tries left t - k after k draws, or none if all of them were in vain.
    spent = [chance * (1 - chance) ** k for k in range(tries)]
    expected = np.array([spent[2] + (1 - chance) ** tries, spent[1], spent[0]])
    assert close(np.bincount(left, minlength=3), expected)
    assert len(swaps) == 3 * len(set(swaps.rows.tolist()))  # all substitutes of the word that was drawn
    assert close(np.bincount(swaps.at[::3], minlength=words), useful / useful.sum())


@pytest.mark.parametrize("parents", ["weaker", "fitter"])
@pytest.mark.parametrize("crossover", ["uniform", "cut"])
def test_the_best_lives_on_and_nobody_exceeds_the_share(parents: Any, crossover: Any) -> None:
    trial = trial_of()
    evolution = evolution_of(trial, parents=parents, crossover=crossover, check_children=True, generations=6)
    limit = math.ceil(0.2 * len(trial.original))
    population = Population.of_original(trial, 15, np.ones(len(trial.original)))
    drive(evolution.mutate(population), hashed)
    best, most = population.progress.max(), 0
    for _ in range(6):
        children, _ = drive(evolution.children(population), hashed)
        drive(evolution.mutate(children), hashed)
        elite = population.take(np.array([population.progress.argmax()]))
        population = elite.then(children)
        assert population.progress.max() >= best
        best = population.progress.max()
        changed = (population.words != trial.original.ids).sum(axis=1)
        most = max(most, int(changed.max()))
        for row, progress in zip(population.words, population.progress, strict=True):
            edits = [(at, 1, int(row[at])) for at in np.flatnonzero(row != trial.original.ids).tolist()]
            assert progress == pytest.approx(1 - hashed(trial.original.apply(edits).texts["text"]), abs=1e-6)
    assert most == limit


def test_unchecked_children_may_exceed_the_share_as_in_textattack_but_never_the_users_limits() -> None:
    for rules, most in ((), 4), ((MaxShare(0.2),), 3):
        trial = trial_of(rules=rules)
        evolution = evolution_of(trial, max_share=0.2)
        population = Population.of_original(trial, 40, np.ones(len(trial.original)))
        for row in range(40):  # three of the five words that have substitutes are replaced
            at = 1 + 2 * np.sort(STREAM.permutation(5)[:3])
            population.words[row, at] = [int(evolution.source.of(place, trial.original.ids[place])[0]) for place in at]
        children, _ = drive(evolution.children(population), hashed)
        changed = (children.words != trial.original.ids).sum(axis=1)
        assert changed.max() >= most if not rules else changed.max() <= most


def test_a_generation_is_few_requests() -> None:
    trial = trial_of()
    evolution = evolution_of(trial, max_share=1.0)
    falling = lambda text: 0.9 - 0.05 * sum(word[-1].isdigit() for word in text.split())  # noqa: E731
    population = Population.of_original(trial, 30, np.ones(len(trial.original)))
    _, sizes = drive(evolution.mutate(population), falling)
    assert sizes == [30 * 3]  # every swap helps, so that one round is enough
    children, sizes = drive(evolution.children(population), falling)
    assert sizes == []
    _, sizes = drive(evolution.mutate(children), falling)
    assert len(sizes) == 1
    assert sizes[0] >= 29  # the children themselves, and all their mutations


def test_one_word_is_tried_in_the_paper_and_all_of_them_in_textattack() -> None:
    for insists, tried in ((False, 3), (True, 18)):
        trial = trial_of()
        evolution = evolution_of(trial, insists=insists)
        weights = np.where(np.arange(len(trial.original)) % 2, 1.0, 0.0)
        population = Population.of_original(trial, 1, weights)
        _, sizes = drive(evolution.mutate(population), lambda _: 0.9)
        assert sum(sizes) == tried
        assert (population.words == trial.original.ids).all()


# ---------------------------------------------------------------------- genetic and IGA


def test_the_language_model_keeps_the_likeliest() -> None:
    asked: list[str] = []
    victim = TextVictim(lambda text: asked.append(text["text"]) or 0.9)  # type: ignore[func-returns-value]
    text = examples("terrible great movie")
    attack = Genetic(neighbours=vectors_file(), masked_lm="tiny", most_likely=1, population=20, generations=1)
    list(attack(victim, text, masked_lm=masked_lm()))
    assert len(set(asked)) == 1 + 3  # the original, and one substitute for each word
    asked.clear()
    list(replace(attack, masked_lm=None)(victim, text))
    assert len(set(asked)) == 1 + 3 + 3 + 2


def first_members(attack: IGA, text: str) -> Population:
    found: list[Population] = []

    def stop(self: Evolution, population: Population) -> Generator[Any, Any, None]:
        found.append(population)
        yield from ()

    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(Evolution, "search", stop)
        drive(attack.search(trial_of(text)), lambda text: 0.9 - 0.001 * (len(text) % 7))
    return found[0]


def test_iga_starts_from_the_best_swap_of_every_word_but_for_textattacks_first() -> None:
    text = "great movie was dull"
    ids = trial_of(text).original.ids
    members = first_members(IGA(neighbours=vectors_file()), text)
    changed = members.words != ids
    assert len(members) == 4
    assert (changed[1:] == np.eye(4)[1:].astype(bool) & (np.arange(4) != 2)).all()  # word 2 is a stop word
    members = first_members(IGA(neighbours=vectors_file(), semantics="paper", population=7), text)
    changed = members.words != ids
    assert (changed.sum(axis=1) == 1).all()
    assert changed.sum(axis=0).tolist() in ([3, 2, 0, 2], [2, 3, 0, 2], [2, 2, 0, 3])
    assert (members.weights == np.where([True, True, False, True], 5, 0) - changed).all()


def test_iga_replaces_a_word_again_and_again() -> None:
    """Only a word two steps away fools the victim: Genetic cannot get there, IGA can."""
    near = {"terrible": "awful", "awful": "dire"}
    victim = TextVictim(lambda text: 0.2 if "dire" in text["text"] else 0.8 if "awful" in text["text"] else 0.9)
    chain = lambda self, word: [near[word]] if word in near else []  # noqa: E731
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr("isthmus.attacks.parts.neighbours.NearWords.strings", chain)
        settings: dict[str, Any] = {"neighbours": vectors_file(), "population": 8, "generations": 5}
        for attack, outcome in (
            (Genetic(**settings, masked_lm=None), "failed"),
            (IGA(**settings), "succeeded"),
            (IGA(**settings, semantics="paper"), "succeeded"),
            (IGA(**settings, max_replacements=1), "failed"),
        ):
            (result,) = attack(victim, examples("the plot terrible here"))
            assert result.outcome == outcome


# ---------------------------------------------------------------------- the swarm


def test_velocities_and_mutations_follow_the_formulae() -> None:
    flight = Flight(iterations=10)
    words, own, best = (STREAM.integers(0, 2, (4, 6)).astype(np.int32) for _ in range(3))
    velocity = STREAM.normal(size=(4, 6))
    found = steer(velocity, words, own, best[:1], flight, 3 / 10)
    for row in range(4):
        for at in range(6):
            inertia = 0.6 * (10 - 3) / 10 + 0.2
            pull = sum(-3 if words[row, at] == aim else 3 for aim in (own[row, at], best[0, at]))
            assert found[row, at] == pytest.approx(inertia * velocity[row, at] + (1 - inertia) * pull)
    gains = np.array([[0.3, -0.2, 0.1, 0.0], [-0.1, 0, 0, -0.4]])
    assert mutation(gains) == pytest.approx(np.array([[0.75, 0, 0.25, 0], [0.25] * 4]))


def test_a_turn_goes_towards_the_best_in_the_paper_and_away_from_it_in_textattack() -> None:
    trial = trial_of()
    chance = np.tile([0.9, 0.2], (20_000, 6))[:, : len(trial.original)]
    words = np.tile(trial.original.ids, (20_000, 1))
    goal = words + 1000
    for towards in (True, False):
        swarm = Swarm(trial, Flight(towards=towards), substitutes_of(trial))
        turned, _ = drive(swarm._turn_towards(words, goal, chance), hashed)
        share = (turned == goal).mean(axis=0)
        assert share == pytest.approx(chance[0] if towards else 1 - chance[0], abs=0.02)


def test_turns_keep_to_the_users_limits() -> None:
    trial = trial_of(rules=(MaxShare(0.2),))
    words = np.tile(trial.original.ids, (50, 1))
    goal = words + 1000
    for towards in (True, False):
        swarm = Swarm(trial, Flight(towards=towards, retries=3), substitutes_of(trial))
        chance = np.full(words.shape, 0.2 if towards else 0.8)
        turned, _ = drive(swarm._turn_towards(words, goal, chance), hashed)
        changed = (turned != words).sum(axis=1)
        home = 0 if towards else words.shape[1]
        assert {int(count) for count in changed if count > 3} <= {home}
        assert 1 in changed


# ---------------------------------------------------------------------- all of them

ATTACKS = [
    Genetic(neighbours=vectors_file(), masked_lm=None, population=10, generations=6),
    IGA(neighbours=vectors_file(), population=10, generations=6),
    PSO(sememes=sememes_file(), particles=10, iterations=6),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
class TestAll:
    def test_a_budget_is_used_up(self, attack: Any) -> None:
        victim = TextVictim(lambda text: hashed(text["text"]))
        for budget in (1, 2, 30, 97):
            (result,) = attack(victim, examples(TEXT), budget=budget)
            assert result.budget_spent
            assert budget - 1 <= result.logical_queries <= budget

    def test_what_is_found_with_the_last_queries_counts(self, attack: Any) -> None:
        victim = TextVictim(lambda text: 0.9 if "great" in text["text"] else 0.2)
        outcomes = [
            next(iter(attack(victim, examples("great terrible plot movie dull"), budget=budget, seed=seed))).outcome
            for budget in (3, 8)
            for seed in range(6)
        ]
        assert "succeeded" in outcomes

    def test_candidates_per_word_are_limited(self, attack: Any) -> None:
        asked: list[str] = []
        victim = TextVictim(lambda text: asked.append(text["text"]) or 0.9)  # type: ignore[func-returns-value]
        list(attack(victim, examples("the terrible thing"), limits=Limits(most_per_word=1)))
        direct = {text for text in asked if text != "the terrible thing"}
        assert direct
        if not isinstance(attack, IGA):  # which goes on from where it is
            assert len(direct) == 1

    def test_the_users_share_holds(self, attack: Any) -> None:
        victim = BertVictim()
        chosen = labelled_by(victim, [{"text": TEXT}, {"text": "terrible plot dull acting great movie"}])
        for result in attack(victim, chosen, limits=Limits(max_share=0.1)):
            assert len(result.edits) <= 2
            assert result.outcome in ("succeeded", "failed")

    def test_a_text_without_candidates_costs_one_query_and_says_so(self, attack: Any) -> None:
        (result,) = attack(TextVictim(lambda text: 0.9), examples("nothing known here"))
        assert (result.outcome, result.logical_queries, result.candidates) == ("failed", 1, 0)

    def test_seeds_differ(self, attack: Any) -> None:
        courses = set()
        for seed in range(4):
            asked: list[str] = []
            victim = TextVictim(lambda text, asked=asked: asked.append(text["text"]) or hashed(text["text"]))  # type: ignore[func-returns-value,misc]
            list(attack(victim, examples(TEXT), seed=seed))
            courses.add(tuple(asked))
        assert len(courses) > 1

    def test_resources_are_named(self, attack: Any) -> None:
        path = sememes_file() if isinstance(attack, PSO) else vectors_file()
        assert any(path in name for name in attack.resources().values())


def test_wrong_settings_are_refused() -> None:
    for attack, wrong in (
        (Genetic, {"population": 0}),
        (Genetic, {"temperature": 0.0}),
        (IGA, {"max_share": 1.5}),
        (IGA, {"max_replacements": 0}),
        (PSO, {"particles": 0}),
        (PSO, {"max_velocity": 0.0}),
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            attack(**wrong)
