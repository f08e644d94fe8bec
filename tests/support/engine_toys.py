"""Small victims and programs for testing the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, PreTrainedTokenizerFast

import isthmus.models  # noqa: F401  (asks for arithmetic that does not depend on the batch)
from isthmus.core.types import Example, Floats, Ints, Texts, TokenBatch

CORPUS = [
    "a gorgeous , witty , seductive movie that isn't well-known",
    "no movement , no yuks , not much of anything .",
    "the plot is dull and the acting terrible , but the music was great !",
    "oil prices rose sharply on monday as supply fears grew",
    "an unapologetic mess whose only saving grace is that it ends",
] * 3


# Vocabularies are written out rather than trained: training breaks ties at random.
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = sorted({word for line in CORPUS for word in line.split() if word.isalpha()})


@functools.cache
def bert_tokenizer() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *LETTERS, *",.!?'-()/;:", *(f"##{letter}" for letter in LETTERS), "##ly", "##ing", *WORDS]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@functools.cache
def roberta_tokenizer() -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges: dict[tuple[str, str], None] = {}
    for word in WORDS:
        for start in range(1, len(word) + 1):
            left = "\u0120" + word[: start - 1]  # the mark of a space before the word
            merges[left, word[start - 1]] = None
            vocabulary.append(left + word[start - 1])
    table = {piece: index for index, piece in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(models.BPE(table, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    mask = AddedToken("<mask>", lstrip=True, special=True)  # as RoBERTa's does, it swallows the space before it
    tokenizer.add_special_tokens([*special[:4], mask])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token=mask,
        model_input_names=["input_ids", "attention_mask"],
    )


def tiny_bert(vocabulary: int, classes: int = 2) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    config.num_labels = classes
    return BertForSequenceClassification(config).eval()


class BertVictim:
    """A tiny random BERT, counting every row that it is asked for."""

    labels = ("negative", "positive")
    stochastic = False
    max_tokens = 48
    device_type = "cpu"
    precision = "fp32"

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None = None) -> None:
        self.tokenizer = tokenizer or bert_tokenizer()
        self.model = tiny_bert(len(self.tokenizer))
        self.rows = 0
        self.batches: list[TokenBatch] = []

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Callable[[], Floats]:
        del exact
        answers = []
        for batch in batches:
            self.rows += len(batch.ids)
            self.batches.append(batch)
            fill = max(0, 4 - len(batch.ids))
            ids = torch.from_numpy(np.concatenate([batch.ids, np.repeat(batch.ids[-1:], fill, axis=0)]))
            types = None
            if batch.types is not None:
                types = torch.from_numpy(np.concatenate([batch.types, np.repeat(batch.types[-1:], fill, axis=0)]))
            with torch.inference_mode():
                logits = self.model(input_ids=ids, token_type_ids=types).logits[: len(batch.ids)]
            answers.append(torch.softmax(logits, dim=1).numpy())
        result = np.concatenate(answers) if answers else np.zeros((0, 2), np.float32)
        return lambda: result

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        del keys
        encoded = [
            self.tokenizer(*text.values(), truncation=True, max_length=self.max_tokens)["input_ids"] for text in texts
        ]
        return np.concatenate([self.launch([TokenBatch(np.array([row]))])() for row in encoded])

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


class TokenVectors:
    """A sentence encoder that takes token ids: a sum of random vectors, one for every token in every place."""

    name, width, device_type = "token vectors", 24, "cpu"

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None = None, max_tokens: int = 40) -> None:
        self.tokenizer, self.max_tokens = tokenizer or bert_tokenizer(), max_tokens
        generator = np.random.default_rng(3)
        self.tokens = generator.normal(size=(len(self.tokenizer), self.width)).astype(np.float32)
        self.places = generator.normal(size=(max_tokens, self.width)).astype(np.float32)
        self.rows: list[list[int]] = []

    def launch(self, batches: Sequence[TokenBatch]) -> Callable[[], Floats]:
        answers = []
        for batch in batches:
            assert batch.mask is None
            self.rows += batch.ids.tolist()
            vectors = (self.tokens[batch.ids] * self.places[: batch.ids.shape[1]]).sum(axis=1)
            answers.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        return lambda: np.concatenate(answers)

    def encode(self, texts: Sequence[str]) -> Floats:
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)["input_ids"]
        return np.concatenate([self.launch([TokenBatch(np.array([row]))])() for row in ids])


class RoughVectors(TokenVectors):
    """The same with fast arithmetic: a vector is off by up to a hundredth of its length."""

    rough_error = 0.0201
    roughly = 0

    def launch_roughly(self, batches: Sequence[TokenBatch]) -> Callable[[], Floats]:
        exact = self.launch(batches)()
        self.roughly += len(exact)
        noise = np.sin(1e4 * exact) / (100 * np.sqrt(self.width))
        return lambda: (exact + noise).astype(np.float32)


class TinyMaskedLM:
    """A tiny random BERT with a masked-language-model head."""

    name = "tiny masked language model"

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None = None) -> None:
        self.tokenizer = tokenizer or bert_tokenizer()
        torch.manual_seed(1)
        self.model = BertForMaskedLM(tiny_bert(len(self.tokenizer)).config).eval()
        self.rows: list[list[int]] = []

    def probabilities(self, ids: Ints, places: Ints) -> Floats:
        with torch.inference_mode():
            logits = self.model(input_ids=torch.from_numpy(ids)).logits
        return torch.softmax(logits[torch.arange(len(ids)), torch.from_numpy(places)], dim=-1).numpy()

    def fill(self, batch: TokenBatch, positions: Ints, k: int) -> tuple[Ints, Floats]:
        self.rows += batch.ids.tolist()
        probabilities = self.probabilities(batch.ids, positions)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
        return best, np.take_along_axis(probabilities, best, axis=1)


class LaunchedMaskedLM(TinyMaskedLM):
    """The same, for any number of blanks a row."""

    device_type, max_tokens = "cpu", 64

    def _probabilities(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints) -> Floats:
        ids = [row for batch in batches for row in batch.ids]
        self.rows += [row.tolist() for row in ids]
        return np.concatenate(
            [self.probabilities(ids[row][None], np.array([place])) for row, place in zip(rows, places, strict=True)]
            or [np.zeros((0, len(self.tokenizer)), np.float32)]
        )

    def launch_fill(self, batches: Any, rows: Ints, places: Ints, k: int, allowed: Any) -> Any:
        chances = self._probabilities(batches, rows, places)
        best = np.argsort(-np.where(allowed, chances, 0), axis=1, kind="stable")[:, :k]
        result = best, np.where(allowed[best], np.take_along_axis(chances, best, axis=1), 0)
        return lambda: result

    def launch_likelihood(self, batches: Any, rows: Ints, places: Ints, tokens: Ints) -> Any:
        values = np.log(self._probabilities(batches, rows, places)[np.arange(len(rows)), tokens])
        return lambda: values


class TextVictim:
    """Any function of the text as a victim, counting what it is asked for."""

    labels = ("negative", "positive")

    def __init__(self, positive: Callable[[Texts], float], *, stochastic: bool = False) -> None:
        self.positive, self.stochastic = positive, stochastic
        self.asked: list[Texts] = []
        self.keys: list[int] = []

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        self.asked += texts
        if keys is not None:
            self.keys += keys.tolist()
        p = np.array([self.positive(text) for text in texts], np.float32)
        return np.stack([1 - p, p], axis=1)


def examples(*texts: str, label: int = 1) -> list[Example]:
    return [Example(f"test:{index}", {"text": text}, label) for index, text in enumerate(texts)]


def labelled_by(victim: Any, texts: Sequence[dict[str, str]]) -> list[Example]:
    """Examples whose label is what the victim says, so that none is skipped."""
    labels = victim.scores(texts).argmax(axis=1)
    return [
        Example(f"test:{index}", text, int(label))
        for index, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
