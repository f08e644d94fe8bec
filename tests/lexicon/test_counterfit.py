"""Counter-fitting, its pairs, and the stand-in."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.errors import RunError
from isthmus.lexicon import WordNet, WordVectors
from isthmus.lexicon import counterfit as module
from isthmus.lexicon.constraints import WordNetPairs
from isthmus.lexicon.counterfit import build_stand_in, counterfit, stand_in

NONE = np.empty((0, 2), np.int64)


def unit(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def as_published(matrix, close, apart, kept, steps):
    """Pair after pair, as the authors' program goes."""
    vectors = unit(matrix.astype(np.float64))
    first = {tuple(pair): 1 - vectors[pair[0]] @ vectors[pair[1]] for pair in kept}
    for _ in range(steps):
        moves, counts = np.zeros_like(vectors), np.zeros(len(vectors))
        for pairs, sign in ((apart, -1), (close, 1), (kept, 1)):
            for u, w in pairs:
                cosine = vectors[u] @ vectors[w]
                bound = first.get((u, w), 0) + 1e-6 if pairs is kept else 0
                if (1 - cosine < 1) if sign < 0 else (1 - cosine > bound):
                    for a, b in ((u, w), (w, u)):
                        moves[a] += sign * 0.1 * (vectors[b] - cosine * vectors[a])
                        counts[a] += 1
        vectors = unit(vectors + moves / np.maximum(counts, 1)[:, None])
    return vectors


def test_equals_the_sum_written_out() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(12, 5)).astype(np.float32)
    pairs = np.array([(u, w) for u in range(9) for w in range(u + 1, 9)])
    rng.shuffle(pairs)
    close, apart = pairs[:9], pairs[9:16]
    ours = counterfit(matrix, close, apart, steps=20)
    assert np.allclose(ours, as_published(matrix, close, apart, NONE, 20), atol=1e-4)
    kept = pairs[16:22]
    held = counterfit(matrix, close, apart, kept, steps=6)
    loose = counterfit(matrix, close, apart, steps=6)
    grown = [1 - (vectors[kept[:, 0]] * vectors[kept[:, 1]]).sum(axis=1) for vectors in (unit(matrix), held, loose)]
    assert np.maximum(grown[1] - grown[0], 0).sum() < np.maximum(grown[2] - grown[0], 0).sum()
    assert np.array_equal(ours[9:], unit(matrix)[9:].astype(np.float32))


