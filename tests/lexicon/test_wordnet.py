import pickle
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wordnet_toys import SYNSETS, write_wordnet

from isthmus import assets
from isthmus.core.errors import AssetError, DataError
from isthmus.lexicon import Synset, WordNet, load_wordnet


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_wordnet(tmp_path_factory.mktemp("wordnet"))


@pytest.fixture(scope="module")
def reference(folder):
    nltk = pytest.importorskip("nltk")
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class EnglishOnly(WordNetCorpusReader):  # type: ignore[misc]
        def map_wn(self, version="wordnet"):
            return None  # the mapping between versions serves other languages, and needs files we leave out

    nltk.data.path.append(str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield EnglishOnly(str(folder), None)
    nltk.data.path.remove(str(folder))


def expected(reference, word):
    lemmas = dict.fromkeys(lemma for synset in reference.synsets(word) for lemma in synset.lemma_names())
    return tuple(lemma for lemma in lemmas if lemma != word)


LEMMAS = sorted({word.split("(")[0] for synsets in SYNSETS.values() for _, words in synsets for word in words})
FORMS = ["axes", "men", "ran", "running", "better", "dogs", "buses", "hoping", "hoped", "hopes", "larger", "largest"]
FORMS += ["DOGS", "Paris", "PARIS", "zebras", "s", "es", "ing", "", " ", "run ", "foot race", "geese", "Gooder", "é"]


@pytest.mark.parametrize("word", LEMMAS + FORMS)
def test_equals_nltk(folder, reference, word):
    ours = WordNet(folder)
    assert ours.synonyms(word) == expected(reference, word)
    theirs = [(synset.pos(), synset.offset(), tuple(synset.lemma_names())) for synset in reference.synsets(word)]
    assert [(synset.pos, synset.offset, synset.lemmas) for synset in ours.synsets(word)] == theirs


@settings(max_examples=200, deadline=None)
@given(
    stem=st.sampled_from(LEMMAS), ending=st.sampled_from(["", "s", "es", "ies", "ed", "ing", "er", "est", "men", "ses"])
)
def test_inflections_equal_nltk(folder, reference, stem, ending):
    for word in (stem + ending, stem[:-1] + ending, stem + stem[-1:] + ending):
        assert WordNet(folder).synonyms(word) == expected(reference, word)


@given(st.text(max_size=12))
def test_any_text_is_a_question(folder, word):
    assert isinstance(WordNet(folder).synonyms(word), tuple)


def test_parts_of_speech(folder, reference):
    ours = WordNet(folder)
    for word in ("run", "Running", "dogs", "tally", "nothing here", "worse", "well"):
        found = {synset.pos().replace("s", "a") for synset in reference.synsets(word)}
        names = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
        assert ours.parts_of_speech(word) == {names[pos] for pos in found}


def test_order_case_and_markers(folder):
    wordnet = WordNet(folder)
    assert wordnet.synonyms("run") == ("tally", "footrace", "foot_race", "scat", "turn_tail")
    assert wordnet.synonyms("dog") == ("domestic_dog", "Canis_familiaris", "chase", "give_chase")
    assert wordnet.synonyms("abounding") == ("galore",)
    assert wordnet.synonyms("unheard-of") == ()
    assert wordnet.synsets("zebra") == (Synset("n", wordnet.synsets("zebra")[0].offset, ("zebra",)),)
    assert wordnet.synonyms("run") is wordnet.synonyms("run")


def test_nothing_is_read_before_it_is_asked_for(folder):
    wordnet = WordNet(folder)
    assert not any("_index" in part.__dict__ or "_data" in part.__dict__ for part in wordnet._parts.values())


def test_travels_between_processes(folder):
    wordnet = WordNet(folder)
    wordnet.synonyms("run")
    assert pickle.loads(pickle.dumps(wordnet)).synonyms("run") == wordnet.synonyms("run")


def test_a_folder_that_is_no_dictionary(folder, tmp_path):
    (tmp_path / "index.noun").write_text("")
    with pytest.raises(AssetError, match=r"not a WordNet dictionary: data\.noun is missing"):
        WordNet(tmp_path)


def test_cut_off_files(folder, tmp_path):
    def copy(name, content):
        for file in folder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / name).write_bytes(content)
        return WordNet(tmp_path)

    whole = (folder / "index.noun").read_bytes()
    with pytest.raises(DataError, match=r"index\.noun, line \d+: the file is cut off"):
        copy("index.noun", whole[:-9]).synsets("zebra")
    whole = (folder / "data.verb").read_bytes()
    with pytest.raises(DataError, match=r"data\.verb, line 11: the file is cut off"):
        copy("data.verb", whole[:-9]).synsets("run")
    cut = whole[: whole[:-1].rindex(b"\n") + 1]
    with pytest.raises(DataError, match=r"data\.verb has no synset at byte \d+: is it cut off"):
        copy("data.verb", cut).synsets("axes")


def test_loaded_from_the_assets(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "path", lambda name: folder)
    first = load_wordnet()
    assert first.synonyms("hope") == ("trust",)
    assert load_wordnet() is first
    monkeypatch.setattr(assets, "path", lambda name: write_wordnet(tmp_path))
    assert load_wordnet() is not first  # Another folder is another dictionary.
