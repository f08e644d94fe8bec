"""The benchmark of explanations: both sides do the same work, and a missed target ends it."""

from __future__ import annotations

import argparse
import sys

import pytest

pytest.importorskip("captum")

import training_toys as toys

import explain_speed
from isthmus.core.statistics import Interval
from isthmus.data import Splits
from isthmus.models import Classifier, ClassifierVictim


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> explain_speed.Bench:
    data = Splits("toy", {"test": toys.dataset("test", 8, 0)})
    monkeypatch.setattr(explain_speed, "load_data", lambda name: data)
    monkeypatch.setattr(Classifier, "create", lambda *_: toys.classifier())
    return explain_speed.Bench(options())


def options(**given: object) -> argparse.Namespace:
    usual = {"data": "toy", "backbone": "toy", "device": "cpu", "pairs": 2, "lime_texts": 3, "steps": 4, "samples": 20,
             "repeats": 2}  # fmt: skip
    return argparse.Namespace(**{**usual, **given})


def test_pairs_differ_in_some_words_and_keep_their_number(bench: explain_speed.Bench) -> None:
    examples = bench.examples(4)
    assert len(examples) == 8
    for one, other in zip(examples[::2], examples[1::2], strict=True):
        before, after = one.texts["text"].split(), other.texts["text"].split()
        assert len(before) == len(after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) <= max(1, len(before) // 10)


def test_every_point_of_every_path_is_a_row(bench: explain_speed.Bench) -> None:
    ids = [bench._ids(example) for example in bench.examples(2)]
    batches = bench._rows(ids, 3)
    assert sum(len(batch) for batch in batches) == len(ids) * 4
    assert max(len(batch) for batch in batches) <= 3


def test_both_kinds_are_timed_beside_the_bare_passes(bench: explain_speed.Bench) -> None:
    assert isinstance(bench.victim, ClassifierVictim)
    assert [line.what for line in (*bench.gradients(), *bench.lime())] == list(explain_speed.TARGETS)


def test_a_missed_target_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = explain_speed.Line("LIME / bare", Interval(0.5, 0.4, 0.6), "2 rounds")
    fast = explain_speed.Line("integrated gradients / bare", Interval(0.95, 0.9, 1.0), "2 rounds")
    assert (slow.is_met, fast.is_met) == (False, True)
    table = explain_speed.page([slow, fast], [("lime", 100.0, 101.0)], options())
    assert "| LIME / bare | 0.50 | 0.40 to 0.60 | 0.9 | 2 rounds |" in table

    class Bench:
        def __init__(self, _: object) -> None:
            pass

        def gradients(self) -> list[explain_speed.Line]:
            return [fast, fast]

        def lime(self) -> list[explain_speed.Line]:
            return [slow]

    monkeypatch.setattr(explain_speed, "Bench", Bench)
    monkeypatch.setattr(sys, "argv", ["explain_speed.py", "--skip", "memory"])
    explain_speed.main()
    monkeypatch.setattr(sys, "argv", ["explain_speed.py", "--skip", "memory", "--targets"])
    with pytest.raises(SystemExit, match="missed: LIME / bare"):
        explain_speed.main()
