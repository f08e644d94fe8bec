"""One attack on one example while it runs: the goal, the text as it stands, and the example's own randomness."""

from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.goals import Goal
from isthmus.core.types import Floats
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary


class Trial:
    """State of one attack. A search calls `accept` whenever it moves; whatever was accepted last is the result."""

    __slots__ = ("candidates", "draft", "goal", "label", "moves", "original", "progress", "rng", "scores")

    def __init__(self, goal: Goal, label: int, original: Draft, scores: Floats, rng: random.Random) -> None:
        self.goal, self.label, self.rng = goal, label, rng
        self.original = self.draft = original
        self.scores = scores  # [classes] of the draft as it stands
        self.progress = float(goal.progress(scores, label))
        self.candidates = 0  # candidates proposed so far
        self.moves = 0  # candidates accepted so far

    @property
    def vocabulary(self) -> Vocabulary:
        """Where words are interned."""
        return self.original.structure.vocabulary

    @property
    def reached(self) -> bool:
        """Whether the draft as it stands fulfils the goal."""
        return bool(self.goal.reached(self.scores, self.label))

    def judge(self, scores: Floats) -> Floats:
        """How far each row of scores is towards the goal."""
        return self.goal.progress(scores, self.label)

    def accept(self, draft: Draft, scores: Floats, progress: float) -> bool:
        """Move to a candidate; True if the goal is reached."""
        self.draft, self.scores, self.progress = draft, scores, progress
        self.moves += 1
        return self.reached

    def positions(self, frozen: Collection[str] = frozenset()) -> NDArray[np.int32]:
        """Positions that may be edited: not protected, and not one of the frozen words."""
        draft, strings = self.draft, self.vocabulary.strings
        if draft.editable.all():
            return np.array([at for at, word in enumerate(draft.ids.tolist()) if strings[word] not in frozen], np.int32)
        return np.array(
            [
                at
                for at, (word, free) in enumerate(zip(draft.ids.tolist(), draft.editable.tolist(), strict=True))
                if free and strings[word] not in frozen
            ],
            np.int32,
        )
