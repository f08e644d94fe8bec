"""Figures 1 to 4 of docs/results/ib-robustness.md, drawn from what `results/figures` keeps, and their correlations."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from isthmus.core.errors import DataError
from isthmus.core.files import make_folder, write_atomic
from isthmus.core.statistics import fisher_pearson
from isthmus.measures.base import Measurement, Plot, Series
from isthmus.report.measure.figure import save

RATE, PRODUCT, VULNERABILITY = "rate R (nats)", "encoder, product of norms", "oblivious vulnerability"
UNIT, ACCURACY = "mean entropy of a unit (nats)", "accuracy"
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
CHANCE = 0.15
"""Ten classes: a model below it answers one class. It stays in the figure, under its name."""


def draw_figures(results: Path, out: Path) -> Iterator[str]:
    """Write a PNG of every figure into `out`; what was drawn, and every correlation with its interval and p."""
    make_folder(out)
    plots, told = every_figure(results)
    with TemporaryDirectory() as folder:
        for plot in plots:
            for path in save(plot, Path(folder) / plot.name):
                if path.suffix == ".png":
                    write_atomic(out / path.name, path.read_bytes())
                    yield str(out / path.name)
    yield from told


def every_figure(results: Path) -> tuple[list[Plot], list[str]]:
    """Plots of all figures, and the lines of their correlations."""
    first = _measurement(results, "mnist-figures-1-and-3", "vulnerability")
    pairs = _measurement(results, "mnist-figures-1-and-3", "transferability")
    path = _measurement(results, "mnist-figure-2", "vulnerability")
    entropies = {data: _measurement(results, f"{data}-figure-4", "feature_entropy") for data in NAMES}
    plots = [*_figure_1(first), *_figure_2(path), *_figure_3(pairs)]
    plots += [_estimates(data, entropies[data]) for data in ("mnist", "cifar10")]
    plots.append(_units(entropies))
    return plots, [*_correlations_1(first), *_correlations_2(path), *_correlations_3(pairs)]


def _measurement(results: Path, record: str, measure: str) -> Measurement:
    file = results / "figures" / f"{record}.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))[measure]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{file} has no measurement of {measure}: {error}") from None
    return Measurement.from_json(found.get("measurement", found))


def _plot(found: Measurement, name: str) -> Plot:
    return next(plot for plot in found.plots if plot.name == name)


def _figure_1(found: Measurement) -> list[Plot]:
    plots = []
    labels = {"vulnerability": "rate R of the code (nats)", "lipschitz": "product of the layers' norms"}
    for name, x_label in labels.items():
        plot = _plot(found, name)
        (series,) = plot.series
        series = dataclasses.replace(series, labels=tuple(f"β = {label}" for label in series.labels))
        stem = "ib_figure_1" if name == "vulnerability" else "ib_figure_1_lipschitz"
        title = "Figure 1: MNIST, FGSM at 0.3, one training of each β"
        plots.append(_named(plot, stem, title, x_label, series=(series,), kind="scatter", log="x"))
    return plots


def _figure_2(found: Measurement) -> list[Plot]:
    title = "Figure 2: MNIST, FGSM at 0.3, every epoch of one training at β = 0.001"
    rate = _named(_plot(found, "vulnerability"), "ib_figure_2_rate", title, "rate R of the code (nats)")
    product = _named(_plot(found, "lipschitz"), "ib_figure_2_lipschitz", title, "product of the layers' norms")
    return [rate, product]


def _named(plot: Plot, name: str, title: str, x_label: str, **more: Any) -> Plot:
    y_label = "vulnerability (points of accuracy)"
    return dataclasses.replace(plot, name=name, title=title, x_label=x_label, y_label=y_label, **more)


def _figure_3(found: Measurement) -> list[Plot]:
    """Pairs of one encoder share its constant: they stand beside each other, in steps that mean nothing."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for each in found.details["pairs"]:
        rows.setdefault(each["value"], []).append(each)
    plots = []
    for name, key, x_label in (
        ("ib_figure_3", "lipschitz", "product of the encoder's norms (pairs of one encoder moved apart)"),
        ("ib_figure_3_error", "tau", "larger error τ of the pair (equal ones moved apart)"),
    ):
        series = []
        for beta, group in rows.items():
            steps = [place - (len(group) - 1) / 2 for place in range(len(group))]
            if key == "lipschitz":
                x = [each[key] * math.exp(0.05 * step) for each, step in zip(group, steps, strict=True)]
            else:
                x = [each[key] + 0.0001 * step for each, step in zip(group, steps, strict=True)]
            series.append(Series(f"β = {float(beta):g}", tuple(x), tuple(each["gap"] for each in group)))
        log, percent = ("x", "y") if key == "lipschitz" else ("", "xy")
        title = "Figure 3: MNIST, FGSM at 0.3"
        plots.append(Plot(name, title, x_label, "gap δ' - δ", tuple(series), "scatter", log=log, percent=percent))
    return plots


