"""Scores of predicted answers as SQuAD 1.1's evaluation script computes them, and which questions are variants.

    normalised   lower case, without punctuation, without a / an / the, one space between words
    exact match  1 where prediction and a true answer are the same once normalised
    F1           harmonic mean of precision and recall over the words, as bags; the best over the true answers
    worst case   of the variants of one question the one with the least F1, and the exact match of that same one

Two empty answers match exactly and have an F1 of 0: so it is in the script. Punctuation is ASCII punctuation, and words
are whatever stands between white space, Unicode's included.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """Scores of one prediction, each the best over the true answers of its question."""

    exact_match: float
    f1: float


@dataclass(frozen=True, slots=True)
class WorstVariant:
    """The variant of a question with the worst answer."""

    base: str
    """The question's own id."""
    id: str
    """The variant's id; the question's own where it has none."""
    score: AnswerScore


def normalise_answer(answer: str) -> str:
    """An answer without case, punctuation, articles and superfluous white space."""
    # The script's order: punctuation goes first, so that "U.S.A." is one word and "a." loses its article.
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """1 if both are equal after normalisation, else 0."""
    return float(normalise_answer(prediction) == normalise_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall of the predicted words."""
    predicted, true = normalise_answer(prediction).split(), normalise_answer(answer).split()
    shared = (Counter(predicted) & Counter(true)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(true)
    return 2 * precision * recall / (precision + recall)


def score(prediction: str, answers: Sequence[str]) -> AnswerScore:
    """Exact match and F1 against the best of the true answers; 0 if there is none."""
    return AnswerScore(
        max((exact_match(prediction, answer) for answer in answers), default=0.0),
        max((f1(prediction, answer) for answer in answers), default=0.0),
    )


def base_ids(ids: Sequence[str]) -> list[str]:
    """For each id, the question it is a variant of: the part before the first ``-``, as in Adversarial SQuAD.

    Ids are read so only where one of them is such a beginning itself; elsewhere (in ids that are UUIDs, say) a hyphen
    means nothing and each id is its own.
    """
    known = set(ids)
    bases = [identity.split("-", 1)[0] for identity in ids]
    if any(base != identity and base in known for base, identity in zip(bases, ids, strict=True)):
        return bases
    return list(ids)


def worst_variants(ids: Sequence[str], scores: Sequence[AnswerScore]) -> list[WorstVariant]:
    """The worst variant of every question, in order of first appearance; among equals the first.

    A question as it was asked originally counts only where it has no variant.
    """
    worst: dict[str, WorstVariant] = {}
    for base, identity, found in zip(base_ids(ids), ids, scores, strict=True):
        known = worst.get(base)
        if known is None or (identity != base and (known.id == base or found.f1 < known.score.f1)):
            worst[base] = WorstVariant(base, identity, found)
    return list(worst.values())
