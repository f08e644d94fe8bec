"""HardLabel sees labels only, and ends where nothing is more similar."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attack_toys import LetterEncoder, vectors_file
from engine_toys import BertVictim, TextVictim, examples, labelled_by
from numpy.typing import NDArray

from isthmus.attacks.parts.protection import Protection
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.hardlabel import HardLabel
from isthmus.core.errors import UsageError
from isthmus.core.types import Example, Floats, Texts
from isthmus.lexicon.by_name import load_neighbours
from isthmus.text.words import Words

ATTACK = HardLabel(neighbours=vectors_file(), part_of_speech="none", tries=20)
TEXTS = [
    "a great movie , with witty acting and a dull plot .",
    "The plot is terrible, the acting dull; yet the music was great!",
    "terrible terrible terrible",
    "great acting , dull movie , terrible plot",
]


class LabelOnly:
    """A victim of which nothing but the label is seen."""

    labels, stochastic = ("negative", "positive"), False

    def __init__(self, victim: Any) -> None:
        self.victim = victim

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        return np.eye(2, dtype=np.float32)[self.victim.scores(texts, keys).argmax(axis=1)]


def told(result: AttackResult) -> tuple[Any, ...]:
    """A result without its scores."""
    return result.outcome, result.perturbed, result.edits, result.logical_queries, result.similarity, result.candidates


def test_scores_make_no_difference() -> None:
    bert = BertVictim()
    chosen = labelled_by(bert, [{"text": text} for text in TEXTS])
    plain, blind = TextVictim(lambda text: 0.5), LabelOnly(bert)
    plain.scores = bert.scores  # type: ignore[method-assign]
    with_scores = {result.id: told(result) for result in ATTACK(plain, chosen, encoder=LetterEncoder())}
    without = {result.id: told(result) for result in ATTACK(blind, chosen, encoder=LetterEncoder())}
    assert with_scores == without
    assert "succeeded" in {outcome for outcome, *_ in without.values()}


def neighbours(word: str) -> list[str]:
    near = load_neighbours(vectors_file()).nearest(word, 50)
    return [new for new, cosine in zip(near.words, near.cosines, strict=True) if cosine >= 0.5]


@pytest.mark.parametrize("seed", range(5))
def test_it_ends_with_the_most_similar_words_in_the_places_it_settled_on(seed: int) -> None:
    text = "great movie dull plot terrible"

    def positive(text: Texts) -> float:
        words = text["text"].split()
        # Two of three keywords must go, whatever replaces them.
        return 0.9 if ("great" in words) + ("movie" in words) + ("terrible" in words) > 1 else 0.1

    (result,) = ATTACK(TextVictim(positive), examples(text), encoder=LetterEncoder(), seed=seed)
    encoder = LetterEncoder()
    changed = {edit.position for edit in result.edits}
    options = [[word, *neighbours(word)] if at in changed else [word] for at, word in enumerate(text.split())]
    flipped = [" ".join(words) for words in itertools.product(*options) if positive({"text": " ".join(words)}) < 0.5]
    best = float((encoder.encode(flipped) @ encoder.encode([text])[0]).max())
    assert (result.outcome, len(changed)) == ("succeeded", 2)
    assert result.similarity == pytest.approx(best, abs=1e-5)


def test_no_word_could_go_back() -> None:
    victim = BertVictim()
    for result in ATTACK(victim, labelled_by(victim, [{"text": text} for text in TEXTS]), encoder=LetterEncoder()):
        words = Words.of(result.perturbed["text"])
        for edit in result.edits:
            back = str(words.replace({edit.position: edit.original}))
            assert int(victim.scores([{"text": back}]).argmax()) == result.label


def test_both_texts_of_a_pair_are_compared() -> None:
    def positive(text: Texts) -> float:
        return 0.9 if "great" in text["a"] or "terrible" in text["b"] else 0.1

    victim = TextVictim(positive)
    pair = [Example("test:0", {"a": "a great movie", "b": "a terrible plot"}, 1)]
    (result,) = ATTACK(victim, pair, encoder=LetterEncoder())
    assert {(edit.field, edit.original) for edit in result.edits} == {("a", "great"), ("b", "terrible")}
    (kept,) = ATTACK(victim, pair, encoder=LetterEncoder(), protection=Protection(columns=("b",)))
    assert (kept.outcome, kept.edits) == ("failed", ())


def test_a_spent_budget_keeps_the_success() -> None:
    victim = TextVictim(lambda text: 0.9 if "great" in text["text"] else 0.1)
    outcomes = set()
    for budget in range(2, 40):
        (result,) = ATTACK(victim, examples(TEXTS[3]), encoder=LetterEncoder(), budget=budget, seed=1)
        assert (result.outcome == "succeeded") == ("great" not in result.perturbed["text"])
        outcomes.add(result.outcome)
    assert outcomes == {"failed", "succeeded"}


class CountingEncoder(LetterEncoder):
    """Counts the texts it is given."""

    texts = 0

    def encode(self, texts: Sequence[str]) -> Floats:
        self.texts += len(texts)
        return super().encode(texts)


def test_the_search_ends_at_its_own_limits_with_the_best_text_so_far() -> None:
    words, text = ("great", "movie", "terrible"), "great movie dull plot terrible"
    victim = TextVictim(lambda text: 0.9 if sum(word in text["text"] for word in words) > 1 else 0.1)
    free, encoder = CountingEncoder(), CountingEncoder()
    (unlimited,) = ATTACK(victim, examples(text), encoder=free)
    most = unlimited.logical_queries - 2  # One of them is that of the clean text.
    (few,) = dataclasses.replace(ATTACK, max_queries=most)(victim, examples(text), encoder=LetterEncoder())
    (cheap,) = dataclasses.replace(ATTACK, max_comparisons=3)(victim, examples(text), encoder=encoder)
    assert few.logical_queries <= most + 1
    assert encoder.texts < free.texts
    assert {few.outcome, cheap.outcome, unlimited.outcome} == {"succeeded"}
    assert cheap.similarity is not None
    assert unlimited.similarity is not None
    assert cheap.similarity <= unlimited.similarity


@pytest.mark.parametrize("name", ["max_queries", "max_comparisons"])
def test_a_limit_is_at_least_one(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least 1, not 0"):
        HardLabel(**{name: 0})


def test_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="population"):
        HardLabel(population=1)
    with pytest.raises(UsageError, match="patience"):
        HardLabel(patience=0)


def test_company_makes_no_difference() -> None:
    # Words are numbered as they come, so whatever sorts by these numbers depends on who came before.
    keywords = ("great", "movie", "dull", "plot", "terrible", "acting")
    victim = TextVictim(lambda text: 0.9 if sum(word in text["text"].split() for word in keywords) > 3 else 0.1)
    text = "great movie dull plot terrible acting , a great plot and a terrible movie"
    company = ["horrible dire awful terrible", "picture film movie", "playing plan slow boring neat outstanding"]
    for seed in range(4):
        (alone,) = ATTACK(victim, examples(text), encoder=LetterEncoder(), seed=seed)
        *others, last = [
            Example(example.id + "x", example.fields, example.label) for example in examples(*company, text)
        ]
        crowd = [*others, Example(alone.id, last.fields, last.label)]
        (beside,) = [
            result for result in ATTACK(victim, crowd, encoder=LetterEncoder(), seed=seed) if result.id == alone.id
        ]
        assert told(beside) == told(alone)
