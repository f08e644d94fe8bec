"""Similarity, blanks and gradients: answered for many attacks at once, each with its own."""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from engine_toys import BertVictim, TextVictim, bert_tokenizer, roberta_tokenizer

from isthmus.core.errors import UsageError
from isthmus.core.types import Floats, Ints, Texts, TokenBatch
from isthmus.engine.requests import DELETE, INSERT, MERGE, REPLACE, Fill, Gradient, Similarity, replacing
from isthmus.engine.scheduler import Engine
from isthmus.engine.scoring import shared_streams
from isthmus.engine.windows import window
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import Words


class Asks:
    """Yields whatever requests it is made with and returns the answers."""

    key, budget, label = 0, None, 0

    def __init__(self, texts: Texts, *make: Any) -> None:
        self.texts, self.make = texts, make

    def start(self, vocabulary: Vocabulary) -> Generator[Any, Any, list[Any]]:
        draft = Draft.of(self.texts, vocabulary)
        answers = []
        for make in self.make:
            answer = yield make(draft, vocabulary)
            answers.append(answer)
        return answers


class BagOfWords:
    """Counts words; the cosine of two texts is then easy to work out."""

    name = "bag of words"

    def __init__(self, broken: bool = False) -> None:
        self.words: dict[str, int] = {}
        self.encoded: list[str] = []
        self.broken = broken

    def encode(self, texts: Sequence[str]) -> Floats:
        self.encoded += texts
        vectors = np.zeros((len(texts), 200), np.float32)
        for row, text in enumerate(texts):
            for word in Words.of(text):
                vectors[row, self.words.setdefault(word, len(self.words))] += 1
        if self.broken:
            vectors[:] = np.nan
        return vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=1, keepdims=True))


def answers(engine: Engine, *programs: Asks) -> list[Any]:
    finished = {id(item.program): item for item in engine.run(programs)}
    return [finished[id(program)] for program in programs]


def test_similarity_is_the_cosine_and_every_text_is_encoded_once() -> None:
    encoder = BagOfWords()

    def swap(draft: Draft, vocabulary: Vocabulary) -> Similarity:
        return Similarity(draft, replacing(1, vocabulary.ids(["x", "y", "b"])), 3)

    engine = Engine(TextVictim(lambda text: 0.5), encoder=encoder)
    first, second = answers(engine, Asks({"text": "a b c d"}, swap), Asks({"text": "a b c d"}, swap))
    assert first.value[0].tolist() == pytest.approx([0.75, 0.75, 1.0])
    assert second.value[0].tolist() == first.value[0].tolist()
    assert sorted(encoder.encoded) == ["a b c d", "a x c d", "a y c d"]
    assert first.logical == 0  # the victim was not asked


def test_a_sentence_encoder_that_gives_nan_is_an_error() -> None:
    engine = Engine(TextVictim(lambda text: 0.5), encoder=BagOfWords(broken=True))
    (item,) = answers(engine, Asks({"text": "a b"}, lambda d, v: Similarity(d, replacing(0, v.ids(["x"])), 1)))
    assert "NaN" in item.error


def test_windows() -> None:
    text = Words.of("w0, w1 w2 w3 w4 w5 w6 w7 w8 w9!")
    assert window(text, 5, 3) == "w4 w5 w6"
    assert window(text, 0, 3) == "w0, w1 w2"
    assert window(text, 9, 3) == "w7 w8 w9"
    assert window(text, 4, 100) == "w0, w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert window(Words.of("..."), 0, 3) == "..."


class Copycat:
    """A masked LM that proposes the tokens right before and right after the blank, and a piece of a word."""

    name = "copycat"

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.rows: list[list[str]] = []

    def fill(self, batch: TokenBatch, positions: Ints, k: int) -> tuple[Ints, Floats]:
        tokens = np.zeros((len(batch.ids), k), np.int64)
        probabilities = np.zeros((len(batch.ids), k), np.float32)
        for row, place in enumerate(positions):
            ids = batch.ids[row]
            self.rows.append(self.tokenizer.convert_ids_to_tokens(ids))
            around = [self.tokenizer.sep_token_id, ids[place - 1], ids[min(place + 1, len(ids) - 1)]]
            tokens[row, :3], probabilities[row, :3] = around, [0.5, 0.3, 0.2]
        return tokens, probabilities


@pytest.mark.parametrize("tokenizer", [bert_tokenizer(), roberta_tokenizer()], ids=["wordpiece", "bpe"])
def test_blanks_are_filled_with_whole_words(tokenizer: Any) -> None:
    model = Copycat(tokenizer)
    engine = Engine(TextVictim(lambda text: 0.5), masked_lm=model)

    def fill(span: int, keep: bool = False) -> Any:
        return lambda draft, vocabulary: Fill(draft, np.array([2, 3], np.int32), 3, span, keep)

    text = {"text": "so the movie is that , is it ends"}
    (item,) = answers(engine, Asks(text, fill(REPLACE), fill(INSERT), fill(MERGE), fill(REPLACE, keep=True)))
    replaced, inserted, merged, kept = item.value
    strings = engine.vocabulary.strings

    def words(fills: Any) -> list[list[str]]:
        return [[strings[word] for word in row if word != DELETE] for row in fills.words]

    masks = [row.index(tokenizer.mask_token) for row in model.rows[:6]]
    assert len(masks) == 6  # a blank for every position, span by span
    assert not any(tokenizer.mask_token in row for row in model.rows[6:])
    for fills in (replaced, inserted, merged, kept):
        assert all(Words.of(word).words == (word,) for row in words(fills) for word in row)
        assert fills.probabilities.shape == (2, 3)
        assert (fills.probabilities[fills.words == DELETE] == 0).all()
    assert words(replaced)[0] == ["the", "is"]
    assert words(inserted)[0][0] == "the"
    assert words(merged)[0] == ["the", "that"]
    assert words(kept)[0] == ["the", "is"]


