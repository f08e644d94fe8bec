"""A hash of 64-bit numbers: the key of random streams and rows."""

from __future__ import annotations

import numpy as np

from isthmus.core.types import Keys


def splitmix(values: Keys) -> Keys:
    """Scramble 64-bit counters (the finaliser of SplitMix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: Keys = mixed ^ (mixed >> np.uint64(31))
    return scrambled
