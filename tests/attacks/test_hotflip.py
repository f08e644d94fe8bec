"""HotFlip on a model that is linear in its embeddings, where the gradient tells the whole truth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attack_toys import vectors_file
from engine_toys import BertVictim, TextVictim, bert_tokenizer, examples

from isthmus.attacks.parts.goals import Evasion, Targeted
from isthmus.attacks.words import hotflip
from isthmus.attacks.words.hotflip import HotFlip, _find_largest
from isthmus.core.errors import UsageError
from isthmus.core.types import Example, Floats, Ints, Texts, TokenBatch
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.words import Words


class Linear:
    """p(positive) = sigmoid(sum over the tokens of <e_token, w>)."""

    labels = ("negative", "positive")
    stochastic = False
    max_tokens = 48
    device_type = "cpu"

    def __init__(self) -> None:
        self.tokenizer = bert_tokenizer()
        stream = np.random.default_rng(3)
        self.table = stream.normal(size=(len(self.tokenizer), 8)).astype(np.float32)
        self.weight = stream.normal(size=8).astype(np.float32)
        self.draws: list[int] = []

    def positive(self, ids: Ints) -> Floats:
        logits = (self.table @ self.weight)[ids].sum(axis=1) / 4
        return np.asarray(1 / (1 + np.exp(-logits)), np.float32)

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Callable[[], Floats]:
        del exact
        p = np.concatenate([self.positive(batch.ids) for batch in batches])
        return lambda: np.stack([1 - p, p], axis=1)

    def scores(self, texts: Sequence[Texts], keys: Any = None) -> Floats:
        del keys
        rows = [self.positive(np.array([self.tokenizer(text["text"])["input_ids"]])) for text in texts]
        return np.stack([1 - np.concatenate(rows), np.concatenate(rows)], axis=1)

    def embedding_gradients(self, batch: TokenBatch, labels: Ints, *, draws: int = 1) -> Floats:
        self.draws.append(draws)
        error = (self.positive(batch.ids) - labels) / 4  # derivative of the cross-entropy by each token's logit
        return np.broadcast_to(error[:, None, None] * self.weight, (*batch.ids.shape, 8)).astype(np.float32)

    def embedding_table(self) -> Floats:
        return self.table


TEXTS = [
    "the plot is dull and the acting terrible",
    "a great movie with witty music",
    "oil prices rose sharply on monday",
]


def whole_words(victim: Linear) -> list[str]:
    tokens = victim.tokenizer.convert_ids_to_tokens(list(range(len(victim.tokenizer))))
    return [token for token in tokens if token[0].isalpha()]


def labelled(victim: Linear, text: str) -> Example:
    return Example("test:0", {"text": text}, int(victim.scores([{"text": text}])[0].argmax()))


def label_of(example: Example) -> int:
    assert isinstance(example.label, int)
    return example.label


def flips(victim: Linear, text: str, words: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[int, str]]:
    parsed = Words.of(text)
    return {str(parsed.replace({at: word})): (at, word) for at in positions for word in words if word != parsed[at]}


def free(text: str) -> list[int]:
    return [at for at, word in enumerate(Words.of(text)) if word not in stop_words()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("at_once", [1, 500, 1 << 23])
def test_the_best_flip_of_all_is_proposed(text: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotflip, "_GAINS_AT_ONCE", at_once)
    victim = Linear()
    example = labelled(victim, text)
    attack = HotFlip(
        semantics="textattack", neighbours=vectors_file(), min_cosine=-1, part_of_speech="none", max_words=1
    )
    (result,) = attack(victim, [example])
    possible = flips(victim, text, whole_words(victim), free(text))
    scores = victim.scores([{"text": each} for each in possible])[:, label_of(example)]
    assert result.perturbed["text"] == list(possible)[int(scores.argmin())]
    assert result.candidates == 1


@pytest.mark.parametrize("text", TEXTS)
def test_two_flips_of_the_top_ones_are_the_best_two(text: str) -> None:
    """A linear model's flips do not interact: the best pair of words is the two best flips in different places."""
    victim = Linear()
    example = labelled(victim, text)
    attack = HotFlip(semantics="textattack", neighbours=vectors_file(), min_cosine=-1, part_of_speech="none", top=3)
    (result,) = attack(victim, [example])
    best: list[str] = [text]
    for _ in range(2):
        if victim.scores([{"text": best[-1]}])[0, label_of(example)] < 0.5:
            break
        changed = [at for at, (a, b) in enumerate(zip(Words.of(text), Words.of(best[-1]), strict=True)) if a != b]
        possible = flips(victim, best[-1], whole_words(victim), [at for at in free(text) if at not in changed])
        scores = victim.scores([{"text": each} for each in possible])[:, label_of(example)]
        best.append(list(possible)[int(scores.argmin())])
    assert result.perturbed["text"] == best[-1]
    assert len(result.edits) == len(best) - 1 <= 2


