"""A tiny classifier, a task it can learn in seconds, and defences that exercise each moment."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from isthmus.core.types import Classification, Example
from isthmus.data import Dataset, Splits
from isthmus.defences import Batch, Defence, Terms
from isthmus.models import Classifier
from isthmus.models.backbones import StockBackbone
from isthmus.training import TrainingSettings

GOOD, BAD = ["fine", "lovely", "moving", "warm"], ["dull", "cold", "weak", "stale"]
PLAIN = ["the", "a", "film", "plot", "actor", "scene", "was", "is", "and", "very", "this", "that"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TASK = Classification(("bad", "good"))


def tokenizer() -> PreTrainedTokenizerFast:
    words = {word: index for index, word in enumerate(SPECIAL + GOOD + BAD + PLAIN)}
    inner = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )


def classifier(seed: int = 0, *, dropout: float = 0.1, width: int = 16) -> Classifier:
    config = BertConfig(
        vocab_size=len(SPECIAL + GOOD + BAD + PLAIN),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.2,
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config)
    return Classifier(StockBackbone(model), tokenizer(), TASK, max_tokens=24, seed=seed).eval()


def dataset(split: str, size: int, seed: int) -> Dataset:
    stream = random.Random(f"{split} {seed}")
    examples = []
    for row in range(size):
        label = row % 2
        words = [stream.choice(PLAIN) for _ in range(stream.randint(2, 12))]
        words.insert(stream.randint(0, len(words)), stream.choice(GOOD if label else BAD))
        examples.append(Example(f"{split}:{row}", {"text": " ".join(words)}, label))
    return Dataset("toy", split, TASK, tuple(examples))


def splits(train: int = 64, dev: int = 32, seed: int = 0) -> Splits:
    return Splits("toy", {"train": dataset("train", train, seed), "dev": dataset("dev", dev, seed)})


def plain_descent(model: torch.nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=settings.learning_rate)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


@dataclass(frozen=True)
class Ascent(Defence):
    """A perturbed step in the shape of FreeLB: each yield is differentiated before the next forward pass."""

    steps: int = 2
    size: float = 0.1
    start: float = 0.01

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        inputs = dict(batch.inputs)
        ids = inputs.pop("input_ids")
        noise = torch.randn((*ids.shape, model.hidden_size), generator=batch.stream("ascent"))
        delta = (self.start * noise).requires_grad_()
        for _ in range(self.steps):
            output = model(**inputs, inputs_embeds=model.embed(ids) + delta)
            loss = torch.nn.functional.cross_entropy(output.logits.float(), batch.labels)
            yield Terms({"adversarial": loss / self.steps})
            assert delta.grad is not None, "the walker must differentiate a yield before it resumes the generator"
            # Per sentence, so that a step does not depend on which other sentences are in the batch.
            length = delta.grad.flatten(1).norm(dim=1).clamp_min(1e-8)[:, None, None]
            delta = (delta + self.size * delta.grad / length).detach().requires_grad_()


@dataclass(frozen=True)
class FreshWords(Defence):
    """Replaces the examples before each epoch but the second, and notes every call in a file."""

    notes: str = ""

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | None:
        if self.notes:
            with Path(self.notes).open("a") as stream:
                stream.write(f"{epoch} {model.training}\n")
        if epoch == 1:
            return None
        chance = random.Random(f"{seed} {epoch}")
        fresh = tuple(
            replace(example, fields={"text": f"{chance.choice(PLAIN)} {example.fields['text']}", "was": example.id})
            for example in data
        )
        return fresh[: len(fresh) - 8 * epoch]


class Recorder:
    """A progress object that remembers what it was told, and may stop the process at a step."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, dict[str, float]]] = []

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        self.calls.append((step, total, metrics))


def rows(folder: Any) -> list[dict[str, float]]:
    from isthmus.runs.journal import read_rows

    return read_rows(Path(folder) / "train.jsonl")


def flat(row: dict[str, Any]) -> dict[str, float]:
    """A row of the log without rows inside it."""
    inner = {
        f"{key} {name}": part for key, value in row.items() if isinstance(value, dict) for name, part in value.items()
    }
    return {**{key: value for key, value in row.items() if not isinstance(value, dict)}, **inner}
