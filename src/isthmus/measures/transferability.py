"""Whether an attack on one head transfers to another head on the same encoder."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.statistics import bootstrap_mean, fisher_pearson
from isthmus.measures._sweep import in_order, label_of, value_of
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject
from isthmus.measures.information_bounds import report_step

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from isthmus.measures._codes import Codes, InputAttack

DELTA, DELTA_OTHER, GAP = "not changed, own head (δ)", "not changed, other head (δ')", "gap δ' - δ"
TAU, PRODUCT = "larger error of a pair (τ)", "encoder, product of norms"


@dataclass(frozen=True)
class Transferability(Measure):
    """How well an attack on one head works on another head, both on the same frozen encoder.

        δ  = P[ f₁(X) = f₁(A(X)) ]      δ' = P[ f₂(X) = f₂(A(X)) ]      the attack A is made on f₁ = g₁ ∘ T
        gap = δ' - δ                    r = Pearson's correlation of gaps with L, and with τ

    L is the product of the encoder's layer norms and τ the larger error of the two heads. Every run is one encoder;
    `heads` new heads are fitted to its codes, each to a half of the training inputs of its own, and every ordered pair
    of them counts.

    References:
        Improving Adversarial Robustness: An Information-Theoretic Perspective (2019), Theorem 4 and Figure 3.

    Where we depart:
        The paper's theorem, δ' ≤ δ + 4τ + |T| L ε, is true but its right side is at least 1: an answer changes only
        where one of both is wrong, so that 1 - δ ≤ 2τ + ½ |T| L ε. What is left to measure is the correlation.
        One caption of the paper calls τ an accuracy; it is an error.

    Relations:
        Biases: pairs of one run share its encoder and are no independent points, so that the p-value over pairs, which
        the paper reports, is too small where runs are few; the one over runs is beside it. Heads read the mean of a
        stochastic code. `vulnerability` has the loss to an attack on the model's own head.

    Example:
        ``isthmus measure runs/vib-* --measure transferability -P over=beta -P attack=fgsm -P epsilon=0.3``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data")
    takes: ClassVar[tuple[Option, ...]] = ("n", "seed")
    compares: ClassVar[bool] = True

    attack: str = "fgsm"
    """Name of a gradient attack (isthmus list attacks)."""
    epsilon: float | None = None
    """Radius of the attack: in pixels (0.3 by default), or in lengths of a mean token's embedding (0.25, in L2)."""
    steps: int | None = None
    """Number of steps, if it takes several; by default the attack's own."""
    over: str = ""
    """The parameter in which runs differ, by which points are coloured; empty: their names."""
    heads: int = 3
    """Number of heads on each encoder."""
    width: int = 64
    """Units of a head's hidden layer."""
    fit_on: int = 2000
    """Number of training inputs; each head sees a random half of them."""
    fit_steps: int = 200
    """Steps of Adam for each head."""

    def __post_init__(self) -> None:
        for name, least in (("heads", 2), ("width", 1), ("fit_on", 4), ("fit_steps", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{self.name}: {name} is {getattr(self, name)}; it must be at least {least}")

    def measure(self, subject: Subject) -> Measurement:
        """Measure every run; compute correlations if there are several."""
        from isthmus.measures._codes import InputAttack

        attack = InputAttack(self.attack, self.epsilon, self.steps)
        runs = (subject, *subject.others)
        values = [value_of(each, self.over) for each in runs]
        pairs: list[HeadPair] = []
        for place in in_order(values):
            pairs += self._of_run(runs[place], label_of(values[place]), attack)
        figures = [
            figure for name in dict.fromkeys(pair.run for pair in pairs) for figure in _make_figures(pairs, name)
        ]
        notes = [f"The attack is {attack.title}, made on one of {self.heads} heads of each encoder."]
        plots = []
        for name, side in ((PRODUCT, "lipschitz"), (TAU, "error")):
            points = [(pair, getattr(pair, side)) for pair in pairs if getattr(pair, side) is not None]
            if len({pair.run for pair, _ in points}) > 1:
                figures += _correlations(points, name)
                plots.append(_make_plot(self.name if side == "lipschitz" else side, name, points, attack))
        if any(pair.lipschitz is None for pair in pairs):
            notes.append("An encoder whose layers have no known Lipschitz constant has no product of norms.")
        return Measurement(
            tuple(figures), tuple(plots), notes=tuple(notes), details={"pairs": [pair.row() for pair in pairs]}
        )

    def _of_run(self, subject: Subject, value: str, attack: InputAttack) -> list[HeadPair]:
        from isthmus.measures._codes import head_replaced, read_codes
        from isthmus.measures._constants import model_constants

        model: Any = subject.model
        if model.head is None:
            raise UsageError(
                f"{subject.name} answers by the head of its own encoder, which cannot be replaced: train with "
                "--defence vib or vub"
            )
        seed = subject.asked.seed
        test = subject.sample("test", default=1000)
        train = read_codes(model, subject.sample("train", size=self.fit_on), seed)
        heads = [self._fit(train, len(model.labels), derive(seed, "head", number)) for number in range(self.heads)]
        clean = read_codes(model, test, seed)
        moved = []
        for number, head in enumerate(heads):
            step = functools.partial(
                report_step, subject, f"{subject.name}: {attack.name} on head {number + 1}", len(test)
            )
            with head_replaced(model, head.to(model.device)):
                moved.append(read_codes(model, test, seed, attack, step))
        try:
            lipschitz = model_constants(model).estimate
        except UsageError:
            lipschitz = None
        found = []
        for first, second in itertools.permutations(range(self.heads), 2):
            own, other = (_find_kept(heads[each], clean, moved[first]) for each in (first, second))
            error = max(_error_rate(heads[each], clean) for each in (first, second))
            found.append(HeadPair(subject.name, value, first, second, own, other, error, lipschitz, seed))
        return found

    def _fit(self, codes: Codes, classes: int, seed: int) -> Head:
        """Fit a new head by cross-entropy to draws of the codes of a random half of the inputs."""
        import torch
        from torch.nn import functional

        from isthmus.arithmetic.randomness import seed_initialisation

        rows = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed >> 1))[: -(-len(codes) // 2)]
        mean = read_by_heads(codes)[rows]
        deviation = None if codes.deviation is None else codes.deviation[rows]
        with seed_initialisation(seed, "head"):
            head = make_head(mean.shape[1], self.width, classes)
        stream = torch.Generator().manual_seed(derive(seed, "draws") >> 1)
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
        for _ in range(self.fit_steps):
            optimizer.zero_grad()
            code = mean if deviation is None else mean + deviation * torch.randn(mean.shape, generator=stream)
            functional.cross_entropy(head(code), codes.labels[rows]).backward()
            optimizer.step()
        return head.eval()


Head = Any
"""A module that reads codes."""


def make_head(size: int, width: int, classes: int) -> nn.Module:
    """Linear - relu - linear."""
    from torch import nn

    head = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, classes))
    head.weight = head[0].weight  # By which a classifier finds out where it lies.
    return head


