"""Look-alikes, and the shipped words."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.lexicon import benign_words, stop_words
from isthmus.lexicon.confusables import DELETION, DIRECTION_MARKS, HOMOGLYPHS, INVISIBLE, LEET, skeleton, swap
from isthmus.text.words import Words

PLAIN = st.text(string.ascii_letters + string.digits + " ,.'-!?", max_size=30)


def test_look_alikes_are_single_other_characters() -> None:
    every = [look for looks in HOMOGLYPHS.values() for look in looks]
    assert len(every) == len(set(every))
    assert all(len(look) == 1 and not look.isascii() for look in every)
    assert set(string.ascii_lowercase) <= HOMOGLYPHS.keys()
    # Only F has none: nothing looks like it and is in common fonts.
    assert set(string.ascii_uppercase) - HOMOGLYPHS.keys() == {"F"}


def test_what_normalisation_undoes_comes_last() -> None:
    for letter, looks in HOMOGLYPHS.items():
        undone = [unicodedata.normalize("NFKC", look) == letter for look in looks]
        assert undone == sorted(undone)
    stable = [letter for letter, looks in HOMOGLYPHS.items() if unicodedata.normalize("NFKC", looks[0]) != letter]
    assert set(string.ascii_lowercase) - set(stable) == {"m"}


def test_the_invisible_has_no_width() -> None:
    assert all(unicodedata.category(each) == "Cf" for each in (*INVISIBLE, *DIRECTION_MARKS))
    assert not set(INVISIBLE) & set(DIRECTION_MARKS)


@given(PLAIN, st.data())
def test_disturbed_texts_look_the_same(text: str, data: st.DataObject) -> None:
    shown = []
    for character in text:
        ways = [character, *HOMOGLYPHS.get(character, ()), f"x{DELETION}{character}", f"xy{DELETION * 2}{character}"]
        ways += [character + each for each in INVISIBLE]
        shown.append(data.draw(st.sampled_from(ways)))
    assert skeleton("".join(shown)) == text == skeleton(text)
    at = data.draw(st.integers(0, max(len(text) - 2, 0)))
    if len(text) >= 2:
        stored = text[:at] + swap(text[at], text[at + 1]) + text[at + 2 :]
        assert stored != text
        assert skeleton(stored) == text


def test_nested_swaps() -> None:
    assert skeleton(swap(swap("a", "b"), "c")) == "abc"
    assert skeleton(swap("a", swap("b", "c"))) == "abc"


def test_a_swap_holds_the_letters_the_other_way_round() -> None:
    letters = [character for character in swap("a", "b") if character.isalpha()]
    assert letters == ["b", "a"]


def test_leet_is_read_and_seen() -> None:
    assert LEET["e"] == ("3",)
    assert all(sign.isascii() and not sign.isalpha() for signs in LEET.values() for sign in signs)


def test_benign_words() -> None:
    words = benign_words()
    assert 280 <= len(words) == len(set(words))
    assert {"thanks", "meeting", "agenda", "weather"} <= set(words)
    assert all(word.islower() and Words.of(word).words == (word,) for word in words)
    assert len(set(words) & stop_words()) < 12


@pytest.mark.parametrize("text", ["", DELETION, f"{DELETION}a", "\u202d\u2066"])
def test_odd_texts(text: str) -> None:
    assert skeleton(text) == text.strip("".join((DELETION, *DIRECTION_MARKS)))
