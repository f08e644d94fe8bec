"""Estimates of mutual information between a model's inputs, its representations and labels.

    spread           ½ E ‖t - t'‖² = tr cov(t)             I(X;T) up to a constant, for a unit Gaussian around each t
    InfoNCE          E[ S_ii - log 1/C Σ_j exp S_ij ] ≤ I(T;Z),  S = critic(t, z)          never above log C
    CLUB             E[ log q(t|x) ] - E[ log q(t'|x) ] ≥ I(X;T)       once q fits p
    rate             E KL(p(z|x) ‖ N(0, I)) ≥ I(X;Z)
    entropy rate     H(N(0, I)) - H(Z|X) = -E Σ log σ                             VUB's information plane
    mixture          E[ log p(z|x) - log 1/B Σ_j p(z|x_j) ] ≤ min(I(X;Z), log B)  leaving x itself out: ≥ I(X;Z)
    pairwise         -E log 1/B Σ_j exp(-D(p_i, p_j))      encloses the mixture's information; D = KL above, D_B below

Nothing here looks at a number on the host: on a GPU that would wait for the device at every step.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from isthmus.arithmetic.randomness import BatchStream, draw_from


def mean_spread(features: Tensor, mask: Tensor) -> Tensor:
    """Mean of ½‖t - t'‖² over all pairs of the rows in the mask: the trace of their (biased) covariance."""
    weight = mask.reshape(-1, 1).to(features.dtype)
    rows = features.reshape(-1, features.shape[-1]) * weight
    count = weight.sum().clamp(min=1)
    mean = rows.sum(dim=0) / count
    return rows.square().sum() / count - mean.square().sum()


def sample_spread(features: Tensor, mask: Tensor, stream: torch.Generator | BatchStream) -> Tensor:
    """The same with one random partner for each row; its expectation is `mean_spread`."""
    rows = features.reshape(-1, features.shape[-1])
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    apart = functional.mse_loss(rows, rows.index_select(0, partners(mask, stream)), reduction="sum")
    return apart * (0.5 / mask.sum().clamp(min=1))


def partners(mask: Tensor, stream: torch.Generator | BatchStream) -> Tensor:
    """A random partner for every row in the mask, with replacement; others are their own partners [rows]."""
    valid = mask.reshape(-1).bool()
    # Valid rows first, so that the i-th valid row is the i-th of the order.
    order = torch.argsort((~valid).to(torch.uint8), stable=True)
    draws = draw_from(stream, "uniform", valid.shape, valid.device)
    drawn = order[(draws * valid.sum()).long()]
    return torch.where(valid, drawn, torch.arange(len(valid), device=valid.device))


