"""What a changed word is read as."""

from __future__ import annotations

import pytest
from related_toys import write_related

from isthmus.lexicon.confusables import HOMOGLYPHS, INVISIBLE, swapped
from isthmus.lexicon.reading import Reader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(write_related(tmp_path_factory.mktemp("related")))


def test_what_looks_the_same(reader: Reader) -> None:
    for new in ("good", "GOOD", "go" + HOMOGLYPHS["o"][0] + "d", "go" + INVISIBLE[0] + "od", swapped("g", "o") + "od"):
        assert reader.alike("good", new), ascii(new)
        assert reader.reads_as("good", new)
    assert not reader.alike("good", "gold")
    assert reader.alike("no", "n" + HOMOGLYPHS["o"][0])  # however short it is


@pytest.mark.parametrize("new", ["supperb", "superv", "suerb", "suprb", "spuerb", "sup erb", "5up3rb", "5uperb"])
def test_misspellings(reader: Reader, new: str) -> None:
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
def test_other_words(reader: Reader, old: str, new: str) -> None:
    assert not reader.reads_as(old, new)
