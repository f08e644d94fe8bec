from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from isthmus.core.errors import VictimError, VictimTimeout
from isthmus.core.types import Floats, Texts
from isthmus.verbs.clean_scores import score_batch, tolerant_scores


class Picky:
    """Refuses batches that hold one of some texts."""

    labels = ("a", "b")
    stochastic = False

    def __init__(self, refused: set[int]) -> None:
        self.refused, self.calls = refused, 0

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        self.calls += 1
        values = [int(text["text"]) for text in texts]
        if self.refused & set(values):
            raise VictimError("refused")
        return np.array([[value, 1 - value] for value in values], np.float32)


@given(st.integers(4, 40), st.data())
def test_only_the_refused_texts_have_no_scores(n: int, data: st.DataObject) -> None:
    refused = data.draw(st.sets(st.integers(0, n - 2), max_size=5))
    victim = Picky(refused)
    scores = tolerant_scores(victim, [{"text": str(i)} for i in range(n)])
    assert set(np.flatnonzero(np.isnan(scores).any(axis=1))) == refused
    assert all(scores[i, 0] == i for i in range(n) if i not in refused)


def test_a_victim_that_fails_on_everything_fails_soon() -> None:
    victim = Picky(set(range(1000)))
    with pytest.raises(VictimError, match="refused"):
        tolerant_scores(victim, [{"text": str(i)} for i in range(256)])
    assert victim.calls <= 4


def test_a_hanging_victim_is_asked_once() -> None:
    class Hanging(Picky):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            self.calls += 1
            raise VictimTimeout("no answer")

    victim = Hanging(set())
    with pytest.raises(VictimTimeout):
        tolerant_scores(victim, [{"text": "1"}, {"text": "2"}])
    assert victim.calls == 1


def test_texts_without_an_answer_in_time_are_marked_and_not_asked_again() -> None:
    class Slow(Picky):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            self.calls += 1
            answered = np.full((len(texts), 2), np.nan, np.float32)
            answered[0] = (0.25, 0.75)
            raise VictimTimeout("no answer in time", answered if self.calls == 1 else None)

    victim = Slow(set())
    found = score_batch(victim, [{"text": "1"}, {"text": "2"}])
    assert found.scores[0].tolist() == [0.25, 0.75]
    assert found.reasons == {1: "no answer in time"}
    later = score_batch(victim, [{"text": "3"}, {"text": "4"}], probe=False)
    assert np.isnan(later.scores).all()
    assert later.reasons == {0: "no answer in time", 1: "no answer in time"}
    assert victim.calls == 2


def test_no_texts_no_scores() -> None:
    assert tolerant_scores(Picky(set()), []).shape == (0, 2)
