"""The rules of the preset `meaning`: edit by edit, and under every attack."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Sequence

import numpy as np
import pytest
from attack_toys import Case, LetterEncoder, vectors_file
from engine_toys import BertVictim, labelled_by
from related_toys import write_related
from trial_toys import Plan, edits_of, trial_of

from isthmus import assets
from isthmus.attacks.parts.candidates import Candidates, PlainRule
from isthmus.attacks.parts.limits import PRESETS, Limits, preset
from isthmus.attacks.parts.meaning import KeepNegations, KindOfWord, NoAntonyms, SameContent
from isthmus.attacks.parts.rules import MaxShare, PartOfSpeech, SentenceMeaning, WordMeaning
from isthmus.attacks.result import AttackResult
from isthmus.engine.requests import INSERT, MERGE, REPLACE
from isthmus.lexicon.antonyms import Antonyms
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.confusables import HOMOGLYPHS
from isthmus.lexicon.negations import is_negation
from isthmus.lexicon.normaliser import Normaliser, NormaliserSteps
from isthmus.lexicon.reading import DictionaryReader
from isthmus.lexicon.tags import WordNetTagger
from isthmus.lexicon.wordnet import WordNet
from isthmus.text.words import Words

CASES = {
    name: case
    for rows in ("cases_characters", "cases_greedy", "cases_population", "cases_evaders")
    for name, case in importlib.import_module(rows).CASES.items()
}
TEXT = "not the best movie , but a notable success without a plot"
SHOWN = Normaliser(NormaliserSteps(leet=False)).show
NOT, BEST, MOVIE, NOTABLE, SUCCESS, WITHOUT, PLOT = 0, 2, 3, 6, 7, 8, 10


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> WordNet:
    return write_related(tmp_path_factory.mktemp("related"))


@pytest.fixture(scope="module")
def reader(wordnet: WordNet) -> DictionaryReader:
    return DictionaryReader(wordnet)


def allowed_by(rule: PlainRule, *plans: Sequence[Plan], text: str = TEXT) -> list[bool]:
    trial = trial_of(text)
    found = rule.holds(trial, Candidates(trial.original, edits_of(trial, plans), len(plans)))
    return [bool(held) for held in found]


def replaced(at: int, *words: str) -> list[list[Plan]]:
    return [[(at, REPLACE, word)] for word in words]


# ---------------------------------------------------------------------- edit by edit


def test_antonyms_are_refused(wordnet: WordNet, reader: DictionaryReader) -> None:
    rule = NoAntonyms(Antonyms(wordnet), reader)
    assert allowed_by(rule, *replaced(BEST, "worst", "Awful", "superb", "movie", "bxst")) == [False] * 2 + [True] * 3
    assert allowed_by(rule, *replaced(SUCCESS, "failure", "triumph", "")) == [False, True, True]
    # A space that makes an opposite of a part of the word.
    assert allowed_by(rule, *replaced(0, "un watchable"), text="unwatchable movie") == [False]
    # Put in: whatever is the opposite of any word. Merged: of one of the two.
    inserted: list[list[Plan]] = [[(MOVIE, INSERT, "awful")], [(PLOT, INSERT, "fail")], [(MOVIE, INSERT, "superb")]]
    assert allowed_by(rule, *inserted) == [False, False, True]
    assert allowed_by(rule, [(1, MERGE, "worst")], [(BEST, MERGE, "worst")], [(BEST, MERGE, "film")]) == [
        False, False, True,
    ]  # fmt: skip
    # One wrong edit among several is enough.
    several: list[list[Plan]] = [[(BEST, REPLACE, "superb"), (SUCCESS, REPLACE, "failure")]]
    assert allowed_by(rule, *several) == [False]


def test_the_original_word_counts_and_not_the_draft(wordnet: WordNet, reader: DictionaryReader) -> None:
    trial = trial_of("a witty movie")
    base = trial.original.replace(1, trial.vocabulary.id("good"))
    candidates = Candidates(base, edits_of(trial, replaced(1, "bad")))
    assert NoAntonyms(Antonyms(wordnet), reader).holds(trial, candidates).tolist() == [True]
    added = trial.original.insert(1, trial.vocabulary.id("good"))
    # A word put in before is still put in when it is replaced.
    candidates = Candidates(added, edits_of(trial, replaced(1, "not", "fine")))
    assert KeepNegations(reader).holds(trial, candidates).tolist() == [False, True]


def test_negations_stay_and_none_come(reader: DictionaryReader) -> None:
    rule = KeepNegations(reader)
    disguised = "n" + HOMOGLYPHS["o"][0] + "t"
    assert allowed_by(rule, *replaced(NOT, "truly", "", "never", "nto", "n0t", "NOT", disguised)) == [
        False, False, False, False, False, True, True,
    ]  # fmt: skip
    assert allowed_by(rule, *replaced(WITHOUT, "with"), *replaced(PLOT, "nothing", "plan")) == [False, False, True]
    assert allowed_by(rule, *replaced(NOTABLE, "not able", "no table", "nota ble")) == [False, False, True]
    assert allowed_by(rule, [(1, INSERT, "never")], [(1, INSERT, "quite")], [(1, INSERT, "isn't")]) == [
        False, True, False,
    ]  # fmt: skip
    # A merge takes the second word out.
    assert allowed_by(rule, [(SUCCESS, MERGE, "x")], [(NOT, MERGE, "x")], [(BEST, MERGE, "x")]) == [False, False, True]


def test_parts_of_speech_are_kept_but_misspellings_pass(wordnet: WordNet, reader: DictionaryReader) -> None:
    tagger = WordNetTagger(wordnet)
    rule = KindOfWord(tagger, reader)
    words = ["film", "flunk", "awful", "moxie", "m0v1e", "mov ie", "zzz", "movi\u0435", "the"]
    assert allowed_by(rule, *replaced(MOVIE, *words)) == [True, True, False, True, True, True, False, True, False]
    assert allowed_by(PartOfSpeech(tagger), *replaced(MOVIE, *words)) == [True, True] + [False] * 7
    # Each word of a candidate is asked about by itself.
    both: list[list[Plan]] = [[(BEST, REPLACE, "movie"), (MOVIE, REPLACE, "moxie")]]
    assert allowed_by(rule, *both) == [False]
    # A word in place of two is of either kind; one that is put in is of none.
    assert allowed_by(rule, [(BEST, MERGE, "superb")], [(BEST, MERGE, "film")], [(MOVIE, MERGE, "badly")]) == [
        True, True, False,
    ]  # fmt: skip
    assert allowed_by(rule, [(BEST, INSERT, "badly")], [(BEST, REPLACE, "")]) == [True, True]


def test_nothing_new_is_put_in_and_nothing_lost() -> None:
    near = load_neighbours(vectors_file())
    text = "a great movie , and the music is fine"
    words = ["outstanding", "film", "Music", "very", "only", "terrible", "zzz", "film zzz"]
    close = [near.cosine("great", "outstanding"), near.cosine("movie", "film")]
    least = min(cosine for cosine in close if cosine is not None)
    plans: list[list[Plan]] = [[(1, INSERT, word)] for word in words]
    assert allowed_by(SameContent(near, least), *plans, text=text) == [True] * 3 + [False] * 5
    assert allowed_by(SameContent(near, 0.999), *plans, text=text) == [False, False, True] + [False] * 5
    # Replacements of one word are another rule's matter; a content word is not taken out, a function word may be.
    rule = SameContent(near, least)
    assert allowed_by(rule, *replaced(1, "zzz", ""), *replaced(0, ""), text=text) == [True, False, True]
    # "great movie", "a great", "the music"
    merged: list[list[Plan]] = [[(1, MERGE, "film")], [(0, MERGE, "outstanding")], [(0, MERGE, "dull")],
                                [(4, MERGE, "music")], [(1, MERGE, "zzz")]]  # fmt: skip
    assert allowed_by(rule, *merged, text=text) == [False, True, False, True, False]
    # Two function words, and a word that was put in before with one of the text.
    assert allowed_by(rule, [(3, MERGE, "if")], [(3, MERGE, "dull")], text=text) == [False, False]
    trial = trial_of(text)
    added = trial.original.insert(1, trial.vocabulary.id("film"))
    candidates = Candidates(added, edits_of(trial, [[(1, MERGE, "dull")], [(1, MERGE, "outstanding")]]))
    assert rule.holds(trial, candidates).tolist() == [False, True]


def test_words_that_cannot_be_compared_are_read(reader: DictionaryReader) -> None:
    near = load_neighbours(vectors_file())
    words = ["film", "plot", "unheard-of", "movvie", "m0vie", ""]
    plain, read = WordMeaning(near, 0.5), WordMeaning(near, 0.5, reader=reader)
    assert allowed_by(plain, *replaced(MOVIE, *words)) == [True, False, True, True, True, True]
    assert allowed_by(read, *replaced(MOVIE, *words)) == [True, False, False, True, True, True]


# ---------------------------------------------------------------------- the preset


def toy_limits() -> Limits:
    """The preset with small models."""
    return dataclasses.replace(PRESETS["meaning"], vectors=vectors_file(), similarity=0.5)


@pytest.fixture
def dictionary(wordnet: WordNet, reader: DictionaryReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the limits load is the small dictionary."""
    monkeypatch.setattr("isthmus.lexicon.antonyms.load_antonyms", lambda: Antonyms(wordnet))
    monkeypatch.setattr("isthmus.lexicon.reading.load_reader", lambda: reader)
    monkeypatch.setattr("isthmus.lexicon.tags.load_tagger", lambda name: WordNetTagger(wordnet))


