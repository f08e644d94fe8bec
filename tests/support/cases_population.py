"""Rows of the population attacks."""

from __future__ import annotations

import functools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from attack_toys import (
    SYNONYMS,
    Case,
    masked_lm,
    stop_words_are_left_alone,
    synonyms,
    vectors_file,
    words_are_replaced,
    words_of,
)

from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.genetic import Genetic
from isthmus.attacks.words.iga import IGA
from isthmus.attacks.words.pso import PSO


@functools.cache
def sememes_file() -> str:
    """A table in which the words of `SYNONYMS` share a sememe with their synonyms."""
    table: dict[str, list[list[str]]] = {}
    for word, others in SYNONYMS.items():
        for other in (word, *others):
            table.setdefault(other.replace("_", " "), []).append([f"as {word}"])
    path = Path(tempfile.mkdtemp()) / "sememes.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return str(path)


@functools.cache
def families() -> dict[str, frozenset[str]]:
    """Every word of the toys with all it can become, in one replacement or several."""
    return {
        member: frozenset({word, *others}) for word, others in SYNONYMS.items() for member in (word, *synonyms(word))
    }


def edits_stay_in_the_family(result: AttackResult) -> None:
    for edit in result.edits:
        assert edit.replacement.lower() in families()[edit.original.lower()]


def a_fifth_of_the_words_at_most(result: AttackResult) -> None:
    assert len(result.edits) <= math.ceil(0.2 * words_of(result))


CHECKS = (words_are_replaced, stop_words_are_left_alone, edits_stay_in_the_family)
SMALL: dict[str, Any] = {"neighbours": vectors_file(), "population": 12, "generations": 4}


def _genetic(*checks: Any, lm: bool = False, **parameters: Any) -> Case:
    attack = Genetic(**SMALL, masked_lm="tiny" if lm else None, **parameters)
    return Case(attack, (*CHECKS, *checks), masked_lm=masked_lm() if lm else None)


def _pso(**parameters: Any) -> Case:
    return Case(PSO(sememes=sememes_file(), particles=12, iterations=4, **parameters), CHECKS)


CASES: dict[str, Case] = {
    "genetic": _genetic(),
    "genetic-checked": _genetic(a_fifth_of_the_words_at_most, check_children=True, parents="fitter"),
    "genetic-paper": _genetic(a_fifth_of_the_words_at_most, lm=True, semantics="paper", most_likely=2),
    "iga": Case(IGA(**SMALL), CHECKS),
    "iga-paper": Case(IGA(**SMALL, semantics="paper"), (*CHECKS, a_fifth_of_the_words_at_most)),
    "pso": _pso(),
    "pso-paper": _pso(semantics="paper"),
}
