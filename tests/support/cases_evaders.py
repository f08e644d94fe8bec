"""Rows of the attacks that real evaders use."""

from __future__ import annotations

from attack_toys import Case, LetterEncoder, stop_words_are_left_alone, vectors_file, words_are_replaced

from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.badchars import BadChars
from isthmus.attacks.words.goodwords import GoodWords
from isthmus.attacks.words.hardlabel import HardLabel
from isthmus.attacks.words.leet import Leet
from isthmus.lexicon.benign import benign_words
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.confusables import DELETION, HOMOGLYPHS, INVISIBLE, LEET, skeleton


def edits_are_neighbours(result: AttackResult) -> None:
    near = load_neighbours(vectors_file())
    for edit in result.edits:
        cosine = near.cosine(edit.original, edit.replacement)
        assert cosine is not None
        assert cosine >= 0.5


def the_text_is_whole(result: AttackResult) -> None:
    assert {edit.kind for edit in result.edits} <= {"insert"}
    assert len(result.edits) <= 20
    added = [edit.replacement for edit in result.edits]
    assert set(added) <= set(benign_words())
    assert len(set(added)) == len(added)


def words_stand_behind(result: AttackResult) -> None:
    for name, text in result.original.items():
        assert result.perturbed[name].startswith(text)


def words_stand_in_front(result: AttackResult) -> None:
    for name, text in result.original.items():
        assert result.perturbed[name].endswith(text)


def nothing_is_seen(result: AttackResult) -> None:
    for name, text in result.original.items():
        assert skeleton(result.perturbed[name]) == skeleton(text)
    assert sum(disturbances(edit.replacement) for edit in result.edits) <= 5


def disturbances(word: str) -> int:
    """Bad characters in a word, every swap, look-alike, deletion and invisible one counted once."""
    odd = {look for looks in HOMOGLYPHS.values() for look in looks} | {*INVISIBLE, DELETION, "\u202d"}
    return sum(character in odd for character in word)


def edits_are_leet(result: AttackResult) -> None:
    for edit in result.edits:
        word, new = edit.original, edit.replacement
        if len(new) == 2 * len(word) - 1:
            assert {new[1::2]} <= {"." * (len(word) - 1), " " * (len(word) - 1)}
            new = new[::2]
        signs = [sign for letter, sign in zip(word, new, strict=True) if letter != sign]
        assert len(signs) <= 0.6 * len(word)
        for letter, sign in zip(word, new, strict=True):
            assert sign == letter or sign in LEET[letter.lower()]


CASES: dict[str, Case] = {
    "badchars": Case(BadChars(), (nothing_is_seen, words_are_replaced)),
    "badchars-evolution": Case(
        BadChars(strategy="evolution", generations=8), (nothing_is_seen, words_are_replaced), one_edit=False
    ),
    "badchars-homoglyph": Case(BadChars(kinds=("homoglyph",)), (nothing_is_seen, words_are_replaced)),
    "leet": Case(Leet(), (edits_are_leet, stop_words_are_left_alone)),
    "leet-spaced": Case(Leet(separators=". "), (edits_are_leet, stop_words_are_left_alone)),
    "goodwords": Case(GoodWords(), (the_text_is_whole, words_stand_behind), only_adds=True),
    "goodwords-start": Case(
        GoodWords(place="start", look=1, max_share=0.5), (the_text_is_whole, words_stand_in_front), only_adds=True
    ),
    "hardlabel": Case(
        HardLabel(neighbours=vectors_file(), part_of_speech="none", tries=20),
        (words_are_replaced, edits_are_neighbours, stop_words_are_left_alone),
        encoder=LetterEncoder(),
        label_only=True,
    ),
}
