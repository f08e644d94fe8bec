"""Estimates of information by a network that is fitted on training features, then frozen and evaluated.

    CLUB       E[ log q(t|x) ] - E[ log q(t'|x) ]                q a Gaussian whose mean and variance are networks of x
    InfoNCE    E[ S_ii - log 1/C Σ_j exp S_ij ]                  S_ij = critic(t_j, z_i), C pairs of C different texts

CLUB bounds I(X;T) from above only once q fits, so the likelihood of held-out texts stands beside it. InfoNCE bounds
I(T;Z) from below for any critic and never exceeds log C. How much it finds depends on the critic, so several are fitted
and their spread is part of the interval. Features are standardised by the training texts', which
changes no information and lets one step size suit every model. One text gives a chunk at most one pair, so that the
negatives of a pair come from other texts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from isthmus.arithmetic.randomness import seed_initialisation
from isthmus.core.crossed import crossed_mean
from isthmus.core.seeds import derive
from isthmus.core.statistics import Interval
from isthmus.information.features import Features
from isthmus.information.mutual_information import Critic, gaussian_log_density

Chosen = TypeVar("Chosen")


@dataclass(frozen=True)
class Fitting:
    """Settings of fitting a network."""

    epochs: int = 40
    patience: int = 4
    learning_rate: float = 1e-3
    batch: int = 256
    held_out: float = 0.15
    """Share of texts that decide when to stop."""


class Standardiser(nn.Module):
    """Shifts and scales features to mean zero and standard deviation one."""

    centre: Tensor
    scale: Tensor

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", features.mean(dim=0))
        deviation = features.std(dim=0, correction=0)
        self.register_buffer("scale", torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))

    def forward(self, features: Tensor) -> Tensor:
        """The features, standardised."""
        return (features - self.centre) / self.scale


class ConditionalGaussian(nn.Module):
    """q(t | x) with a mean that is linear in x plus a network, and a log-variance that is a network."""

    def __init__(self, inputs: int, outputs: int, width: int = 256) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.network = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 2 * outputs))
        nn.init.zeros_(self.network[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.network[-1].bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance."""
        bent, log_variance = self.network(x).chunk(2, dim=-1)
        # Wide enough for any data; it only keeps a dimension that x determines from running away.
        return self.linear(x) + bent, 8 * torch.tanh(log_variance / 8)


@dataclass(frozen=True, eq=False)
class Club:
    """A fitted q and the data of its fit."""

    q: ConditionalGaussian
    inputs: Standardiser
    outputs: Standardiser

    def likelihoods(self, x: Tensor, t: Tensor) -> Tensor:
        """log q(t | x) of every token."""
        with torch.no_grad():
            return gaussian_log_density(self.outputs.forward(t), *self.q.forward(self.inputs(x)))

    def values(self, x: Tensor, t: Tensor) -> Tensor:
        """log q(t_i | x_i) - mean over j of log q(t_j | x_i), of every token i; all pairs, from two moments of t."""
        with torch.no_grad():
            t = self.outputs.forward(t)
            mean, log_variance = self.q.forward(self.inputs(x))
            first, second = t.mean(dim=0), t.square().mean(dim=0)
            square = (second - 2 * mean * first + mean.square()) * torch.exp(-log_variance)
            other = -0.5 * (square + log_variance + math.log(2 * math.pi)).sum(dim=-1)
            value: Tensor = gaussian_log_density(t, mean, log_variance) - other
            return value


def fit_club(x: Tensor, t: Tensor, owner: Tensor, seed: int, fitting: Fitting, width: int = 256) -> Club:
    """Fit q(t | x) by maximum likelihood; stop when the likelihood of held-out texts falls."""
    inputs, outputs = Standardiser(x), Standardiser(t)
    a, b = inputs.forward(x), outputs.forward(t)
    with seed_initialisation(seed, "club"):
        q = ConditionalGaussian(a.shape[1], b.shape[1], width)
    held = _choose_held_out(owner, seed, fitting.held_out)
    rows, rest = torch.nonzero(~held).flatten(), torch.nonzero(held).flatten()

    def loss(chosen: Tensor) -> Tensor:
        likelihoods: Tensor = gaussian_log_density(b[chosen], *q(a[chosen]))
        return -likelihoods.mean() / b.shape[1]

    stream = torch.Generator().manual_seed(derive(seed, "club", "order") >> 1)

    def batches() -> Iterable[Tensor]:
        return torch.split(rows[torch.randperm(len(rows), generator=stream)], fitting.batch)

    _fit_network(q, loss, batches, lambda: loss(rest if len(rest) else rows), fitting)
    return Club(q, inputs, outputs)


