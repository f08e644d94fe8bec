"""The attacks of the proof on images, and what of them goes into a cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import copy_keys, mix64, use_keys
from isthmus.attacks.gradient.auto import Auto
from isthmus.attacks.gradient.base import GradientAttack, GradientResult, GradientTarget
from isthmus.attacks.gradient.bim import BIM
from isthmus.attacks.gradient.cw import CW
from isthmus.attacks.gradient.deepfool import DeepFool
from isthmus.attacks.gradient.fgsm import FGSM
from isthmus.attacks.gradient.parts.ascent import random_start
from isthmus.attacks.gradient.parts.losses import margin, towards
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball, like
from isthmus.attacks.gradient.parts.targets import EncoderTarget
from isthmus.attacks.gradient.pgd import PGD
from isthmus.runs.settings import to_plain

DRAWS, FRESH, AVERAGED = 10, 20, 12
"""Draws that a search sees, draws that judge, draws whose mean probability is an answer."""
_ROWS = 1 << 20
"""Every image at once; the attacks themselves cut where memory asks for it."""


@dataclass(frozen=True, kw_only=True)
class MarginPGD(GradientAttack):
    """Steps on the margin from several random points, then towards each of the most likely other classes."""

    takes_targets = False

    epsilon: float = 0.3
    """Radius, l-inf."""
    steps: int = 40
    """Steps from one starting point, each of 2.5 epsilon / steps."""
    restarts: int = 3
    """Starting points of the ascent on the margin to the best other class."""
    rivals: int = 9
    """Classes that are aimed at, one ascent each."""

    def search(self, problem: Problem) -> Tensor:
        """One ascent after the other on the rows that are left; of all points the one furthest beyond is kept."""
        ball = Ball("linf", self.epsilon, problem.inputs, problem.space)
        found, rows = problem.inputs.clone(), problem.every
        best = torch.full((len(rows),), -math.inf, dtype=torch.float64, device=rows.device)
        aims: list[Tensor | None] = [None] * self.restarts
        aims += list(problem.rivals(self.rivals).unbind(1))
        for turn, aim in enumerate(aims):
            loss = margin if aim is None else towards(aim[rows])
            inside, points = ball.at(rows), random_start(problem, ball, rows, turn)
            for _ in range(self.steps):
                slope = problem.slope(rows, points, loss)
                points = inside.step(points, slope.gradient, 2.5 * self.epsilon / self.steps)
            points = inside.confine(points)
            logits = problem.logits(rows, points)
            ahead = margin(logits, problem.goal.at(rows))
            # More draws fooled come first, then a larger margin.
            value = (ahead > 0).double().mean(dim=1) + 1e-4 * torch.tanh(ahead.mean(dim=1))
            higher = value > best[rows]
            found[rows] = torch.where(like(higher, points), points, found[rows])
            best[rows] = torch.where(higher, value, best[rows])
            if not problem.stochastic:
                rows = rows[~problem.is_fooled(rows, logits)]
            if not len(rows):
                break
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Given(GradientAttack):
    """Images that were made elsewhere, put to a model as they are."""

    takes_targets = False

    points: Tensor
    """One for every row of the run."""

    def search(self, problem: Problem) -> Tensor:
        """The points of the rows that are asked about."""
        return self.points[problem.numbers]


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(GradientAttack):
    """Another attack, and whether its own draws are fooled where it ends."""

    attack: GradientAttack
    seen: dict[int, bool] = field(default_factory=dict)

    def check(self, inputs: Tensor, settings: Any) -> None:
        """As the attack does."""
        self.attack.check(inputs, settings)

    def search(self, problem: Problem) -> Tensor:
        """As the attack does; then ask the draws it saw."""
        found = self.attack.search(problem)
        fooled = problem.is_fooled(problem.every, problem.logits(problem.every, found))
        self.seen.update(zip(problem.numbers.tolist(), fooled.tolist(), strict=True))
        return found


class OnTop(nn.Module):
    """A frozen network, and the head that was trained on its vectors."""

    def __init__(self, network: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.network, self.top = network, head

    @property
    def stochastic(self) -> bool:
        """Whether the head draws."""
        return bool(self.top.stochastic)

    @property
    def slots(self) -> Any:
        """Those of the head."""
        return self.top.slots

    def backbone(self, pixels: Tensor) -> Tensor:
        """The network's vector."""
        found: Tensor = self.network.backbone(pixels)  # type: ignore[operator]
        return found

    def decode(self, vector: Tensor) -> Any:
        """What the head makes of it."""
        return self.top.decode(vector)  # type: ignore[operator]

    def forward(self, pixels: Tensor) -> Any:
        """Logits of pixels."""
        return self.decode(self.backbone(pixels))


def seen_by(model: Any, way: str) -> None:
    """Let a bottleneck answer by its mean code, or by draws."""
    if model.slots.bottleneck is not None:
        model.slots.bottleneck.inference = "sample" if way == "draws" else "mean"


def target_of(model: Any) -> GradientTarget | nn.Module:
    """What is attacked: a randomised model encodes once and decodes every draw."""
    return EncoderTarget(model, model.backbone, model.decode) if model.stochastic else model


