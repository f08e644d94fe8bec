"""Accuracy against the radius of a ball around the embeddings: figures, plot and warnings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.statistics import Interval, wilson
from isthmus.measures.base import Figure, Plot, Series

Shares = NDArray[np.float64]


class RobustnessCurve:
    """Robustness of one run: the share of draws with the right answer for each text and radius [texts, 1 + radii]."""

    def __init__(
        self, name: str, radii: Sequence[float], ids: Sequence[str], drawn: tuple[int, int] | None = None
    ) -> None:
        self.name, self.radii, self.ids = name, tuple(radii), list(ids)
        self.drawn = drawn  # how many draws a randomised model is differentiated by, and how many judge it
        self.right = np.zeros((len(ids), 1 + len(radii)))
        self.random = np.zeros_like(self.right)
        self.blind = np.zeros(len(ids), bool)

    def accuracy(self, shares: Shares) -> list[Interval]:
        """Share of right texts at every radius; a text is right if at least half of the draws are."""
        return [wilson(int((column >= 0.5).sum()), len(column)) for column in shares.T]

    def both(self) -> tuple[list[Interval], list[Interval]]:
        """Under ascent and in random directions; the clean text belongs to both."""
        attacked = self.accuracy(self.right)
        return attacked, [attacked[0], *self.accuracy(self.random[:, 1:])]

    def figures(self) -> list[Figure]:
        """One line of figures per radius."""
        attacked, random = self.both()
        found = [Figure.from_interval("clean accuracy", attacked[0], self.name, share=True)]
        for radius, under, by_chance in zip(self.radii, attacked[1:], random[1:], strict=True):
            found += [
                Figure.from_interval(f"radius {radius:g}", under, self.name, share=True),
                Figure.from_interval(f"radius {radius:g}, random direction", by_chance, self.name, share=True),
            ]
        return found

    def series(self) -> tuple[Series, Series]:
        """The curves of the plot."""
        x = (0.0, *self.radii)
        attacked, random = (
            Series(
                name,
                x,
                tuple(each.estimate for each in rates),
                y_bounds=tuple((each.low, each.high) for each in rates),
            )
            for name, rates in zip((self.name, f"{self.name}: random direction"), self.both(), strict=True)
        )
        return attacked, dataclasses.replace(random, reference=True)

    def notes(self) -> list[str]:
        """Warnings that a reader needs before trusting the curve."""
        attacked, random = self.both()
        found = []
        if self.drawn is not None:
            draws, fresh = self.drawn
            found.append(
                f"{self.name} answers at random: gradients are averaged over {draws} draws, and {fresh} others judge."
            )
        if self.blind.any():
            attacked_texts = int((self.right[:, 0] > 0).sum())
            found.append(
                f"{self.name} has no gradient at {int(self.blind.sum())} of the {attacked_texts} texts that were "
                "attacked: what stays right there says nothing."
            )
        worse = [
            f"{radius:g}"
            for radius, under, by_chance in zip(self.radii, attacked[1:], random[1:], strict=True)
            if by_chance.high < under.low
        ]
        if worse:
            found.append(
                f"{self.name}: at radius {', '.join(worse)} random directions turn more texts than the gradient, which "
                "therefore misleads: accuracy under ascent overstates robustness."
            )
        return found

    def details(self) -> dict[str, Any]:
        """The results of every text."""
        return {
            "run": self.name, "radii": list(self.radii), "ids": self.ids, "no_gradient": int(self.blind.sum()),
            "right": self.right.round(6).tolist(), "random": self.random[:, 1:].round(6).tolist(),
        }  # fmt: skip


def plot_of(name: str, curves: Sequence[RobustnessCurve]) -> Plot:
    """Plot all runs in one figure."""
    pairs = [curve.series() for curve in curves]
    return Plot(
        name=name,
        title="Accuracy under ascent on the embeddings",
        x_label="L2 radius around the embedding sequence",
        y_label="right",
        series=(*(attacked for attacked, _ in pairs), *(random for _, random in pairs)),
        percent="y",
        caption="Bands are 95 % Wilson intervals; dashed: random directions of the same length.",
    )
