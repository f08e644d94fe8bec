"""Character edits of a word: the four of DeepWordBug."""

from __future__ import annotations

import random
import string

LETTERS = string.ascii_letters


def swap(word: str, rng: random.Random) -> str:
    """Two neighbouring characters change places."""
    at = int(rng.random() * (len(word) - 1))
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def substitute(word: str, rng: random.Random) -> str:
    """One character becomes a random letter."""
    at = int(rng.random() * len(word))
    return word[:at] + LETTERS[int(rng.random() * 52)] + word[at + 1 :]


def delete(word: str, rng: random.Random) -> str:
    """One character goes."""
    at = int(rng.random() * len(word))
    return word[:at] + word[at + 1 :]


def insert(word: str, rng: random.Random) -> str:
    """A random letter comes in before some character."""
    at = int(rng.random() * len(word))
    return word[:at] + LETTERS[int(rng.random() * 52)] + word[at:]


EDITS = {"swap": swap, "substitute": substitute, "delete": delete, "insert": insert}
