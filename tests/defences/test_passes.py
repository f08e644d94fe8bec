"""A step that is taken in several passes: what equals one large batch, and what is a figure of each pass by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import close
from torch import Tensor

from isthmus import defences
from isthmus.arithmetic.randomness import Stream
from isthmus.defences import Batch, Defence
from isthmus.defences.parts import smoothness
from isthmus.information.mutual_information import mean_spread
from isthmus.training.walk import walk

SIZE = 12
HARD: dict[str, Any] = {"steps": 2, "step_size": 0.3, "max_norm": 0.5, "init_magnitude": 0.0}
LOUD: dict[str, Any] = {"noise": 0.05, "step_size": 0.05, "radius": 0.1, "strength": 2.0}

EQUAL: dict[str, Defence] = {
    "freelb": defences.FreeLB(**HARD),
    "pgd": defences.PGD(**HARD, clean=0.3),
    "smart": defences.SMART(**LOUD, proximal=0.5, momentum=0.5),
    "smart-released": defences.SMART(**{**LOUD, "noise": 0.1}, mode="released", proximal=0.0),
    "alum": defences.ALUM(**LOUD),
    "vib": defences.VIB(beta=0.05),
    "vub": defences.VUB(beta=0.05),
    "vub-freelb": defences.VUB(beta=0.05, adversary="freelb", **HARD),
    "vib-pgd": defences.VIB(beta=0.05, adversary="pgd", **HARD),
    "infobert-freelb-without-regularisers": defences.InfoBERT(alpha=0.0, beta=0.0, adversary="freelb", **HARD),
    "label_smoothing": defences.LabelSmoothing(),
    "confidence_penalty": defences.ConfidencePenalty(),
}
"""What they add is a mean over examples of what each has by itself."""


@pytest.fixture(autouse=True)
def the_same_draws_for_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws belong to a pass; only if every row has the same can the passes be compared with one batch."""
    pattern = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))

    def rows_alike(like: Tensor, *_: Any) -> Tensor:
        return pattern[: like.shape[-2], : like.shape[-1]].expand(like.shape)

    def one_alike(_stream: Stream, like: Tensor, tag: int = 0) -> Tensor:
        return pattern[tag, : like.shape[-1]].expand(like.shape)

    monkeypatch.setattr(smoothness, "gaussian_start", rows_alike)
    monkeypatch.setattr(Stream, "normal", one_alike)


def prepared(defence: Defence) -> Any:
    model = toys.classifier(dropout=0.0).train()
    defence.prepare(model, toys.dataset("train", SIZE, 0))
    return model


def of_rows(model: Any, rows: Sequence[int], seed: int = 5) -> Batch:
    data = toys.dataset("train", SIZE, 0)
    inputs = model.encode([data.examples[row].texts for row in rows])
    labels = torch.tensor([data.examples[row].label for row in rows])
    return Batch(inputs, labels, seed=seed, opens_step=rows[0] == 0)


