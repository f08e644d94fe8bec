"""Projected gradient ascent on the embedding sequence of a text, through everything that reads it.

    δ  <-  Π( δ + a ε g / ‖g‖ ),    Π(δ) = δ min(1, ε / ‖δ‖)
    g   =  1/k Σ_j ∂ (f_c - f_y)(e + δ, ω_j) / ∂ δ            expectation over transformation: k draws ω_j

e is the flattened sequence of word embeddings of all tokens, before positions and normalisation; a text is never padded
here. The norm is L2, so that ε is the quantity that the Gaussian certificate calls its radius. f are logits, y is the
class to leave and c another one: restarts take the other classes in turn, the likeliest first, and begin at the text;
once every class had its turn they begin at random points of the ball. On a linear model a turn is exact: it ends at the
point of the ball that is nearest to the class, so that the answer flips as soon as ε exceeds
min_c |f_c - f_y| / ‖w_c - w_y‖ and never before.

What a reader does with a word that it masks cannot be differentiated; the gradient passes straight through to the word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Floats, Ints
from isthmus.models.machine import fewest_rows
from isthmus.models.randomness import branch, copied, keyed_normal, keyed_uniform
from isthmus.models.transfer import Inputs, picked

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier
    from isthmus.models.masking import Gradient

Tokens = Literal["all", "words"]
_TOKENS_AT_ONCE = {"cpu": 1 << 13, "cuda": 1 << 16}
_STREAM = derive(0, "point of a ball")
_INSIDE = 1.0 - 1e-6
"""Share of the radius that is used, so that no rounding leaves the ball."""


class Reader(Protocol):
    """A classifier that reads embedding sequences, perhaps with randomness of its own."""

    @property
    def model(self) -> Classifier:
        """What it reads with."""

    @property
    def stochastic(self) -> bool:
        """Whether the same row may be answered differently twice."""

    def margin_gradient(self, inputs: Inputs, target: Tensor, rival: Tensor) -> Gradient:
        """Gradient of f_rival - f_target with respect to ``inputs.embeddings``, for the draw of each row's key."""


class Answering(Reader, Protocol):
    """A reader that also tells what it answers, by whatever procedure it answers with."""

    def scores_at(self, inputs: Inputs) -> Floats:
        """Class probabilities of rows whose embeddings are given, for the draw of each row's key."""


class Found(NamedTuple):
    """Where an attack ended."""

    offset: Tensor  # δ [rows, length, width]
    fooled: Tensor  # share of the attack's own draws that left the class there [rows]
    blind: Tensor  # True where there was no gradient at the text, or one that is not a number [rows]


