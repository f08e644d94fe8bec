"""A tiny model that finds the one word of praise in a text, and questions it can learn in seconds."""

from __future__ import annotations

import random

import torch
import training_toys as toys
from transformers import BertConfig, BertForQuestionAnswering

from isthmus.core.types import Answer, Example, QuestionAnswering
from isthmus.data import Dataset, Splits
from isthmus.defences import Batch
from isthmus.models import Classifier
from isthmus.models.backbones import SpanBackbone
from isthmus.training.questions import EncodedWindows

MAX_TOKENS, STRIDE = 16, 5


def answerer(seed: int = 0, *, dropout: float = 0.1) -> Classifier:
    config = BertConfig(
        vocab_size=len(toys.SPECIAL + toys.GOOD + toys.BAD + toys.PLAIN),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForQuestionAnswering(config)
    task = QuestionAnswering(stride=STRIDE)
    return Classifier(SpanBackbone(model), toys.tokenizer(), task, max_tokens=MAX_TOKENS, seed=seed).eval()


def dataset(split: str, size: int, seed: int = 0) -> Dataset:
    stream = random.Random(f"{split} {seed}")
    examples = []
    for row in range(size):
        words = [stream.choice(toys.PLAIN) for _ in range(stream.randint(3, 18))]
        place = stream.randint(0, len(words))
        words.insert(place, stream.choice(toys.GOOD))
        start = len(" ".join(words[:place])) + (place > 0)
        fields = {"question": "film", "context": " ".join(words)}
        examples.append(Example(f"{split}{row}", fields, (Answer(start, words[place]),)))
    return Dataset("toy", split, QuestionAnswering(), tuple(examples))


def splits(train: int = 64, dev: int = 24) -> Splits:
    return Splits("toy", {"train": dataset("train", train), "dev": dataset("dev", dev)})


def batch_of(model: Classifier, size: int = 5) -> Batch:
    (batch,) = EncodedWindows(model, dataset("train", size).examples).batches(1000, torch.device("cpu"))
    batch.seed = 5
    return batch