@pytest.mark.parametrize("text", TEXTS)
def test_the_paper_flips_to_neighbours_only(text: str) -> None:
    victim, near = Linear(), load_neighbours(vectors_file())
    example = labelled(victim, text)
    attack = HotFlip(semantics="paper", neighbours=vectors_file(), min_cosine=0.05, part_of_speech="none", max_words=1)
    (result,) = attack(victim, [example])
    known = set(whole_words(victim))
    possible: dict[str, tuple[int, str]] = {}
    for at in free(text):
        nearest = near.nearest(Words.of(text)[at], 50)
        words = [
            new for new, cosine in zip(nearest.words, nearest.cosines, strict=True) if cosine >= 0.05 and new in known
        ]
        possible |= flips(victim, text, words, [at])
    scores = victim.scores([{"text": each} for each in possible])[:, label_of(example)]
    assert result.perturbed["text"] == list(possible)[int(scores.argmin())]
    assert result.candidates == min(10, len(possible))


def test_the_goal_gives_the_direction() -> None:
    victim = Linear()
    text = TEXTS[1]
    example = labelled(victim, text)
    label = int(example.label)
    attack = HotFlip(
        semantics="textattack", neighbours=vectors_file(), min_cosine=-1, part_of_speech="none", max_words=1
    )
    reference = next(iter(attack(victim, [example]))).perturbed
    for goal in (Targeted(1 - label), Evasion(label, threshold=0.2)):
        assert next(iter(attack(victim, [example], goal=goal))).perturbed == reference


def test_the_number_of_draws_reaches_the_victim() -> None:
    victim = Linear()
    attack = HotFlip(semantics="textattack", neighbours=vectors_file(), part_of_speech="none", draws=5)
    list(attack(victim, [labelled(victim, TEXTS[0])]))
    assert set(victim.draws) == {5}


def test_a_victim_without_gradients_is_refused_before_anything_is_asked() -> None:
    asked: list[Any] = []
    victim = TextVictim(lambda text: asked.append(text) or 0.9)  # type: ignore[func-returns-value]
    with pytest.raises(UsageError, match="needs the victim's gradient"):
        HotFlip(neighbours=vectors_file())(victim, examples("a great movie"))
    assert not asked
    assert HotFlip.needs_gradients


def test_words_of_several_sub_words_and_words_out_of_sight() -> None:
    victim = BertVictim()
    victim.max_tokens = 10
    text = "unapologetic zzq great movie plot music acting dull witty seductive gorgeous"
    label = int(victim.scores([{"text": text}])[0].argmax())
    attack = HotFlip(semantics="textattack", neighbours=vectors_file(), min_cosine=-1, part_of_speech="none", top=500)
    (result,) = attack(victim, [Example("test:0", {"text": text}, label)], budget=2000)
    read = victim.tokenizer.decode(victim.tokenizer(text, truncation=True, max_length=10)["input_ids"])
    assert all(Words.of(text)[edit.position] in read for edit in result.edits)


def test_the_largest_values_in_order() -> None:
    values = np.array([3, -np.inf, 5, 3, 9, -np.inf], np.float32)
    assert _find_largest(values, 1).tolist() == [4]
    assert _find_largest(values, 3).tolist() == [4, 2, 0]
    assert _find_largest(values, 99).tolist() == [4, 2, 0, 3]
    assert _find_largest(np.full(3, -np.inf, np.float32), 2).tolist() == []
    for count, seed in itertools.product((1, 4, 30), range(5)):
        drawn = np.random.default_rng(seed).integers(0, 6, 30).astype(np.float32)
        assert _find_largest(drawn, count).tolist() == np.argsort(-drawn, kind="stable")[:count].tolist()


def test_what_cannot_be_is_refused() -> None:
    for name in ("width", "top", "max_words", "draws", "most"):
        with pytest.raises(UsageError, match=name):
            HotFlip(**{name: 0})
