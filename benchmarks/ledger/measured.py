"""Tables of a measure of attacked texts: how much the weights of words before and after an attack agree.

Each cell keeps the values of single texts. A row's figure is the mean over its seeds of the mean over texts that the
attack fooled. With S seeds, the means m_s and the standard error e_s of the texts of one seed:

    half² = t(S-1)² var(m) / S + z² mean(e²)

which counts seeds and texts. The seeds share most of their texts, so what they share is not divided by S: the interval
is rather too long than too short. With one seed it is about other texts alone. Two rows are compared text by text, on
the texts that both have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError
from ledger.cells import OUTCOMES, Cell

Values = NDArray[np.float64]
_SHOWN = {"tau": "tau-b", "top-5": "top-5 overlap"}
_POWER = 0.8


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and texts."""

    estimate: float
    half: float
    """Half of the 95 % interval; infinite where there is one text."""
    detectable: float
    """The smallest difference that is found with a probability of 80 %."""
    texts: int
    """Of all seeds together."""


def mean_of_seeds(seeds: Sequence[Values], level: float = 0.95) -> Mean:
    """The mean over seeds of the mean over texts; what is not a number is left out."""
    known = [values[~np.isnan(values)] for values in seeds]
    known = [values for values in known if len(values)]
    count = sum(map(len, known))
    if not known:
        return Mean(math.nan, math.inf, math.inf, 0)
    means = np.array([values.mean() for values in known])
    errors = [values.var(ddof=1) / len(values) if len(values) > 1 else math.inf for values in known]

    def half(tail: float) -> float:
        texts = NormalDist().inv_cdf(1 - tail) ** 2 * float(np.mean(errors))
        if len(means) == 1:
            return math.sqrt(texts)
        from scipy.stats import t

        between = float(t.isf(tail, len(means) - 1)) ** 2 * float(means.var(ddof=1)) / len(means)
        return math.sqrt(between + texts)

    reach = half((1 - level) / 2)
    return Mean(float(means.mean()), reach, reach + half(1 - _POWER), count)


def fooled(cell: Cell, name: str) -> Values:
    """The values of the texts on which the attack succeeded; NaN elsewhere."""
    marks = np.array([each == OUTCOMES["succeeded"] for each in cell.outcomes])
    return np.where(marks, cell.values[name], np.nan)


def render_measured(against: str, cells: Sequence[Cell]) -> str:
    """The table as Markdown; every row beside the row `against`."""
    rows: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        if cell.key.seed in rows.setdefault(cell.row, {}):
            raise DataError(f"the row {cell.row!r} has two cells of seed {cell.key.seed}; choose by method and pairs")
        rows[cell.row][cell.key.seed] = cell
    if not rows:
        return "Not yet run.\n"
    base = rows.get(against, {})
    ordered = sorted(rows, key=lambda name: name != against)
    head = ["", "seeds", "texts"]
    for title in _SHOWN.values():
        head += [title, f"against {against}"] if base else [title]
    lines = [[*head, "completeness error"], ["---"] * (len(head) + 1)]
    for row in ordered:
        own = rows[row]
        shown = [row, str(len(own)), f"{mean_of_seeds([fooled(cell, 'tau') for cell in own.values()]).texts:,}"]
        for name in _SHOWN:
            shown.append(_told(mean_of_seeds([fooled(cell, name) for cell in own.values()])))
            if base:
                shown.append("" if row == against else _difference(own, base, name))
        lines.append([*shown, _error(own)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_CAPTION}\n\n{table}\n"


_CAPTION = """\
Texts on which the attack succeeded, over all seeds; 95 % intervals cover seeds and texts; rows are compared on their
common texts. "Detectable": smallest detectable difference (80 % power). The completeness error is that of integrated
gradients, in units of the score."""


def _told(found: Mean, sign: str = "") -> str:
    if math.isnan(found.estimate):
        return "no text"
    if math.isinf(found.half):
        return f"{found.estimate:{sign}.2f}"
    low, high = found.estimate - found.half, found.estimate + found.half
    return f"{found.estimate:{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


def _difference(own: dict[int, Cell], base: dict[int, Cell], name: str) -> str:
    seeds = sorted(own.keys() & base.keys())
    for seed in seeds:
        first, second = own[seed].key, base[seed].key
        if (first.data["fingerprint"], first.n) != (second.data["fingerprint"], second.n):
            raise DataError(f"{own[seed].row!r} and {base[seed].row!r} were asked about different texts")
    found = mean_of_seeds([fooled(own[seed], name) - fooled(base[seed], name) for seed in seeds])
    unclear = not math.isnan(found.estimate) and abs(found.estimate) <= found.half < math.inf
    return _told(found, "+") + (f", detectable {found.detectable:.2f}" if unclear else "")


def _error(own: dict[int, Cell]) -> str:
    errors = [cell.summary["completeness error"][0] for cell in own.values() if "completeness error" in cell.summary]
    return f"{np.mean(errors):.3f}" if errors else ""


_CONTROLS = (
    ("tau, the attack succeeded", "tau-b"),
    ("tau, as many words replaced at random", "words replaced at random"),
    ("tau, two models with random weights", "two random models"),
    ("tau, the same text and another seed", "another seed"),
    ("comprehensiveness", "comprehensiveness"),
    ("comprehensiveness of a random order", "of a random order"),
)


def render_controls(cells: Sequence[Cell]) -> str:
    """What noise alone does, beside what the attack did: every cell that has controls."""
    there = [cell for cell in cells if cell.key.measure.get("parameters", {}).get("controls")]
    if not there:
        return "Not yet run.\n"
    chosen = [(name, shown) for name, shown in _CONTROLS if any(name in cell.summary for cell in there)]
    lines = [["", "seed", *(shown for _, shown in chosen)], ["---"] * (len(chosen) + 2)]
    for cell in there:
        figures = [cell.summary.get(name) for name, _ in chosen]
        shown = ["" if each is None else f"{each[0]:.2f} ({each[1]:.2f} to {each[2]:.2f})" for each in figures]
        lines.append([cell.row, str(cell.key.seed), *shown])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_OF_CONTROLS}\n\n{table}\n"


