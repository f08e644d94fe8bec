"""Parts of speech, held against NLTK's own tagger and TextAttack's rule."""

from __future__ import annotations

import json
import random
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tag.perceptron import PerceptronTagger as Reference

from isthmus.core.errors import AssetError, DataError, MissingExtra, UnknownName
from isthmus.lexicon import tags
from isthmus.lexicon.perceptron import UNIVERSAL, PerceptronTagger, _make_features, find_tagger_data
from isthmus.lexicon.tags import SpacyTagger, Tagger, WordNetTagger, load_tagger

CLASSES = ["NN", "VB", "JJ", "RB", "DT", "CD", "NNP", "ODD"]
WORDS = ["the", "film", "Film", "run", "well", "well-made", "-x", "1999", "3d", "fine", "x", "ﬁ", ""]
FIXED = {"the": "DT", "Film": "NNP"}


def weights() -> dict[str, dict[str, float]]:
    """Random weights, few distinct values so that ties are common, for most features these words can have."""
    rng = random.Random(5)
    table: dict[str, dict[str, float]] = {}
    for _ in range(4000):
        context = ["-START-", "-START2-", *rng.choices(WORDS, k=4), "!HYPHEN", "!YEAR", "!DIGITS", "-END-", "-END2-"]
        rng.shuffle(context)
        tags = rng.choices([*CLASSES, "-START-", "-START2-"], k=2)
        for name in _make_features(rng.choice(WORDS), context, 3, *tags):
            if name not in table and rng.random() < 0.8:
                table[name] = {tag: rng.choice([-0.1, 0.1, 0.2, 0.3]) for tag in rng.sample(CLASSES, 3)}
    return table


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taggers") / "averaged_perceptron_tagger_eng"
    folder.mkdir()
    for part, content in (("weights", weights()), ("tagdict", FIXED), ("classes", CLASSES)):
        (folder / f"{folder.name}.{part}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def ours(data: Path) -> PerceptronTagger:
    return PerceptronTagger(data)


@pytest.fixture(scope="module")
def nltk_tagger() -> Reference:
    tagger = Reference(load=False)
    tagger.model.weights, tagger.tagdict, tagger.classes = weights(), FIXED, set(CLASSES)
    tagger.model.classes = tagger.classes
    return tagger


def textattack(tagger: Reference, words: list[str], index: int, new: str) -> str:
    """The tag by TextAttack's rule: four words before, three after, the first place that holds the word."""
    context = [*words[max(index - 4, 0) : index], new, *words[index + 1 : min(index + 4, len(words))]]
    tagged = tagger.tag(context)
    return UNIVERSAL.get(next(tag for word, tag in tagged if word == new), "X")


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.sampled_from(WORDS[:-1]), min_size=1, max_size=14))
def test_equals_textattack_by_nltk(
    ours: PerceptronTagger, nltk_tagger: Reference, draw: st.DataObject, words: list[str]
) -> None:
    index = draw.draw(st.integers(0, len(words) - 1))
    candidates = draw.draw(st.lists(st.sampled_from(WORDS[:-1]), min_size=1, max_size=8))
    expected = [textattack(nltk_tagger, words, index, new) for new in candidates]
    assert ours.tags(words, index, candidates) == expected
    old = textattack(nltk_tagger, words, index, words[index])
    assert ours.tag(words, index) == old
    allowed = [old == tag or {old, tag} <= {"NOUN", "VERB"} for tag in expected]
    assert ours.fitting(words, index, candidates).tolist() == allowed
    assert [ours.fits(words, index, new) for new in candidates] == allowed


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS[:-1]), max_size=14))
def test_a_whole_text_is_tagged_as_nltk_does(ours: PerceptronTagger, nltk_tagger: Reference, words: list[str]) -> None:
    assert ours.of_text(words) == [UNIVERSAL.get(tag, "X") for _, tag in nltk_tagger.tag(words)]


def test_real_data_if_there_is_any() -> None:
    try:
        tagger = PerceptronTagger(find_tagger_data())
    except AssetError:
        pytest.skip("needs the data of NLTK's tagger")
    words = ["the", "old", "man", "saw", "a", "film", "about", "the", "sea"]
    assert [tagger.tag(words, at) for at in (0, 1, 2, 3, 6)] == ["DET", "ADJ", "NOUN", "VERB", "ADP"]


def test_every_tag_of_the_treebank_has_a_universal_one() -> None:
    assert set(UNIVERSAL.values()) == {
        *("VERB", "NOUN", "PRON", "ADJ", "ADV", "ADP", "CONJ", "DET", "NUM", "PRT", "X", ".")
    }
    assert all(UNIVERSAL[tag] == "NOUN" for tag in ("NN", "NNS", "NNP", "NNPS"))
    assert (UNIVERSAL["TO"], UNIVERSAL["POS"], UNIVERSAL["MD"], UNIVERSAL["WRB"]) == ("PRT", "PRT", "VERB", "ADV")


