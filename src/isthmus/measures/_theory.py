"""Theorems of the IB-robustness paper and of InfoBERT, computed exactly on finite examples.

    Lemma 1       |p(t) - q(t)| ≤ L ε                                      holds
    Theorem 2     |I(Y;T) - I(Y;T')| ≤ 2 |T| ψ(L ε)                        holds in this form; that of the paper adds
                                                                           terms whose constants it does not give
    Theorem 4     δ' ≤ δ + 4τ + |T| L ε                                    holds, but the right side is at least 1
    InfoBERT 3.2  |I(Y;T) - I(Y;T')| ≤ log C + B ln(1/B) √(|T| I) + …      its second term is negative: no bound

ψ(u) = u ln(1/u) below 1/e, and 1/e above. p and q are the distributions of the features T of inputs and T' of attacked
inputs, L the Lipschitz constant of p(t|x), ε the length of the attack's largest step. All in nats.

References:
    Improving Adversarial Robustness: An Information-Theoretic Perspective (2019); Wang et al. (2021), InfoBERT,
    https://arxiv.org/abs/2010.02329, appendix A.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isthmus.core.errors import UsageError
from isthmus.core.types import Doubles


@dataclass(frozen=True)
class Claim:
    """The quantity of a theorem, the bound that holds, and the printed bound if that differs."""

    truth: float
    bound: float
    printed: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the bound holds, up to rounding."""
        return self.truth <= self.bound + 1e-12


@dataclass(frozen=True, eq=False)
class DiscreteToy:
    """A finite example: inputs on a line with their probabilities, labels and features, and an attack."""

    places: Doubles  # [inputs], no two alike
    inputs: Doubles  # [inputs], p(x)
    labels: Doubles  # [inputs, classes], p(y|x)
    encoder: Doubles  # [inputs, features], p(t|x)
    attack: NDArray[np.int64]  # [inputs], which input takes the place of each

    def __post_init__(self) -> None:
        if len(np.unique(self.places)) != len(self.places):
            raise UsageError("two inputs of a toy lie in the same place")
        for name in ("inputs", "labels", "encoder"):
            values = getattr(self, name)
            if (values < 0).any() or not np.allclose(values.sum(axis=-1), 1):
                raise UsageError(f"{name} of a toy are no probabilities")

    @classmethod
    def random(
        cls, stream: np.random.Generator, inputs: int, features: int, classes: int, reach: int = 1
    ) -> DiscreteToy:
        """A smooth random encoder on a line of inputs; the attack moves each by at most `reach` places."""
        places = np.sort(stream.uniform(0, 1, inputs))
        # Slopes of the features' log-probabilities: from nearly flat to steep encoders.
        slopes = stream.normal(size=(1, features)) * stream.choice([0.05, 0.5, 5.0, 50.0])
        encoder = _normalise(np.exp(places[:, None] * slopes + 0.1 * stream.normal(size=(1, features))))
        labels = _normalise(stream.gamma(0.3, size=(inputs, classes)) + 1e-9)
        steps = stream.integers(-reach, reach + 1, size=inputs)
        attack = np.clip(np.arange(inputs) + steps, 0, inputs - 1)
        return cls(places, _normalise(stream.gamma(1.0, size=inputs) + 1e-9), labels, encoder, attack)

    @property
    def lipschitz(self) -> float:
        """The smallest Lipschitz constant of p(t|x) that holds for every feature."""
        apart = np.abs(self.places[:, None] - self.places[None, :])
        change = np.abs(self.encoder[:, None, :] - self.encoder[None, :, :]).max(axis=2)
        return float((change / np.where(apart > 0, apart, np.inf)).max())

    @property
    def radius(self) -> float:
        """The longest step of the attack."""
        return float(np.abs(self.places - self.places[self.attack]).max())

    @property
    def features(self) -> Doubles:
        """p(t): the distribution of the features."""
        return self.inputs @ self.encoder

    @property
    def attacked_features(self) -> Doubles:
        """q(t): the distribution of the features under attack."""
        return self.inputs @ self.encoder[self.attack]

    @property
    def attacked_inputs(self) -> Doubles:
        """q(x): the distribution of the inputs under attack."""
        return np.asarray(np.bincount(self.attack, self.inputs, len(self.inputs)), dtype=np.float64)


def lemma_1(toy: DiscreteToy) -> Claim:
    """The distance between the features of attacked inputs and those of clean inputs."""
    return Claim(float(np.abs(toy.features - toy.attacked_features).max()), toy.lipschitz * toy.radius)


def theorem_2(toy: DiscreteToy) -> Claim:
    """The label information that an attack removes from the features.

    Printed is the paper's form with the constants that InfoBERT's proof of the same form has, since the paper gives
    none.
    """
    first = code_size(toy) * psi(toy.lipschitz * toy.radius)
    clean = _information_terms(information(toy.inputs[:, None] * toy.encoder), toy.inputs, _support(toy.features))
    moved = _information_terms(
        information(toy.attacked_inputs[:, None] * toy.encoder), toy.attacked_inputs, _support(toy.attacked_features)
    )
    return Claim(label_gap(toy), 2 * first, first + max(clean, moved))


def theorem_4(toy: DiscreteToy, first: NDArray[np.int64], second: NDArray[np.int64]) -> Claim:
    """How often an attack fails on the second of two heads on one encoder; heads map features to classes.

    Both draws of the features are independent given the input. τ is the larger error of the two heads. The bound is
    never below 1: an answer changes only where one of the two is wrong, hence 1 - δ ≤ 2τ + ½ |T| L ε.
    """
    delta = 1 - flip_rate(toy, first)
    tau = max(error(toy, first), error(toy, second))
    bound = delta + 4 * tau + code_size(toy) * toy.lipschitz * toy.radius
    return Claim(1 - flip_rate(toy, second), bound)


