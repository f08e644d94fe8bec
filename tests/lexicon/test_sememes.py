"""Substitutes by sememes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from isthmus import assets
from isthmus.core.errors import DataError
from isthmus.lexicon import load_sememes
from isthmus.lexicon.sememes import WordNetSememes
from isthmus.lexicon.wordnet import load_wordnet


def write(path: Path, table: object) -> str:
    content = json.dumps(table).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.mark.parametrize("name", ["table.json", "table.json.gz"])
def test_equal_sets_of_one_sense_make_substitutes(tmp_path: Path, name: str) -> None:
    table = {
        "film": [["shows", "look"], ["skin"]],
        "movie": [["look", "shows"]],
        "peel": [["skin", "fruit"], ["skin"]],
        "Show": [["shows"]],
        "void": [[]],
        "nothing": [],
    }
    sememes = load_sememes(write(tmp_path / name, table))
    assert sememes.substitutes("FILM") == ("movie", "peel")
    assert sememes.substitutes("movie", "noun") == ("film",)
    assert sememes.substitutes("show") == sememes.substitutes("void") == sememes.substitutes("zebra") == ()
    assert str(tmp_path / name) in sememes.name


def test_tables_of_candidates(tmp_path: Path) -> None:
    plain = load_sememes(write(tmp_path / "plain.json", {"film": ["movie", "flick", "film"], "dull": []}))
    assert plain.substitutes("Film") == plain.substitutes("film", "verb") == ("movie", "flick")
    assert plain.substitutes("dull") == ()
    by_pos = load_sememes(write(tmp_path / "pos.json", {"Film": {"noun": ["movie"], "verb": ["shoot", "movie"]}}))
    assert by_pos.substitutes("film") == ("movie", "shoot")
    assert by_pos.substitutes("film", "verb") == ("shoot", "movie")
    assert by_pos.substitutes("film", "adj") == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": [["x"],\n ["y"', "line 2: not valid JSON"),
        (gzip.compress(b'{"a": [["x"]]}' * 99, mtime=0)[:-20], "cannot be read"),
        (b"[1]", "expected a JSON object"),
        (b"{}", "expected a JSON object"),
        (b'{"a": 3}', "not a table of sememes"),
        (b'{"a": [["x", 1]]}', "not a table of sememes"),
        (b"{\x80}", "cannot be read"),
    ],
)
def test_broken_tables(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=words):
        load_sememes(str(tmp_path / "x.json"))


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_sememes(str(tmp_path / "nothing.json"))


@pytest.mark.skipif(not assets.available("wordnet"), reason="needs the wordnet asset")
def test_sisters_in_wordnet() -> None:
    sememes = WordNetSememes(load_wordnet())
    assert "substitute" in sememes.name
    assert sememes.substitutes("film", "noun")[:3] == ("movie", "pic", "flick")
    assert {"awful", "dreadful", "alarming"} <= set(sememes.substitutes("Terrible"))
    assert "terrible" in sememes.substitutes("awful")
    assert sememes.substitutes("zzzz") == sememes.substitutes("film", "adv") == ()
    for word in ("film", "run", "good", "quickly", "dog"):
        found = sememes.substitutes(word)
        assert len(set(found)) == len(found)
        assert not any("_" in other or other.lower() == word for other in found)
        assert all(word in map(str.lower, sememes.substitutes(other)) for other in found[:5])
