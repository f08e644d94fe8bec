"""How often intervals over seeds and texts cover the truth: why `isthmus.core.crossed` computes them as it does.

    python benchmarks/interval_coverage.py                     2,000 simulated studies of each kind
    python benchmarks/interval_coverage.py --studies 10000

A study trains S models and asks each about the same N texts. A model is right about a text where a sum of normal parts
is positive: how good the method is, how good the seed, how hard the text, what is peculiar to the two. So the true rate
is known, Φ(mean / √variance), and so is the true difference of two methods that share how hard a text is.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from isthmus.core.crossed import crossed_difference, crossed_rate
from isthmus.core.statistics import Interval, bootstrap_mean, wilson

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Study:
    """Sizes of a study, and how much of what decides an answer is the seed's, the text's, and the rest."""

    seeds: int
    texts: int
    rate: float
    seed_spread: float
    text_spread: float = 1.5
    own_spread: float = 0.7
    """What of a text's difficulty is the method's own."""
    gain: float = 0.0
    """By how much the second method is better, in units of what decides an answer."""

    @property
    def scale(self) -> float:
        return math.sqrt(1 + self.seed_spread**2 + self.text_spread**2 + self.own_spread**2)

    @property
    def truth(self) -> tuple[float, float]:
        """The true rates of both methods."""
        level = NormalDist().inv_cdf(self.rate) * self.scale
        return self.rate, NormalDist().cdf((level + self.gain) / self.scale)

    def draw(self, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Outcomes of both methods [seeds, texts]."""
        level = NormalDist().inv_cdf(self.rate) * self.scale
        shared = self.text_spread * rng.standard_normal(self.texts)
        found = []
        for gain in (0.0, self.gain):
            seed = self.seed_spread * rng.standard_normal((self.seeds, 1))
            own = self.own_spread * rng.standard_normal(self.texts)
            rest = rng.standard_normal((self.seeds, self.texts))
            found.append((level + gain + shared + own + seed + rest > 0).astype(np.float64))
        return found[0], found[1]


def over_texts(values: Matrix) -> Interval:
    """Seeds averaged first, texts resampled."""
    return bootstrap_mean(values.mean(axis=0), draws=400)


def over_seeds(values: Matrix) -> Interval:
    """Student's t over the means of the seeds."""
    from scipy.special import stdtrit

    means = values.mean(axis=1)
    half = float(stdtrit(len(means) - 1, 0.975)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Interval(float(means.mean()), float(means.mean()) - half, float(means.mean()) + half)


@functools.cache
def _weights(seeds: int, texts: int, draws: int) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(0)
    rows = rng.multinomial(seeds, [1 / seeds] * seeds, size=draws)
    columns = rng.multinomial(texts, [1 / texts] * texts, size=draws)
    return rows.astype(np.float64), columns.astype(np.float64)


def over_both(values: Matrix, draws: int = 400) -> Interval:
    """Seeds and texts resampled at once."""
    seeds, texts = values.shape
    rows, columns = _weights(seeds, texts, draws)
    means = ((rows @ values) * columns).sum(axis=1) / (seeds * texts)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


RATES: dict[str, Callable[[Matrix], Interval]] = {
    "all answers as independent (Wilson)": lambda right: wilson(int(right.sum()), right.size),
    "bootstrap over texts": over_texts,
    "Student's t over seeds": over_seeds,
    "bootstrap over seeds and texts": over_both,
    "crossed": crossed_rate,
}
DIFFERENCES: dict[str, Callable[[Matrix, Matrix], Interval]] = {
    "bootstrap over texts": lambda a, b: over_texts(a - b),
    "Student's t over seeds": lambda a, b: over_seeds(a - b),
    "bootstrap over seeds and texts": lambda a, b: over_both(a - b),
    "crossed": lambda a, b: crossed_difference(a, b).difference,
}

STUDIES = [
    Study(seeds, texts, rate, spread)
    for seeds, texts in ((3, 100), (3, 500), (3, 1821), (5, 200))
    for rate in (0.05, 0.4, 0.88)
    for spread in (0.0, 0.05, 0.15, 0.4)
]
"""From seeds that do not matter to seeds whose rates scatter by several points."""


def coverage(study: Study, studies: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """{way: (share of studies that cover the truth, mean width)} of rates and of differences."""
    rng = np.random.default_rng(seed)
    first, second = study.truth
    ways = [f"rate: {name}" for name in RATES] + [f"difference: {name}" for name in DIFFERENCES]
    covered, width = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
    for _ in range(studies):
        a, b = study.draw(rng)
        found = {f"rate: {name}": (way(a), first) for name, way in RATES.items()}
        found |= {f"difference: {name}": (way(b, a), second - first) for name, way in DIFFERENCES.items()}
        for name, (interval, truth) in found.items():
            covered[name] += truth in interval
            width[name] += interval.high - interval.low
    return {name: (covered[name] / studies, width[name] / studies) for name in ways}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--studies", type=int, default=2000)
    asked = options.parse_args()
    worst: dict[str, list[float]] = {}
    for study in STUDIES:
        print(f"\n{study}")
        for name, (share, width) in coverage(study, asked.studies).items():
            worst.setdefault(name, []).append(share)
            print(f"  {name:48} covers {100 * share:5.1f} %, width {100 * width:5.1f} points")
    print(f"\nover the {len(STUDIES)} kinds of study")
    for name, shares in worst.items():
        print(f"  {name:48} lowest {100 * min(shares):5.1f} %, mean {100 * np.mean(shares):5.1f} %")


if __name__ == "__main__":
    main()
