"""Rows of the table of attacks, and small models and word lists for them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_toys import WORDS, bert_tokenizer
from transformers import BertConfig, BertForMaskedLM

from isthmus.attacks.base import AttackRun, WordAttack
from isthmus.attacks.result import AttackResult
from isthmus.auxiliary import TransformerMaskedLM
from isthmus.core.types import Differentiable, Example, Floats
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.words import Words

SYNONYMS = {
    "great": ("bang-up", "outstanding", "neat"),
    "movie": ("film", "picture"),
    "dull": ("boring", "slow"),
    "plot": ("secret_plan", "plan"),
    "acting": ("playing",),
    "witty": (),
    "terrible": ("awful", "dire", "horrible"),
}


def synonyms(word: str) -> tuple[str, ...]:
    return tuple(new for new in SYNONYMS.get(word, ()) if "_" not in new)


Check = Callable[[AttackResult], None]


@dataclass(frozen=True)
class Case:
    """One attack with what every result of it must satisfy, re-checked from scratch."""

    attack: WordAttack
    checks: tuple[Check, ...] = ()
    encoder: Any = None
    masked_lm: Any = None
    one_edit: bool = True
    """Whether one edit of the keyword is all it takes to break a classifier that looks for it."""
    may_fail: bool = False
    """Whether it may fail on every one of the test's texts (an attack that does not look)."""
    white_box: bool = False
    """Whether it needs a victim with gradients."""
    only_adds: bool = False
    """Whether it only adds words, which a classifier that looks for one word does not mind."""
    label_only: bool = False
    """Whether it moves only when the label flips."""

    def __call__(self, victim: Any, examples: Iterable[Example], **options: Any) -> AttackRun:
        if self.white_box and not isinstance(victim, Differentiable):
            pytest.skip("this attack needs a victim with gradients")
        return self.attack(victim, examples, encoder=self.encoder, masked_lm=self.masked_lm, **options)


def stop_words_are_left_alone(result: AttackResult) -> None:
    assert not {edit.original for edit in result.edits} & stop_words()


def words_are_replaced(result: AttackResult) -> None:
    assert {edit.kind for edit in result.edits} <= {"replace"}


class LetterEncoder:
    """Unit vectors of letter counts: close to each other for texts that share most letters."""

    name = "letters"

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors = np.ones((len(texts), 128), np.float32)
        for row, text in enumerate(texts):
            for letter in text:
                vectors[row, ord(letter) % 128] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@functools.cache
def masked_lm() -> TransformerMaskedLM:
    """A tiny random masked language model that knows the words of the toys."""
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(bert_tokenizer()),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return TransformerMaskedLM(folder)


@functools.cache
def vectors_file() -> str:
    """Word vectors in which the words of `SYNONYMS` are near their synonyms, and the others far from everything."""
    stream = np.random.default_rng(0)
    lines: list[str] = []

    def add(word: str, vector: Floats) -> None:
        unit = vector / np.linalg.norm(vector)
        lines.append(f"{word} " + " ".join(f"{value:.5f}" for value in unit))

    for word, near in SYNONYMS.items():
        centre = stream.normal(size=24)
        for member in (word, *(new for new in near if "_" not in new)):
            add(member, centre + 0.15 * stream.normal(size=24))
    for word in WORDS:
        if word not in SYNONYMS:
            add(word, stream.normal(size=24))
    path = Path(tempfile.mkdtemp()) / "vectors.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def words_of(result: AttackResult) -> int:
    return sum(len(Words.of(text)) for text in result.original.values())
