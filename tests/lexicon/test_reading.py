"""What a changed word is read as."""

from __future__ import annotations

import pytest
from related_toys import write_related

from isthmus.lexicon.confusables import HOMOGLYPHS, INVISIBLE, swap
from isthmus.lexicon.reading import DictionaryReader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> DictionaryReader:
    return DictionaryReader(write_related(tmp_path_factory.mktemp("related")))


def test_what_looks_the_same(reader: DictionaryReader) -> None:
    for new in ("good", "GOOD", "go" + HOMOGLYPHS["o"][0] + "d", "go" + INVISIBLE[0] + "od", swap("g", "o") + "od"):
        assert reader.alike("good", new), ascii(new)
        assert reader.reads_as("good", new)
    assert not reader.alike("good", "gold")
    assert reader.alike("no", "n" + HOMOGLYPHS["o"][0])  # however short it is


@pytest.mark.parametrize("new", ["supperb", "superv", "suerb", "suprb", "spuerb", "sup erb", "5up3rb", "5uperb"])
def test_misspellings(reader: DictionaryReader, new: str) -> None:
    assert reader.misspells("superb", new)
    assert reader.reads_as("superb", new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("superb", "suxxrb"),  # two letters
        ("superb", "superbly"),
        ("superb", "awful"),
        ("best", "pest"),  # a word of its own
        ("these", "those"),  # a function word, in no dictionary of meanings
        ("plot", "plots"),
        ("bad", "bxd"),  # too short
    ],
)
def test_other_words(reader: DictionaryReader, old: str, new: str) -> None:
    assert not reader.reads_as(old, new)
