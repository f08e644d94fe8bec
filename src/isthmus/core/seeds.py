"""Random streams, keyed by their purpose and not by the order of use.

    stream(seed, *key) -> an independent stream for (seed, key)

The stream of an example comes from (seed, example id), so that a result does not depend on the order of the
examples, on the number of workers, or on whether the run was resumed. Nothing here touches a global stream.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np


def derive(seed: int, *key: str | int) -> int:
    """A 64-bit seed for (seed, key); different keys give independent seeds."""
    text = "\x1f".join([str(seed), *[f"{type(part).__name__}:{part}" for part in key]])
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def python_stream(seed: int, *key: str | int) -> random.Random:
    """A stream for scalar draws (it starts in microseconds; word attacks use it)."""
    return random.Random(derive(seed, *key))


def numpy_stream(seed: int, *key: str | int) -> np.random.Generator:
    """A stream for array draws."""
    return np.random.default_rng(derive(seed, *key))
