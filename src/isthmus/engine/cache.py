"""Scores already seen, within a bounded amount of memory.

A set-associative table: a key names a row of four places, a new entry takes the place written longest ago. Look-ups and
insertions are array operations over a whole round of queries. The table begins small and doubles while it may: a run
that asks little then works inside the processor's caches, and touches no page that it does not need.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isthmus.core.types import Floats, Keys

_WAYS = 4
_FIRST_SETS = 1 << 11
"""How many rows of places it begins with."""
_FULL = 4
"""The table grows when one place in this number is taken; until then five keys hardly ever meet in one row."""


class ScoreCache:
    """Maps 64-bit keys to rows of scores; forgets when full, never grows past `megabytes`."""

    def __init__(self, classes: int, megabytes: float) -> None:
        entry = 8 + 4 * classes
        sets = max(1, int(megabytes * 2**20) // (entry * _WAYS))
        self.most = 1 << (sets.bit_length() - 1)
        self._clear(min(self.most, _FIRST_SETS), classes)

    def _clear(self, sets: int, classes: int) -> None:
        self.sets, self.taken = sets, 0
        self.keys = np.zeros((sets, _WAYS), np.uint64)  # 0 = empty
        self.scores = np.zeros((sets, _WAYS, classes), np.float32)
        self.turn = np.zeros(sets, np.uint8)

    def _grow(self, coming: int) -> None:
        """Make room for this number of new keys, up to the size limit; stored keys stay."""
        sets = self.sets
        while sets < self.most and _FULL * (self.taken + coming) > sets * _WAYS:
            sets *= 2
        if sets == self.sets:
            return
        held = self.keys != 0
        keys, scores = self.keys[held], self.scores[held]
        self._clear(sets, scores.shape[1])
        self._place(keys, scores)

    def find(self, keys: Keys) -> tuple[NDArray[np.bool_], Floats]:
        """Which keys are stored, and their scores (rows of zeros for the others)."""
        places = self._sets(keys)
        match = self.keys[places] == keys[:, None]  # [keys, ways]
        held = match.any(axis=1)
        scores = np.zeros((len(keys), self.scores.shape[2]), np.float32)
        scores[held] = self.scores[places[held], match[held].argmax(axis=1)]
        return held, scores

    def put(self, keys: Keys, scores: Floats) -> None:
        """Store these rows; keys must be distinct and not stored yet."""
        if len(keys):
            self._grow(len(keys))
            self._place(keys, scores)

    def _place(self, keys: Keys, scores: Floats) -> None:
        if not len(keys):
            return
        self.taken += len(keys)
        places = self._sets(keys)
        # Of several new keys with the same set only the last would survive one assignment: give each its own turn.
        order = np.argsort(places, kind="stable")
        sorted_places = places[order]
        first = np.r_[True, sorted_places[1:] != sorted_places[:-1]]
        run = np.arange(len(keys)) - np.flatnonzero(first)[np.cumsum(first) - 1]  # [keys]: 0, 1, … within a set
        ways = (self.turn[sorted_places].astype(np.int64) + run) % _WAYS
        self.keys[sorted_places, ways] = keys[order]
        self.scores[sorted_places, ways] = scores[order]
        counts = np.bincount(np.cumsum(first) - 1)  # [sets touched]: new keys of each
        self.turn[sorted_places[first]] = (self.turn[sorted_places[first]] + counts) % _WAYS

    def _sets(self, keys: Keys) -> NDArray[np.int64]:
        return (keys >> np.uint64(7)).astype(np.int64) & (self.sets - 1)
