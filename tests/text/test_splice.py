"""Splicing equals the tokenizer's own output, for three families of tokenizers and for arbitrary unicode."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from isthmus.text.splice import Splicer
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import Words

CORPUS = [
    "the movie, which isn't well-known, was (almost) great!",
    "Oil prices rose 3.5% -- to $50; sharply... on Monday, été naïve",
    "a gob of drivel so sickly sweet , even the eager consumers of moore 's ditties will retch",
    "unapologetically quiet films about directors and their characters 中文 हिन्दी",
] * 5


def wordpiece(**options: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[PAD]"]))
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<unk>", "<pad>"]
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece(normalised: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    if normalised:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(r" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=250, special_tokens=["<unk>", "<pad>"], unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def one_piece() -> Tokenizer:
    """Merges across spaces: nothing can be cut."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>"])
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


FAMILIES = {
    "wordpiece": (wordpiece, "bare"),
    "wordpiece-cased": (lambda: wordpiece(lowercase=False, strip_accents=False), "bare"),
    "byte-level bpe": (byte_level, "spaced"),
    "sentencepiece": (sentencepiece, "spaced"),
    "merges across spaces": (one_piece, "whole"),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> tuple[PreTrainedTokenizerFast, str]:
    build, mode = FAMILIES[request.param]
    tokenizer = build()
    unknown = "[UNK]" if "wordpiece" in request.param else "<unk>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown), mode


def test_the_mode_is_found(family: tuple[PreTrainedTokenizerFast, str]) -> None:
    tokenizer, mode = family
    assert Splicer(tokenizer, Vocabulary()).mode == mode


pieces = st.sampled_from(
    ["film", "isn't", "well-known", "3.5", ",", " ", "  ", "\t", "\n", "(", ")", "'s", "'", "-", "été", "e\u0301",
     "😀", "中文", "हिन्दी", "\u00a0", "\u200b", "\x1c", "\x0b", "İ", "ﬁ", "\u0301", "Σ", "...", "שלום", "a"]
)  # fmt: skip
texts = st.lists(pieces | st.text(max_size=4), max_size=14).map("".join)
words = pieces | st.text(max_size=6)


@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
@given(text=texts, word=words, choice=st.integers(0, 1000))
def test_splicing_equals_tokenising(
    family: tuple[PreTrainedTokenizerFast, str], text: str, word: str, choice: int
) -> None:
    tokenizer, _ = family
    splicer = _splicers.setdefault(id(tokenizer), None) or Splicer(tokenizer, Vocabulary())
    _splicers[id(tokenizer)] = splicer
    parsed = Words.of(text)
    layout = splicer.layout(parsed)
    if not layout.whole:
        assert splicer.ids_of(layout) == splicer.subwords.encode([text])[0]
    if len(parsed):
        position = choice % len(parsed)
        edited = parsed.replace({position: word}) if word else parsed.delete(position)
        spliced = splicer.splice(layout, position, word)
        if spliced is not None:
            assert spliced == splicer.subwords.encode([str(edited)])[0]


_splicers: dict[int, Splicer | None] = {}


def test_plain_text_is_really_spliced(family: tuple[PreTrainedTokenizerFast, str]) -> None:
    """The property above must not hold for want of spliced texts."""
    tokenizer, mode = family
    splicer = Splicer(tokenizer, Vocabulary())
    text = Words.of("a gorgeous, witty, seductive movie, isn't it ?")
    layout = splicer.layout(text)
    spliced = [splicer.splice(layout, position, "film") for position in range(len(text))]
    assert [ids is None for ids in spliced] == [mode == "whole"] * len(text)


def test_tokenizers_that_do_the_same_share_what_is_known_of_words() -> None:
    vocabulary = Vocabulary()
    kinds = wordpiece(), wordpiece(lowercase=False)
    one, like, other = (
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(kind.to_str()), unk_token="[UNK]")
        for kind in (kinds[0], kinds[0], kinds[1])
    )
    one(["a b"], truncation=True, max_length=8)
    splicer = Splicer.shared(one, vocabulary)
    assert Splicer.shared(like, vocabulary) is splicer
    assert Splicer.shared(other, vocabulary) is not splicer
    assert Splicer.shared(one, Vocabulary()) is not splicer
    renewed = Vocabulary()
    splicer.clear(renewed)
    assert Splicer.shared(like, renewed) is splicer
