"""Rows of the attacks that misspell, and of PWWS."""

from __future__ import annotations

from attack_toys import Case, stop_words_are_left_alone, synonyms

from isthmus.attacks.parts.edit_distance import levenshtein
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.deepwordbug import DeepWordBug
from isthmus.attacks.words.pwws import PWWS


def edits_are_misspellings(result: AttackResult) -> None:
    for name, text in result.original.items():
        assert levenshtein(text, result.perturbed[name]) <= 30
    for edit in result.edits:
        assert edit.kind == "replace"
        assert 0 < levenshtein(edit.original, edit.replacement) <= 2
        assert len(edit.original) > 1


def edits_are_synonyms(result: AttackResult) -> None:
    for edit in result.edits:
        assert edit.replacement in synonyms(edit.original)


def _paper(**parameters: str) -> Case:
    attack = DeepWordBug(semantics="paper", **parameters)  # type: ignore[arg-type]
    return Case(attack, (edits_are_misspellings,), one_edit=False, may_fail=True)


CASES = {
    "deepwordbug": Case(DeepWordBug(), (edits_are_misspellings, stop_words_are_left_alone)),
    "deepwordbug-paper": _paper(),
    "deepwordbug-paper-swap": _paper(scorer="replace", edit="swap"),
    "deepwordbug-paper-tail": _paper(scorer="tail", edit="delete"),
    "pwws": Case(PWWS(synonyms=synonyms), (edits_are_synonyms, stop_words_are_left_alone)),
    "pwws-paper": Case(PWWS(semantics="paper", synonyms=synonyms), (edits_are_synonyms, stop_words_are_left_alone)),
}
