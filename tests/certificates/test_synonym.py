"""The synonym certificate against everything that substitution can do, computed without sampling."""

from __future__ import annotations

import itertools
import math

import certify_toys as toys
import numpy as np
import pytest

from isthmus.attacks.parts.protection import Protection
from isthmus.certificates import Synonym
from isthmus.certificates._substitutions import SubstitutionSpace
from isthmus.certificates.base import Challenge
from isthmus.core.types import Example
from isthmus.inference.synonym_draws import DrawnText
from isthmus.lexicon.synonyms import SynonymTable

QUICK = {"n0": 50, "n": 400, "alpha": 0.001}


@pytest.fixture
def table(tmp_path):
    """Sets cut to three words, so that overlaps are below one."""
    toys.table(most=3).write(tmp_path / "synonyms.json")
    return str(tmp_path)


def probability(victim, text: str, table: SynonymTable) -> float:
    """P[f(z) = 1], by going through every draw."""
    sets = [table.draws(word) for word in text.split(" ")]
    texts = [{"text": " ".join(words)} for words in itertools.product(*sets)]
    return float(victim.scores(texts)[:, 1].mean())


@pytest.mark.parametrize("good", [["fine", "good"], ["great", "movie"], ["fine", "film", "boring"]], ids="-".join)
@pytest.mark.parametrize("most", [2, 3, 100])
def test_what_is_certified_holds_for_every_substitution(good, most, tmp_path):
    table = toys.table(most)
    table.write(tmp_path / "synonyms.json")
    victim = toys.Noisy(good)
    certificate = Synonym(table=str(tmp_path), **QUICK)
    for result, example in zip(certificate(victim, toys.examples(toys.TEXTS[:3])), toys.examples(), strict=False):
        text = example.texts["text"]
        if result.outcome == "abstained":
            continue
        for other in toys.every_text(text, table):
            changed = sum(a != b for a, b in zip(text.split(), other.split(), strict=True))
            if changed <= result.strength:
                p = probability(victim, other, table)
                assert (p if result.prediction == 1 else 1 - p) > 0.5


def test_full_overlap_certifies_all_words(tmp_path):
    toys.table().write(tmp_path / "synonyms.json")
    victim = toys.Noisy(["fine", "good", "great", "decent"])
    (result,) = Synonym(table=str(tmp_path), **QUICK)(victim, toys.examples(["the film was fine"]))
    assert (result.outcome, result.strength, result.details["overlap"]) == ("certified", math.inf, 1.0)
    assert result.to_row()["strength"] == "all"


def test_draws_are_uniform_and_depend_on_their_own_key_alone():
    table = toys.table(most=3)
    drawn = DrawnText({"text": "Fine dull film"}, table)
    keys = np.arange(30_000, dtype=np.uint64) * np.uint64(7)
    choices = drawn.choices(keys)
    assert (drawn.choices(keys[100:110]) == choices[100:110]).all()
    for column, size in enumerate((3, 3, 2)):
        counts = np.bincount(choices[:, column], minlength=size)
        assert len(counts) == size
        assert np.abs(counts / len(keys) - 1 / size).max() < 0.015
    together = np.bincount(choices[:, 0] * 6 + choices[:, 1] * 2 + choices[:, 2], minlength=18)
    assert np.abs(together / len(keys) - 1 / 18).max() < 0.01, "words are drawn independently"
    assert {drawn.text(choice)["text"].split()[0] for choice in choices[:50].tolist()} == {"Fine", "Good", "Decent"}


def test_gaps_and_fields_survive_a_draw():
    texts = {"premise": " A  dull, film! ", "hypothesis": "(fine)"}
    drawn = DrawnText(texts, toys.table())
    same = [members.index(word) for members, word in zip(drawn.sets, drawn.words, strict=True) if len(members) > 1]
    assert drawn.text(same) == texts


def test_results_depend_neither_on_company_nor_on_order(table):
    certificate, victim, examples = Synonym(table=table, **QUICK), toys.network("cnn"), toys.examples()
    together = {r.id: r.to_row() for r in certificate(victim, examples)}
    alone = {r.id: r.to_row() for e in reversed(examples) for r in certificate(victim, [e])}
    assert together == alone
    assert together != {r.id: r.to_row() for r in certificate(victim, examples, seed=1)}


def test_protected_words_cannot_be_substituted(table):
    victim, certificate = toys.Noisy(["fine"]), Synonym(table=table, **QUICK)
    (example,) = toys.examples(["the film was fine"])
    (free,) = certificate(victim, [example])
    (some,) = certificate(victim, [example], protection=Protection(pattern="fine"))
    (none,) = certificate(victim, [example], protection=Protection(pattern=".*"))
    assert [r.details["substitutable"] for r in (free, some, none)] == [2, 1, 0]
    assert [r.details["p_lower"] for r in (free, some, none)] == [free.details["p_lower"]] * 3
    assert none.details["overlap"] == 1.0


def test_where_a_text_lies(table):
    certificate, victim, free = Synonym(table=table, **QUICK), toys.Noisy(["fine"]), Protection()
    example = Example("test:0", {"text": "The film, was fine!"}, 1)

    def needs(text: str, protection: Protection = free) -> float | None:
        return certificate.needs(victim, example, {"text": text}, protection)

    assert needs("The film, was fine!") == 0
    assert needs("The movie, was good!") == 2
    assert needs("The Movie, was good!") is None, "another case"
    assert needs("The movie, was great!") is None, "a synonym of a synonym"
    assert needs("The movie was good!") is None, "another gap"
    assert needs("The movie, was good! very") is None, "a word more"
    assert needs("The movie, was fine!", Protection(pattern="film")) is None


def test_a_text_that_is_surely_answered_otherwise_refutes(table):
    certificate, victim = Synonym(table=table, **QUICK), toys.Noisy(["fine", "good"])
    challenges = [Challenge("a", {"text": "plot fine"}, 1), Challenge("b", {"text": "dull"}, 1)]
    assert [a.refutes for a in certificate.challenge(victim, challenges, 0)] == [False, True]


def test_the_size_of_a_space_is_the_number_of_its_texts():
    table = toys.table()
    for text in toys.TEXTS:
        space = SubstitutionSpace.of({"text": text.replace(",", "")}, table, Protection())
        shells = [[found["text"] for found in space.texts(r)] for r in range(len(space.positions) + 1)]
        assert [len(shell) for shell in shells] == [space.shell(r) for r in range(len(shells))]
        assert sorted(itertools.chain.from_iterable(shells)) == sorted(toys.every_text(text.replace(",", ""), table))
        assert space.size == sum(map(len, shells))
        assert all(space.distance({"text": found}) == r for r, shell in enumerate(shells) for found in shell)