@pytest.mark.usefixtures("dictionary")
def test_the_preset_is_made_of_these_rules() -> None:
    kinds = {type(rule) for rule in toy_limits().rules()}
    assert {NoAntonyms, KeepNegations, KindOfWord, SameContent, MaxShare, WordMeaning, SentenceMeaning} == kinds
    assert "limits: antonyms" in toy_limits().resources()
    assert PartOfSpeech in {type(rule) for rule in dataclasses.replace(toy_limits(), misspelling=False).rules()}


def test_it_lies_between_the_other_two() -> None:
    textdefender, meaning, strict = preset("textdefender-2021"), preset("meaning"), preset("strict")
    assert textdefender.max_share is not None
    assert meaning.max_share is not None
    assert meaning.max_share <= textdefender.max_share
    assert meaning.min_cosine is not None
    assert strict.min_cosine is not None
    assert meaning.min_cosine < strict.min_cosine
    # 1 - angle / pi of textdefender-2021, as a cosine.
    assert meaning.metric == strict.metric == "cosine"
    assert meaning.similarity is not None
    assert strict.similarity is not None
    assert textdefender.similarity is not None
    assert math.cos(math.pi * (1 - textdefender.similarity)) <= meaning.similarity < strict.similarity


TEXTS = [
    "not a great movie , never witty acting , and a dull plot without music .",
    "The plot is TERRIBLE, the acting isn't dull; yet the music was great!",
    "terrible mess , no good plot",
    "nothing but success , and the best movie , the best playing , hardly a failure",
]