_OF_CONTROLS = """\
One model each; 95 % bootstrap intervals over texts. Comprehensiveness of explanations does not compare models."""


def render_shares(cells: Sequence[Cell]) -> str:
    """How long the gradient of each term is beside that of the task's."""
    rows: dict[str, list[dict[str, list[float]]]] = {}
    for cell in cells:
        if cell.key.attack is None and cell.summary.get("gradient_shares"):
            rows.setdefault(cell.row, []).append(cell.summary["gradient_shares"])
    if not rows:
        return "Not yet run.\n"
    names = sorted({name for seeds in rows.values() for each in seeds for name in each})
    lines = [["", "seeds", *names], ["---"] * (len(names) + 2)]
    for row, seeds in rows.items():
        shown = [row, str(len(seeds))]
        for name in names:
            found = [each[name] for each in seeds if name in each]
            medians, least = ([each[place] for each in found] for place in (0, 1))
            shown.append(f"{np.median(medians):.3f} (smallest {min(least):.4f})" if found else "")
        lines.append(shown)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_OF_SHARES}\n\n{table}\n"


_OF_SHARES = """\
Length of a term's gradient divided by that of the task's loss: median over the training (every hundredth step) and
over seeds, and the smallest share."""


def render_rounds(cells: Sequence[Cell]) -> str:
    """What the rounds of attacks in training met: texts fooled, and substitutes that the model does not know."""
    rows: dict[str, list[list[dict[str, float]]]] = {}
    for cell in cells:
        if cell.key.attack is None and cell.summary.get("rounds"):
            rows.setdefault(cell.row, []).append(cell.summary["rounds"])
    if not rows:
        return "Not yet run.\n"
    longest = max(len(rounds) for seeds in rows.values() for rounds in seeds)
    head = ["", "seeds"]
    for number in range(1, longest + 1):
        head += [f"fooled in round {number}", f"unknown in round {number}"]
    lines = [head, ["---"] * len(head)]
    for row, seeds in rows.items():
        shown = [row, str(len(seeds))]
        for number in range(longest):
            there = [rounds[number] for rounds in seeds if number < len(rounds)]
            shown.append(_share([each["fooled"] / each["attacked"] for each in there if each["attacked"]]))
            shown.append(_share([each["unknown"] for each in there if "unknown" in each]))
        lines.append(shown)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_ROUNDS}\n\n{table}\n"


_ROUNDS = """\
In per cent, mean over seeds: attack success on the training texts; and the share of inserted words that are not in a
vocabulary of whole words."""


def _share(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f}" if values else ""