@dataclass(frozen=True, eq=False)
class Nce:
    """A fitted critic."""

    critic: Critic
    tokens: Standardiser
    sentences: Standardiser
    chunk: int

    def values(self, features: Features, chosen: Tensor, seed: int, rounds: int = 8) -> Tensor:
        """InfoNCE of every text [N], a mean over rounds of one random chosen token each; NaN if it was in no round.

        `chosen` names the tokens [M] that may be drawn.
        """
        totals, turns = torch.zeros(len(features), dtype=torch.float64), torch.zeros(len(features))
        tokens, sentences = self.tokens(features.tokens), self.sentences(features.sentences)
        stream = torch.Generator().manual_seed(derive(seed, "nce", "rounds") >> 1)
        with torch.no_grad():
            for _ in range(rounds):
                for rows, picked in pair_once(features, chosen, self.chunk, stream):
                    left, right = self.critic.halves(tokens[picked], sentences[rows])  # [chunk, width] each
                    # Scores [i, j] = f(token j, sentence i); a token is right for its own sentence, on the diagonal.
                    totals[rows] += nce_values(self.critic.score(left.unsqueeze(0), right.unsqueeze(1))).double()
                    turns[rows] += 1
        return totals / turns

    def bound(self, features: Features) -> float:
        """The largest possible value: the logarithm of the chunk size."""
        return math.log(min(self.chunk, len(features)))


@dataclass(frozen=True, eq=False)
class Critics:
    """Critics fitted one by one, each with other initial weights and other held-out texts."""

    fitted: tuple[Nce, ...]
    texts: int
    """Training texts that each of them saw, held-out ones included."""

    def values(self, features: Features, chosen: Tensor, seed: int, rounds: int = 8) -> Tensor:
        """InfoNCE of every text under every critic [fits, N]; all critics see the same pairs."""
        return torch.stack([nce.values(features, chosen, seed, rounds) for nce in self.fitted])

    def bound(self, features: Features) -> float:
        """The largest possible value."""
        return self.fitted[0].bound(features)

    @property
    def note(self) -> str:
        """The data that the figure is based on, in a sentence."""
        texts = f"{self.texts:,} training text{'s' if self.texts != 1 else ''}"
        if len(self.fitted) == 1:
            return f"InfoNCE: one critic, fitted on {texts}; the interval counts texts and not fitting again."
        many = f"the mean of {len(self.fitted)} critics, each fitted on {texts}"
        return f"InfoNCE: {many}; the interval counts texts and fits."


def fit_critics(features: Features, seed: int, fitting: Fitting, chunk: int, fits: int) -> Iterator[Nce]:
    """Fit several critics, one after the other."""
    for number in range(fits):
        yield fit_nce(features, derive(seed, "fit", number), fitting, chunk)


def nce_interval(values: NDArray[np.float64], bound: float = math.inf) -> Interval:
    """Mean InfoNCE of values [fits, N] over other fits and other texts; texts without a value are left out."""
    found = crossed_mean(values[:, ~np.isnan(values).any(axis=0)])
    return replace(found, high=max(found.estimate, min(found.high, bound)))


BELOW_ZERO = "Below 0 the critic, fitted on train, does worse than guessing: there it found no information."
"""Said beside such an InfoNCE, whose bound of 0 is known without it."""


def nce_values(scores: Tensor) -> Tensor:
    """S_ii - log 1/C Σ_j exp S_ij of every row of a chunk [C, C]; none exceeds log C."""
    return scores.diagonal() - scores.logsumexp(dim=1) + math.log(len(scores))


def fit_nce(features: Features, seed: int, fitting: Fitting, chunk: int = 64) -> Nce:
    """Fit a critic of all tokens and their texts; stop when InfoNCE of held-out texts falls."""
    tokens, sentences = Standardiser(features.tokens), Standardiser(features.sentences)
    t, z = tokens(features.tokens), sentences(features.sentences)
    with seed_initialisation(seed, "critic"):
        critic = Critic(t.shape[1], z.shape[1])
    held = _choose_held_out(features.owner, seed, fitting.held_out)
    stream = torch.Generator().manual_seed(derive(seed, "critic", "order") >> 1)
    # The same pairs at every look, or luck would decide when to stop.
    judged_by = held if int((torch.bincount(features.owner[held]) > 0).sum()) > 1 else torch.ones_like(held)
    looked_at = [
        pair
        for number in range(4)
        for pair in pair_once(features, judged_by, chunk, torch.Generator().manual_seed(derive(seed, number) >> 1))
    ]

    def loss(pairs: tuple[Tensor, Tensor]) -> Tensor:
        rows, picked = pairs
        left, right = critic.halves(t[picked], z[rows])
        return -nce_values(critic.score(left.unsqueeze(0), right.unsqueeze(1))).mean()

    def batches() -> Iterable[tuple[Tensor, Tensor]]:
        for _ in range(8):
            yield from pair_once(features, ~held, chunk, stream)

    def held_out_loss() -> Tensor:
        return torch.stack([loss(pair) for pair in looked_at]).mean()

    _fit_network(critic, loss, batches, held_out_loss, fitting)
    return Nce(critic, tokens, sentences, chunk)


