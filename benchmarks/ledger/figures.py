"""Tables of many columns, and of figures other than accuracy, between markers.

    <!-- figures: ib_robustness data=mnist rows=ce,ib columns=benign,fgsm-0.1 -->                  accuracy
    <!-- figures: ib_robustness data=mnist rows=ib* columns=fgsm-0.3 value=rate_bits -->           a figure by its name
    <!-- figures: ib_robustness data=mnist rows=ib,ib-draws columns=pgd-0.2 against=ib:ce -->      differences

Cells of such a ledger call themselves `row/column`. Rows and columns stand in the order of the marker; a pattern takes
what it matches in the order of the ledger. Accuracy counts seeds and images (`isthmus.core.crossed`); other figures are
means over seeds with Student's interval. With `against` every cell holds the difference to the row that has the second
name in the place of the first (or to the one row that is named), paired by seed and image, and p-values are
corrected by Holm over the table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from isthmus.core.crossed import crossed_difference, crossed_rate
from isthmus.core.errors import DataError
from isthmus.core.statistics import holm
from ledger.cells import Cell
from ledger.store import Ledger

_MARKED = re.compile(r"(<!-- figures: (?P<spec>[^>]*?) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)
_OPENED = re.compile(r"<!-- figures:")
_CHOICES = ("data", "rows", "columns", "value", "against", "digits")
Seeds = Mapping[int, Cell]


@dataclass(frozen=True)
class FigureSpec:
    """What a marker asks for."""

    ledger: str
    choices: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> FigureSpec:
        """The words of a marker."""
        ledger, *words = text.split() or [""]
        pairs = [word.partition("=") for word in words]
        if not ledger or any(not value or name not in _CHOICES for name, _, value in pairs):
            raise DataError(f"figures are named by a ledger and {', '.join(_CHOICES)}=…, not by {text!r}")
        found = {name: value for name, _, value in pairs}
        if "columns" not in found:
            raise DataError(f"figures need columns=…, and {text!r} has none")
        return cls(ledger, found)

    @property
    def value(self) -> str:
        """The name of the figure; empty for accuracy."""
        return self.choices.get("value", "")


def render_figures(spec: FigureSpec, cells: Sequence[Cell]) -> str:
    """The table as Markdown, with the sentence that says how to read it."""
    table: dict[str, dict[str, dict[int, Cell]]] = {}
    for cell in cells:
        row, _, column = cell.row.rpartition("/")
        if spec.choices.get("data", cell.key.data["name"]) != cell.key.data["name"] or not row:
            continue
        if spec.value and spec.value not in cell.summary:
            continue
        known = table.setdefault(row, {}).setdefault(column, {})
        if cell.key.seed in known:
            raise DataError(f"two cells of {cell.row!r}, seed {cell.key.seed}: name their rows apart")
        known[cell.key.seed] = cell
    rows = _chosen(spec.choices.get("rows", "*"), list(table))
    columns = _chosen(spec.choices["columns"], list(dict.fromkeys(name for row in table.values() for name in row)))
    if not any(table[row].get(column) for row in rows for column in columns):
        return "Not yet run.\n"
    if "against" in spec.choices:
        return _differences(spec, table, rows, columns)
    lines = [["", "seeds", *columns], ["---"] * (len(columns) + 2)]
    for row in rows:
        found = [table[row].get(column, {}) for column in columns]
        counts = sorted({len(each) for each in found if each})
        if counts:
            lines.append([row, "-".join(map(str, counts)), *(_shown(spec, each) for each in found)])
    seeds = {len(each) for row in rows for column in columns if (each := table[row].get(column))}
    told = _means(spec) if spec.value else f"In per cent; 95 % intervals {covered(seeds, 'images')}."
    return f"{told} {_sizes(table, rows, columns)}\n\n{_markdown(lines)}\n"


def _chosen(patterns: str, known: Sequence[str]) -> list[str]:
    found = [name for pattern in patterns.split(",") for name in known if fnmatchcase(name, pattern)]
    return list(dict.fromkeys(found))


def covered(seeds: Collection[int], unit: str) -> str:
    """What intervals cover in a table whose rows have these numbers of seeds; one seed says nothing about others."""
    if max(seeds, default=1) == 1:
        return f"cover {unit} alone (one seed)"
    return f"cover seeds and {unit}" + (f", with one seed {unit} alone" if min(seeds) == 1 else "")


def _means(spec: FigureSpec) -> str:
    return f"`{spec.value}`: means, and 95 % intervals over seeds."


def _sizes(table: Mapping[str, Mapping[str, Seeds]], rows: Sequence[str], columns: Sequence[str]) -> str:
    counts = {cell.key.n for row in rows for column in columns for cell in table[row].get(column, {}).values()}
    return f"n = {' or '.join(f'{count:,}' for count in sorted(counts))} test images."


def _shown(spec: FigureSpec, cells: Seeds) -> str:
    if not cells:
        return "not yet run"
    if not spec.value:
        found = crossed_rate(np.array([cells[seed].right for seed in sorted(cells)], dtype=np.float64))
        return f"{100 * found.estimate:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"
    values = [float(cells[seed].summary[spec.value]) for seed in sorted(cells)]
    return _mean(values, int(spec.choices.get("digits", "2")))


def _mean(values: Sequence[float], digits: int, sign: str = "") -> str:
    known = np.array(values, dtype=np.float64)
    mean = f"{known.mean():{sign}.{digits}f}"
    if len(known) == 1 or np.ptp(known) == 0:
        return mean
    from scipy.stats import t

    half = float(t.ppf(0.975, len(known) - 1)) * known.std(ddof=1) / np.sqrt(len(known))
    return f"{mean} ({known.mean() - half:{sign}.{digits}f} to {known.mean() + half:{sign}.{digits}f})"


def _differences(
    spec: FigureSpec, table: Mapping[str, Mapping[str, Seeds]], rows: Sequence[str], columns: Sequence[str]
) -> str:
    """Every row less its base, column by column."""
    first, _, second = spec.choices["against"].partition(":")
    found: dict[tuple[str, str], _Change] = {}
    for row in rows:
        base = first if not second else row.replace(first, second)
        if base == row or base not in table:
            continue
        for column in columns:
            ours, theirs = table[row].get(column, {}), table[base].get(column, {})
            if seeds := sorted(ours.keys() & theirs.keys()):
                found[row, column] = _difference(spec, [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
    if not found:
        return "Not yet run.\n"
    known = {place: change.p for place, change in found.items() if not np.isnan(change.p)}
    corrected = dict(zip(known, holm(list(known.values())), strict=True))
    lines = [[f"against {second or first}", "seeds", *columns], ["---"] * (len(columns) + 2)]
    for row in rows:
        counts = sorted({found[row, column].seeds for column in columns if (row, column) in found})
        if counts:
            told = [_told(found.get((row, column)), corrected.get((row, column))) for column in columns]
            lines.append([row, "-".join(map(str, counts)), *told])
    unit = "Differences in points of accuracy, paired by seed and image" if not spec.value else (
        f"Differences in `{spec.value}`, paired by seed (t)"
    )  # fmt: skip
    if corrected:
        unit += f"; p-values are corrected over the {len(corrected)} of the table (Holm)"
    if any(change.detectable and corrected.get(place, 0.0) > _LEVEL for place, change in found.items()):
        unit += '. "Detectable": smallest detectable difference (80 % power)'
    return f"{unit}.\n\n{_markdown(lines)}\n"


_LEVEL = 0.05
"""Above it a difference is not significant, and what could have been seen stands beside it."""
_POWER = 0.8
"""With which such a difference is found."""


@dataclass(frozen=True)
class _Change:
    """One cell of a table of differences."""

    text: str
    p: float
    seeds: int
    detectable: str = ""


def _told(change: _Change | None, p: float | None) -> str:
    if change is None:
        return "not yet run"
    if p is None:
        return change.text
    seen = f", detectable {change.detectable}" if change.detectable and p > _LEVEL else ""
    return f"{change.text}, p {'< 0.001' if p < 0.001 else f'{p:.3f}'}{seen}"


def _difference(spec: FigureSpec, ours: Sequence[Cell], theirs: Sequence[Cell]) -> _Change:
    if not spec.value:
        for a, b in zip(ours, theirs, strict=True):
            if (a.key.data["fingerprint"], a.key.n) != (b.key.data["fingerprint"], b.key.n):
                raise DataError(f"{a.row!r} and {b.row!r} were asked about different images")
        right, their_right = (np.array([cell.right for cell in side], dtype=np.float64) for side in (ours, theirs))
        found = crossed_difference(right, their_right)
        change = found.difference
        text = f"{100 * change.estimate:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
        return _Change(text, float(found.p_value), found.seeds, f"{100 * found.detectable:.1f}")
    values = np.array([[float(cell.summary[spec.value]) for cell in side] for side in (ours, theirs)])
    change_by_seed = values[0] - values[1]
    digits, seeds = int(spec.choices.get("digits", "2")), len(change_by_seed)
    text = _mean(list(change_by_seed), digits, sign="+")
    if seeds < 2 or np.ptp(change_by_seed) == 0:
        return _Change(text, float("nan"), seeds)
    from scipy.stats import t, ttest_rel

    error = change_by_seed.std(ddof=1) / np.sqrt(seeds)
    detectable = float(t.ppf(0.975, seeds - 1) + t.ppf(_POWER, seeds - 1)) * error
    return _Change(text, float(ttest_rel(values[0], values[1]).pvalue), seeds, f"{detectable:.{digits}f}")


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def written_figures(page: str, results: Path) -> str:
    """The text of a page with every table of figures between markers written from its ledger; the rest stays."""
    if len(_OPENED.findall(page)) != len(_MARKED.findall(page)):
        raise DataError("figures are opened and not closed: every `<!-- figures: … -->` needs its `<!-- end -->`")
    known: dict[str, list[Cell]] = {}

    def table(match: re.Match[str]) -> str:
        spec = FigureSpec.read(match["spec"])
        if spec.ledger not in known:
            known[spec.ledger] = list(Ledger(results / f"{spec.ledger}.jsonl"))
        return f"{match[1]}{render_figures(spec, known[spec.ledger])}{match[4]}"

    return _MARKED.sub(table, page)
