"""Rows of the greedy and beam attacks."""

from __future__ import annotations

import math

from attack_toys import (
    Case,
    Check,
    LetterEncoder,
    masked_lm,
    stop_words_are_left_alone,
    vectors_file,
    words_are_replaced,
    words_of,
)

from isthmus.attacks.parts.characters import LOOK_ALIKES
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.bae import BAE
from isthmus.attacks.words.bertattack import BertAttack
from isthmus.attacks.words.clare import CLARE
from isthmus.attacks.words.hotflip import HotFlip
from isthmus.attacks.words.random import Random
from isthmus.attacks.words.textbugger import TextBugger
from isthmus.attacks.words.textfooler import TextFooler
from isthmus.lexicon.by_name import load_neighbours
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


# ---------------------------------------------------------------------- CLARE, BERT-Attack, HotFlip


def stop_words_are_not_replaced(result: AttackResult) -> None:
    merged = {edit.position - 1 for edit in result.edits if edit.kind == "delete"}
    replaced = [edit for edit in result.edits if edit.kind == "replace" and edit.position not in merged]
    assert not {edit.original for edit in replaced} & stop_words()


def two_in_five_words_change(result: AttackResult) -> None:
    assert len(result.edits) <= math.ceil(0.4 * words_of(result))


def at_most_two_words_flip(result: AttackResult) -> None:
    assert len(result.edits) <= 2


def edits_are_not_far(result: AttackResult) -> None:
    for edit in result.edits:
        cosine = load_neighbours(vectors_file()).cosine(edit.original, edit.replacement)
        assert cosine is not None
        assert cosine >= 0.1


def _clare(**parameters: object) -> Case:
    attack = CLARE(most=6, part_of_speech="none", **parameters)  # type: ignore[arg-type]
    checks = (words_are_whole_or_gone, stop_words_are_not_replaced)
    return Case(attack, checks, encoder=LetterEncoder(), masked_lm=masked_lm(), one_edit=False)


def words_are_whole_or_gone(result: AttackResult) -> None:
    for edit in result.edits:
        assert edit.kind == "delete" or Words.of(edit.replacement).words == (edit.replacement,)


def _bertattack(**parameters: object) -> Case:
    attack = BertAttack(**parameters)  # type: ignore[arg-type]
    checks = (words_are_whole, stop_words_are_left_alone, words_are_replaced, two_in_five_words_change)
    return Case(attack, checks, encoder=LetterEncoder(), masked_lm=masked_lm())


def _hotflip(*checks: Check, **parameters: object) -> Case:
    attack = HotFlip(neighbours=vectors_file(), part_of_speech="none", **parameters)  # type: ignore[arg-type]
    checks = (*checks, at_most_two_words_flip, stop_words_are_left_alone, words_are_replaced)
    return Case(attack, checks, white_box=True, may_fail=True)


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
    "textbugger-gradient": Case(
        TextBugger(neighbours=vectors_file(), importance="gradient"),
        (edits_are_bugs, stop_words_are_left_alone, words_are_replaced),
        encoder=LetterEncoder(),
        white_box=True,
    ),
    "random": Case(
        Random(neighbours=vectors_file(), part_of_speech="none"),
        (edits_are_near, words_are_replaced),
        encoder=LetterEncoder(),
        one_edit=False,
    ),
    "clare": _clare(),
    "clare-paper": _clare(semantics="paper"),
    "bertattack": _bertattack(),
    "bertattack-ranked": _bertattack(ranked=True, k=12),
    "hotflip": _hotflip(semantics="textattack", top=12, min_cosine=-1.0),
    "hotflip-paper": _hotflip(edits_are_not_far, semantics="paper", min_cosine=0.1),
}