def negations(text: str) -> list[str]:
    # Read as a reader reads: look-alikes and what is invisible undone.
    return [word.lower() for word in Words.of(SHOWN(text)) if is_negation(word)]


def attacked(case: Case, limits: Limits) -> list[AttackResult]:
    victim = BertVictim()
    chosen = labelled_by(victim, [{"text": text} for text in TEXTS])
    encoder = case.encoder or LetterEncoder()
    return list(dataclasses.replace(case, encoder=encoder)(victim, chosen, limits=limits))


@pytest.mark.usefixtures("dictionary")
@pytest.mark.parametrize("name", CASES)
def test_every_attack_keeps_to_it(name: str, wordnet: WordNet, reader: DictionaryReader) -> None:
    antonyms, tagger, limits = Antonyms(wordnet), WordNetTagger(wordnet), toy_limits()
    for result in attacked(CASES[name], limits):
        assert negations(result.perturbed["text"]) == negations(result.original["text"])
        assert len(result.edits) <= math.ceil((limits.max_share or 1) * len(Words.of(result.original["text"])))
        for edit in result.edits:
            if edit.kind != "replace":
                continue
            assert not antonyms.are_opposed(edit.original, edit.replacement)
            read = SHOWN(edit.replacement)
            assert reader.reads_as(edit.original, read) or tagger.compatible(edit.original, read)


def test_without_it_they_would_not() -> None:
    """The texts above tempt: some attack changes a negation of them where it may."""
    results = [result for name in ("clare", "deepwordbug") for result in attacked(CASES[name], Limits())]
    assert any(negations(result.perturbed["text"]) != negations(result.original["text"]) for result in results)


@pytest.mark.skipif(not assets.available("wordnet"), reason="needs the wordnet asset")
def test_antonyms_that_attacks_offer() -> None:
    limits = dataclasses.replace(PRESETS["meaning"], min_cosine=None, similarity=None)
    trial = trial_of("the best movie , never a mess")
    plans: list[list[Plan]] = [
        [(1, REPLACE, "worst")], [(1, REPLACE, "greatest")], [(2, REPLACE, "film")], [(3, REPLACE, "truly")],
        [(2, REPLACE, "slowly")], [(2, REPLACE, "mvie")], [(2, REPLACE, "xqz")],
    ]  # fmt: skip
    candidates = Candidates(trial.original, edits_of(trial, plans))
    held = np.ones(candidates.count, bool)
    for rule in limits.rules():
        assert isinstance(rule, PlainRule)
        held &= rule.holds(trial, candidates)
    assert held.tolist() == [False, True, True, False, False, True, False]
