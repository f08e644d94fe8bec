"""Answers of any tokenizer family are cut from the context letter for letter."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from isthmus.core.types import Answer, Example
from isthmus.inference.question_answering import predict_answers
from isthmus.inference.question_windows import cut_windows

CORPUS = [
    "the quiet film was, in 1990, shown twice",
    "Zürich's naïve café — 10\u00a0000 francs",
    "日本 is not Nippon",
] * 4
SPECIALS = ["<unk>", "<pad>", "<s>", "</s>"]
QUESTION = "what was shown ?"


def wrapped(tokenizer: Tokenizer, trainer: trainers.Trainer, pair: str) -> PreTrainedTokenizerFast:
    tokenizer.train_from_iterator(CORPUS, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=pair, special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")


def wordpiece() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return wrapped(tokenizer, trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIALS), "<s> $A </s> $B </s>")


def byte_level() -> PreTrainedTokenizerFast:
    """RoBERTa's: two separators between the texts, and words that know of the space before them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=SPECIALS)
    return wrapped(tokenizer, trainer, "<s> $A </s> </s> $B </s>")


def sentencepiece() -> PreTrainedTokenizerFast:
    """T5's: nothing at the start, and pieces that hold the space before them."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(r" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIALS, unk_token="<unk>")
    return wrapped(tokenizer, trainer, "$A </s> $B </s>")


FAMILIES = {"wordpiece": wordpiece, "byte-level": byte_level, "sentencepiece": sentencepiece}


@pytest.fixture(scope="module", params=FAMILIES)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return FAMILIES[request.param]()


words = st.sampled_from(["the", "quiet", "film", "Zürich's", "naïve", "café", "1990", "日本", "francs", "—", "(was)"])
gaps = st.sampled_from([" ", "  ", "\n", ", ", "\u00a0"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(words, gaps), min_size=4, max_size=25), st.data())
def test_the_true_tokens_give_the_answer_back(
    tokenizer: PreTrainedTokenizerFast, parts: list[tuple[str, str]], data: st.DataObject
) -> None:
    context = "".join(word + gap for word, gap in parts)
    places = [(match.start(), match.end()) for match in re.finditer(r"[^\s,]+", context)]
    first = data.draw(st.integers(0, len(places) - 1))
    last = data.draw(st.integers(first, min(first + 2, len(places) - 1)))
    start, end = places[first][0], places[last][1]
    example = Example("q", {"question": QUESTION, "context": context}, (Answer(start, context[start:end]),))
    windows = cut_windows(
        tokenizer,
        [QUESTION],
        [context],
        [example.label],  # type: ignore[list-item]
        max_tokens=60,
        stride=8,
    )
    logits = [np.zeros((2, len(window)), np.float32) for window in windows]
    held = False
    for window, values in zip(windows, logits, strict=True):
        if window.target != (0, 0):
            held = True
            values[0, window.target[0]] = values[1, window.target[1]] = 5
            assert window.inside[list(window.target)].all()
    assert held
    length = max(window.target[1] - window.target[0] + 1 for window in windows)
    if length <= 30:
        (found,) = predict_answers(windows, logits, [example], ("question", "context"), n_best=3)
        # A piece may reach beyond the answer (unknown letters on both sides of a line's end are one piece), never less.
        window = next(window for window in windows if window.target != (0, 0))
        begin, stop = window.offsets[window.target[0], 0], window.offsets[window.target[1], 1]
        assert found.text == context[begin:stop].strip()
        assert context[start:end] in found.text
        crossed = any(
            low < edge < high and context[low:edge].strip() and context[edge:high].strip()
            for low, high in window.offsets
            for edge in (start, end)
        )
        assert crossed or (found.candidates[0].start, found.text) == (start, context[start:end])


def test_no_token_of_a_long_context_is_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    context = "the quiet film was, in 1990, shown twice. " * 12
    windows = cut_windows(tokenizer, [QUESTION], [context], max_tokens=60, stride=8)
    assert len(windows) > 3
    assert all(len(window) <= 60 for window in windows)
    whole = tokenizer(QUESTION, context).encodings[0]
    expected = {offsets for offsets, part in zip(whole.offsets, whole.sequence_ids, strict=True) if part == 1}
    assert {tuple(row) for window in windows for row in window.offsets[window.inside].tolist()} == expected
    lead = [whole.ids[place] for place, part in enumerate(whole.sequence_ids) if part != 1]
    for window in windows:
        assert window.inputs["input_ids"][~window.inside].tolist() == lead, "question and separators stay as they are"
