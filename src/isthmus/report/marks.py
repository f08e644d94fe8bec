"""Two texts side by side, cut into unchanged and changed pieces.

The pieces come from the character offsets of a result's edits. Long stretches that stayed are shortened, so that a text
of a hundred thousand words still fits on a page. Characters that would be invisible, or would steer a terminal, are
spelled out.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.visible import visible

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult, Edit

__all__ = ["Marked", "Piece", "Sides", "Span", "compare_sides", "mark", "odd_ones", "visible"]

Span = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """A stretch of text, unchanged or changed."""

    text: str
    changed: bool = False
    odd: str = ""
    """Of a changed stretch the characters a reader may take for others, by name."""


@dataclass(frozen=True)
class Marked:
    """One field before and after."""

    field: str
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]

    @property
    def is_changed(self) -> bool:
        """Whether this field was edited."""
        return any(piece.changed for piece in (*self.before, *self.after))


def mark(result: AttackResult, context: int = 160) -> tuple[Marked, ...]:
    """Every field of a result; `context` unchanged characters are shown beside each change."""
    return tuple(
        Marked(
            sides.field, _cut_pieces(sides.before, sides.gone, context), _cut_pieces(sides.after, sides.new, context)
        )
        for sides in compare_sides(result)
    )


@dataclass(frozen=True)
class Sides:
    """One field before and after, and where they differ, in reading order."""

    field: str
    before: str
    after: str
    gone: list[Span]
    new: list[Span]


def compare_sides(result: AttackResult) -> Iterator[Sides]:
    """Every field of a result with the positions that changed."""
    for field, before in result.original.items():
        after = result.perturbed.get(field, before)
        edits = [edit for edit in result.edits if edit.field == field]
        gone, new = _spans(edits, before, after) or _compare_words(before, after)
        yield Sides(field, before, after, sorted(gone), sorted(new))


def _spans(edits: Sequence[Edit], before: str, after: str) -> tuple[list[Span], list[Span]] | None:
    """Offsets of the edits, or None if they do not explain the whole difference."""
    first: list[Span] = [(edit.start, edit.end) for edit in edits]
    second: list[Span] = [(edit.new_start, edit.new_end) for edit in edits]
    if not all(0 <= a <= b <= len(before) for a, b in first) or not all(0 <= a <= b <= len(after) for a, b in second):
        return None
    if _text_outside(before, first) != _text_outside(after, second):
        return None
    return first, second


def _text_outside(text: str, spans: Iterable[Span]) -> str:
    kept, position = [], 0
    for start, end in sorted(spans):
        kept.append(text[position:start])
        position = max(position, end)
    # A deleted or inserted word takes a space with it, which is no difference worth showing.
    return re.sub(r"\s+", "", "".join([*kept, text[position:]]))


def _compare_words(before: str, after: str) -> tuple[list[Span], list[Span]]:
    """Changed words found by comparison, for results without usable offsets."""
    old, new = _word_spans(before), _word_spans(after)
    matcher = difflib.SequenceMatcher(None, [before[a:b] for a, b in old], [after[a:b] for a, b in new], autojunk=False)
    first: list[Span] = []
    second: list[Span] = []
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            first += old[i:j]
            second += new[k:m]
    return first, second


def _word_spans(text: str) -> list[Span]:
    # Beyond this a comparison takes too long for a page, and nobody reads that far.
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]+", text)][:5_000]


def _cut_pieces(text: str, spans: Iterable[Span], context: int) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    position = 0
    for start, end in sorted(spans):
        if start > position:
            pieces.append(Piece(text[position:start]))
        if end > max(start, position):
            pieces.append(Piece(text[max(start, position) : end], changed=True))
        position = max(position, end)
    if position < len(text):
        pieces.append(Piece(text[position:]))
    last = len(pieces) - 1
    return tuple(_shorten(piece, context, number == 0, number == last) for number, piece in enumerate(pieces))


def _shorten(piece: Piece, context: int, first: bool, last: bool) -> Piece:
    text = piece.text
    head, tail = (context // 2 if first else context), (context // 2 if last else context)
    if len(text) > head + tail + 20:
        text = text[:head].rstrip() + " … " + text[len(text) - tail :].lstrip()
    return Piece(visible(text, everything=piece.changed), piece.changed, odd_ones(text) if piece.changed else "")


def odd_ones(text: str, most: int = 8) -> str:
    """Non-ASCII characters in a word with ASCII letters: mostly look-alikes that a reader does not see."""
    if not re.search("[A-Za-z]", text):
        return ""
    found = dict.fromkeys(character for character in text if ord(character) > 0x7E)
    return ", ".join(f"U+{ord(one):04X} {unicodedata.name(one, 'unnamed').lower()}" for one in list(found)[:most])
