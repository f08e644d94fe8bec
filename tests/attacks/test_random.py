"""The blind attack is blind, and draws no more than it may."""

from __future__ import annotations

from typing import Any

import pytest
from attack_toys import SYNONYMS, LetterEncoder, vectors_file
from engine_toys import TextVictim, examples

from isthmus.attacks.words.random import Random
from isthmus.core.errors import UsageError
from isthmus.engine.scheduler import EngineSettings
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.stopwords import stop_words

TEXT = "the great movie has a dull plot , terrible acting , and much of it is witty"


def asked(positive: Any, **parameters: Any) -> list[str]:
    victim = TextVictim(positive)
    attack = Random(neighbours=vectors_file(), part_of_speech="none", **parameters)
    # Without a cache, so that a text that comes again is asked about again.
    list(attack(victim, examples(TEXT), encoder=LetterEncoder(), seed=5, engine=EngineSettings(cache_megabytes=0)))
    return [text["text"] for text in victim.asked]


def test_it_does_not_look_at_probabilities() -> None:
    assert asked(lambda text: 0.9) == asked(lambda text: 0.6 + (len(text["text"]) % 7) / 20)


def test_it_draws_as_often_as_a_greedy_search_would_ask() -> None:
    source = load_neighbours(vectors_file())
    words = [word for word in TEXT.replace(",", "").split() if word not in stop_words("textfooler")]
    near = sum(int((source.nearest(word, 50).cosines >= 0.5).sum()) for word in words)
    victim = TextVictim(lambda text: 0.9)
    for effort, tries in ((1.0, len(words) + near), (0.5, round((len(words) + near) / 2))):
        attack = Random(neighbours=vectors_file(), part_of_speech="none", effort=effort, draws=1)
        (result,) = attack(victim, examples(TEXT), encoder=LetterEncoder())
        # The first query is the clean text.
        assert result.logical_queries == 1 + tries
    for wrong in ({"effort": 0}, {"draws": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Random(**wrong)


def test_a_walk_changes_one_more_word_every_time_and_then_starts_anew() -> None:
    original = TEXT.split()
    texts = asked(lambda text: 0.9, draws=1)
    changed = [sum(a != b for a, b in zip(original, text.split(), strict=True)) for text in texts]
    source = load_neighbours(vectors_file())
    free = [word for word in original if word not in stop_words("textfooler")]
    walk = sum(bool((source.nearest(word, 50).cosines >= 0.5).any()) for word in free)
    assert walk >= len(set(SYNONYMS) & set(original)) - 1
    expected = [1 + index % walk for index in range(len(changed) - 1)]
    assert changed == [0, *expected]
