"""Figures of the theorems: the two Gaussians of Theorem 1, and bounds beside the true values on random examples."""

from __future__ import annotations

import numpy as np

from isthmus.core.types import Doubles
from isthmus.measures._theory import DiscreteToy, TwoGaussians, infobert_theorem_3_2, merging_toy, theorem_2
from isthmus.measures.base import Plot, Series

EXAMPLE = TwoGaussians(np.array([[-1.0, -0.4], [1.0, 0.4]]), np.array([[1.0, 0.75], [0.75, 1.0]]))
"""Classes whose direction of largest distance is not the one that tells them apart."""


def gaussians_plot(gaussians: TwoGaussians = EXAMPLE, n: int = 400, seed: int = 0) -> Plot:
    """Plot inputs of both classes, the oracle θᵀx = c, and a rule that joins the means and ignores the covariance."""
    x, labels = gaussians.draw(n, seed)
    clouds = [Series(f"class {y}", tuple(x[labels == y, 0]), tuple(x[labels == y, 1])) for y in (0, 1)]
    spread = 1.1 * float(np.abs(x).max())
    joined = gaussians.means[1] - gaussians.means[0]
    lines = [
        _make_line("oracle, the minimal sufficient statistic", gaussians.direction, gaussians.threshold, spread),
        _make_line("another statistic", joined, float(joined @ gaussians.means.mean(axis=0)), spread),
    ]
    told = [gaussians.label_information(direction) for direction in (gaussians.direction, joined)]
    return Plot(
        "theorem-1-gaussians",
        "Two Gaussians: the minimal sufficient statistic is the oracle",
        "x₁",
        "x₂",
        (*clouds, *lines),
        kind="scatter",
        caption=(
            f"The statistic θᵀx tells {told[0]:.3f} nats of the label, which is all there is; the other tells "
            f"{told[1]:.3f}. Its adversarial examples lie between the two lines. Bayes error "
            f"{100 * gaussians.bayes_error:.1f} %; {n} draws."
        ),
    )


def theorems_plot(toys_seed: int = 0, number: int = 200) -> Plot:
    """Plot |I(Y;T) - I(Y;T')| of random examples in order, with the sound and the printed bound."""
    stream = np.random.default_rng(toys_seed)
    claims = []
    for _ in range(number):
        inputs, features = (int(stream.integers(2, most)) for most in (9, 7))
        claims.append(theorem_2(DiscreteToy.random(stream, inputs, features, 2)))
    claims.sort(key=lambda claim: claim.bound)
    place = tuple(float(index) for index in range(number))
    below = sum(claim.printed < claim.truth for claim in claims if claim.printed is not None)
    other = infobert_theorem_3_2(merging_toy())
    return Plot(
        "theorem-2-toys",
        "What an attack takes from I(Y;T), and what is said to bound it",
        "toys, by the sound bound",
        "nats",
        (
            Series("truth", place, tuple(claim.truth for claim in claims)),
            Series("sound, 2 |T| ψ(Lε)", place, tuple(claim.bound for claim in claims)),
            Series("printed", place, tuple(claim.printed or 0.0 for claim in claims)),
        ),
        kind="scatter",
        log="y",
        caption=(
            f"The printed form, with the constants of InfoBERT's proof, lies below the truth for {below} of {number} "
            f"toys. InfoBERT's Theorem 3.2 for two inputs that an attack makes one: gap {other.truth:.2f} nats, "
            f"printed bound {other.printed:.1f}."
        ),
    )


def _make_line(name: str, direction: Doubles, threshold: float, spread: float) -> Series:
    """The part of aᵀx = c inside a square around 0."""
    along = np.array([-direction[1], direction[0]]) / float(np.abs(direction).max())
    foot = direction * threshold / float(direction @ direction)
    ends = foot + spread * np.array([[-1.0], [1.0]]) * along
    return Series(name, tuple(ends[:, 0]), tuple(ends[:, 1]), reference=True)
