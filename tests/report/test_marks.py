from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.result import AttackResult
from isthmus.report.marks import Marked, odd_ones, visible
from isthmus.report.marks import mark as mark_result

MakeRow = Callable[..., dict[str, Any]]
plain_text = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), max_size=80)


def mark(row: dict[str, Any], **options: int) -> tuple[Marked, ...]:
    return mark_result(AttackResult.from_row({"outcome": "succeeded", **row}), **options)


def joined(pieces: Any) -> str:
    return "".join(piece.text for piece in pieces)


@given(st.integers(0, 1000))
def test_offsets_mark_exactly_the_edited_words(make_row: MakeRow, seed: int) -> None:
    row = make_row(seed, "succeeded", random.Random(seed))
    (field,) = mark(row)
    assert joined(field.before) == row["original"]["text"]
    assert joined(field.after) == row["perturbed"]["text"]
    assert [piece.text for piece in field.before if piece.changed] == [edit["original"] for edit in row["edits"]]
    assert [piece.text for piece in field.after if piece.changed] == [edit["replacement"] for edit in row["edits"]]


@given(plain_text, plain_text)
def test_without_offsets_the_texts_are_compared(before: str, after: str) -> None:
    (field,) = mark({"original": {"t": before}, "perturbed": {"t": after}, "edits": []}, context=1000)
    assert joined(field.before) == before
    assert joined(field.after) == after
    assert (
        [p.text for p in field.before if not p.changed and p.text.strip()] or before.split() == [] or field.is_changed
    )
    if before == after:
        assert not field.is_changed


def test_offsets_that_do_not_explain_the_difference_are_not_believed() -> None:
    edit = {"field": "t", "start": 0, "end": 1, "new_start": 0, "new_end": 1}
    (field,) = mark({"original": {"t": "one two"}, "perturbed": {"t": "one owt"}, "edits": [edit]})
    assert [piece.text for piece in field.before if piece.changed] == ["two"]
    assert [piece.text for piece in field.after if piece.changed] == ["owt"]


def test_hostile_offsets_are_ignored() -> None:
    edits = [{"field": "t", "start": -5, "end": 10**9, "new_start": "x", "new_end": None}]
    (field,) = mark({"original": {"t": "a b"}, "perturbed": {"t": "a c"}, "edits": edits})
    assert [piece.text for piece in field.before if piece.changed] == ["b"]


def test_a_very_long_text_is_shortened_around_its_changes() -> None:
    words = ["word"] * 100_000
    other = [*words]
    other[50_000] = "changed"
    start = 50_000 * 5
    edit = {"field": "t", "start": start, "end": start + 4, "new_start": start, "new_end": start + 7}
    row = {"original": {"t": " ".join(words)}, "perturbed": {"t": " ".join(other)}, "edits": [edit]}
    (field,) = mark(row)
    assert len(joined(field.before)) < 1000
    assert "changed" in [piece.text for piece in field.after if piece.changed]
    assert "…" in joined(field.before)


def test_an_inserted_and_a_deleted_word_are_marked_on_their_own_side() -> None:
    row = {
        "original": {"t": "a b c"},
        "perturbed": {"t": "a c d"},
        "edits": [
            {"field": "t", "start": 2, "end": 3, "new_start": 2, "new_end": 2},
            {"field": "t", "start": 5, "end": 5, "new_start": 4, "new_end": 5},
        ],
    }
    (field,) = mark(row)
    assert [piece.text for piece in field.before if piece.changed] == ["b"]
    assert [piece.text for piece in field.after if piece.changed] == ["d"]


@given(st.text())
def test_nothing_visible_can_steer_a_terminal(text: str) -> None:
    shown = visible(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in shown)
    assert not any(0x202A <= ord(c) <= 0x202E or 0x2066 <= ord(c) <= 0x2069 for c in shown)
    shown.encode("utf-8")


def test_invisible_changes_are_spelled_out() -> None:
    assert visible("a\u200bb", everything=True) == "a‹U+200B›b"
    assert visible("a\u200bb") == "a\u200bb"
    assert visible("👩\u200d🚀", everything=True) == "👩\u200d🚀"


def test_look_alikes_are_named() -> None:
    assert odd_ones("int\u0435lligent") == "U+0435 cyrillic small letter ie"
    assert odd_ones("intelligent") == ""
    assert odd_ones("интеллигентный") == ""  # a word of its own script
    row = {"original": {"text": "a fine film"}, "perturbed": {"text": "a f\u0456ne film"}, "edits": []}
    (field,) = mark(row)
    assert [piece.odd for piece in field.after if piece.changed] == [
        "U+0456 cyrillic small letter byelorussian-ukrainian i"
    ]
    assert not any(piece.odd for piece in field.before)
