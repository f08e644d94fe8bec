"""Opposites: in a small dictionary by every way there is, and in WordNet itself."""

from __future__ import annotations

import pytest
from related_toys import write_related

from isthmus import assets
from isthmus.lexicon.antonyms import Antonyms, load_antonyms
from isthmus.lexicon.negations import is_negation

OPPOSED = [
    ("good", "bad"),
    ("Best", "WORST"),  # by their lemmas
    ("best", "badly"),  # an adverb and what it is made from
    ("superb", "awful"),  # similar to good, similar to bad
    ("superb", "bad"),
    ("brilliant", "dull"),  # in one sense of either
    ("brilliant", "terrible"),  # in another sense
    ("success", "failure"),  # by the verbs that they come from
    ("wins", "flunked"),  # a synonym of an antonym
    ("watchable", "unwatchable"),  # no word of the dictionary
    ("tasteful", "tasteless"),
    ("point", "pointless"),
]
NOT_OPPOSED = [
    ("good", "good"),
    ("good", "superb"),
    ("awful", "bad"),
    ("great", "brilliant"),
    ("movie", "film"),
    ("mess", "superb"),
    ("nowhere", "zzz"),
    ("virtue", "bad"),  # it is its synonym that is derived from good
    ("at", "unat"),
    ("teresting", "interest"),
]


@pytest.fixture(scope="module")
def antonyms(tmp_path_factory: pytest.TempPathFactory) -> Antonyms:
    return Antonyms(write_related(tmp_path_factory.mktemp("related")))


@pytest.mark.parametrize(("a", "b"), OPPOSED)
def test_opposites(antonyms: Antonyms, a: str, b: str) -> None:
    assert antonyms.are_opposed(a, b)
    assert antonyms.are_opposed(b, a)


@pytest.mark.parametrize(("a", "b"), NOT_OPPOSED)
def test_others(antonyms: Antonyms, a: str, b: str) -> None:
    assert not antonyms.are_opposed(a, b)
    assert not antonyms.are_opposed(b, a)


@pytest.mark.skipif(not assets.available("wordnet"), reason="needs the wordnet asset")
def test_opposites_in_wordnet() -> None:
    antonyms = load_antonyms()
    for pair in ("best worst", "loved hates", "fails succeeded", "superb awful", "boring entertaining", "never always",
                 "happily sadly", "more less"):  # fmt: skip
        assert antonyms.are_opposed(*pair.split()), pair
    for a, b in (("movie", "film"), ("good", "great"), ("boring", "dull"), ("plot", "story"), ("fails", "flunks")):
        assert not antonyms.are_opposed(a, b), (a, b)


def test_negations() -> None:
    for word in ("not", "N't", "Never", "doesn't", "WON'T", "isn\u2019t", "isn", "without", "hardly", "nothing"):
        assert is_negation(word), word
    for word in ("won", "can", "note", "notable", "know", "noble", "nor-east", "ant", "t", ""):
        assert not is_negation(word), word
