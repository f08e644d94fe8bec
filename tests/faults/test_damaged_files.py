"""Every reader, on files damaged from a seed: the same result as before, or a refusal by an error of ours.

Never a figure that changed and nobody said so, another kind of exception, a crash or a hang. What may differ where a
file has no checksum is said in `fuzz_targets`.
"""

from __future__ import annotations

import pytest
from fuzz_targets import READERS
from laboratory import SEED, Fuzzer, Laboratory

COUNT = {"rows": 60, "records": 60, "model": 60}
"""Damaged copies; a hundred where reading is cheap."""


@pytest.fixture(scope="module")
def fuzzer(laboratory: Laboratory) -> Fuzzer:
    return Fuzzer(laboratory)


@pytest.mark.parametrize("reader", READERS)
def test_damage_is_noticed_or_harmless(fuzzer: Fuzzer, reader: str) -> None:
    counts, problems = fuzzer.fuzz(reader, SEED, COUNT.get(reader, 100))
    assert not problems, "\n".join(problems)
    assert sum(counts.values()) == COUNT.get(reader, 100)
