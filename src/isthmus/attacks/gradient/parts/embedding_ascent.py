"""The ascent of `margin_pgd` in L2 balls around the embedding sequences of texts, for measures and certificates.

    δ  <-  Π( δ + a ε g / ‖g‖ ),    Π(δ) = δ min(1, ε / ‖δ‖)
    g   =  1/k Σ_j ∂ (f_c - f_y)(e + δ, ω_j) / ∂ δ            expectation over transformation: k draws ω_j

It differs from `margin_pgd` in what it is given: rows of one length without padding, a radius and a starting point for
each, a class to leave that need not be the label, and new draws at every step. On a linear model a turn is exact: it
ends at the point of the ball that is nearest to the class, so that the answer flips as soon as ε exceeds
min_c |f_c - f_y| / ‖w_c - w_y‖ and never before.

What a reader does with a word that it masks cannot be differentiated; the gradient passes straight through to the word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from isthmus.arithmetic.randomness import branch, copy_keys, draw_uniform
from isthmus.arithmetic.transfer import Inputs, pick_rows
from isthmus.attacks.gradient.parts.embedding_ball import (
    STREAM,
    BallReader,
    Tokens,
    copies_of,
    movable,
    portions,
    random_directions,
    unit_directions,
)
from isthmus.attacks.gradient.parts.turns import Best, TurnSlope, classes_in_turn, take_turn
from isthmus.core.errors import UsageError

_INSIDE = 1.0 - 1e-6
"""Share of the radius that is used, so that rounding does not leave the ball."""


class Found(NamedTuple):
    """The result of an attack: final points and predictions."""

    offset: Tensor  # δ [rows, length, width]
    fooled: Tensor  # share of the attack's own draws that left the class there [rows]
    blind: Tensor  # True where there was no gradient at the text, or one that is not a number [rows]


@dataclass(frozen=True)
class EmbeddingAscent:
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
        self, reader: BallReader, inputs: Inputs, target: Tensor, radius: Tensor, start: Tensor | None = None
    ) -> Found:
        """Search for a point of another class than `target` within each row's `radius`.

        Args:
            reader: What is attacked.
            inputs: Rows of one length, each with a key that all draws of the attack come from.
            target: The class to leave [rows].
            radius: Of each row's ball [rows].
            start: Points of the balls where the first turn begins, if not at the texts.
        """
        with torch.no_grad():
            return _Work(self, reader, inputs, target, radius).run(start)


class _Work:
    """One attack on rows of one length, while it runs."""

    def __init__(
        self, settings: EmbeddingAscent, reader: BallReader, inputs: Inputs, target: Tensor, radius: Tensor
    ) -> None:
        self.settings, self.reader = settings, reader
        self.inputs = pick_rows(inputs, torch.arange(inputs.rows, device=inputs.ids.device))
        self.target, self.radius = target[: inputs.rows], radius[: inputs.rows].double()
        self.embeddings = reader.model.embed(self.inputs.ids).float()
        self.free = movable(reader.model, self.inputs.ids, settings.tokens)
        self.draws = settings.draws if reader.stochastic else 1

    def run(self, start: Tensor | None) -> Found:
        """Run every turn, and keep the best point of all."""
        classes, here = len(self.reader.model.labels), torch.zeros_like(self.embeddings)
        slope = self._slope(here, (self.target + 1) % classes, "order")
        flat = slope.values.flatten(1)
        blind = ~(flat.isfinite().all(dim=1) & (flat != 0).any(dim=1))
        order = classes_in_turn(slope.logits, self.target)
        best = Best.unknown(here)
        for turn in range(self.settings.restarts):
            if turn == 0 and start is not None:
                point = self._project(start)
            else:
                point = here if turn < classes - 1 else self._random_point(turn)

            def slope_at(at: Tensor, number: int, turn: int = turn) -> TurnSlope:
                return self._slope(at, order[:, turn % (classes - 1)], "ascent", turn, number)

            best = take_turn(point, self.settings.steps, slope_at, self._move, best)
            if not self.reader.stochastic and bool((best.fooled > 0).all()):
                break
        return Found(best.point, best.fooled, blind)

    def _slope(self, point: Tensor, rival: Tensor, *purpose: str | int) -> TurnSlope:
        """Gradient and logits at a point, averaged over draws, as many draws at once as fit."""
        assert self.inputs.keys is not None
        rows, keys = (
            len(self.inputs.ids),
            copy_keys(branch(self.inputs.keys, *purpose), self.draws).view(-1, self.draws),
        )
        at = self.inputs._replace(embeddings=self.embeddings + point)
        total, parts = torch.zeros_like(point), []
        for start, copies in portions(self.draws, self.inputs.ids):
            own = copies_of(at, keys[:, start : start + copies])  # row r * copies + j is draw j of row r; some fill up
            row = torch.arange(len(own.ids), device=own.ids.device).clamp(max=rows * copies - 1) // copies
            found = self.reader.margin_gradient(own, self.target[row], rival[row])
            total = total + found.values[: own.rows].view(rows, copies, *point.shape[1:]).sum(dim=1)
            parts.append(found.logits[: own.rows].view(rows, copies, -1))
        logits = torch.cat(parts, dim=1)
        target = self.target.view(-1, 1, 1).expand(-1, self.draws, 1)
        others = logits.scatter(2, target, -math.inf).amax(dim=-1)  # [rows, draws]
        return TurnSlope(
            total / self.draws,
            logits.mean(dim=1),
            (logits.argmax(dim=-1) != self.target.unsqueeze(1)).double().mean(dim=1),
            (others - logits.gather(2, target).squeeze(-1)).mean(dim=1),
        )

    def _move(self, point: Tensor, gradient: Tensor) -> Tensor:
        """Make a step along the gradient, and project back into the ball."""
        share = 2.5 / self.settings.steps if self.settings.step is None else self.settings.step
        return self._project(point + self._of_radius(share) * unit_directions(gradient * self.free))

    def _random_point(self, turn: int) -> Tensor:
        """A uniform random point of the ball."""
        assert self.inputs.keys is not None
        direction = random_directions(self.inputs.keys, self.embeddings.shape, turn, self.free)
        size = self.free.flatten(1).sum(dim=1) * self.embeddings.shape[-1]
        length = draw_uniform(self.inputs.keys, (len(size), 1), STREAM + turn).double().view(-1)
        # In d dimensions the share of a ball within radius r is r^d.
        return self._project(direction * self._of_radius(length ** (1 / size.clamp(min=1))))

    def _of_radius(self, share: float | Tensor) -> Tensor:
        return (share * self.radius).float().view(-1, 1, 1)

    def _project(self, point: Tensor) -> Tensor:
        """Project onto the ball."""
        length: Tensor = point.flatten(1).double().norm(dim=1)
        share = (_INSIDE * self.radius / length.clamp_min(1e-300)).clamp(max=1.0)
        return point * share.float().view(-1, 1, 1)
