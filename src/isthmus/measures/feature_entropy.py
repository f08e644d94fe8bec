"""Entropy of a network's features: without noise it is their information about the input."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.statistics import bootstrap_mean, wilson
from isthmus.information import entropy
from isthmus.measures._sweep import against, curves_over, in_order, label_of, value_of
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, SourceName, Subject
from isthmus.measures.information_bounds import report_step

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from isthmus.data import Dataset
    from isthmus.measures._codes import InputAttack

MLE, MILLER, JVHW, WU_YANG = (f"entropy, {name}" for name in ("MLE", "Miller-Madow", "JVHW", "Wu-Yang"))
UNIT, CEILING, ONCE = "mean entropy of a unit", "ln n", "symbols that occur once"
ACCURACY = "accuracy"


@dataclass(frozen=True)
class FeatureEntropy(Measure):
    """Entropy of quantised features: I(X;T) = H(T) of a network without noise.

        T       = the vector of all units, each cut into q levels of equal width over its range in the sample
        MLE     = Σ -p̂ ln p̂                        Miller-Madow = MLE + (S - 1) / 2n
        JVHW    rare symbols by the best polynomial approximation of -p ln p, frequent ones by the corrected plug-in
        Wu-Yang the same idea for an alphabet of at most min(q^units, n) symbols
        unit    = mean over units of the MLE of a single unit, at most ln q

    References:
        Jiao, Venkat, Han and Weissman (2015), Minimax Estimation of Functionals of Discrete Distributions,
        https://arxiv.org/abs/1406.6956; Wu and Yang (2016), Minimax Rates of Entropy Estimation on Large Alphabets via
        Best Polynomial Approximation, https://arxiv.org/abs/1407.0381; Improving Adversarial Robustness: An
        Information-Theoretic Perspective (2019), Figure 4.

    Where we depart:
        The paper gives no quantiser: we average the last convolution's output over places, as a relu leaves it, and
        cut every unit into two levels.

    Relations:
        Biases: the MLE is too low by about (S - 1) / 2n and never above ln n; Miller-Madow takes that first term off;
        JVHW and Wu-Yang have a bias of the order S / (n ln n), either way. All of them say little but ln n where more
        than 90 % of the symbols occur once; the entropy of a unit does not saturate, but counts what units share twice.
        `information_bounds` is for codes with noise.

    Example:
        ``isthmus measure runs/adv-* --measure feature_entropy -P over=ratio -P attack=fgsm -P epsilon=0.3``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed")
    compares: ClassVar[bool] = True

    levels: int = 2
    """q: number of levels of a unit."""
    layer: Literal["convolution", "vector"] = "convolution"
    """The last convolution averaged over positions, if there is one; or the vector that the head reads."""
    bits: bool = False
    """Whether to show entropies in bits instead of nats."""
    attack: str = ""
    """Gradient attack (fgsm, deepfool, cw, …) under which accuracy is also measured; empty: none."""
    epsilon: float | None = None
    """Radius of the attack: in pixels (0.3 by default), or in lengths of a mean token's embedding (0.25, in L2)."""
    steps: int | None = None
    """Number of steps, if it takes several; by default the attack's own."""
    over: str = ""
    """The parameter in which several runs differ, such as ratio; empty: their names."""

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise UsageError(f"{self.name}: levels is {self.levels}; a unit has at least 2")

    def measure(self, subject: Subject) -> Measurement:
        """Measure every run on one split, by default test."""
        from isthmus.measures._codes import InputAttack

        attack = InputAttack(self.attack, self.epsilon, self.steps) if self.attack else None
        runs = (subject, *subject.others)
        values = [value_of(each, self.over) for each in runs]
        order = in_order(values)
        rows, notes, details = [], [], []
        for place in order:
            name = label_of(values[place]) if len(runs) > 1 else ""
            row, once, size = self._of_run(runs[place], name, attack)
            rows.append(row)
            details.append({"run": runs[place].name, "value": values[place], "n": size, "once": once})
            if once > entropy.SATURATED:
                notes.append(
                    f"{runs[place].name}: {100 * once:.0f} % of {size} symbols occur once, so that every estimate says "
                    "little but ln n. Take more inputs, fewer levels, or the entropy of a unit."
                )
        figures = tuple(figure for row in rows for figure in row)
        plots = self._plots([values[place] for place in order], rows, attack) if len(runs) > 1 else []
        return Measurement(figures, tuple(plots), notes=tuple(notes), details={"over": self.over, "runs": details})

    def _of_run(self, subject: Subject, name: str, attack: InputAttack | None) -> tuple[list[Figure], float, int]:
        from isthmus.measures._codes import read_codes

        split = subject.split_names(("test",))[0]
        data = subject.sample(split, default=2000)
        column = name or split
        seed = subject.asked.seed
        step = functools.partial(report_step, subject, f"reading {subject.name}", len(data))
        features = read_layer(subject.model, data, self.layer, step)
        symbols = quantise(features, self.levels)
        figures = list(self._entropies(symbols, column, seed))
        right = read_codes(subject.model, data, seed).correct
        figures.append(Figure.from_interval(ACCURACY, wilson(int(right.sum()), len(right)), column, share=True))
        if attack is not None:
            step = functools.partial(report_step, subject, f"{attack.name} on {subject.name}", len(data))
            held = right & read_codes(subject.model, data, seed, attack, step).correct
            under = wilson(int(held.sum()), len(held))
            figures.append(Figure.from_interval(_under(attack), under, column, share=True))
        return figures, entropy.unique_share(entropy.count_symbols(_words_of_rows(symbols))), len(symbols)

    def _entropies(self, symbols: NDArray[np.int64], column: str, seed: int) -> Iterator[Figure]:
        scale = 1 / math.log(2) if self.bits else 1.0
        words = _words_of_rows(symbols)
        counts = entropy.count_symbols(words)
        n, possible = len(words), float(self.levels) ** min(symbols.shape[1], 1000 // self.levels)
        alphabet = max(len(counts), int(min(possible, n)))
        estimates: dict[str, Callable[[entropy.Counts], float]] = {
            MLE: entropy.mle_entropy,
            MILLER: entropy.miller_madow_entropy,
            JVHW: entropy.jvhw_entropy,
            WU_YANG: functools.partial(entropy.wu_yang_entropy, alphabet=alphabet),
        }
        for name, estimate in estimates.items():
            found = entropy.jackknife_interval(estimate, counts)
            low, high = scale * found.low, scale * found.high
            yield Figure(self._with_unit(name), scale * found.estimate, low, high, column)
        by_unit = np.mean([_surprise(unit.tolist()) for unit in symbols.T], axis=0)
        yield Figure.from_interval(self._with_unit(UNIT), bootstrap_mean(scale * by_unit, seed, 2000), column)
        yield Figure(self._with_unit(CEILING), scale * math.log(n), of=column)
        yield Figure(ONCE, entropy.unique_share(counts), of=column, share=True)

    def _with_unit(self, name: str) -> str:
        return f"{name} ({'bits' if self.bits else 'nats'})"

    def _plots(self, values: Sequence[Any], rows: Sequence[Sequence[Figure]], attack: InputAttack | None) -> list[Plot]:
        # Short names, so that they fit beside the title and cover no point.
        kinds = {"MLE": MLE, "JVHW": JVHW, "mean of a unit": UNIT}
        entropies = {name: [_find_figure(row, self._with_unit(kind)) for row in rows] for name, kind in kinds.items()}
        over, unit = self.over or "run", "bits" if self.bits else "nats"
        plots = curves_over("entropy", f"Entropy of features over {over}", over, unit, values, entropies)
        shown = [ACCURACY] if attack is None else [ACCURACY, _under(attack)]
        accuracies = {name: [_find_figure(row, name) for row in rows] for name in shown}
        plots += curves_over("accuracy", f"Accuracy over {over}", over, "accuracy", values, accuracies, percent="y")
        caption = f"Labels are {over}. Lines are 95 % intervals over inputs; the bias of an estimate is not in them."
        labels = [label_of(value) for value in values]
        series = tuple(against(name, accuracies[shown[-1]], entropies[name], labels) for name in ("MLE", "JVHW"))
        title = "Entropy of features against accuracy"
        plots.append(Plot(self.name, title, shown[-1], unit, series, kind="points", percent="x", caption=caption))
        return plots


def read_layer(model: Any, data: Dataset, layer: str, step: Any = lambda _: None) -> Tensor:
    """Features of every input [N, units], in the order of the data."""
    import torch
    from torch import nn

    from isthmus.measures._codes import read_batches, read_codes

    convolutions = [part for part in model.backbone.modules() if isinstance(part, nn.Conv2d)]
    if layer == "vector" or not convolutions:
        return read_codes(model, data, step=step).vectors
    caught: list[Tensor] = []
    rows = []
    handle = convolutions[-1].register_forward_hook(
        lambda _module, _inputs, output: caught.append(output.relu().mean(dim=(2, 3)).float().cpu())
    )
    try:
        with torch.no_grad():
            for batch in read_batches(model, data):
                with model.use_keys(batch.keys):
                    batch.forward(batch.inputs)
                rows.append(batch.rows)
                step(sum(map(len, rows)))
    finally:
        handle.remove()
    return torch.cat(caught)[torch.argsort(torch.cat(rows))]


def quantise(features: Tensor, levels: int) -> NDArray[np.int64]:
    """The bin of every unit, of equal width between its minimum and maximum [N, units]."""
    values = features.double().numpy()
    low, high = values.min(axis=0), values.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    levels_of = np.floor(levels * (values - low) / width)
    return np.asarray(np.minimum(levels_of, levels - 1), dtype=np.int64)


def _words_of_rows(symbols: NDArray[np.int64]) -> list[bytes]:
    """One symbol for each row."""
    return [row.tobytes() for row in np.ascontiguousarray(symbols.astype(np.uint16))]


def _surprise(words: Sequence[Any]) -> NDArray[np.float64]:
    """-ln of the frequency of every symbol; the mean is the MLE."""
    _, place, counts = np.unique(np.array(words), return_inverse=True, return_counts=True)
    return np.asarray(-np.log(counts[place] / len(words)), dtype=np.float64)


def _under(attack: InputAttack) -> str:
    return f"accuracy under {attack.title}"


def _find_figure(row: Sequence[Figure], name: str) -> Figure:
    return next(figure for figure in row if figure.name == name)