def test_a_service_that_is_not_there_is_named() -> None:
    engine = Engine(TextVictim(lambda text: 0.5))
    with pytest.raises(UsageError, match="sentence encoder"):
        answers(engine, Asks({"text": "a b"}, lambda d, v: Similarity(d, replacing(0, v.ids(["x"])), 1)))
    with pytest.raises(UsageError, match="masked language model"):
        answers(engine, Asks({"text": "a b"}, lambda d, v: Fill(d, np.array([0], np.int32), 1)))
    with pytest.raises(UsageError, match="gradient"):
        answers(engine, Asks({"text": "a b"}, lambda d, v: Gradient(d, 0)))


class WhiteBox(BertVictim):
    def embedding_gradients(self, batch: TokenBatch, labels: Ints, *, draws: int = 1) -> Floats:
        assert draws == 1
        table = self.model.get_input_embeddings()
        embeddings = table(torch.from_numpy(batch.ids)).detach().requires_grad_()
        types = None if batch.types is None else torch.from_numpy(batch.types)
        logits = self.model(inputs_embeds=embeddings, token_type_ids=types).logits
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")
        return torch.autograd.grad(loss, embeddings)[0].numpy()

    def embedding_table(self) -> Floats:
        table: Any = self.model.get_input_embeddings()
        return table.weight.detach().numpy()


@pytest.mark.parametrize("tokenizer", [bert_tokenizer(), roberta_tokenizer()], ids=["wordpiece", "bpe"])
def test_gradients_say_which_word_every_token_belongs_to(tokenizer: Any) -> None:
    victim = WhiteBox(tokenizer)
    engine = Engine(victim)
    programs = [
        Asks({"text": text}, lambda d, v: Gradient(d, 1))
        for text in ("the plot, unapologetic", "movie isn't great", "oil prices")
    ]
    for item in answers(engine, *programs):
        (gradient,) = item.value
        text = item.program.texts["text"]
        ids = tokenizer(text)["input_ids"]
        assert gradient.values.shape == (len(ids), 32)
        assert gradient.token_ids.tolist() == ids
        assert np.array_equal(gradient.table, victim.embedding_table())
        spelled_by = [engine.vocabulary.strings[word] for word in gradient.words]
        movie = "movie" if "movie" in tokenizer.get_vocab() else "\u0120movie"
        assert spelled_by[tokenizer.convert_tokens_to_ids(movie)] == "movie"
        assert not any(spelled_by[token] for token in tokenizer.all_special_ids)
        alone = victim.embedding_gradients(TokenBatch(np.array([ids])), np.array([1]))[0]
        assert np.allclose(gradient.values, alone, atol=1e-5)
        spelled: dict[int, str] = {}
        for token, position in zip(ids, gradient.position_of.tolist(), strict=True):
            if position >= 0:
                spelled[position] = spelled.get(position, "") + tokenizer.decode([token]).strip("#Ġ ")
        assert ["".join(spelled[at].split()) for at in sorted(spelled)] == [word.lower() for word in Words.of(text)]


def test_a_stochastic_victim_is_differentiated_with_randomness_of_its_own() -> None:
    class Shaky(WhiteBox):
        stochastic = True

        def __init__(self) -> None:
            super().__init__()
            self.keys: list[int] = []

        def embedding_gradients(
            self, batch: TokenBatch, labels: Ints, *, draws: int = 1, as_scored: bool = False
        ) -> Floats:
            assert batch.keys is not None
            self.keys += batch.keys.tolist()
            scale = 1 + (batch.keys % 11).astype(np.float32) if as_scored else np.ones(len(batch.ids), np.float32)
            return super().embedding_gradients(batch, labels, draws=draws) * scale[:, None, None]

    def asks(key: int) -> Asks:
        program = Asks({"text": "movie isn't great"}, lambda d, v: Gradient(d, 1))
        program.key = key
        return program

    def shares(key: int) -> Asks:
        program = Asks({"text": "movie isn't great"}, lambda d, v: Gradient(d, 1, draws=3, shared=True))
        program.key = key
        return program

    sharing = Shaky()
    (item,) = answers(Engine(sharing), shares(5))
    assert sharing.keys == shared_streams(5, 3).tolist()
    ids = sharing.tokenizer("movie isn't great")["input_ids"]
    expected = BertVictim().embedding_gradients(TokenBatch(np.array([ids])), np.array([1]))[0]
    scales = [1 + key % 11 for key in sharing.keys]
    assert np.allclose(item.value[0].values, expected * np.mean(scales), rtol=1e-3, atol=1e-5)

    alone, together = Shaky(), Shaky()
    answers(Engine(alone), asks(5))
    answers(Engine(together), asks(4), asks(5), asks(6))
    assert len(set(together.keys)) == 3
    assert alone.keys[0] in together.keys
