"""The state of one attack on one example: the goal, the current text, and the example's own randomness."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.candidates import AskingRule, PlainRule, Rule
from isthmus.attacks.parts.goals import Goal, Untargeted
from isthmus.core import compiled
from isthmus.core.types import Floats
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary


class Trial:
    """State of one attack. A search calls `accept` whenever it moves; whatever was accepted last is the result."""

    __slots__ = (
        "_compiled", "asking_rules", "candidates", "draft", "goal", "label", "moves", "original", "plain_rules",
        "progress", "rng", "scores",
    )  # fmt: skip

    def __init__(
        self,
        goal: Goal,
        label: int,
        original: Draft,
        scores: Floats,
        rng: random.Random,
        rules: Sequence[Rule] = (),
    ) -> None:
        self.goal, self.label, self.rng = goal, label, rng
        # What judges rows of scores by 1 - p(true class), and that alone.
        self._compiled = compiled.part if type(goal) is Untargeted else None
        self.original = self.draft = original
        self.scores = scores  # [classes] of the draft as it stands
        self.progress = float(goal.progress(scores, label))
        # What `isinstance` asks of a protocol, at a tenth of its time: every text begins with this.
        self.plain_rules = tuple([cast("PlainRule", rule) for rule in rules if hasattr(rule, "holds")])
        self.asking_rules = tuple([cast("AskingRule", rule) for rule in rules if hasattr(rule, "ask")])
        self.candidates = 0  # candidates that passed the rules so far
        self.moves = 0  # candidates accepted so far

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the words."""
        return self.original.structure.vocabulary

    @property
    def reached(self) -> bool:
        """Whether the draft as it stands fulfils the goal."""
        return bool(self.goal.is_reached(self.scores, self.label))

    def judge(self, scores: Floats) -> Floats:
        """Progress of each row of scores towards the goal."""
        return self.goal.progress(scores, self.label)

    def leading(self, scores: Floats) -> tuple[int, float]:
        """The row of scores with the most progress, the first of several, and its progress."""
        if self._compiled is not None and (found := self._compiled.furthest(scores, self.label)) is not None:
            leading: tuple[int, float] = found
            return leading
        progress = self.judge(scores)
        best = int(progress.argmax())
        return best, float(progress[best])

    def rank(self, positions: NDArray[np.int32], scores: Floats) -> list[int]:
        """Positions, ordered by the progress of their rows of scores, the largest first."""
        if self._compiled is not None and (found := self._compiled.ranked(positions, scores, self.label)) is not None:
            ranked: list[int] = found
            return ranked
        order: list[int] = positions[(-self.judge(scores)).argsort(kind="stable")].tolist()
        return order

    def accept(self, draft: Draft, scores: Floats, progress: float) -> bool:
        """Move to a candidate; True if the goal is reached."""
        self.draft, self.scores, self.progress = draft, scores, progress
        self.moves += 1
        return self.reached

    def find_changed(self, draft: Draft) -> NDArray[np.bool_]:
        """For every word of a draft whether it is not the original's: replaced, merged or inserted."""
        if draft.origin is self.original.origin:
            return np.asarray(draft.ids != self.original.ids)
        return np.asarray((draft.origin < 0) | (draft.ids != self.original.ids[draft.origin]))

    def place(self, position: int) -> int | None:
        """Position of a word of the original in the draft; None if it is gone."""
        if self.draft.origin is self.original.origin:
            return position
        found = np.flatnonzero(self.draft.origin == position)
        return int(found[0]) if len(found) else None

    def positions(
        self, frozen: Collection[str] = frozenset(), draft: Draft | None = None, repeat: bool = True
    ) -> NDArray[np.int32]:
        """Positions that may be edited: not protected, not one of the frozen words, and unless `repeat` not changed."""
        draft, strings = draft or self.draft, self.vocabulary.strings
        free = draft.editable if repeat else draft.editable & ~self.find_changed(draft)
        if not frozen:
            return np.flatnonzero(free).astype(np.int32)
        if compiled.part is not None and isinstance(frozen, frozenset):
            found = compiled.part.positions(draft.ids, strings, frozen, free)
            return np.frombuffer(found, np.int32)
        ids = draft.ids.tolist()
        if free.all():
            return np.array([at for at, word in enumerate(ids) if strings[word] not in frozen], np.int32)
        return np.array(
            [
                at
                for at, (word, may) in enumerate(zip(ids, free.tolist(), strict=True))
                if may and strings[word] not in frozen
            ],
            np.int32,
        )