class Critic(nn.Module):
    """Scores how well the features of a word and a sentence match: Linear - ReLU - Linear - Softplus."""

    def __init__(self, local: int, whole: int, width: int = 300, learning_rate: float | None = None) -> None:
        """With a learning rate, the critic is trained at that rate; without one, or at 0, at the model's."""
        super().__init__()
        self.own_learning_rate = learning_rate or None
        self.first = nn.Linear(local + whole, width)
        self.second = nn.Linear(width, 1)

    def halves(self, local: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """The two parts of the first layer's sum, so that a pair costs an addition and no product."""
        # W [local, whole] = W₁ local + W₂ whole.
        of_local, of_whole = torch.split(self.first.weight, [local.shape[-1], whole.shape[-1]], dim=1)
        return functional.linear(local, of_local), functional.linear(whole, of_whole, self.first.bias)

    def score(self, left: Tensor, right: Tensor) -> Tensor:
        """Scores of halves that broadcast against each other."""
        return functional.softplus(self.second(functional.relu(left + right))).squeeze(-1)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """The score of each pair of rows."""
        return self.score(*self.halves(local, whole))

    def matrix(self, left: Tensor, right: Tensor) -> Tensor:
        """S[i, j] = f(local j, whole i) for halves [chunks, C, width]; where they are many the sums are not kept."""
        pair = left.unsqueeze(1), right.unsqueeze(2)  # [chunks, 1, C, width], [chunks, C, 1, width]
        if left.numel() * left.shape[1] <= _KEPT:
            return self.score(*pair)
        scores: Tensor = checkpoint(self.score, *pair, use_reentrant=False, preserve_rng_state=False)
        return scores


_KEPT = 2**22
"""Numbers that may be kept for the backward pass rather than computed again."""
_AT_ONCE = 2**24
"""Numbers that are computed at once: enough to fill a GPU, few enough for any memory."""


class Chunks:
    """Chunks of pairs to tell apart: the places that hold a pair, and the weight of each in the mean.

    All of it follows from how many pairs there are, whichever they are: so several passes over a batch can share it.
    """

    def __init__(self, pairs: Tensor, most: int, size: int) -> None:
        """Chunks of `size` for at most `most` pairs; unused places stay empty."""
        self.size = max(1, min(size, most))
        self.places = max(1, -(-most // self.size)) * self.size
        there = (torch.arange(self.places, device=pairs.device) < pairs).view(-1, self.size)  # [chunks, size]
        count = there.sum(dim=1, keepdim=True)  # [chunks, 1]
        self.weight = there / (count * (count > 0).sum()).clamp(min=1)  # [chunks, size]
        self.bound = (self.weight * count.clamp(min=1).log()).sum()
        # The lowest number and not infinity, so that a chunk without pairs does not become infinite minus infinite.
        self.absent = torch.zeros_like(self.weight).masked_fill_(~there, torch.finfo(torch.float32).min).unsqueeze(1)

    def mean(self, scores: Tensor) -> Tensor:
        """Mean InfoNCE over the chunks with a pair in them, of scores [chunks, size, size]."""
        against = (scores + self.absent).logsumexp(dim=2)  # [chunks, size]
        return ((scores.diagonal(dim1=1, dim2=2) - against) * self.weight).sum() + self.bound


def info_nce(
    critic: Critic,
    local: Tensor,
    whole: Tensor,
    chosen: Tensor,
    chunks: Chunks,
    stream: torch.Generator | BatchStream,
) -> Tensor:
    """InfoNCE of the chosen words [batch, length] with their sentences, in shuffled chunks of pairs.

    The negatives of a pair are the other chosen words of its chunk. A value of one batch: two halves of a batch have
    other chunks, and the mean of their values is not its value.
    """
    keys = draw_from(stream, "uniform", chosen.shape, chosen.device)  # [batch, length]
    # The chosen ones, whose keys become negative, come first and in random order.
    order = torch.add(keys, chosen, alpha=-1).view(-1).argsort()[: chunks.places]  # [chunks * size]
    if len(order) < chunks.places:
        order = functional.pad(order, (0, chunks.places - len(order)))
    left, right = critic.halves(local.flatten(0, 1).index_select(0, order), whole)
    right = right.index_select(0, order // chosen.shape[1])  # the sentence of each word
    left, right = (half.view(-1, chunks.size, half.shape[-1]) for half in (left, right))  # [chunks, size, width]
    together = max(1, _AT_ONCE // (left.shape[-1] * chunks.size**2))
    parts = zip(torch.split(left, together), torch.split(right, together), strict=True)
    scores = [critic.matrix(*part).float() for part in parts]
    return chunks.mean(torch.cat(scores) if len(scores) > 1 else scores[0])


def info_nce_within(critic: Critic, local: Tensor, whole: Tensor, chosen: Tensor, others: Tensor) -> Tensor:
    """InfoNCE of the chosen words of each sentence, with the other words of the same sentence as negatives."""
    left, right = critic.halves(local, whole.unsqueeze(1))
    scores = critic.score(left, right).float()  # [batch, length]
    lowest = torch.finfo(scores.dtype).min
    against = scores.masked_fill(~others, lowest).logsumexp(dim=1, keepdim=True)
    count = others.sum(dim=1, keepdim=True) + 1
    value = scores - torch.logaddexp(scores, against) + count.float().log()
    return (value * chosen).sum() / chosen.sum().clamp(min=1)


def gaussian_log_density(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log N(values; mean, diag exp(log_variance)), summed over the last dimension."""
    square = (values - mean).square() * torch.exp(-log_variance)
    return -0.5 * (square + log_variance + math.log(2 * math.pi)).sum(dim=-1)


def club(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """CLUB of rows with the densities q(t | x) = N(mean(x), diag exp(log_variance(x))), over all pairs."""
    own = gaussian_log_density(values, mean, log_variance).mean()
    # Over all pairs [x, value].
    other = gaussian_log_density(values.unsqueeze(0), mean.unsqueeze(1), log_variance.unsqueeze(1)).mean()
    return own - other


def rate(mean: Tensor, deviation: Tensor) -> Tensor:
    """KL(N(mean, deviation²) ‖ N(0, I)) of every row, in nats."""
    value: Tensor = _RateFunction.apply(mean, deviation)  # type: ignore[no-untyped-call]
    return value


class _RateFunction(torch.autograd.Function):
    """The rate, with its gradient written out (μ and σ - 1/σ): a third of the jobs of going back by the formula."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, deviation: Tensor) -> Tensor:
        ctx.save_for_backward(mean, deviation)
        squares = torch.addcmul(deviation.square(), mean, mean)
        return 0.5 * (torch.sub(squares, deviation.log(), alpha=2).sum(dim=-1) - mean.shape[-1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = ctx.saved_tensors
        gradient = gradient.unsqueeze(-1)
        return gradient * mean, gradient * (deviation - deviation.reciprocal())


def gaussian_entropy(deviation: Tensor) -> Tensor:
    """Entropy ½ Σ log(2πe σ²) of every row, in nats."""
    return (deviation.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)


def entropy_rate(deviation: Tensor) -> Tensor:
    """H(N(0, I)) - H(N(·, deviation²)) of every row, in nats: what VUB calls the rate."""
    return gaussian_entropy(torch.ones_like(deviation)) - gaussian_entropy(deviation)


def mixture_information(values: Tensor, mean: Tensor, deviation: Tensor, *, leave_out: bool = False) -> Tensor:
    """log p(values_i | x_i) - log of the mean of p(values_i | x_j) over j, of every row i, in nats.

    With x_i among the j its mean bounds I(X;Z) from below and never exceeds log B; without it, from above.
    """
    values, mean, deviation = values.double(), mean.double(), deviation.double()
    precision = deviation.pow(-2)
    constant = -0.5 * (mean.square() * precision + math.log(2 * math.pi)).sum(dim=-1) - deviation.log().sum(dim=-1)
    own = gaussian_log_density(values, mean, 2 * deviation.log())
    # [values, components]: the square of a Gaussian's exponent multiplied out, so that all pairs are two products.
    scores = constant + values @ (mean * precision).T - 0.5 * values.square() @ precision.T
    count = len(values)
    if leave_out:
        scores = scores.masked_fill(torch.eye(count, dtype=torch.bool, device=scores.device), -math.inf)
    return own - (scores.logsumexp(dim=1) - math.log(max(1, count - leave_out)))


def pairwise_bounds(mean: Tensor, deviation: Tensor, rows: int = 2**22) -> tuple[Tensor, Tensor]:
    """The contribution of each x to Kolchinsky and Tracey's lower and upper bound on I(X;Z), in nats.

        -log 1/B Σ_j exp(-D(p_i, p_j))      D the Bhattacharyya distance for the lower, KL for the upper bound

    The means over i enclose the information of a mixture of just these B Gaussians, without a draw of z. Neither
    exceeds log B, so that for I(X;Z) of the whole population the upper one is a bound only well below log B.
    """
    mean, deviation = mean.double(), deviation.double()
    variance, log_deviation = deviation.square(), deviation.log()
    precision, half_log = variance.reciprocal(), log_deviation.sum(dim=-1)
    # Σ (σ_i² + (μ_i - μ_j)²) / σ_j² multiplied out, so that all pairs [i, j] are two products.
    squares = (variance + mean.square()) @ precision.T - 2 * mean @ (mean * precision).T
    squares = squares + (mean.square() * precision).sum(dim=-1)
    divergence = 0.5 * (squares - mean.shape[-1]) + half_log - half_log.unsqueeze(1)  # [i, j] = KL(p_i ‖ p_j)
    divergence.fill_diagonal_(0.0)
    distances = []
    for part in torch.split(torch.arange(len(mean)), max(1, rows // mean.numel())):
        total = variance[part].unsqueeze(1) + variance  # [part, B, latent]
        # ¼ Σ (μ_i - μ_j)² / (σ_i² + σ_j²), and ½ Σ log of arithmetic over geometric mean of the two variances.
        apart = 0.25 * ((mean[part].unsqueeze(1) - mean).square() / total).sum(dim=-1)
        shapes = 0.5 * (total / 2).log().sum(dim=-1) - 0.5 * (half_log[part].unsqueeze(1) + half_log)
        distances.append(apart + shapes)  # [part, B]
    count = math.log(len(mean))
    return count - (-torch.cat(distances)).logsumexp(dim=1), count - (-divergence).logsumexp(dim=1)