def read_by_heads(codes: Codes) -> Tensor:
    """The head's input: the mean of the code, or the vector if there is no code."""
    return codes.vectors if codes.mean is None else codes.mean


@dataclass(frozen=True, eq=False)
class HeadPair:
    """An attack on one head, tested on another."""

    run: str
    value: str
    first: int
    second: int
    own: NDArray[np.float64]  # [N], 1 where the attack did not change the answer of the head it was made on
    other: NDArray[np.float64]  # [N], and of the other one
    error: float
    lipschitz: float | None
    seed: int

    @property
    def gap(self) -> float:
        """The loss of attack success on the other head."""
        return float(self.other.mean() - self.own.mean())

    def row(self) -> dict[str, Any]:
        """The pair as a row of a table."""
        return {
            "run": self.run, "value": self.value, "heads": [self.first, self.second], "delta": float(self.own.mean()),
            "delta_other": float(self.other.mean()), "gap": self.gap, "tau": self.error, "lipschitz": self.lipschitz,
        }  # fmt: skip


def _find_kept(head: Head, clean: Codes, moved: Codes) -> NDArray[np.float64]:
    """Whether a head predicts the same class before and after the attack."""
    same = _predict(head, clean) == _predict(head, moved)
    return np.asarray(same.double().numpy(), dtype=np.float64)


def _error_rate(head: Head, clean: Codes) -> float:
    return float((_predict(head, clean) != clean.labels).double().mean())


def _predict(head: Head, codes: Codes) -> Tensor:
    import torch

    place = next(head.parameters()).device
    with torch.no_grad():
        found: Tensor = head(read_by_heads(codes).to(place)).argmax(dim=1).cpu()
    return found


def _make_figures(pairs: Sequence[HeadPair], run: str) -> list[Figure]:
    """Means over the pairs of a run, with intervals over inputs."""
    own = [pair for pair in pairs if pair.run == run]
    column = own[0].value

    def mean(name: str, values: NDArray[np.float64]) -> Figure:
        return Figure.from_interval(name, bootstrap_mean(values, own[0].seed, 2000), column, share=True)

    first, second = (np.mean([getattr(pair, side) for pair in own], axis=0) for side in ("own", "other"))
    found = [mean(DELTA, first), mean(DELTA_OTHER, second), mean(GAP, second - first)]
    found.append(Figure(TAU, float(np.mean([pair.error for pair in own])), of=column, share=True))
    if own[0].lipschitz is not None:
        found.append(Figure(PRODUCT, own[0].lipschitz, of=column))
    return found


def _correlations(points: Sequence[tuple[HeadPair, float]], name: str) -> list[Figure]:
    """Correlations over pairs, as in the paper, and over the means of runs."""
    gaps, values = np.array([pair.gap for pair, _ in points]), np.array([value for _, value in points])
    runs = np.array([pair.run for pair, _ in points])
    means = [[side[runs == run].mean() for run in np.unique(runs)] for side in (values, gaps)]
    found = []
    for what, (x, y) in (("pairs", (values, gaps)), ("runs", (np.array(means[0]), np.array(means[1])))):
        r, p = fisher_pearson(x, y)
        column = f"{len(x)} {what}"
        found.append(Figure.from_interval(f"Pearson's r of gap and {name}", r, column))
        found.append(Figure(f"p of gap and {name}", p, of=column))
    return found


def _make_plot(stem: str, name: str, points: Sequence[tuple[HeadPair, float]], attack: InputAttack) -> Plot:
    """Plot the paper's Figure 3: one colour for every value of the parameter."""
    series = []
    for value in dict.fromkeys(pair.value for pair, _ in points):
        own = [(number, pair.gap) for pair, number in points if pair.value == value]
        series.append(Series(value, tuple(x for x, _ in own), tuple(y for _, y in own)))
    return Plot(
        stem,
        f"What {attack.title} loses between heads",
        name,
        GAP,
        tuple(series),
        kind="scatter",
        percent="y" if name == PRODUCT else "xy",
        log="x" if name == PRODUCT else "",
        caption="One point for every ordered pair of heads on one encoder.",
    )
