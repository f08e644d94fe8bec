"""Rows of the attacks that real evaders use."""

from __future__ import annotations

from attack_toys import Case, LetterEncoder, stop_words_are_left_alone, vectors_file, words_are_replaced

from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.goodwords import GoodWords
from isthmus.attacks.words.hardlabel import HardLabel
from isthmus.lexicon.benign import benign_words
from isthmus.lexicon.neighbours import load_neighbours


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


CASES: dict[str, Case] = {
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
