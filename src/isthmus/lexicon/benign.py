"""Common neutral words: spammers add them to look harmless."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def benign_words() -> tuple[str, ...]:
    """English words of courtesy, work, time, home and weather, shipped with isthmus; lower-cased, each once."""
    text = resources.files(__package__).joinpath("benign_english.txt").read_text(encoding="utf-8")
    return tuple(dict.fromkeys(word for line in text.splitlines() if not line.startswith("#") for word in line.split()))
