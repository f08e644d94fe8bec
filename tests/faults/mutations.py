"""Damage to a file, from a seed: what disks, transfers, editors and other programs do to one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Damage = Callable[[bytes, random.Random], bytes]

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**30, -(10**30), 2**31, 2**63, 1e308, float("nan"), float("inf"), 0.5, "", "\0",
    "nan", "‮abc", "a" * 5000, [], {}, [[]], {"a": 1}, ["a", 1, None],
)  # fmt: skip
HUGE = b"9" * 5000
"""More digits than Python turns into a number."""
DEEP = 100_000
"""Brackets inside brackets: more than any parser that calls itself can take."""


def _flip(content: bytes, rng: random.Random, bits: int = 1) -> bytes:
    changed = bytearray(content)
    for _ in range(bits):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _span(content: bytes, rng: random.Random, longest: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(content))
    return start, min(len(content), start + rng.randint(1, longest))


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _doubled(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng, 400)
    return content[:end] + content[start:]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + bytes(end - start) + content[end:]


def _junk(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + rng.randbytes(end - start) + content[end:]


def _no_utf8(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + rng.choice([b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf8\x88"]) + content[start:]


def _lines(change: Callable[[list[bytes], random.Random], None]) -> Damage:
    def damage(content: bytes, rng: random.Random) -> bytes:
        lines = content.splitlines(keepends=True)
        change(lines, rng)
        return b"".join(lines)

    return damage


def _swap(lines: list[bytes], rng: random.Random) -> None:
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _double(lines: list[bytes], rng: random.Random) -> None:
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))


def _drop(lines: list[bytes], rng: random.Random) -> None:
    del lines[rng.randrange(len(lines))]


BYTES: dict[str, Damage] = {
    "bit flipped": _flip,
    "eight bits flipped": lambda content, rng: _flip(content, rng, 8),
    "cut": _cut,
    "empty": lambda content, rng: b"",
    "piece doubled": _doubled,
    "zeros": _zeros,
    "junk": _junk,
    "not UTF-8": _no_utf8,
}
LINES: dict[str, Damage] = {
    "lines swapped": _lines(_swap),
    "line doubled": _lines(_double),
    "line dropped": _lines(_drop),
}


# ---------------------------------------------------------------------- JSON, by its meaning


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        found += _places(part, (*path, key))
    return found


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _edited(content: bytes, rng: random.Random, edit: Callable[[Any, Any, random.Random], None]) -> bytes:
    """One line of JSON lines, or the whole, with one of its places changed."""
    lines = content.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    try:
        value = json.loads(lines[number])
        is_line = True
    except ValueError:
        value, is_line = json.loads(content), False
    places = _places(value)
    if not places:
        return b"[]"
    *outer, last = rng.choice(places)
    edit(_at(value, tuple(outer)), last, rng)
    changed = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return b"".join([*lines[:number], changed + b"\n", *lines[number + 1 :]]) if is_line else changed


def _replace(holder: Any, key: Any, rng: random.Random) -> None:
    holder[key] = rng.choice(ODD_VALUES)


def _remove(holder: Any, key: Any, rng: random.Random) -> None:
    del holder[key]


def _marked(content: bytes, rng: random.Random, literal: bytes) -> bytes:
    def edit(holder: Any, key: Any, rng: random.Random) -> None:
        holder[key] = "@@"

    return _edited(content, rng, edit).replace(b'"@@"', literal)


JSON: dict[str, Damage] = {
    "value replaced": lambda content, rng: _edited(content, rng, _replace),
    "value removed": lambda content, rng: _edited(content, rng, _remove),
    "huge number": lambda content, rng: _marked(content, rng, HUGE),
    "deep nesting": lambda content, rng: _marked(content, rng, b"[" * DEEP + b"]" * DEEP),
    "another kind": lambda content, rng: rng.choice([b"null", b"[]", b"3", b'"text"', b"{}", b"[[1]]"]),
}


def kinds_for(name: str) -> dict[str, Damage]:
    """The damage that a file of this name can take."""
    if name.endswith((".json", ".jsonl")):
        return {**BYTES, **LINES, **JSON}
    if name.endswith((".csv", ".tsv", ".txt")):
        return {**BYTES, **LINES}
    return BYTES


def damaged(name: str, content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """What was done to a file, and what it then holds."""
    known = kinds_for(name)
    kind = rng.choice(sorted(known))
    return kind, known[kind](content, rng) if content else b"{"