def test_synonyms_meet_and_antonyms_part_until_they_are_at_right_angles() -> None:
    matrix = np.array([[1, 0.1, 0], [0, 1, 0.1], [1, 0, 1], [1, 0.2, 0.9]], np.float32)
    ours = counterfit(matrix, np.array([[0, 1]]), np.array([[2, 3]]), steps=200)
    assert ours[0] @ ours[1] > 0.999
    assert ours[2] @ ours[3] == pytest.approx(0, abs=0.1)
    assert ours[2] @ ours[3] < 0.001
    assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-6)


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five nouns, two verbs and four adjectives, with pointers."""
    root = tmp_path_factory.mktemp("wordnet")
    # (type, words, pointers as (symbol, part of speech, number of the synset there, source, target))
    synsets: dict[str, list[Any]] = {
        "noun": [("n", ["film", "movie"], []), ("n", ["film", "skin"], []), ("n", ["film", "coating"], [])],
        "verb": [("v", ["buy"], [("!", "v", 1, 1, 1)]), ("v", ["sell"], [("!", "v", 0, 1, 1)])],
        "adj": [
            ("a", ["good"], [("!", "a", 1, 1, 1)]),
            ("a", ["bad"], [("!", "a", 0, 1, 1), ("&", "a", 2, 0, 0)]),
            ("s", ["dreadful"], [("&", "a", 1, 0, 0)]),
            ("a", ["filmy"], [("+", "n", 1, 1, 1)]),
        ],
        "adv": [],
    }
    synsets["noun"] += [("n", ["film", "flick"], [])]  # a fourth sense of film
    numbers = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
    places: dict[tuple[str, int], int] = {}
    for final in (False, True):  # places are known after the first pass
        for pos, rows in synsets.items():
            data = "  the licence\n"
            senses: dict[str, list[int]] = {}
            for number, (kind, words, pointers) in enumerate(rows):
                places[numbers[pos], number] = len(data)
                spelled = " ".join(f"{word} 0" for word in words)
                lines = "".join(f" {s} {places.get((p, n), 0):08d} {p} {a:02x}{b:02x}" for s, p, n, a, b in pointers)
                data += f"{len(data):08d} 05 {kind} {len(words):02x} {spelled} {len(pointers):03d}{lines} | gloss\n"
                for word in words:
                    senses.setdefault(word, []).append(places[numbers[pos], number])
            index = "  the licence\n" + "".join(
                f"{word} {numbers[pos]} {len(at)} 0 {len(at)} 0 {' '.join(f'{place:08d}' for place in at)}\n"
                for word, at in senses.items()
            )
            if final:
                (root / f"data.{pos}").write_text(data)
                (root / f"index.{pos}").write_text(index)
                exceptions = {"verb": "bought buy\nsold sell\n", "adj": "better good\nworse bad\n"}
                (root / f"{pos}.exc").write_text(exceptions.get(pos, ""))
    return root


VOCABULARY = ["film", "films", "movie", "movies", "skins", "flick", "buy", "sell", "bought", "sold", "buyed", "selling"]
VOCABULARY += ["good", "bad", "better", "worse", "dreadful", "filmy", "skin", "gooder", "coating", "zebra"]


def named(pairs: np.ndarray) -> set[frozenset[str]]:
    return {frozenset((VOCABULARY[a], VOCABULARY[b])) for a, b in pairs}


def test_pairs_of_a_dictionary(dictionary: Path) -> None:
    pairs = WordNetPairs(WordNet(dictionary)).among(VOCABULARY)
    synonyms = [("film", "movie"), ("films", "movies"), ("film", "skin"), ("films", "skins"), ("film", "coating")]
    inflections = [("film", "films"), ("movie", "movies"), ("skin", "skins"), ("buy", "bought"), ("sell", "sold")]
    inflections += [("sell", "selling"), ("good", "better"), ("bad", "worse")]
    assert named(pairs.close) == {frozenset(pair) for pair in [*synonyms, *inflections, ("filmy", "film")]}
    antonyms = [("buy", "sell"), ("bought", "sold"), ("good", "bad"), ("better", "worse"), ("good", "dreadful")]
    assert named(pairs.apart) == {frozenset(pair) for pair in antonyms}
    assert (pairs.close[:, 0] < pairs.close[:, 1]).all()


def test_no_pairs_at_all(dictionary: Path) -> None:
    pairs = WordNetPairs(WordNet(dictionary)).among(["zebra"])
    assert pairs.close.shape == pairs.apart.shape == (0, 2)
    assert np.allclose(counterfit(np.ones((1, 2), np.float32), *(pairs.close, pairs.apart)), np.sqrt(0.5))


@pytest.fixture
def small(dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WordVectors:
    matrix = np.random.default_rng(4).normal(size=(len(VOCABULARY) + 2, 6)).astype(np.float32)
    glove = WordVectors([*VOCABULARY, "4711", "coating"], matrix)
    monkeypatch.setattr(module, "load_wordnet", lambda: WordNet(dictionary))
    monkeypatch.setattr(WordVectors, "load", _loading(glove, WordVectors.load))
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))
    return glove


def _loading(glove, load):
    return lambda source="glove": glove if source == "glove" else load(source)


def test_the_stand_in_is_built_once(small: WordVectors, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    built = stand_in()
    assert "4711" not in built.words
    assert {"film", "zebra", "dreadful"} <= set(built.words)
    (stored,) = (tmp_path / "cache").iterdir()
    assert stored.name == "counterfitted-standin-1.npz"
    before = stored.stat().st_mtime_ns
    again = stand_in()
    assert again.words == built.words
    assert np.array_equal(again.matrix, built.matrix)
    assert stored.stat().st_mtime_ns == before
    assert np.array_equal(build_stand_in(small).matrix, built.matrix)
    stored.write_bytes(stored.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING, "isthmus"):
        assert np.array_equal(stand_in().matrix, built.matrix)
    assert "built again" in caplog.text
    assert np.array_equal(WordVectors.load(stored).matrix, built.matrix)


def test_a_cache_that_cannot_be_written(small: WordVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise RunError("read-only")

    monkeypatch.setattr(module, "write_atomic", refuse)
    assert "film" in stand_in().words