@dataclass(frozen=True)
class Ascent:
    """The settings of an attack; call it on rows of one length."""

    steps: int = 10
    step: float | None = None
    """a: length of a step as a share of the radius; by default 2.5 / steps."""
    restarts: int = 2
    draws: int = 8
    """k: draws over which the gradient of a randomised reader is averaged."""
    tokens: Tokens = "all"
    """What may be moved: every token, as the certificate has it, or words alone."""

    def __post_init__(self) -> None:
        for name in ("steps", "restarts", "draws"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.tokens not in get_args(Tokens):
            raise UsageError(f"tokens is one of {', '.join(get_args(Tokens))}, not {self.tokens!r}")
        if self.step is not None and not (math.isfinite(self.step) and self.step * self.steps >= 1):
            raise UsageError(
                f"{self.steps} steps of {self.step:g} of the radius do not reach its end: give a step of at least "
                f"{1 / self.steps:g}"
            )

    def __call__(
        self, reader: Reader, inputs: Inputs, target: Tensor, radius: Tensor, start: Tensor | None = None
    ) -> Found:
        """Leave the class `target` within each row's `radius`.

        Args:
            reader: What is attacked.
            inputs: Rows of one length, each with a key that all draws of the attack come from.
            target: The class to leave [rows].
            radius: Of each row's ball [rows].
            start: Points of the balls where the first turn begins, if not at the texts.
        """
        with torch.no_grad():
            return _Work(self, reader, inputs, target, radius).run(start)


class _Slope(NamedTuple):
    """What the draws at one point say."""

    values: Tensor  # mean gradient
    logits: Tensor  # mean logits
    fooled: Tensor  # share of draws that left the class
    margin: Tensor  # mean over draws of how far the best other class leads

    @property
    def score(self) -> Tensor:
        """Order of points: a larger share of draws comes first, then a larger margin."""
        margin = self.margin.double()
        return self.fooled.double() + 1e-4 * margin / (1 + margin.abs())


class _Work:
    """One attack on rows of one length."""

    def __init__(self, settings: Ascent, reader: Reader, inputs: Inputs, target: Tensor, radius: Tensor) -> None:
        self.settings, self.reader = settings, reader
        self.inputs = picked(inputs, torch.arange(inputs.rows, device=inputs.ids.device))
        self.target, self.radius = target[: inputs.rows], radius[: inputs.rows].double()
        self.embeddings = reader.model.embed(self.inputs.ids).float()
        self.free = movable(reader.model, self.inputs.ids, settings.tokens)
        self.draws = settings.draws if reader.stochastic else 1

    def run(self, start: Tensor | None) -> Found:
        """Take every turn, and keep the best point of all."""
        classes, here = len(self.reader.model.labels), torch.zeros_like(self.embeddings)
        slope = self._slope(here, (self.target + 1) % classes, "order")
        flat = slope.values.flatten(1)
        blind = ~(flat.isfinite().all(dim=1) & (flat != 0).any(dim=1))
        order = slope.logits.scatter(1, self.target.unsqueeze(1), -math.inf).sort(
            dim=1, descending=True, stable=True
        ).indices[:, : classes - 1]  # fmt: skip
        best, score, fooled = here, torch.full_like(self.radius, -math.inf), torch.zeros_like(slope.fooled)
        for turn in range(self.settings.restarts):
            if turn == 0 and start is not None:
                point = self._projected(start)
            else:
                point = here if turn < classes - 1 else self._random_point(turn)
            for number in range(self.settings.steps + 1):
                slope = self._slope(point, order[:, turn % (classes - 1)], "ascent", turn, number)
                better = slope.score > score
                score, fooled = slope.score.where(better, score), slope.fooled.where(better, fooled)
                best = point.where(better.view(-1, 1, 1), best)
                if number < self.settings.steps:
                    point = self._moved(point, slope.values)
            if not self.reader.stochastic and bool((fooled > 0).all()):
                break
        return Found(best, fooled, blind)

    def _slope(self, point: Tensor, rival: Tensor, *purpose: str | int) -> _Slope:
        """Gradient and logits at a point, averaged over draws; the draws of as many as fit go together."""
        assert self.inputs.keys is not None
        rows, keys = len(self.inputs.ids), copied(branch(self.inputs.keys, *purpose), self.draws).view(-1, self.draws)
        at = self.inputs._replace(embeddings=self.embeddings + point)
        total, parts = torch.zeros_like(point), []
        for start, copies in _portions(self.draws, self.inputs.ids):
            own = _copies(at, keys[:, start : start + copies])
            row = torch.arange(len(own.ids), device=own.ids.device).clamp(max=rows * copies - 1) // copies
            found = self.reader.margin_gradient(own, self.target[row], rival[row])
            total = total + found.values[: own.rows].view(rows, copies, *point.shape[1:]).sum(dim=1)
            parts.append(found.logits[: own.rows].view(rows, copies, -1))
        logits = torch.cat(parts, dim=1)
        target = self.target.view(-1, 1, 1).expand(-1, self.draws, 1)
        others = logits.scatter(2, target, -math.inf).amax(dim=-1)
        return _Slope(
            total / self.draws,
            logits.mean(dim=1),
            (logits.argmax(dim=-1) != self.target.unsqueeze(1)).double().mean(dim=1),
            (others - logits.gather(2, target).squeeze(-1)).mean(dim=1),
        )

    def _moved(self, point: Tensor, gradient: Tensor) -> Tensor:
        """One step uphill, and back into the ball."""
        share = 2.5 / self.settings.steps if self.settings.step is None else self.settings.step
        return self._projected(point + self._of_radius(share) * _unit(gradient * self.free))

    def _random_point(self, turn: int) -> Tensor:
        """Uniform in the ball."""
        assert self.inputs.keys is not None
        direction = random_directions(self.inputs.keys, self.embeddings.shape, turn, self.free)
        size = self.free.flatten(1).sum(dim=1) * self.embeddings.shape[-1]
        length = keyed_uniform(self.inputs.keys, (len(size), 1), _STREAM + turn).double().view(-1)
        return self._projected(direction * self._of_radius(length ** (1 / size.clamp(min=1))))

    def _of_radius(self, share: float | Tensor) -> Tensor:
        return (share * self.radius).float().view(-1, 1, 1)

    def _projected(self, point: Tensor) -> Tensor:
        """The nearest point of the ball."""
        length: Tensor = point.flatten(1).double().norm(dim=1)
        share = (_INSIDE * self.radius / length.clamp_min(1e-300)).clamp(max=1.0)
        return point * share.float().view(-1, 1, 1)


def movable(model: Classifier, ids: Tensor, tokens: Tokens) -> Tensor:
    """True where embeddings may be moved [rows, length, 1]."""
    special = model.special_mask(ids)
    return (torch.ones_like(special) if tokens == "all" else ~special).unsqueeze(-1)


def random_directions(keys: Tensor, shape: Sequence[int], stream: int, free: Tensor) -> Tensor:
    """A vector of length 1 for every row, all directions of what is free alike."""
    return _unit(keyed_normal(keys, shape, _STREAM + stream) * free)


def answers(reader: Answering, inputs: Inputs, offset: Tensor | None, draws: int) -> Ints:
    """What is answered to every row moved by `offset`, once for each draw [rows, draws]; -1: not a number."""
    assert inputs.keys is not None
    with torch.no_grad():
        at = picked(inputs, torch.arange(inputs.rows, device=inputs.ids.device))
        embeddings = reader.model.embed(at.ids).float()
        at = at._replace(embeddings=embeddings if offset is None else embeddings + offset)
        assert at.keys is not None
        keys = copied(branch(at.keys, "judged"), draws).view(-1, draws)
        found = []
        for start, copies in _portions(draws, at.ids):
            scores = reader.scores_at(_copies(at, keys[:, start : start + copies]))
            whole = np.isfinite(scores).all(axis=1)
            chosen = np.where(whole, np.nan_to_num(scores).argmax(axis=1), -1)
            found.append(chosen.reshape(-1, copies))
    return np.concatenate(found, axis=1)


def _portions(draws: int, ids: Tensor) -> Iterator[tuple[int, int]]:
    """First number and count of draws that go through a model together."""
    most = _TOKENS_AT_ONCE.get(ids.device.type, _TOKENS_AT_ONCE["cpu"])
    at_once = max(1, most // max(1, ids.numel()))
    for start in range(0, draws, at_once):
        yield start, min(at_once, draws - start)


def _copies(inputs: Inputs, keys: Tensor) -> Inputs:
    """Every row once for each of its keys [rows, copies], filled up to as many rows as keep their bits."""
    rows = torch.arange(keys.numel(), device=keys.device)
    least = fewest_rows() if keys.device.type == "cpu" else 1
    found = picked(inputs, rows // keys.shape[1], least)
    own = keys.reshape(-1)
    return found._replace(keys=torch.cat([own, own[-1:].expand(len(found.ids) - len(own))]))


def _unit(values: Tensor) -> Tensor:
    """Each row with length 1; a row of zeros, or of what is no number, becomes zeros."""
    values = values.nan_to_num(0.0, 0.0, 0.0)
    flat = values.flatten(1)
    # The largest number first: squares of small ones would vanish.
    values = values / flat.abs().amax(dim=1).clamp_min(1e-38).view(-1, 1, 1)
    length: Tensor = values.flatten(1).norm(dim=1)
    return values / length.clamp_min(1e-38).view(-1, 1, 1)
