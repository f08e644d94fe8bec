"""Candidates cut out of a written text are those that edits would give, and a hung function costs one thread."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import VictimTimeout
from isthmus.engine.requests import Score
from isthmus.engine.text_scoring import _render
from isthmus.models.victims import CallableVictim
from isthmus.text.draft import DELETE, INSERT, MERGE, REPLACE, Draft
from isthmus.text.vocabulary import Vocabulary

PIECES = st.text("ab é.,-' \n", max_size=14)


@st.composite
def requests(draw: Any) -> Score:
    vocabulary = Vocabulary("[UNK]")
    base = Draft.of({"premise": draw(PIECES), "hypothesis": draw(PIECES)}, vocabulary)
    new = [vocabulary.table[word] for word in ("x", "long-word", "é")]
    edits, count = list[tuple[int, int, int, int]](), draw(st.integers(2, 9))
    for candidate in range(count):
        places = draw(st.lists(st.integers(0, max(0, len(base) - 1)), max_size=3, unique=True)) if len(base) else []
        for place in places:
            kind = draw(st.sampled_from([REPLACE, REPLACE, REPLACE, INSERT]))
            word = draw(st.sampled_from([*new, DELETE] if kind == REPLACE else new))
            edits.append((candidate, place, kind, word))
    return Score(base, np.array(edits, np.int32).reshape(-1, 4), count)


@given(requests())
def test_candidates_are_what_their_edits_make_of_the_text(request: Score) -> None:
    found = list(_render(request))
    for candidate in range(request.count):
        own = request.edits[request.edits[:, 0] == candidate, 1:].tolist()
        assert found[candidate] == request.base.apply([tuple(edit) for edit in own]).texts


def test_mergers_are_written_as_before() -> None:
    vocabulary = Vocabulary("[UNK]")
    base = Draft.of({"text": "a , b c"}, vocabulary)
    edits = np.array([(0, 0, MERGE, vocabulary.table["z"]), (1, 1, REPLACE, DELETE)], np.int32)
    assert [text["text"] for text in _render(Score(base, edits, 2))] == ["z , c", "a , c"]


def test_calls_share_a_thread() -> None:
    seen = set[int]()

    def answer(texts: list[str]) -> list[list[float]]:
        seen.add(threading.get_ident())
        return [[0.5, 0.5]] * len(texts)

    victim = CallableVictim(answer, ("a", "b"), timeout=20.0)
    for _ in range(50):
        victim.scores([{"text": "x"}])
    assert len(seen) == 1
    assert threading.get_ident() not in seen


def test_a_thread_that_hangs_is_not_asked_again() -> None:
    free, slow = threading.Event(), [True]

    def answer(texts: list[str]) -> list[list[float]]:
        if slow.pop() if slow else False:
            free.wait(20)
        return [[float(len(text) % 2), float(len(text) % 2 == 0)] for text in texts]

    victim = CallableVictim(answer, ("a", "b"), timeout=0.2)
    with pytest.raises(VictimTimeout, match="did not answer"):
        victim.scores([{"text": "x"}])
    assert victim.scores([{"text": "xy"}]).tolist() == [[0.0, 1.0]]
    free.set()
    time.sleep(0.05)  # The late answer to "x" must not be taken for that to "yz".
    assert victim.scores([{"text": "yz"}]).tolist() == [[0.0, 1.0]]


def test_what_a_function_raises_reaches_the_caller_and_the_thread_goes_on() -> None:
    def answer(texts: list[str]) -> list[list[float]]:
        if texts[0] == "bad":
            raise ZeroDivisionError("no")
        return [[0.5, 0.5]]

    victim = CallableVictim(answer, ("a", "b"), timeout=20.0)
    for _ in range(3):
        with pytest.raises(Exception, match="ZeroDivisionError: no"):
            victim.scores([{"text": "bad"}])
        assert victim.scores([{"text": "good"}]).tolist() == [[0.5, 0.5]]
