"""Models whose certificates are known in closed form, and a small synonym table."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.core.types import Classification, Example
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.models import Classifier
from isthmus.models.backbones import Backbone, Encoded
from isthmus.models.words import word_tokenizer

LINKS = {
    "fine": ["good", "decent"],
    "good": ["fine", "great"],
    "great": ["good"],
    "decent": ["fine"],
    "dull": ["boring", "flat"],
    "boring": ["dull"],
    "flat": ["dull"],
    "film": ["movie"],
    "movie": ["film"],
}
WORDS = [*LINKS, "the", "was", "and", "very", "plot"]
TEXTS = [
    "the film was fine", "a dull film", "the plot was good and the film great", "Boring and FLAT", "very very",
    "the movie was decent, good and fine",
]  # fmt: skip
TASK = Classification(("bad", "good"))


def table(most: int = 100) -> SynonymTable:
    return SynonymTable.of_links(LINKS, "toy", most=most)


def examples(texts: Sequence[str] = TEXTS, label: int = 1) -> list[Example]:
    return [Example(f"test:{number}", {"text": text}, label) for number, text in enumerate(texts)]


class LinearBackbone(Backbone):
    """The sum of the embeddings: logits are linear in the flattened sequence."""

    form = "linear"

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.hidden_size = self.pooled_size = width
        self.depth = 1

    @property
    def table(self) -> nn.Embedding:
        return self.embedding

    def blocks(self) -> list[nn.Module]:
        return []

    def forward(
        self, ids: Tensor | None, embeddings: Tensor | None, mask: Tensor | None, types: Tensor | None, hidden: bool
    ) -> Encoded:
        found = self.embedding(ids) if embeddings is None else embeddings
        return Encoded(found.sum(dim=1), None)


def linear(width: int = 3, seed: int = 0) -> Classifier:
    tokenizer = word_tokenizer([" ".join(WORDS)], 100, 1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        backbone = LinearBackbone(len(tokenizer), width)
        model = Classifier(backbone, tokenizer, TASK, max_tokens=32, seed=seed)
        nn.init.normal_(model.head.weight)
        nn.init.normal_(model.head.bias)
    return model.eval()


def distance(model: Classifier, text: str) -> float:
    """Signed distance of the flattened embedding sequence to the hyperplane, positive on the side of class 1."""
    model = copy.deepcopy(model).requires_grad_(False)
    ids = torch.tensor(model.tokenizer(text)["input_ids"])
    weight = (model.head.weight[1] - model.head.weight[0]).double()
    bias = (model.head.bias[1] - model.head.bias[0]).double()
    value = model.table(ids).double().sum(dim=0) @ weight + bias
    return float(value / (weight.norm() * len(ids) ** 0.5))


def network(form: str, seed: int = 0, spread: float = 0.3, **options: Any) -> Classifier:
    """A tiny cnn or lstm with random weights; the smaller the spread, the closer are synonyms."""
    sizes = {"vectors": None, "width": 4, "hidden": 5, "filters": 4, "widths": (1, 2, 3), **options}
    model = Classifier.create(form, TASK.labels, texts=[" ".join(WORDS)], options=sizes, seed=seed)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7)
        vocabulary = model.tokenizer.get_vocab()
        for word, others in LINKS.items():
            for other in others:
                near = model.table.weight[vocabulary[word]] + spread * torch.randn(model.table.weight.shape[1])
                model.table.weight[vocabulary[other]] = near
        logits = torch.cat([model(**model.encode([{"text": text}])).logits for text in TEXTS])
        # Halfway between the classes, so that some texts are turned and some are not.
        model.head.bias[1] -= (logits[:, 1] - logits[:, 0]).median()
    return model


class Noisy:
    """A victim that answers class 1 with the probability it holds for the words of the text."""

    labels = TASK.labels
    stochastic = False

    def __init__(self, good: Sequence[str]) -> None:
        self.good = set(good)

    def scores(self, texts: Any, keys: Any = None) -> Any:
        found = np.array([any(word.lower() in self.good for word in text["text"].split()) for text in texts])
        return np.stack([1.0 - found, found], axis=1).astype(np.float32)


def every_text(text: str, synonyms: SynonymTable) -> list[str]:
    """Brute force: the product of all words with their synonyms, spelt out."""
    words = text.split(" ")
    return [" ".join(choice) for choice in itertools.product(*((word, *synonyms.replacements(word)) for word in words))]
