"""Synonym tables: symmetric, closed under case, the same after writing and reading; q is a total variation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import DataError, UsageError
from isthmus.lexicon.by_name import load_neighbours, load_table
from isthmus.lexicon.neighbours import TableNeighbours
from isthmus.lexicon.synonym_graph import table_of_vectors, without_common_directions
from isthmus.lexicon.synonyms import SynonymTable, is_usable
from isthmus.text.words import Words

NAMES = ["good", "fine", "great", "decent", "dull", "flat", "boring", "film", "movie", "plot", "scene", "actor"]
links = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=4), max_size=8)


@settings(max_examples=60, deadline=None)
@given(links, st.integers(2, 5))
def test_the_laws_of_a_table(given_links, most):
    table = SynonymTable.of_links(given_links, most=most)
    for word in table.synonyms:
        own = table.draws(word)
        assert word in own
        assert len(own) == len(set(own)) <= most
        assert 0 <= table.overlap(word) <= 1
        for other in table.replacements(word):
            assert word in table.replacements(other)
            assert len(table.draws(other)) == len(own), "sets of one component have one size"
            shared = len(set(own) & set(table.draws(other)))
            assert table.overlap(word) <= shared / len(own)
        total_variation = max(
            0.5 * sum(abs((w in own) / len(own) - (w in theirs) / len(theirs)) for w in NAMES)
            for theirs in map(table.draws, table.replacements(word))
        )
        assert 1 - table.overlap(word) == pytest.approx(total_variation)


def test_a_small_component_is_one_set_and_a_large_one_is_cut():
    chain = {"good": ["fine"], "fine": ["decent"], "decent": ["flat"]}
    whole, cut = SynonymTable.of_links(chain), SynonymTable.of_links(chain, most=2)
    assert whole.overlap("good") == 1.0
    assert set(whole.draws("good")) == {"good", "fine", "decent", "flat"}
    assert cut.draws("good") == ("good", "fine")
    assert cut.draws("decent") == ("decent", "fine")
    assert cut.overlap("flat") == 0.5
    assert cut.overlap("fine") == 0.5


def test_a_word_is_answered_in_its_own_case_and_a_mixed_one_not_at_all():
    table = SynonymTable.of_links({"good": ["fine"]})
    assert [table.replacements(word) for word in ("good", "Good", "GOOD", "gOOd", "bad")] == [
        ("fine",), ("Fine",), ("FINE",), (), (),
    ]  # fmt: skip
    assert table.draws("gOOd") == ("gOOd",)
    assert table.overlap("gOOd") == 1.0
    assert set(table.draws("Good")) == {"Good", "Fine"}
    assert "Good" in table
    assert "gOOd" not in table


@pytest.mark.parametrize("word", ["a", "I", "3d", "don't", "well-known", "Good", "ß", "straße", "x2", "", "two words"])
def test_what_a_table_cannot_hold(word):
    assert not is_usable(word)
    if word.lower() != "good":  # A table takes words in small letters.
        assert len(SynonymTable.of_links({word: ["fine"], "good": [word]})) == 0


@given(st.text(min_size=1, max_size=8))
def test_what_a_table_holds_is_one_word_in_every_case(word):
    if is_usable(word):
        for written in (word, word.capitalize(), word.upper()):
            assert Words.of(written).words == (written,)
            assert written.lower() == word


def test_a_file_is_read_in_small_letters_and_says_what_it_leaves_out(tmp_path: Path):
    file = tmp_path / "mine.json"
    file.write_text('{"Funny": ["Lovely"], "bad": ["don\'t", "awful"]}')
    table = SynonymTable.read(file)
    assert table.replacements("Funny") == ("Lovely",)
    assert set(table.synonyms) == {"funny", "lovely", "bad", "awful"}
    assert "1 word left out" in table.title
    file.write_text('{"well-made": ["po lished"]}')
    with pytest.raises(DataError, match="nothing of it can be used"):
        SynonymTable.read(file)


def test_links_that_go_one_way_are_made_symmetric_or_refused(tmp_path: Path):
    assert SynonymTable.of_links({"good": ["fine"]}).replacements("fine") == ("good",)
    with pytest.raises(DataError, match="one way only, such as from 'good' to 'fine'"):
        SynonymTable.of_links({"good": ["fine"]}, one_way="refuse")
    with pytest.raises(DataError, match="'fine' may take the place of 'good' but not the other way round"):
        SynonymTable("given", {"good": ("fine",)}, {})
    (tmp_path / "links.json").write_text(json.dumps({"good": ["fine"]}))
    assert load_table(str(tmp_path / "links.json")).replacements("fine") == ("good",)


def test_it_is_the_same_after_writing_and_reading(tmp_path: Path):
    table = SynonymTable.of_links({"good": ["fine"], "fine": ["decent", "film"], "plot": ["scene"]}, "mine", most=2)
    table.write(tmp_path / "synonyms.json")
    again = SynonymTable.read(tmp_path / "synonyms.json")
    assert (again.synonyms, again.perturbations, again.title) == (table.synonyms, table.perturbations, table.title)
    assert load_table(str(tmp_path)).fingerprint == table.fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "should map words to lists"),
        ('{"good": "fine"}', "should be a list of words"),
        ('{"format": 1, "name": "x", "words": ["good"], "synonyms": {"0": [7]}, "perturbations": {}}', "damaged"),
        ("{", "not valid JSON"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content, message):
    from isthmus.core.errors import IsthmusError

    (tmp_path / "table.json").write_text(content)
    with pytest.raises(IsthmusError, match=message):
        SynonymTable.read(tmp_path / "table.json")


def test_what_cannot_be_found_is_said(tmp_path: Path):
    with pytest.raises(DataError, match="no synonym table at"):
        load_table(str(tmp_path))
    with pytest.raises(UsageError, match="most must be 2 or more"):
        SynonymTable.of_links({}, most=1)


@pytest.fixture
def vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve words in three tight groups of directions, all shifted by one common vector."""
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(6)[:3] * 4, 4, axis=0)
    matrix = centres + 0.3 * rng.normal(size=(12, 6)) + 50
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{w} {' '.join(f'{v:.6f}' for v in row)}\n" for w, row in zip(NAMES, matrix, strict=True)))
    return path


