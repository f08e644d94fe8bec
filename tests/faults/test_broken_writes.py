"""Every verb is killed at its writes, finds the disk full or failing, is given again, and must end as if nothing was.

What may differ is listed in `fault_compare.EXCEPTED`, and nowhere else.
"""

from __future__ import annotations

import random

import pytest
from fault_cases import CASES, spread
from laboratory import Laboratory
from write_shim import Fault, points

MOST = {"kill": 5, "torn": 2, "full": 2, "failing": 1}
"""Writes that are broken where a verb is not broken at all of them."""


@pytest.mark.parametrize("kind", MOST)
@pytest.mark.parametrize("name", CASES)
def test_a_broken_write_changes_nothing(laboratory: Laboratory, rng: random.Random, name: str, kind: str) -> None:
    case = CASES[name]
    worth = points(laboratory.whole(case).events, kind)
    every = case.is_exhaustive and kind in ("kill", "torn")
    chosen = worth if every else [worth[number] for number in spread(len(worth), MOST[kind], rng)]
    # In a container every process may have the same number: every other trial is like that.
    found = [laboratory.trial(case, Fault(kind, at), same_pid=at % 2 == 1) for at in chosen]
    assert chosen
    assert not any(found), "\n".join(problem for problem in found if problem)


def test_the_writes_are_seen(laboratory: Laboratory) -> None:
    """What no shim saw could not be broken: each file that a verb leaves was created, or renamed into place."""
    for case in CASES.values():
        whole = laboratory.whole(case)
        kinds = {event.split()[0] for event in whole.events}
        assert {"create", "write", "fsync", "replace"} <= kinds, case.name
    trained = laboratory.whole(CASES["train"]).events
    assert any(event.startswith("native run/checkpoints/") and event.endswith("optimizer.pt") for event in trained)
    assert any(event.startswith("native run/.model.") for event in trained)
    rows = [
        event for event in laboratory.whole(CASES["attack"]).events if event == "write out/attacks/deepwordbug.jsonl"
    ]
    assert len(rows) == 4