def _shares(found: Measurement) -> list[tuple[str, float]]:
    """Every run by the label of its figures, and the share of adversarial images in its batches."""
    return [(f"{run['value']:g}", float(run["value"])) for run in found.details["runs"]]


def _label(found: Measurement, of: str, share: float) -> str:
    failed = found.figure(ACCURACY, of).estimate < CHANCE
    return f"{100 * share:g} %, one class" if failed else f"{100 * share:g} %"


def _estimates(data: str, found: Measurement) -> Plot:
    """Entropy of the whole vector against accuracy under attack, by two estimators."""
    plot = _plot(found, "feature_entropy")
    labels = tuple(_label(found, of, share) for of, share in _shares(found))
    # Both estimates of a run stand at one accuracy: one label is enough.
    series = tuple(dataclasses.replace(each, labels=labels if each.name == "JVHW" else ()) for each in plot.series)
    radius = plot.x_label.rpartition(" ")[2]
    return dataclasses.replace(
        plot, name=f"ib_figure_4_{data}", title=f"Figure 4: {NAMES[data]}, by share of FGSM images in training",
        x_label=f"accuracy under FGSM at {radius}", y_label="entropy of the features (nats)", series=series,
        kind="scatter",
    )  # fmt: skip


def _units(entropies: dict[str, Measurement]) -> Plot:
    """Mean entropy of a unit, which does not saturate, over the share of adversarial images."""
    series: list[Series] = []
    labelled: list[tuple[float, float]] = []
    for data, found in entropies.items():
        figures = [found.figure(UNIT, of) for of, _ in _shares(found)]
        failed = [found.figure(ACCURACY, of).estimate < CHANCE for of, _ in _shares(found)]
        bounds = tuple((float(each.low or 0), float(each.high or 0)) for each in figures)
        x, y = tuple(share for _, share in _shares(found)), tuple(each.estimate for each in figures)
        labels = []
        for place, lost in zip(zip(x, y, strict=True), failed, strict=True):
            # Points that lie on each other share a label.
            near = any(place[0] == other[0] and abs(place[1] - other[1]) < 0.03 for other in labelled)
            labels.append("one class" if lost and not near else "")
            labelled += [place] if lost else []
        series.append(Series(NAMES[data], x, y, (), bounds, tuple(labels)))
    title, x_label = "Figure 4: mean entropy of a unit", "share of FGSM images in training"
    y_label = "nats (at most ln 2 = 0.69)"
    return Plot("ib_figure_4_units", title, x_label, y_label, tuple(series), "scatter", percent="x")


def _correlations_1(found: Measurement) -> Iterator[str]:
    columns = list(dict.fromkeys(each.of for each in found.figures))
    rows = [{each.name: each.estimate for each in found.figures if each.of == of} for of in columns]
    up = [row[VULNERABILITY] for row in rows]
    yield _told("Figure 1: vulnerability and log rate", [math.log(row[RATE]) for row in rows], up, "runs")
    yield _told("Figure 1: vulnerability and log product", [math.log(row[PRODUCT]) for row in rows], up, "runs")


def _correlations_2(found: Measurement) -> Iterator[str]:
    (rows,) = found.details["epochs"].values()
    up = [row[VULNERABILITY] for row in rows]
    unit = "epochs of one run"
    yield _told("Figure 2: vulnerability and rate", [row[RATE] for row in rows], up, unit)
    yield _told("Figure 2: vulnerability and log product", [math.log(row[PRODUCT]) for row in rows], up, unit)


def _correlations_3(found: Measurement) -> Iterator[str]:
    pairs = found.details["pairs"]
    gaps = [each["gap"] for each in pairs]
    products = [each["lipschitz"] for each in pairs]
    yield _told("Figure 3: gap and product", products, gaps, "pairs")
    yield _told("Figure 3: gap and log product", [math.log(each) for each in products], gaps, "pairs")
    yield _told("Figure 3: gap and τ", [each["tau"] for each in pairs], gaps, "pairs")


def _told(name: str, x: Sequence[float], y: Sequence[float], unit: str) -> str:
    r, p = fisher_pearson(x, y)
    return f"{name}: r = {r.estimate:+.2f} ({r.low:+.2f} to {r.high:+.2f}), p {p:.3f}, {len(x)} {unit}"
