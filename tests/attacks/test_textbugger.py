"""The bugs themselves, and the white-box order of words."""

from __future__ import annotations

import random

from attack_toys import LetterEncoder, vectors_file
from engine_toys import TextVictim, examples
from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.parts.characters import LOOK_ALIKES, bugs
from isthmus.attacks.parts.edit_distance import levenshtein
from isthmus.attacks.words.textbugger import TextBugger
from isthmus.core.types import Texts


@given(st.text(alphabet="abcXYZ'-09é", min_size=1, max_size=12), st.integers(0, 99))
def test_bugs_keep_the_first_and_the_last_character(word: str, seed: int) -> None:
    found = bugs(word, random.Random(seed))
    random_ones = (len(word) > 2) * 2 + (len(word) > 3)
    for new in found[:random_ones]:
        assert (new[0], new[-1]) == (word[0], word[-1])
        assert levenshtein(word, new) <= 2
    if len(word) > 2:
        split, shorter = found[:2]
        assert split.replace(" ", "") == word
        assert split.count(" ") == 1
        assert len(shorter) == len(word) - 1
    if len(word) > 3:
        assert sorted(found[2]) == sorted(word)
    look_alikes = found[random_ones:]
    assert len(look_alikes) == sum(letter in LOOK_ALIKES for letter in word)
    assert all(sum(a != b for a, b in zip(word, new, strict=True)) == 1 for new in look_alikes)


def test_every_place_inside_a_word_is_drawn() -> None:
    drawn = [bugs("abcdef", random.Random(seed))[:3] for seed in range(200)]
    assert {split.index(" ") for split, _, _ in drawn} == {1, 2, 3, 4}
    assert {shorter for _, shorter, _ in drawn} == {"acdef", "abdef", "abcef", "abcdf"}
    assert {swapped for _, _, swapped in drawn} == {"acbdef", "abdcef", "abcedf"}


def test_a_split_word_stays_one_word() -> None:
    """Later edits still meet the words that were ranked, and the result tells them apart."""

    def positive(text: Texts) -> float:
        split = "great" not in text["text"] and text["text"].replace(" ", "").startswith("great")
        return 0.9 - 0.25 * split - 0.25 * (not text["text"].endswith("movie"))

    attack = TextBugger(neighbours=vectors_file())
    (result,) = attack(TextVictim(positive), examples("great movie"), encoder=LetterEncoder())
    assert result.outcome == "succeeded"
    assert [edit.original for edit in result.edits] == ["great", "movie"]
    assert sorted(edit.position for edit in result.edits) == [0, 1]
    assert "".join(result.edits[0].replacement.split()) == "great"