def accumulated(defence: Defence, model: Any, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """The gradient of one step, as both drivers take it."""
    model.zero_grad()
    total = sum(len(batch) for batch in batches)
    for batch in batches:
        walk(defence, model, batch, backward=back, autocast=contextlib.nullcontext, weight=len(batch) / total)
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def back(loss: Tensor, retain_graph: bool) -> None:
    loss.backward(retain_graph=retain_graph)


@pytest.mark.parametrize("name", EQUAL)
def test_passes_of_any_size_equal_one_large_batch(name: str) -> None:
    defence = EQUAL[name]
    large = accumulated(defence, model := prepared(defence), [of_rows(model, range(SIZE))])
    small = accumulated(
        defence, model := prepared(defence), [of_rows(model, rows) for rows in (range(7), range(7, 12))]
    )
    plain = accumulated(defences.Standard(), model := prepared(defence), [of_rows(model, range(SIZE))])
    assert close(small, large, 2e-5)
    assert not close(plain, large, 2e-4)


BY_PASS: dict[str, Defence] = {
    "infobert": defences.InfoBERT(alpha=0.5, beta=0.5),
    "infobert-freelb": defences.InfoBERT(alpha=0.5, beta=0.5, adversary="freelb", **HARD),
    "infobert-paper": defences.InfoBERT(alpha=0.5, beta=0.5, mode="paper"),
    "infobert-global": defences.InfoBERT(alpha=0.0, beta=0.5, features="global"),
    "vub-batch": defences.VUB(beta=0.05, cap="batch"),
}
"""What they add is a figure of a pass: the spread of its tokens, the chunks of its anchors, its capped mean entropy."""


@pytest.mark.parametrize("name", BY_PASS)
def test_figures_of_a_pass_are_averaged_like_everything_else(name: str) -> None:
    """Every term is divided, not the cross-entropy alone: the step's gradient is the weighted mean of the passes'."""
    defence = BY_PASS[name]
    model = prepared(defence)
    passes = [of_rows(model, rows, seed) for seed, rows in enumerate((range(7), range(7, 12)))]
    step = accumulated(defence, model, passes)
    alone = [accumulated(defence, model, [part]) for part in passes]
    assert close(step, {key: 7 / 12 * alone[0][key] + 5 / 12 * alone[1][key] for key in step})
    twice = accumulated(defence, model, [passes[0], passes[0]])
    assert close(twice, alone[0])


def test_the_spread_of_a_batch_is_that_of_its_halves_and_the_distance_between_them() -> None:
    """Why accumulated InfoBERT is not InfoBERT on one large batch: words of other passes do not count."""
    tokens = torch.randn(8, 5, 6, generator=torch.Generator().manual_seed(0)) + torch.arange(8).view(8, 1, 1)
    mask = torch.ones(8, 5)
    halves = [mean_spread(half, torch.ones(4, 5)) for half in (tokens[:4], tokens[4:])]
    between = (tokens[:4].mean(dim=(0, 1)) - tokens[4:].mean(dim=(0, 1))).square().sum() / 4
    assert torch.allclose(mean_spread(tokens, mask), sum(halves) / 2 + between, rtol=1e-5)


def test_the_papers_anchors_equal_one_large_batch_where_sentences_are_equally_long() -> None:
    """They are compared within their sentence; only how many there are depends on its length."""
    defence = defences.InfoBERT(alpha=0.5, beta=0.0, mode="paper")
    model = prepared(defence)
    data = toys.dataset("train", 40, 0)
    texts = [{"text": " ".join(f"{example.fields['text']} the the the".split()[:5])} for example in data][:8]
    labels = torch.arange(8) % 2
    batches = [Batch(model.encode(texts[part]), labels[part], seed=1) for part in (slice(8), slice(0, 3), slice(3, 8))]
    assert close(accumulated(defence, model, batches[1:]), accumulated(defence, model, batches[:1]), 2e-5)


def test_the_mean_of_capped_means_is_at_most_the_capped_mean() -> None:
    """What cap="batch" makes of smaller passes: the minimum is concave, so that less entropy is rewarded."""
    defence = defences.VUB(beta=0.0, cap="batch")
    model = prepared(defence)
    with torch.no_grad():
        model.head.weight.mul_(20)
    batches = [of_rows(model, rows) for rows in (range(12), range(6), range(6, 12))]
    model.companions["labels"].value.fill_(float(entropy_of(defence, model, batches[1:])) / 2)
    whole, first, second = (-entropy_of(defence, model, [batch]) for batch in batches)
    assert (first + second) / 2 <= whole + 1e-6


def entropy_of(defence: Defence, model: Any, batches: Sequence[Batch]) -> Tensor:
    values = [next(defence.losses(model, batch)).values["entropy"] for batch in batches]
    return torch.stack(values).mean().detach()