def probabilities(model: Any, images: Tensor, draws: int) -> Tensor:
    """The mean probability over draws of a model as it is seen; each image has keys of its own [images, classes]."""
    found = []
    with torch.no_grad():
        for start in range(0, len(images), 2000):
            part = images[start : start + 2000]
            if not model.stochastic:
                found.append(model(part).logits.double().softmax(dim=-1))
                continue
            keys = mix64(torch.arange(start, start + len(part), device=images.device) + 1)
            with use_keys(model, copy_keys(keys, draws)):
                logits = model.decode(model.backbone(part).repeat_interleave(draws, dim=0)).logits
            found.append(logits.double().softmax(dim=-1).view(len(part), draws, -1).mean(dim=1))
    return torch.cat(found)


@dataclass(frozen=True)
class Outcome:
    """What an attack left, image by image."""

    marks: str
    summary: Mapping[str, Any]
    points: Tensor


def attacked(
    attack: GradientAttack, model: Any, images: Tensor, labels: Tensor, *, targets: Tensor | None = None
) -> Outcome:
    """Run an attack on a model as it is seen."""
    watched = Watched(attack=attack) if not isinstance(attack, Given) else attack
    result = watched.run(
        target_of(model), images, labels, targets=targets, seed=0, draws=DRAWS, fresh=FRESH, rows=_ROWS
    )
    summary = _summary(result)
    if isinstance(watched, Watched) and watched.seen and model.stochastic:
        # Of the images that were attacked: fooled on the draws the search saw, and on fresh ones.
        summary["attacked_draws"] = round(sum(watched.seen.values()) / len(watched.seen), 5)
        tried = ~result.skipped
        summary["fresh_draws"] = round(float(result.fooled[tried].mean()), 5)
    return Outcome(marks_of(result), summary, result.adversarial)


def marks_of(result: GradientResult) -> str:
    """One character an image, as the ledger has them."""
    pairs = zip(result.skipped.tolist(), result.success.tolist(), strict=True)
    return "".join("w" if skipped else "x" if success else "." for skipped, success in pairs)


def _summary(result: GradientResult) -> dict[str, Any]:
    n, tried = len(result.skipped), int((~result.skipped).sum())
    won = int(result.success.sum())
    found: dict[str, Any] = {
        "sacc": round(tried / n, 5),
        "racc": round((tried - won) / n, 5),
        "asr": round(won / tried, 5) if tried else None,
        "blind": int(result.blind.sum()),
    }
    if won:
        l2 = result.l2[result.success]
        found |= {"median_l2": round(float(l2.median()), 4), "mean_l2": round(float(l2.mean()), 4)}
    return found


def united(marks: list[str]) -> str:
    """An image holds where it holds under every attack."""
    return "".join("w" if "w" in each else "x" if "x" in each else "." for each in zip(*marks, strict=True))


def table1() -> dict[str, GradientAttack]:
    """The attacks of the paper's Tables 1 and 3, and CW with more weight, by column."""
    found: dict[str, GradientAttack] = {f"fgsm-{eps:g}": FGSM(epsilon=eps) for eps in (0.1, 0.3, 0.5)}
    found |= {"bim-0.2": BIM(epsilon=0.2), "pgd-0.2": PGD(epsilon=0.2), "deepfool": DeepFool(steps=100)}
    found |= {f"cw-c{c:g}": CW(c=c, searches=1, steps=500) for c in (0.1, 1.0, 10.0)}
    return {**found, "cw-search": CW(c=0.1, searches=6, steps=300)}


ON_DRAWS = ("fgsm-0.1", "fgsm-0.3", "fgsm-0.5", "bim-0.2", "pgd-0.2", "deepfool", "cw-c1")
"""Of those the ones that also attack through draws of the code."""


def masking(epsilon: float, draws: bool) -> dict[str, GradientAttack]:
    """White-box attacks at one radius, by column; Square asks a randomised model fewer times."""
    auto = Auto(epsilon=epsilon, queries=500 if draws else 2000, steps=50 if draws else 100)
    return {
        f"fgsm-{epsilon:g}": FGSM(epsilon=epsilon),
        f"pgd-{epsilon:g}": PGD(epsilon=epsilon),
        f"margin-{epsilon:g}": MarginPGD(epsilon=epsilon, rivals=5 if draws else 9),
        f"auto-{epsilon:g}": auto,
    }


def table2() -> dict[str, GradientAttack]:
    """The attacks of the paper's Table 2; every step is made, so that the code is that of the last point."""
    return {
        "fgsm-0.3": FGSM(epsilon=0.3),
        "bim-0.3": BIM(epsilon=0.3, stop=False),
        "pgd-0.3": PGD(epsilon=0.3, stop=False),
    }


def vub() -> dict[str, GradientAttack]:
    """FGS at two radii, and CW with a search for c."""
    return {
        "fgs-0.1": FGSM(epsilon=0.1),
        "fgs-0.5": FGSM(epsilon=0.5),
        "cw-targeted": CW(c=0.01, searches=6, steps=300),
    }


def described(name: str, attack: GradientAttack, **more: Any) -> dict[str, Any]:
    """An attack as a key has it."""
    settings = {"draws": DRAWS, "fresh": FRESH, "seed": 0}
    return {"name": name, "parameters": to_plain(attack), **settings, **more}