def infobert_theorem_3_2(toy: DiscreteToy, attacks_per_input: int = 1) -> Claim:
    """The gap for a text of one word, with InfoBERT's printed bound; 2 ln |T| always holds."""
    size = code_size(toy)
    printed = math.log(attacks_per_input)
    for chances in (toy.inputs, toy.attacked_inputs):
        printed += _information_terms(information(chances[:, None] * toy.encoder), chances, size)
    return Claim(label_gap(toy), 2 * math.log(size), printed)


def label_gap(toy: DiscreteToy) -> float:
    """|I(Y;T) - I(Y;T')|; an attacked input keeps its label."""
    chances = toy.inputs[:, None] * toy.labels  # [inputs, classes]
    return abs(information(chances.T @ toy.encoder) - information(chances.T @ toy.encoder[toy.attack]))


def code_size(toy: DiscreteToy) -> int:
    """|T|: the number of features that occur with or without the attack."""
    return _support(toy.features + toy.attacked_features)


def flip_rate(toy: DiscreteToy, head: NDArray[np.int64]) -> float:
    """How often the attack changes the prediction of a head."""
    classes = np.eye(int(head.max()) + 1)[head]  # [features, classes]
    before, after = toy.encoder @ classes, toy.encoder[toy.attack] @ classes
    return float(1 - toy.inputs @ (before * after).sum(axis=1))


def error(toy: DiscreteToy, head: NDArray[np.int64]) -> float:
    """How often a head is wrong without an attack."""
    return float(1 - toy.inputs @ (toy.encoder * toy.labels[:, head]).sum(axis=1))


def merging_toy() -> DiscreteToy:
    """Two equally likely inputs of different classes that an attack makes equal."""
    both = np.eye(2)
    return DiscreteToy(np.array([0.0, 1.0]), np.array([0.5, 0.5]), both, both, np.array([0, 0]))


def information(joint: ArrayLike) -> float:
    """Mutual information of a table of joint probabilities, in nats."""
    table = np.asarray(joint, dtype=np.float64)
    return _entropy(table.sum(axis=0)) + _entropy(table.sum(axis=1)) - _entropy(table)


def psi(u: float) -> float:
    """The largest change of -p ln p when p changes by u."""
    if u <= 0:
        return 0.0
    return -u * math.log(u) if u < 1 / math.e else 1 / math.e


@dataclass(frozen=True, eq=False)
class TwoGaussians:
    """Theorem 1's example: two equally likely classes with one covariance. The best rule uses a single number.

    x ~ N(μ_y, Σ),   θ = Σ⁻¹(μ₁ - μ₀),   θᵀx > c  says class 1,   c = ½(μ₁ᵀΣ⁻¹μ₁ - μ₀ᵀΣ⁻¹μ₀)
    """

    means: Doubles  # [2, width]
    covariance: Doubles  # [width, width]

    @property
    def direction(self) -> Doubles:
        """θ: the statistic θᵀx is minimal sufficient."""
        return np.asarray(np.linalg.solve(self.covariance, self.means[1] - self.means[0]), dtype=np.float64)

    @property
    def threshold(self) -> float:
        """c: the threshold of the statistic."""
        return float(self.direction @ self.means.mean(axis=0))

    @property
    def separation(self) -> float:
        """Distance of the two means in standard deviations along θ."""
        return math.sqrt(float(self.direction @ (self.means[1] - self.means[0])))

    @property
    def bayes_error(self) -> float:
        """The smallest possible error of any rule."""
        return 0.5 * math.erfc(self.separation / 2 / math.sqrt(2))

    def log_ratio(self, x: Doubles) -> Doubles:
        """log p(x | 1) - log p(x | 0) = θᵀx - c."""
        return np.asarray(x @ self.direction - self.threshold, dtype=np.float64)

    def draw(self, n: int, seed: int = 0) -> tuple[Doubles, NDArray[np.int64]]:
        """Draw n inputs with their classes."""
        stream = np.random.default_rng(seed)
        labels = stream.integers(2, size=n)
        noise = stream.normal(size=(n, self.means.shape[1])) @ np.linalg.cholesky(self.covariance).T
        return self.means[labels] + noise, labels

    def label_information(self, direction: Doubles) -> float:
        """I(Y; aᵀX) for a direction a, in nats: two Gaussians on a line, by quadrature."""
        apart = abs(float(direction @ (self.means[1] - self.means[0])))
        apart /= math.sqrt(float(direction @ self.covariance @ direction))
        t = np.linspace(-apart / 2 - 10, apart / 2 + 10, 20001)
        density = np.exp(-0.5 * (t - apart / 2) ** 2) / math.sqrt(2 * math.pi)
        # The log of p(t | 1) over the mean of both densities.
        return float(np.trapezoid(density * (math.log(2) - np.logaddexp(0, -apart * t)), t))


def _information_terms(information: float, chances: Doubles, size: int) -> float:
    """B ln(1/B) √(|T| I) + B |T|^¾ I^¼ with B = 4 √(2 ln 2) / min p."""
    b = 4 * math.sqrt(2 * math.log(2)) / float(chances[chances > 0].min())
    information = max(0.0, information)
    return -b * math.log(b) * math.sqrt(size * information) + b * math.pow(size, 0.75) * math.pow(information, 0.25)


def _entropy(chances: Doubles) -> float:
    found = chances[chances > 0]
    return float(-(found * np.log(found)).sum())


def _support(chances: Doubles) -> int:
    return int((chances > 0).sum())


def _normalise(values: Doubles) -> Doubles:
    return np.asarray(values / values.sum(axis=-1, keepdims=True), dtype=np.float64)
