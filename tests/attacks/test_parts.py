import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.parts.edit_distance import levenshtein
from isthmus.attacks.parts.goals import Evasion, Targeted, Untargeted
from isthmus.attacks.parts.protection import Protection
from isthmus.attacks.result import align_edits
from isthmus.core.errors import UnknownName, UsageError
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary


def plain_levenshtein(left: str, right: str) -> int:
    table = np.zeros((len(left) + 1, len(right) + 1), int)
    table[:, 0], table[0] = np.arange(len(left) + 1), np.arange(len(right) + 1)
    for row in range(1, len(left) + 1):
        for column in range(1, len(right) + 1):
            table[row, column] = min(
                table[row - 1, column] + 1,
                table[row, column - 1] + 1,
                table[row - 1, column - 1] + (left[row - 1] != right[column - 1]),
            )
    return int(table[-1, -1])


words = st.text(alphabet="abc", max_size=12)


@given(words, words, st.integers(0, 14))
def test_levenshtein(left: str, right: str, limit: int) -> None:
    true = plain_levenshtein(left, right)
    assert levenshtein(left, right) == true
    assert levenshtein(left, right, limit) == min(true, limit + 1)


def test_goals() -> None:
    scores = np.array([[0.2, 0.8], [0.6, 0.4]], np.float32)
    assert Untargeted().is_reached(scores, 1).tolist() == [False, True]
    assert Untargeted().progress(scores, 1).tolist() == pytest.approx([0.2, 0.6])
    assert Targeted(0).is_reached(scores, 1).tolist() == [False, True]
    assert Evasion(1, 0.3).is_reached(scores, 1).tolist() == [False, False]
    assert Evasion(1, 0.5).is_reached(scores, 1).tolist() == [False, True]
    assert not Evasion(1, 0.5).applies(scores[0], 0)  # of the other class: nothing to evade
    with pytest.raises(UsageError, match="threshold"):
        Evasion(1, 1.5)


def test_protection_refuses_what_cannot_be() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'premise'"):
        Protection(columns=("premis",)).check(["premise", "hypothesis"])
    with pytest.raises(UsageError, match="nothing is left"):
        Protection(columns=("text",)).check(["text"])
    with pytest.raises(UsageError, match="not a regular expression"):
        Protection(pattern="(")


def test_structural_edits_are_aligned() -> None:
    vocabulary = Vocabulary()
    draft = Draft.of({"a": "one two three", "b": "four five"}, vocabulary)
    final = draft.delete(1).insert(2, vocabulary.id("new"))  # one three | new four five
    final = final.merge(3, vocabulary.id("fourfive"))
    assert final.texts == {"a": "one three", "b": "new fourfive"}
    edits = {(edit.field, edit.kind, edit.original, edit.replacement) for edit in align_edits(draft, final)}
    assert edits == {
        ("a", "delete", "two", ""),
        ("b", "insert", "", "new"),
        ("b", "replace", "four", "fourfive"),
        ("b", "delete", "five", ""),
    }
    for edit in align_edits(draft, final):
        assert draft.texts[edit.field][edit.start : edit.end] == edit.original
        assert final.texts[edit.field][edit.new_start : edit.new_end] == edit.replacement
