"""What the contract does not reach: the two importances, the tagger, the sentence rule, and the last pick."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attack_toys import LetterEncoder, vectors_file
from engine_toys import TextVictim, examples

import isthmus.lexicon.tags
from isthmus.attacks.parts.goals import Untargeted
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.textfooler import TextFooler, _by_importance_with_flips
from isthmus.core.types import Floats
from isthmus.engine.requests import DELETE, Score
from isthmus.lexicon.tags import WordTagger
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

LONG = "a great movie and one that you will want to see again with all of your friends soon"
GREAT = {"bang-up", "outstanding", "neat"}


class Measured:
    """Texts with the given words are at the given cosines to every text without them."""

    name = "measured"

    def __init__(self, **cosines: float) -> None:
        self.cosines = {name.replace("_", "-"): cosine for name, cosine in cosines.items()}

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors = np.zeros((len(texts), 4), np.float32)
        for row, text in enumerate(texts):
            found = [(place, cosine) for place, (word, cosine) in enumerate(self.cosines.items()) if word in text]
            vectors[row, 0] = 1
            for place, cosine in found:
                vectors[row, 0] = cosine
                vectors[row, 1 + place] = np.sqrt(1 - cosine**2)
        return vectors


def fool(text: str, positive: Any, encoder: Any = None, **parameters: Any) -> tuple[AttackResult, TextVictim]:
    victim = TextVictim(positive)
    attack = TextFooler(neighbours=vectors_file(), **({"part_of_speech": "none"} | parameters))
    (result,) = attack(victim, examples(text), encoder=encoder or LetterEncoder())
    return result, victim


def great(text: Any, without: float = 0.2) -> float:
    return 0.9 if "great" in text["text"] else without


def test_a_flip_of_the_label_counts_twice_in_the_papers_importance() -> None:
    draft = Draft.of({"text": "wonderful dreadful film"}, Vocabulary())
    clean = np.array([0.5, 0.2, 0.3], np.float32)
    trial = Trial(Untargeted(), 0, draft, clean, random.Random(0))
    search = _by_importance_with_flips(trial)
    request = next(search)
    assert isinstance(request, Score)
    assert request.edits[:, 1:].tolist() == [[0, 1, DELETE], [1, 1, DELETE], [2, 1, DELETE]]
    # 0.5 - 0.3 = 0.2;  0.5 - 0.35 + 0.4 - 0.2 = 0.35;  0.5 - 0.4 = 0.1
    with pytest.raises(StopIteration) as end:
        search.send(np.array([[0.3, 0.2, 0.3], [0.35, 0.4, 0.25], [0.4, 0.3, 0.3]], np.float32))
    assert end.value.value == [1, 0, 2]


def test_the_paper_asks_about_every_word_and_the_toolkit_only_about_those_it_may_replace() -> None:
    text = "one of the first movies , about a plot"
    for semantics, asked in (("paper", 8), ("textattack", 2)):
        result, victim = fool(text, lambda text: 0.9, semantics=semantics)
        whole = [each["text"] for each in victim.asked]
        assert sum(len(each.split()) == 8 for each in whole) == asked
        assert {edit.original for edit in result.edits} <= {"movies", "plot"}


class NoNeat(WordTagger):
    name = "toy"

    def tags(self, word: str) -> frozenset[str]:
        return frozenset({"adv" if word == "neat" else "adj"})


class ContextualNoNeat:
    name = "toy in context"

    def fits(self, words: Sequence[str], index: int, new: str) -> bool:
        return bool(self.fitting(words, index, [new])[0])

    def fitting(self, words: Sequence[str], index: int, candidates: Sequence[str]) -> Any:
        assert words[index] == "great"
        return np.array([new != "neat" for new in candidates])


@pytest.mark.parametrize("tagger", [NoNeat(), ContextualNoNeat()])
def test_a_word_of_another_kind_is_never_tried(tagger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isthmus.lexicon.tags, "load_tagger", lambda name: tagger)
    for part_of_speech, tried in (("none", GREAT), ("nltk", GREAT - {"neat"})):
        _, victim = fool("so great", lambda text: 0.9, part_of_speech=part_of_speech)
        assert {text["text"].removeprefix("so ") for text in victim.asked if text["text"] != "so"} - {"great"} == tried
    assert TextFooler(neighbours=vectors_file(), part_of_speech="nltk").resources()["part of speech"] == tagger.name


def test_the_sentence_rule_holds_for_long_texts_only() -> None:
    far = Measured(bang_up=0.5, outstanding=0.5, neat=0.5)
    for semantics in ("textattack", "paper"):
        result, _ = fool(LONG, great, far, semantics=semantics)
        assert (result.outcome, result.edits) == ("failed", ())
        result, _ = fool("a great movie", great, far, semantics=semantics)
        assert result.outcome == "succeeded"
    # 1 - angle / pi >= 0.840845 is the same as cosine >= cos(0.5)
    for cosine, outcome in ((0.8775, "failed"), (0.8777, "succeeded")):
        encoder = Measured(bang_up=cosine, outstanding=cosine, neat=cosine)
        assert fool(LONG, great, encoder)[0].outcome == outcome


def test_the_most_similar_of_the_successes_is_the_result() -> None:
    encoder = Measured(bang_up=0.9, outstanding=0.95, neat=0.92)

    def positive(text: Any) -> float:
        return great(text, 0.1 if "neat" in text["text"] else 0.3)

    for semantics in ("textattack", "paper"):
        result, _ = fool(LONG, positive, encoder, semantics=semantics)
        assert [edit.replacement for edit in result.edits] == ["outstanding"]
    # In a short text only the paper measures it; the toolkit takes what hurts most.
    for semantics, chosen in (("textattack", "neat"), ("paper", "outstanding")):
        result, _ = fool("a great movie", positive, encoder, semantics=semantics)
        assert [edit.replacement for edit in result.edits] == [chosen]
