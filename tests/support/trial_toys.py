"""Trials of one text, with edits of it done twice: by the package, and the plain way on a list."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from engine_toys import TextVictim
from hypothesis import strategies as st

from isthmus.attacks.parts.goals import Untargeted
from isthmus.attacks.parts.trial import Trial
from isthmus.engine.requests import INSERT, MERGE, REPLACE, Edits
from isthmus.engine.scheduler import Engine
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

TEXT = "alpha bravo charlie delta echo foxtrot golf hotel"
LENGTH = 8

Model = list[tuple[int, str]]
"""A text as pairs of (position in the original, -1 for none; word)."""
Plan = tuple[int, int, str]
"""An edit: position, span, word ("" deletes)."""


def trial_of(text: str = TEXT, rules: Sequence[Any] = (), vocabulary: Vocabulary | None = None) -> Trial:
    original = Draft.of({"text": text}, vocabulary or Vocabulary())
    return Trial(Untargeted(), 1, original, np.array([0.1, 0.9], np.float32), random.Random(0), rules)


def edits_of(trial: Trial, plans: Sequence[Sequence[Plan]]) -> Edits:
    rows = [
        (index, position, span, trial.vocabulary.id(word))
        for index, plan in enumerate(plans)
        for position, span, word in plan
    ]
    return np.array(rows, np.int32).reshape(-1, 4)


def apply(model: Model, plan: Sequence[Plan]) -> Model:
    """The same edits on a list, the plain way."""
    model = list(model)
    for position, span, word in sorted(plan, reverse=True):
        if span == INSERT:
            model.insert(position, (-1, word))
        elif span == MERGE:
            model[position : position + 2] = [(model[position][0], word)]
        elif not word:
            del model[position]
        else:
            model[position] = (model[position][0], word)
    return model


def changes(model: Model) -> int:
    """Words replaced, inserted or gone."""
    original = TEXT.split()
    kept = [origin for origin, _ in model if origin >= 0]
    differing = sum(origin < 0 or word != original[origin] for origin, word in model)
    return differing + len(original) - len(kept)


NEW = st.sampled_from(["x", "yy", "zzz", "alpha", "bravo", "golf"])


@st.composite
def plans(draw: st.DrawFn, length: int, most: int = 3) -> list[Plan]:
    """Edits of one candidate, far enough from each other not to meet."""
    found, at = list[Plan](), 0
    for _ in range(draw(st.integers(0, most))):
        at += draw(st.integers(0, 2))
        span = draw(st.sampled_from([INSERT, REPLACE, REPLACE, MERGE]))
        if at + (span == MERGE) >= length:
            break
        word = draw(NEW | st.just("")) if span == REPLACE else draw(NEW)
        found.append((at, span, word))
        at += 1 + (span == MERGE)
    return found


@st.composite
def situations(draw: st.DrawFn) -> tuple[Trial, Draft, Model, list[list[Plan]]]:
    """A trial, a draft of it some edits on, and candidates from there."""
    trial = trial_of()
    before = draw(plans(LENGTH, 2))
    base = trial.original.apply((at, span, trial.vocabulary.id(word)) for at, span, word in before)
    model = apply(list(enumerate(TEXT.split())), before)
    candidates = draw(st.lists(plans(len(model)), min_size=1, max_size=5))
    return trial, base, model, candidates


Steps = Generator[Any, Any, Any]


def run(steps: Callable[[Trial], Steps], text: str, victim: TextVictim | None = None, **models: Any) -> tuple[Any, int]:
    """Let the engine run a generator about one text; what it returns, and the queries it made."""

    class Program:
        key, budget, label = 0, None, 1

        def start(self, vocabulary: Vocabulary) -> Steps:
            return (yield from steps(trial_of(text, vocabulary=vocabulary)))

    (finished,) = Engine(victim or TextVictim(lambda text: 0.9), **models).run([Program()])
    assert finished.error is None, finished.error
    return finished.value, finished.logical
