"""BERT-Attack's candidates, joined of sub-words."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from attack_toys import LetterEncoder, masked_lm
from engine_toys import TextVictim, examples

from isthmus.attacks.words.bertattack import BertAttack, _first_ways, _likeliest_ways
from isthmus.core.errors import UsageError
from isthmus.core.types import TokenBatch
from isthmus.text.words import Words


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 7, 4096])
def test_ways_to_choose_a_token_for_each_piece(pieces: int, k: int, most: int) -> None:
    everything = list(itertools.product(range(k), repeat=pieces))
    tokens = np.zeros((pieces, k), np.int64)
    assert [tuple(way) for way in _first_ways(tokens, most).tolist()] == everything[:most]
    chances = np.random.default_rng(pieces).dirichlet(np.ones(k), pieces).astype(np.float32)
    chances[::-1].sort(axis=1)
    likeliest = _likeliest_ways(chances, most)
    product = lambda way: float(np.prod([chances[piece, choice] for piece, choice in enumerate(way)]))  # noqa: E731
    best = sorted(map(product, everything), reverse=True)[:most]
    assert np.allclose([product(way) for way in likeliest.tolist()], best, rtol=1e-5)
    assert len({tuple(way) for way in likeliest.tolist()}) == len(best)


def test_a_word_of_many_pieces_does_not_explode() -> None:
    assert _first_ways(np.zeros((40, 48), np.int64), 100).shape == (100, 40)
    assert _likeliest_ways(np.full((40, 48), 0.5, np.float32), 100).shape == (100, 40)


def expected(text: str, word: str, k: int, *, ranked: bool) -> list[str]:
    """The candidates for a word, from the masked language model itself."""
    model = masked_lm()
    tokenizer = model.tokenizer
    encoding = tokenizer(text, return_offsets_mapping=True)
    start, end = text.index(word), text.index(word) + len(word)
    places = [at for at, (left, right) in enumerate(encoding["offset_mapping"]) if start <= left < right <= end]
    ids = np.array([encoding["input_ids"]] * len(places))
    tokens, chances = model.fill(TokenBatch(ids), np.array(places), k)
    spelled = [tokenizer.convert_ids_to_tokens(row) for row in tokens.tolist()]
    ways = list(itertools.product(range(k), repeat=len(places)))
    if ranked:
        ways.sort(key=lambda way: -np.log([chances[piece, choice] for piece, choice in enumerate(way)]).sum())
    if len(places) == 1:
        ways = [way for way in ways if not spelled[0][way[0]].startswith("##")]
    words = ["".join(spelled[piece][choice] for piece, choice in enumerate(way)).replace("##", "") for way in ways]
    words = [new for new in words if Words.of(new).words == (new,)][:k]
    return list(dict.fromkeys(new for new in words if new != word))


@pytest.mark.parametrize("text", ["a dull plot", "the music was great , unapologetic", "great zzq movies end"])
@pytest.mark.parametrize("k", [3, 8])
@pytest.mark.parametrize("ranked", [False, True])
def test_candidates_are_what_the_model_expects(text: str, k: int, ranked: bool) -> None:
    tried: dict[str, list[str]] = {}

    def constant(texts: Any) -> float:
        for old, new in zip(Words.of(text), Words.of(texts["text"]), strict=True):
            if old != new and new != "UNK":
                tried.setdefault(old, []).append(new)
        return 0.9

    attack = BertAttack(k=k, ranked=ranked, similarity=-1)
    list(attack(TextVictim(constant), examples(text), encoder=LetterEncoder(), masked_lm=masked_lm()))
    assert tried
    for word in tried:
        assert sorted(tried[word]) == sorted(expected(text, word, k, ranked=ranked))


def test_what_cannot_be_is_refused() -> None:
    for parameters in ({"k": 0}, {"most_joined": 0}):
        with pytest.raises(UsageError, match="at least 1"):
            BertAttack(**parameters)