def pair_once(
    features: Features, chosen: Tensor, chunk: int, stream: torch.Generator
) -> Iterable[tuple[Tensor, Tensor]]:
    """Texts in random order, each with one random token of those chosen, in chunks of equal size: (texts, tokens)."""
    keys = torch.rand(len(chosen), generator=stream).masked_fill(~chosen, 2.0)  # [M]
    order = torch.argsort(keys)
    texts = features.owner[order]
    # The first token of each text in this order is a random one; the keys of those not chosen come last.
    first = _first_of_each(texts, order, len(features))
    rows = torch.nonzero((first >= 0) & chosen[first.clamp(min=0)]).flatten()
    rows = rows[torch.randperm(len(rows), generator=stream)]
    size = min(chunk, len(rows))
    if size < 2:
        return
    for start in range(0, len(rows) - size + 1, size):
        part = rows[start : start + size]
        yield part, first[part]


def _first_of_each(texts: Tensor, order: Tensor, count: int) -> Tensor:
    """The first token of each text in `order`; -1 if it has none."""
    found = torch.full((count,), -1, dtype=torch.int64)
    place = torch.full((count,), len(order), dtype=torch.int64)
    # Of all places in `order` that belong to a text, the least.
    place.scatter_reduce_(0, texts, torch.arange(len(order)), reduce="amin")
    there = place < len(order)
    found[there] = order[place[there]]
    return found


def _choose_held_out(owner: Tensor, seed: int, share: float) -> Tensor:
    """Choose the tokens of the texts that are held out of a fit."""
    count = int(owner.max()) + 1
    stream = torch.Generator().manual_seed(derive(seed, "held out") >> 1)
    texts = torch.zeros(count, dtype=torch.bool)
    texts[torch.randperm(count, generator=stream)[: round(share * count)]] = True
    return texts[owner]  # [M]


def _fit_network(
    network: nn.Module,
    loss: Callable[[Chosen], Tensor],
    batches: Callable[[], Iterable[Chosen]],
    held_out: Callable[[], Tensor],
    fitting: Fitting,
) -> None:
    """Fit with Adam until the held-out loss stops falling; keep the best weights."""
    optimizer = torch.optim.Adam(network.parameters(), lr=fitting.learning_rate)
    best, weights, stale = math.inf, copy.deepcopy(network.state_dict()), 0
    for _ in range(fitting.epochs):
        for chosen in batches():
            optimizer.zero_grad()
            loss(chosen).backward()
            optimizer.step()
        with torch.no_grad():
            now = float(held_out())
        if now < best - 1e-5:
            best, weights, stale = now, copy.deepcopy(network.state_dict()), 0
        else:
            stale += 1
        if stale >= fitting.patience or not math.isfinite(now):
            break
    network.load_state_dict(weights)
    network.eval()


def bootstrap_spread(features: Features, seed: int, draws: int = 1000) -> Interval:
    """The spread of the tokens, with the interval of drawing texts again."""
    n, width = len(features), features.tokens.shape[1]
    t = features.tokens.double()
    sums = torch.zeros(n, width, dtype=torch.float64).index_add_(0, features.owner, t)  # of the tokens of each text
    squares = torch.zeros(n, dtype=torch.float64).index_add_(0, features.owner, t.square().sum(dim=1))
    counts = torch.bincount(features.owner, minlength=n).double()

    def of(weights: Tensor) -> Tensor:
        total = weights @ counts
        # E‖t‖² - ‖E t‖² for every row of weights [draws, n]: how often each text was drawn.
        return weights @ squares / total - ((weights @ sums) / total.unsqueeze(1)).square().sum(dim=1)

    stream = torch.Generator().manual_seed(derive(seed, "spread") >> 1)
    picked = torch.randint(n, (draws, n), generator=stream)
    weights = torch.zeros(draws, n, dtype=torch.float64).scatter_add_(
        1, picked, torch.ones(draws, n, dtype=torch.float64)
    )
    low, high = torch.quantile(of(weights), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(float(of(torch.ones(1, n, dtype=torch.float64))), low, high)


def label_entropy(labels: Tensor) -> float:
    """Entropy of the frequencies of the labels, in nats."""
    shares = torch.bincount(labels).double() / max(1, len(labels))
    return float(-torch.special.xlogy(shares, shares).sum())


def log_likelihoods(logits: Tensor, labels: Tensor) -> Tensor:
    """log p(y | z) of every text."""
    return -functional.cross_entropy(logits, labels, reduction="none")
