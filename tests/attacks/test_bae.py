"""What the contract does not reach: the modes, pieces of words, and where words are inserted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from attack_toys import LetterEncoder, masked_lm
from engine_toys import TextVictim, examples

from isthmus.attacks.parts.goals import Untargeted
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.words.bae import BAE
from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.engine.requests import INSERT, REPLACE, Fill
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary


def trial(*texts: str) -> Trial:
    draft = Draft.of({str(number): text for number, text in enumerate(texts)}, Vocabulary())
    return Trial(Untargeted(), 1, draft, np.array([0.1, 0.9], np.float32), random.Random(0))


def blanks(attack: BAE, trial: Trial, place: int) -> tuple[int, list[int], bool]:
    request = next(attack.insertions(trial, place) if attack.mode == "insert" else attack.replacements(trial, place))
    assert isinstance(request, Fill)
    return request.span, request.positions.tolist(), request.strip


def test_where_the_blanks_are() -> None:
    there = trial("a great movie", "dull plot")
    assert blanks(BAE(), there, 1) == (REPLACE, [1], True)  # pieces of words count as words
    assert blanks(BAE(semantics="paper"), there, 1) == (REPLACE, [1], False)
    insert = BAE(semantics="paper", mode="insert")
    assert blanks(insert, there, 1) == (INSERT, [1, 2], False)
    assert blanks(insert, there, 2) == (INSERT, [2], False)  # not into the next field
    assert blanks(insert, there, 4) == (INSERT, [4], False)  # nor behind everything


def test_only_the_paper_inserts() -> None:
    with pytest.raises(UsageError, match="mode=insert needs semantics=paper"):
        BAE(mode="insert")


def run(mode: Any, positive: Any, text: str = "the movie was great") -> Any:
    attack = BAE(semantics="paper", mode=mode, part_of_speech="none", similarity=-1.0)
    victim = TextVictim(positive)
    (result,) = attack(victim, examples(text), encoder=LetterEncoder(), masked_lm=masked_lm())
    return result


def test_the_modes_do_what_they_say() -> None:
    def words(text: Any) -> list[str]:
        return str(text["text"]).split()

    longer = run("insert", lambda text: 0.9 - 0.25 * (len(words(text)) - 4))
    assert longer.outcome == "succeeded"
    assert [edit.kind for edit in longer.edits] == ["insert", "insert"]

    def positive(text: Any) -> float:
        return 0.9 - 0.25 * (len(words(text)) > 4) - 0.2 * len({"great", "movie"} - set(words(text)))

    # One edit per word, by whichever operation does more; or a replacement and then an insertion beside it.
    either, both = run("replace_or_insert", positive), run("replace_and_insert", positive)
    for result in (either, both):
        assert result.outcome == "succeeded"
        assert sorted(edit.kind for edit in result.edits) == ["insert", "replace"]
    assert both.logical_queries < either.logical_queries


def test_the_right_side_of_a_pair_is_inserted_into() -> None:
    victim = TextVictim(lambda text: 0.9 - 0.25 * (len(" ".join(text.values()).split()) - 7))
    pair = Example("test:0", {"premise": "a movie was seen", "hypothesis": "great movie seen"}, 1)
    attack = BAE(semantics="paper", mode="insert", part_of_speech="none", similarity=-1.0)
    (result,) = attack(victim, [pair], encoder=LetterEncoder(), masked_lm=masked_lm())
    assert result.outcome == "succeeded"
    assert result.perturbed["premise"] == "a movie was seen"
