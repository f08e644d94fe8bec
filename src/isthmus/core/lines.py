"""Lines of JSON that carry a checksum, so that a damaged one is noticed.

    {"id": "test:17", "outcome": "failed", "check": "1c291ca3"}

The last key is the CRC-32 of the line without it; every change of up to 32 neighbouring bits is found. Whoever reads a
line gets the row without the key. Lines written before there were checksums are read as they are.

A process that is killed may leave half a line at the end of a file. `whole_lines` is the one reader of files that are
appended to: it leaves such an end out. Whoever reads decides what becomes of a whole line that is damaged.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import RunError

_SEAL = re.compile(rb'(?:(, )|(?<=\{))"check": "([0-9a-f]{8})"\}$')
_SHAPE = b'"check": "????????"}'
_ALIKE = 9
"""Of the twelve fixed characters of a seal, how many make one of a line's end; no other row ends like that."""


@dataclass(frozen=True)
class Line:
    """The content of one line."""

    row: dict[str, Any] | None
    """The row without its checksum; None where the line is not a JSON object."""
    is_sealed: bool
    is_damaged: bool = False
    """Whether the checksum, or what is left of it, does not fit the rest."""


@dataclass(frozen=True)
class PlacedLine(Line):
    """A complete line and its place in the file."""

    raw: bytes = b""
    """The line itself, without its line break."""
    number: int = 0
    """Counted from 1."""
    start: int = 0
    end: int = 0
    """Offsets of its first byte, and of the one behind its line break."""


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""What `json.dumps` does, without making an encoder for every row."""


def encode(row: Mapping[str, Any]) -> bytes:
    """One line that any JSON reader takes: keys in the order given, NaN as null, half a surrogate pair escaped."""
    try:
        line = _encode(row)
    except ValueError:
        line = json.dumps(_finite(row), ensure_ascii=False, allow_nan=False)
    # The backslash form of a lone surrogate is also its JSON escape.
    return line.encode("utf-8", errors="backslashreplace") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def seal(line: bytes) -> bytes:
    """A line that holds a JSON object, with its checksum as the last key."""
    body = line.rstrip(b"\n")
    comma = b"" if body == b"{}" else b", "
    return body[:-1] + comma + b'"check": "%08x"}\n' % zlib.crc32(body)


def seal_row(row: Mapping[str, Any]) -> bytes:
    """`row` as one line with its checksum."""
    return seal(encode(row))


def read_line(line: bytes) -> Line:
    """The content of a line, and whether it is unchanged."""
    found = _SEAL.search(line := line.rstrip(b"\n"))
    if found is None:
        return Line(_parse(line), False, _resembles_seal(line))
    body = line[: found.start()] + b"}"
    return Line(_parse(body), True, zlib.crc32(body) != int(found[2], 16))


def whole_lines(stream: Iterable[bytes]) -> Iterator[PlacedLine]:
    """Every complete line of a file; an incomplete last line, left by a kill, is left out."""
    end = 0
    for number, raw in enumerate(stream, start=1):
        if not raw.endswith(b"\n"):
            return
        start, end = end, end + len(raw)
        line = read_line(raw)
        yield PlacedLine(line.row, line.is_sealed, line.is_damaged, raw[:-1], number, start, end)


def _resembles_seal(line: bytes) -> bool:
    """Whether a line ends in a checksum of which some characters were changed."""
    end = line[-len(_SHAPE) :]
    fixed = [(a, b) for a, b in zip(end, _SHAPE, strict=False) if b != ord("?")]
    return len(end) == len(_SHAPE) and sum(a == b for a, b in fixed) >= _ALIKE


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def make_damage_error(path: object, number: int, fault: str, remedy: str = "") -> RunError:
    """Make the error of a changed line; `remedy` says what follows from deleting it."""
    remedy = remedy or "the command that wrote it computes the row again"
    return RunError(
        f"{path} line {number} {fault}: the file was damaged, or changed by hand. Delete that line "
        f"(sed -i {number}d {shlex.quote(str(path))}); {remedy}"
    )
