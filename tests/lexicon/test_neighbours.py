"""Neighbour lists: the full sort, whatever is asked for together."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import DataError, UsageError
from isthmus.lexicon import Neighbours, WordVectors, load_neighbours
from isthmus.lexicon import neighbours as module


def make(count: int = 300, width: int = 12, seed: int = 0, unit: bool = True) -> Neighbours:
    matrix = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    if unit:
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return Neighbours(WordVectors([f"w{row}" for row in range(count)], matrix), "toy")


def full_sort(ours: Neighbours, row: int, k: int) -> list[str]:
    matrix = ours.vectors.matrix.astype(np.float64)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    order = np.argsort(-(unit @ unit[row]), kind="stable")
    return [ours.vectors.words[index] for index in order if index != row][:k]


@pytest.mark.parametrize("unit", [True, False])
def test_neighbours_are_the_full_sort(unit: bool) -> None:
    ours = make(unit=unit)
    for row in (0, 7, 299):
        found = ours.nearest(f"W{row}", 20)
        assert list(found.words) == full_sort(ours, row, 20)
        for word, cosine, distance in zip(found.words, found.cosines, found.distances, strict=True):
            a, b = (ours.vectors.lookup(each).astype(np.float64) for each in (f"w{row}", word))
            assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)
            assert distance == pytest.approx(((a - b) ** 2).sum(), abs=1e-5)
            assert ours.cosine(f"w{row}", word) == pytest.approx(float(cosine), abs=1e-6)
            assert ours.distance(word, f"w{row}") == pytest.approx(float(distance), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 119), min_size=1, max_size=40),
    st.integers(1, 130),
    st.integers(1, 130),
    st.sampled_from([1, 700, 1 << 25]),
)
def test_company_and_order_do_not_matter(rows: list[int], k: int, later: int, block: int) -> None:
    alone, together = make(120, seed=3), make(120, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        together.prefetch([f"w{row}" for row in rows], k)
    for row in rows:
        for each in (k, later):
            one, other = alone.nearest(f"w{row}", each), together.nearest(f"w{row}", each)
            assert one.words == other.words == tuple(full_sort(alone, row, each))
            assert np.array_equal(one.cosines, other.cosines)
            assert np.array_equal(one.distances, other.distances)


def test_ties_stand_in_the_order_of_the_rows() -> None:
    matrix = np.random.default_rng(1).normal(size=(50, 7)).astype(np.float32)
    matrix[[40, 3, 17, 21]] = matrix[5]
    words = [f"w{row}" for row in range(50)]
    found = Neighbours(WordVectors(words, matrix), "toy").nearest("w17", 3)
    assert found.words == ("w3", "w5", "w21")
    matrix = np.repeat(matrix[:1], 50, axis=0)
    assert Neighbours(WordVectors(words, matrix), "toy").nearest("w1", 4).words == ("w0", "w2", "w3", "w4")


def test_words_nobody_knows() -> None:
    ours = make(5)
    assert ours.nearest("zebra", 3).words == ()
    assert ours.cosine("w1", "zebra") is None
    assert ours.distance("zebra", "w1") is None
    assert "W3" in ours
    assert "zebra" not in ours
    assert len(ours.nearest("w1", 50).words) == 4
    with pytest.raises(UsageError, match="one neighbour or more"):
        ours.nearest("w1", 0)
    ours.prefetch(["zebra"], 3)


def test_rounded_unit_vectors_are_unit_vectors(tmp_path: Path) -> None:
    unit = make(40).vectors
    scale = np.abs(unit.matrix).max(axis=1, keepdims=True) / 127
    quantised = np.rint(unit.matrix / scale).astype(np.int8)
    joined = np.frombuffer("\n".join(unit.words).encode(), dtype=np.uint8)
    np.savez(tmp_path / "v.npz", q=quantised, scale=scale, words=joined)
    ours = load_neighbours(str(tmp_path / "v.npz"))
    assert ours.name == str(tmp_path / "v.npz")
    found = ours.nearest("w4", 10)
    assert np.allclose(found.distances, 2 - 2 * found.cosines, atol=1e-6)
    assert load_neighbours(str(tmp_path / "v.npz")) is ours


def test_a_vector_that_is_no_number() -> None:
    matrix = np.ones((3, 2), np.float32)
    matrix[1, 1] = np.nan
    with pytest.raises(DataError, match="vector of 'b' is not finite"):
        Neighbours(WordVectors(["a", "b", "c"], matrix), "toy")
    matrix[1] = 0
    zero = Neighbours(WordVectors(["a", "b", "c"], matrix), "toy")
    assert zero.nearest("a", 2).words == ("c", "b")
    assert zero.cosine("a", "b") == 0


@pytest.mark.parametrize("where", ["ISTHMUS_ASSETS", "ISTHMUS_CACHE"])
def test_the_published_file_comes_before_the_stand_in(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "empty"))
    module._load_neighbours.cache_clear()
    stand_in = types.SimpleNamespace(STAND_IN="a stand-in", stand_in=lambda: make(9).vectors)
    monkeypatch.setitem(sys.modules, "isthmus.lexicon.counterfit", stand_in)
    assert load_neighbours().name == "a stand-in"
    monkeypatch.setenv(where, str(tmp_path))
    (tmp_path / module.PUBLISHED).write_text("good 1 0\ngreat 0.8 0.6\nbad -1 0\n", encoding="utf-8")
    module._load_neighbours.cache_clear()
    ours = load_neighbours()
    assert ours is load_neighbours("counterfitted")
    assert "Mrkšić" in ours.name
    assert ours.nearest("Good", 1).words == ("great",)
    assert ours.distance("good", "great") == pytest.approx(0.4)
    module._load_neighbours.cache_clear()
