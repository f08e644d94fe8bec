"""Draws of synonyms that are spliced from tokens are the draws that are written out and tokenised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isthmus.core.errors import VictimError
from isthmus.inference.smoothing import SmoothedVictim
from isthmus.inference.synonym_draws import DrawnText, draw_keys
from isthmus.inference.synonym_reading import ReadsRows
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.models import Classifier, ClassifierVictim
from isthmus.models.gaussian_noise import GaussianNoise

TABLE = SynonymTable.of_links(
    {"film": ["movie", "story"], "fine": ["moving", "quiet"], "dull": ["long", "longly"], "saw": ["is"]}
)
TEXTS = [
    {"text": "A fine, moving film -- was it not?"},
    {"text": "Nobody saw it twice."},
    {"text": ""},
    {"text": "the DULL film was too long and dull, dull, (dull) fine-saw " * 6},
    {"text": "nothing here has a choice"},
]
KEYS = [draw_keys(7 + number, 6) for number in range(len(TEXTS))]


def written_out(victim: ClassifierVictim, texts: list[dict[str, str]]) -> np.ndarray:
    read, keys = [], np.concatenate(KEYS[: len(texts)])
    for text, own in zip(texts, KEYS, strict=False):
        drawn = DrawnText(text, TABLE)
        read += [drawn.text(choice) for choice in drawn.choices(own).tolist()]
    return victim.scores(read, keys if victim.stochastic else None)


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta-v2", "cnn", "lstm"])
@pytest.mark.parametrize("noise", [False, True])
def test_rows_are_scored_like_the_texts_they_stand_for(encoder: Callable[[str], Path], name: str, noise: bool):
    if name in ("cnn", "lstm"):
        words = [" ".join([text["text"], *TABLE.synonyms]) for text in TEXTS]
        model = Classifier.create(name, ("no", "yes"), texts=words)
    else:
        model = Classifier.create(encoder(name), ("no", "yes"))
    if noise:
        model.fill(noise=GaussianNoise(0.5, (0,)))
    victim = ClassifierVictim(model)
    rows = ReadsRows(victim, TABLE)
    assert np.array_equal(rows.scores(TEXTS, KEYS), written_out(victim, TEXTS))
    again = rows.scores(TEXTS[3:], KEYS[3:])
    assert np.array_equal(again, rows.scores(TEXTS, KEYS)[18:]), "what was read before changes nothing"


def test_both_fields_of_a_pair_are_drawn(encoder: Callable[[str], Path]):
    model = Classifier.create(encoder("bert"), ("no", "yes"), ("premise", "hypothesis"))
    victim = ClassifierVictim(model)
    pairs = [{"premise": "a fine film", "hypothesis": text["text"]} for text in TEXTS]
    assert np.array_equal(ReadsRows(victim, TABLE).scores(pairs, KEYS), written_out(victim, pairs))


def test_equal_draws_are_read_once(encoder: Callable[[str], Path]):
    victim = ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes")))
    SmoothedVictim(victim, TABLE, 12).scores([TEXTS[4], {"text": "fine"}])
    assert victim.passes <= 1 + 3
    seen: list[int] = []

    class Function:
        labels, fields, stochastic = ("no", "yes"), ("text",), False

        def scores(self, texts, keys=None):
            seen.append(len(texts))
            return np.array([[0.0, 1.0] if "fine" in text["text"] else [1.0, 0.0] for text in texts], np.float32)

    answers = SmoothedVictim(Function(), TABLE, 12).scores([TEXTS[4], {"text": "fine"}])
    assert seen[0] <= 1 + 3
    assert answers[0].tolist() == [1.0, 0.0]
    assert 0 < answers[1, 1] < 1


def test_forgetting_words_changes_nothing(encoder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch):
    rows = ReadsRows(ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes"))), TABLE)
    before = rows.scores(TEXTS, KEYS)
    monkeypatch.setattr("isthmus.inference.synonym_reading._MOST_WORDS", 3)
    assert np.array_equal(rows.scores(TEXTS, KEYS), before)
    assert len(rows.vocabulary) > 3


def test_a_text_that_cannot_be_read_spoils_no_other(encoder: Callable[[str], Path]):
    rows = ReadsRows(ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes"))), TABLE)
    before = rows.scores(TEXTS, KEYS)
    with pytest.raises(VictimError, match="cannot read one of 1 texts"):
        rows.scores([{"text": "half \ud83d of a fine film"}], KEYS[:1])
    assert np.array_equal(rows.scores(TEXTS, KEYS), before)


def test_keys_are_numbers_of_any_type(encoder: Callable[[str], Path]):
    victim = SmoothedVictim(ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes"))), TABLE, 6, "mean")
    keys = np.arange(len(TEXTS))
    assert np.array_equal(victim.scores(TEXTS, keys), victim.scores(TEXTS, keys.astype(np.uint64)))


def test_behind_votes_stand_the_mean_probabilities_of_the_same_draws(encoder: Callable[[str], Path]):
    victim = ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes")))
    keys = np.arange(len(TEXTS), dtype=np.uint64)
    votes, means = SmoothedVictim(victim, TABLE, 6), SmoothedVictim(victim, TABLE, 6, "mean")
    assert means.graded is None
    assert votes.graded is not None
    assert np.array_equal(votes.graded.scores(TEXTS, keys), means.scores(TEXTS, keys))


def test_on_a_gpu_texts_are_read_in_parts_of_which_the_next_starts_before_the_last_is_waited_for(
    encoder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    class Told(ReadsRows):
        def launch(self, texts, keys):
            events.append(f"launch {len(texts)}")
            wait = super().launch(texts, keys)

            def told():
                events.append("wait")
                return wait()

            return told

    events: list[str] = []
    victim = ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes")))
    texts = [TEXTS[number % 5] for number in range(150)]
    expected = SmoothedVictim(victim, TABLE, 2).scores(texts)
    smoothed = SmoothedVictim(victim, TABLE, 2)
    smoothed.__dict__["_reader"] = Told(victim, TABLE)
    monkeypatch.setattr(SmoothedVictim, "device_type", "cuda")
    assert np.array_equal(smoothed.scores(texts), expected)
    assert events == ["launch 64", "launch 64", "wait", "launch 22", "wait", "wait"]
    assert smoothed.scores([]).shape == (0, 2)
