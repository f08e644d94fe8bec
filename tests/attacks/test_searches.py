"""Searches, each beside the plainest program that does the same."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from attack_toys import LetterEncoder
from engine_toys import TextVictim
from hypothesis import given, settings
from hypothesis import strategies as st
from trial_toys import TEXT, Steps, edits_of, run, trial_of

from isthmus.attacks.parts.candidates import Candidates
from isthmus.attacks.parts.rules import SentenceMeaning
from isthmus.attacks.parts.searches import beam, by_chance, by_importance, greedy, most_similar
from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Floats
from isthmus.engine.requests import DELETE, REPLACE, Edits, replacing
from isthmus.engine.tasks import TimeSpent
from isthmus.text.draft import Draft


def weighing(weights: dict[str, float]) -> TextVictim:
    """A victim whose p(0) is the mean weight of the words, as far as they have one."""

    def positive(text: Any) -> float:
        words = text["text"].split()
        return 1 - sum(weights.get(word, 0.0) for word in words) / len(words)

    return TextVictim(positive)


Weights = st.lists(st.integers(0, 80).map(lambda percent: (percent + 0.31) / 100), min_size=9, max_size=9, unique=True)
OPTIONS = {at: [f"{letter}{at}" for letter in "pqr"] for at in range(3)}


def searched(search: Callable[[Trial], Steps], victim: TextVictim, text: str, **models: Any) -> tuple[Trial, int]:
    """The trial after a search, and what it asked for."""

    def steps(trial: Trial) -> Steps:
        trial.progress = 0.0
        yield from search(trial)
        return trial

    return run(steps, text, victim, **models)


def every_word(trial: Trial, draft: Draft) -> Edits:
    """Each word that still is the original, by each of its three options."""
    free = trial.positions(draft=draft, repeat=False).tolist()
    return edits_of(trial, [[(at, REPLACE, word)] for at in free for word in OPTIONS[at]])


@settings(max_examples=30, deadline=None)
@given(Weights, st.integers(1, 4))
def test_beam_is_the_plain_beam_search(weights: list[float], width: int) -> None:
    table = dict(zip([word for own in OPTIONS.values() for word in own], weights, strict=True))

    def progress(text: tuple[str, ...]) -> np.float32:
        return np.float32(1) - np.float32(1 - sum(table.get(word, 0.0) for word in text) / len(text))

    final: tuple[str, ...] = ("a", "b", "c")
    beams, queries = [final], 0
    while True:
        found = [
            (*text[:at], word, *text[at + 1 :])
            for text in beams
            for at in range(3)
            if text[at] == "abc"[at]
            for word in OPTIONS[at]
        ]
        if not found:
            break
        queries += len(found)
        beams = sorted(found, key=lambda text: -progress(text))[:width]
        final = beams[0]
        if progress(final) > 0.5:
            break
    trial, logical = searched(lambda trial: beam(trial, every_word, width), weighing(table), "a b c")
    assert tuple(trial.draft.words) == final
    assert logical == queries


@settings(max_examples=30, deadline=None)
@given(Weights)
def test_greedy_takes_the_best_of_every_word_if_it_helps(weights: list[float]) -> None:
    table = dict(zip([word for own in OPTIONS.values() for word in own], weights, strict=True))
    table["b"] = 0.4  # replacing this one may hurt

    def search(trial: Trial) -> Steps:
        trial.progress = 0.4 / 3
        yield from greedy(trial, range(3), lambda trial, at: edits_of(trial, [[(at, REPLACE, w)] for w in OPTIONS[at]]))

    text = ["a", "b", "c"]
    for at in range(3):
        best = max(OPTIONS[at], key=lambda word: table[word])
        if table[best] > table.get(text[at], 0.0) + 1e-6:
            text[at] = best
        if sum(table.get(word, 0.0) for word in text) / 3 > 0.5:
            break
    trial, _ = searched(search, weighing(table), "a b c")
    assert trial.draft.words == text


@given(st.integers(1, 12), st.integers(2, 4), st.integers(0, 2**32))
def test_the_most_similar_of_the_leading_successes(count: int, classes: int, seed: int) -> None:
    stream = np.random.default_rng(seed)
    scores = stream.dirichlet(np.ones(classes), count).astype(np.float32)
    similarity = stream.random(count).astype(np.float32)
    trial = trial_of()
    progress = trial.judge(scores)
    leading = []
    for index in sorted(range(count), key=lambda index: -progress[index]):
        if scores[index].argmax() == 1:
            break
        leading.append(index)
    expected = max(leading, key=lambda index: similarity[index]) if leading else int(progress.argmax())
    candidates = Candidates(trial.draft, replacing(1, trial.vocabulary.ids(["x"] * count)))
    candidates.similarity = similarity

    def finish(search: Generator[Any, Any, int]) -> int:
        with pytest.raises(StopIteration) as ended:
            next(search)
        return int(ended.value.value)

    assert finish(most_similar(trial, scores, progress, candidates)) == expected

    class Exactly:
        """Turns the order around."""

        def measure(self, trial: Trial, candidates: Candidates) -> Generator[Any, Any, Floats]:
            assert candidates.similarity is not None
            return -candidates.similarity
            yield

    candidates.measured_by = Exactly()
    expected = min(leading, key=lambda index: similarity[index]) if leading else int(progress.argmax())
    assert finish(most_similar(trial, scores, progress, candidates)) == expected

    class Late:
        """Its answer never comes."""

        def measure(self, trial: Trial, candidates: Candidates) -> Generator[Any, Any, Floats]:
            raise TimeSpent("more than 1 s")
            yield

    candidates.measured_by = Late()
    expected = max(leading, key=lambda index: similarity[index]) if leading else int(progress.argmax())
    assert finish(most_similar(trial, scores, progress, candidates)) == expected


def test_greedy_ends_with_the_most_similar_success() -> None:
    words = ["zzzzzzzzzzzz", "bravq", "qqqqqq"]  # all of them succeed; the second is nearest by its letters

    def search(trial: Trial) -> Steps:
        trial.plain_rules, trial.asking_rules = (), (SentenceMeaning(0.0),)
        yield from greedy(trial, [1], lambda trial, at: replacing(at, trial.vocabulary.ids(words)))

    victim = weighing(dict.fromkeys(words, 8.0) | {"zzzzzzzzzzzz": 8.08})
    trial, _ = searched(search, victim, TEXT, encoder=LetterEncoder())
    assert trial.draft.word(1) == "bravq"


def test_importance_and_chance() -> None:
    table = dict(zip(TEXT.split(), [0.1, 0.7, 0.3, 0.0, 0.5, 0.2, 0.4, 0.6], strict=True))
    orders: list[list[int]] = []

    def search(trial: Trial) -> Steps:
        positions = np.array([0, 1, 2, 5, 6, 7], np.int32)
        orders.append((yield from by_importance(trial, positions, DELETE)))
        orders.append(by_chance(trial, positions))
        orders.append((yield from by_importance(trial, positions[:0], DELETE)))

    searched(search, weighing(table), TEXT)
    # Without a word of little weight the mean of the others is larger.
    assert orders[0] == [0, 5, 2, 6, 7, 1]
    assert sorted(orders[1]) == [0, 1, 2, 5, 6, 7]
    assert orders[2] == []
    searched(search, weighing(table), TEXT)
    assert orders[4] == orders[1]
