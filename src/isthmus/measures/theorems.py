"""Theorems on information bottlenecks and robustness, compared with the true values on small examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from isthmus.core.errors import UsageError
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, SourceName, Subject


@dataclass(frozen=True)
class Theorems(Measure):
    """Theorem 1's two Gaussians, and bounds on I(Y;T) under attack on small random examples; uses no model.

        x | y ~ N(μ_y, Σ),   θ = Σ⁻¹ (μ₁ - μ₀):   θᵀx is minimal sufficient, and the oracle answers by it
        |I(Y;T) - I(Y;T')| <= 2 |T| ψ(L ε),   ψ(u) = u log(1/u) below 1/e, else 1/e          finite T

    The figures are the same for every run: they stand in its report so that what was measured can be read beside what
    is proven, and beside what is only printed.

    References:
        Improving Adversarial Robustness: An Information-Theoretic Perspective (2019), Theorems 1 and 2; Wang et al.
        (2021), InfoBERT, https://arxiv.org/abs/2010.02329, Theorem 3.2.

    Where we depart:
        Theorem 2 is drawn in a form that holds; the printed constants are drawn beside it.

    Relations:
        `lipschitz` and `information_bounds` measure L and I(X;T) of a model. `vulnerability` measures what an attack
        takes.

    Example:
        ``isthmus measure runs/vib --measure theorems``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ()
    takes: ClassVar[tuple[Option, ...]] = ("seed",)

    points: int = 400
    """Number of inputs drawn from the two Gaussians."""
    toys: int = 200
    """Number of random examples for which the bounds are computed."""

    def __post_init__(self) -> None:
        for name in ("points", "toys"):
            if getattr(self, name) < 2:
                raise UsageError(f"{self.name}: {name} is {getattr(self, name)}; at least 2 are needed")

    def measure(self, subject: Subject) -> Measurement:
        """Draw both figures."""
        from isthmus.measures._theory_plots import EXAMPLE

        told = EXAMPLE.label_information(EXAMPLE.direction)
        figures = (
            Figure("two Gaussians: Bayes error", EXAMPLE.bayes_error, share=True),
            Figure("two Gaussians: label information of the sufficient statistic (nats)", told),
        )
        return Measurement(figures, self.plots(subject.asked.seed))

    def plots(self, seed: int = 0) -> tuple[Plot, Plot]:
        """The two Gaussians, and the bounds; no run is needed."""
        from isthmus.measures._theory_plots import gaussians_plot, theorems_plot

        return gaussians_plot(n=self.points, seed=seed), theorems_plot(seed, self.toys)
