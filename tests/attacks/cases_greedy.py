"""Rows of the greedy and beam attacks."""

from __future__ import annotations

from attack_toys import Case, LetterEncoder, masked_lm, stop_words_are_left_alone, vectors_file, words_are_replaced

from isthmus.attacks.parts.characters import LOOK_ALIKES
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.bae import BAE
from isthmus.attacks.words.random import Random
from isthmus.attacks.words.textbugger import TextBugger
from isthmus.attacks.words.textfooler import TextFooler
from isthmus.lexicon.neighbours import load_neighbours
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.words import Words

# ---------------------------------------------------------------------- TextFooler, BAE, TextBugger, Random


def edits_are_near(result: AttackResult) -> None:
    for edit in result.edits:
        cosine = load_neighbours(vectors_file()).cosine(edit.original, edit.replacement)
        assert cosine is not None
        assert cosine >= 0.5


def textfoolers_stop_words_are_left_alone(result: AttackResult) -> None:
    assert not {edit.original for edit in result.edits} & stop_words("textfooler")


def edits_are_bugs(result: AttackResult) -> None:
    for edit in result.edits:
        word = edit.original
        inside = range(1, len(word) - 1)
        possible = {f"{word[:at]} {word[at:]}" for at in inside}
        possible |= {word[:at] + word[at + 1 :] for at in inside}
        possible |= {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in inside[:-1]}
        possible |= {
            word[:at] + LOOK_ALIKES[letter] + word[at + 1 :] for at, letter in enumerate(word) if letter in LOOK_ALIKES
        }
        if edit.replacement not in possible:
            nearest = load_neighbours(vectors_file()).nearest(word, 5).words
            assert edit.replacement.lower() in nearest


def words_are_whole(result: AttackResult) -> None:
    for edit in result.edits:
        assert Words.of(edit.replacement).words == (edit.replacement,)


def words_are_inserted(result: AttackResult) -> None:
    assert {edit.kind for edit in result.edits} <= {"insert"}


def _textfooler(**parameters: str) -> Case:
    attack = TextFooler(neighbours=vectors_file(), part_of_speech="none", **parameters)  # type: ignore[arg-type]
    checks = (edits_are_near, textfoolers_stop_words_are_left_alone, words_are_replaced)
    return Case(attack, checks, encoder=LetterEncoder())


def _bae(*checks: object, adds: bool = False, one_edit: bool = True, **parameters: str) -> Case:
    attack = BAE(part_of_speech="none", **parameters)  # type: ignore[arg-type]
    return Case(
        attack,
        (words_are_whole, stop_words_are_left_alone, *checks),  # type: ignore[arg-type]
        encoder=LetterEncoder(),
        masked_lm=masked_lm(),
        one_edit=one_edit,
        only_adds=adds,
    )


CASES: dict[str, Case] = {
    "textfooler": _textfooler(),
    "textfooler-paper": _textfooler(semantics="paper"),
    "bae": _bae(words_are_replaced),
    "bae-paper": _bae(words_are_replaced, semantics="paper"),
    "bae-paper-insert": _bae(words_are_inserted, adds=True, semantics="paper", mode="insert"),
    "bae-paper-either": _bae(semantics="paper", mode="replace_or_insert"),
    "bae-paper-both": _bae(one_edit=False, semantics="paper", mode="replace_and_insert"),
    "textbugger": Case(
        TextBugger(neighbours=vectors_file()),
        (edits_are_bugs, stop_words_are_left_alone, words_are_replaced),
        encoder=LetterEncoder(),
    ),
    "random": Case(
        Random(neighbours=vectors_file(), part_of_speech="none"),
        (edits_are_near, words_are_replaced),
        encoder=LetterEncoder(),
        one_edit=False,
    ),
}