def test_data_in_a_zip_and_where_it_is_looked_for(
    data: Path, ours: PerceptronTagger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taggers").mkdir()
    packed = tmp_path / "taggers" / f"{data.name}.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in data.iterdir():
            archive.write(file, f"{data.name}/{file.name}")
    monkeypatch.setenv("NLTK_DATA", f"/nowhere:{tmp_path}")
    assert find_tagger_data() == packed
    tags._load_tagger.cache_clear()
    tagger = load_tagger("nltk")
    tags._load_tagger.cache_clear()
    assert isinstance(tagger, Tagger)
    theirs: Any = tagger
    words = ["the", "fine", "film", "run"]
    assert [theirs.tag(words, at) for at in range(4)] == [ours.tag(words, at) for at in range(4)]
    packed.write_bytes(packed.read_bytes()[:200])
    with pytest.raises(DataError, match=r"weights\.json cannot be read"):
        PerceptronTagger(packed)


def test_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    monkeypatch.setattr(Path, "exists", lambda self: False)
    with pytest.raises(AssetError, match=r"nltk\.downloader averaged_perceptron_tagger_eng"):
        find_tagger_data()


class Dictionary:
    """The parts of speech of four words."""

    def parts_of_speech(self, word: str) -> frozenset[str]:
        parts = {"look": {"noun", "verb"}, "film": {"noun"}, "see": {"verb"}, "fine": {"adj", "adv"}}
        return frozenset(parts.get(word, ()))


def test_what_a_word_can_be_decides() -> None:
    tagger = WordNetTagger(Dictionary())  # type: ignore[arg-type]
    assert isinstance(tagger, Tagger)
    assert tagger.tags("LOOK") == {"noun", "verb"}
    assert tagger.tags("she") == {"other"}
    pairs = {("film", "look"): True, ("film", "see"): True, ("film", "fine"): False, ("fine", "FINE"): True}
    pairs |= {("she", "he"): True, ("she", "film"): False}
    for (a, b), fit in pairs.items():
        assert tagger.compatible(a, b) is tagger.compatible(b, a) is fit
        assert tagger.fits(["x", a], 1, b) is fit
    assert tagger.fitting(["film"], 0, ["see", "fine"]).tolist() == [True, False]


def test_spacy_words_are_tagged_alone() -> None:
    spacy = pytest.importorskip("spacy")
    pipeline, seen = spacy.blank("en"), []

    @spacy.Language.component("by_table")
    def by_table(doc: Any) -> Any:
        seen.append([token.text for token in doc])
        for token in doc:
            token.pos_ = {"don't": "AUX", "film": "NOUN", "Rome": "PROPN", "of": "ADP"}.get(token.text, "")
        return doc

    pipeline.add_pipe("by_table")
    tagger = SpacyTagger(pipeline)
    assert tagger.name.startswith("spaCy en_pipeline")
    tagger.prefetch(["film", "of", "film"])
    assert tagger.tags("don't") == {"verb"}
    assert tagger.tags("of") == {"adp"}
    assert tagger.tags("zz") == {"other"}
    assert tagger.compatible("Rome", "don't")
    assert not tagger.compatible("film", "of")
    assert seen == [["film"], ["of"], ["don't"], ["zz"], ["Rome"]]


def test_spacy_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tags._load_tagger.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match=r"isthmus\[spacy\]"):
        load_tagger("spacy")
    monkeypatch.undo()
    spacy = pytest.importorskip("spacy")
    monkeypatch.setenv("ISTHMUS_ASSETS", str(tmp_path))
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tags, "_SPACY_MODELS", ("en_no_such_pipeline",))
    with pytest.raises(AssetError, match="spacy_en"):
        load_tagger("spacy")
    spacy.blank("en").to_disk(tmp_path / "spacy_en")
    tagger: Any = load_tagger("spacy")
    assert tagger.tags("film") == {"other"}
    (tmp_path / "spacy_en" / "config.cfg").write_text("[nlp\n", encoding="utf-8")
    tags._load_tagger.cache_clear()
    with pytest.raises(AssetError, match="spaCy cannot load"):
        load_tagger("spacy")


def test_unknown_tagger() -> None:
    with pytest.raises(UnknownName, match="no tagger named 'flair'"):
        load_tagger("flair")


def test_nothing_to_compare(ours: PerceptronTagger) -> None:
    assert ours.fitting(["film"], 0, []).dtype == np.bool_
