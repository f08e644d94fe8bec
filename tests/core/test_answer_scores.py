"""The official SQuAD 1.1 rules on their corner cases; values are derived by hand."""

from __future__ import annotations

import pytest

from isthmus.core.answer_scores import AnswerScore, base_ids, exact_match, f1, normalise_answer, score, worst_variants


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("The  Cat\tsat", "cat sat", id="case-article-space"),
        pytest.param("an apple a day", "apple day", id="articles"),
        pytest.param("theatre another Ana", "theatre another ana", id="articles-only-as-words"),
        pytest.param("U.S.A.", "usa", id="punctuation-goes-without-a-space"),
        pytest.param("twenty-one", "twentyone", id="hyphen"),
        pytest.param("the-cat", "thecat", id="punctuation-before-articles"),
        pytest.param("a.", "", id="nothing-is-left"),
        pytest.param("“the” café", "“ ” café", id="unicode-punctuation-stays"),
        pytest.param("10\u00a0000\u2003km", "10 000 km", id="unicode-space"),
        pytest.param("ÉCOLE İ", "école i̇", id="unicode-case"),
        pytest.param("", "", id="empty"),
        pytest.param(" \n ", "", id="blank"),
    ],
)
def test_normalised(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "em", "expected"),
    [
        pytest.param("the Eiffel Tower", "Eiffel tower.", 1.0, 1.0, id="same-once-normalised"),
        # 2 of 3 predicted words are right, 2 of 2 true words are found: 2 · (2/3) / (5/3) = 4/5.
        pytest.param("big Eiffel tower", "Eiffel Tower", 0.0, 0.8, id="one-word-too-many"),
        # Bags: "new" counts once. precision 1/2, recall 1: 2/3.
        pytest.param("new new", "new", 0.0, 2 / 3, id="repetition"),
        # precision 1/2, recall 1/4: 1/3.
        pytest.param("red fox", "quick brown fox jumps", 0.0, 1 / 3, id="little-overlap"),
        pytest.param("Berlin", "Paris", 0.0, 0.0, id="nothing-shared"),
        pytest.param("", "", 1.0, 0.0, id="both-empty"),
        pytest.param("the", "a", 1.0, 0.0, id="both-empty-once-normalised"),
        pytest.param("", "Paris", 0.0, 0.0, id="empty-prediction"),
        pytest.param("tower Eiffel", "Eiffel tower", 0.0, 1.0, id="order-matters-to-exact-match-only"),
    ],
)
def test_one_answer(prediction: str, answer: str, em: float, expected: float) -> None:
    assert exact_match(prediction, answer) == em
    assert f1(prediction, answer) == pytest.approx(expected)
    assert f1(answer, prediction) == pytest.approx(expected)  # F1 is symmetric.


def test_the_best_of_several_answers_counts_for_each_figure() -> None:
    assert score("in 1990", ["1990", "in 1990", "the year 1990"]) == AnswerScore(1.0, 1.0)
    assert score("year 1990", ["1990", "in 1990"]).f1 == pytest.approx(2 / 3)
    # Exact match by the empty one, F1 by the other: figures need not come from the same answer.
    assert score("the", ["an", "the end"]) == AnswerScore(1.0, 0.0)
    assert score("anything", []) == AnswerScore(0.0, 0.0)


def test_ids_with_a_hyphen_are_variants_only_beside_their_question() -> None:
    assert base_ids(["q1", "q1-turk0", "q1-high-conf", "q2"]) == ["q1", "q1", "q1", "q2"]
    uuids = ["12ab-34cd", "12ab-99ef"]
    assert base_ids(uuids) == uuids


def test_the_worst_variant() -> None:
    scores = {
        "q1": AnswerScore(0.0, 0.1),  # As asked originally: it has variants, so it does not count, low as it is.
        "q1-a": AnswerScore(1.0, 1.0),
        "q1-b": AnswerScore(0.0, 0.5),
        "q1-c": AnswerScore(1.0, 0.5),  # As bad in F1, later: the exact match of the first of them stays.
        "q2": AnswerScore(1.0, 1.0),  # No variant: it counts itself.
        "q3-a": AnswerScore(0.0, 0.2),
        "q3": AnswerScore(0.0, 0.0),  # After its variant: still not counted.
    }
    found = {worst.base: (worst.id, worst.score) for worst in worst_variants(list(scores), list(scores.values()))}
    assert found == {
        "q1": ("q1-b", AnswerScore(0.0, 0.5)),
        "q2": ("q2", AnswerScore(1.0, 1.0)),
        "q3": ("q3-a", AnswerScore(0.0, 0.2)),
    }