def test_the_mean_and_the_top_components_are_removed():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(200, 5)) * [30, 1, 1, 1, 1] + 7
    unit = without_common_directions(matrix, 1)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)
    assert np.abs(unit[:, 0]).max() < 0.15, "the direction that held nearly all the variance is gone"
    with pytest.raises(UsageError, match="nothing would be left"):
        without_common_directions(matrix, 5)


def test_a_table_of_vectors_agrees_with_all_pairs(vectors: Path):
    table = table_of_vectors(str(vectors), similarity=0.8, components=0, most=3)
    matrix = np.array([[float(v) for v in line.split()[1:]] for line in vectors.read_text().splitlines()])
    unit = without_common_directions(matrix, 0)
    cosines = unit @ unit.T
    for i, word in enumerate(NAMES):
        wanted = {other for j, other in enumerate(NAMES) if j != i and cosines[i, j] >= 0.8}
        assert set(table.replacements(word)) == wanted
        assert wanted, "the groups are tight"
        nearest = [NAMES[j] for j in np.argsort(-cosines[i]) if NAMES[j] == word or NAMES[j] in wanted][:3]
        assert set(table.draws(word)) == set(nearest)
    again = table_of_vectors(str(vectors), similarity=0.8, components=0, most=3)
    assert again.fingerprint == table.fingerprint
    assert "vectors.txt" in table.name


def test_an_attack_with_a_table_proposes_its_synonyms_and_no_others(tmp_path: Path):
    SynonymTable.of_links({"good": ["fine", "decent"]}, "mine").write(tmp_path / "synonyms.json")
    near = load_neighbours(str(tmp_path))
    assert isinstance(near, TableNeighbours)
    assert near.nearest("Good", 50).words == ("Fine", "Decent")
    assert near.nearest("Good", 1).words == ("Fine",)
    assert near.nearest("film", 50).words == ()
    assert near.cosine("good", "fine") == 1.0
    assert near.distance("good", "film") is None
    assert "table" in near.name
