"""Tables of docs/results, written from the ledger between markers.

    <!-- table: defences data=sst2 attack=textfooler against=standard -->
    … written by `python benchmarks/tables.py write`; nothing here is edited by hand …
    <!-- end -->

The first word names the file, `results/defences.jsonl`. The others choose its cells: `data`, `split`, `backbone`,
`attack` and `n` by their names, and `rows` by patterns (`rows=standard,infobert*`). Rows are what cells call
themselves, one for every way of training and asking; each has the accuracy on whole test splits (cells without attack)
and the accuracy under the attack. Every row is compared with the row `against`, on the seeds and texts that both have;
with `against=vub:vib` each row of the first name with the row that has the second name in its place.
Intervals count seeds and texts (`isthmus.core.crossed`), p-values are corrected by Holm over the table, and beside
every difference that is not significant stands the smallest one that could have been seen.

`preset=NAME` chooses attacks under those limits; without it a table is of attacks without limits.
`measure=interpretation_consistency` makes a table of a measure of attacked texts (`ledger/measured.py`), chosen by
`method` and by `pairs` (own, or the row whose attacked texts are explained in all rows); with `show=controls` it is of
what noise alone does. `show=rounds` makes a table of the rounds of attacks in training, `show=shares` one of how long
the gradients of the terms were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.crossed import Comparison, crossed_difference, crossed_rate
from isthmus.core.errors import DataError
from isthmus.core.statistics import holm
from ledger.cells import Cell
from ledger.figures import covered, written_figures
from ledger.store import Ledger

_MARKED = re.compile(r"(<!-- table: (?P<spec>[^>]*?) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)
_OPENED = re.compile(r"<!-- table:")
_CHOICES = (
    "data",
    "split",
    "backbone",
    "attack",
    "n",
    "preset",
    "measure",
    "method",
    "pairs",
    "show",
    "rows",
    "against",
)
_NOT_OF_A_KEY = ("show", "rows", "against")
_LEVEL = 0.05


@dataclass(frozen=True)
class Spec:
    """What a marker asks for."""

    ledger: str
    choices: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> Spec:
        """The words of a marker."""
        ledger, *words = text.split() or [""]
        pairs = [word.partition("=") for word in words]
        if not ledger or any(not value or name not in _CHOICES for name, _, value in pairs):
            raise DataError(f"a table is named by a ledger and {', '.join(_CHOICES)}=…, not by {text!r}")
        return cls(ledger, {name: value for name, _, value in pairs})

    def wants(self, cell: Cell) -> bool:
        """Whether a cell is one of the table's."""
        key = cell.key
        if key.measure.get("name", "") != self.choices.get("measure", ""):
            return False
        if key.attack is not None and key.limits.get("preset", "") != self.choices.get("preset", ""):
            return False
        own = {"data": key.data["name"], "split": key.data.get("split", ""), "backbone": key.backbone}
        if key.attack is not None:
            own |= {"attack": key.attack["name"], "n": str(key.n), "preset": key.limits.get("preset", "")}
        if key.measure:
            own |= {"method": key.measure["parameters"]["method"], "pairs": key.measure["pairs"]}
        if "rows" in self.choices and not any(fnmatchcase(cell.row, each) for each in self.choices["rows"].split(",")):
            return False
        return all(own.get(name, value) == value for name, value in self.choices.items() if name not in _NOT_OF_A_KEY)


@dataclass
class Row:
    """The cells of one way of training and asking, by seed."""

    name: str
    clean: dict[int, Cell] = field(default_factory=dict)
    attacked: dict[int, Cell] = field(default_factory=dict)

    def add(self, cell: Cell) -> None:
        """Take a cell in; one that differs in more than the seed has no place in the same row."""
        group = self.clean if cell.key.attack is None else self.attacked
        for other in group.values():
            if (changed := _changed(cell, other)) or cell.key.seed == other.key.seed:
                where = changed or "nothing: there are two cells of one seed"
                raise DataError(f"cells of the row {self.name!r} differ in {where}; name their rows apart")
        group[cell.key.seed] = cell


def _changed(a: Cell, b: Cell) -> str:
    ours, theirs = a.key.to_json(), b.key.to_json()
    # A limited training set is drawn with the seed, so that its fingerprint is the seed's, too.
    for each in (ours, theirs):
        each.pop("seed")
        each["data"] = {name: value for name, value in each["data"].items() if name != "trained_on"}
    return ", ".join(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))


def render(spec: Spec, cells: Iterable[Cell]) -> str:
    """The table as Markdown, with the sentence that says how to read it."""
    if what := spec.choices.get("show"):
        from ledger.measured import render_controls, render_rounds, render_shares

        renderers = {"rounds": render_rounds, "controls": render_controls, "shares": render_shares}
        if what not in renderers:
            raise DataError(f"a table shows {', '.join(renderers)} or, without show=…, accuracy: not {what}")
        return renderers[what]([cell for cell in cells if spec.wants(cell)])
    if "measure" in spec.choices:
        from ledger.measured import render_measured

        return render_measured(spec.choices.get("against", ""), [cell for cell in cells if spec.wants(cell)])
    rows: dict[str, Row] = {}
    for cell in cells:
        if spec.wants(cell):
            rows.setdefault(cell.row, Row(cell.row)).add(cell)
    if not rows:
        return "Not yet run.\n"
    bases = _bases(rows, spec.choices.get("against", ""))
    chosen = {base.name for base in bases.values()}
    ordered = sorted(rows.values(), key=lambda row: len(chosen) > 1 or row.name not in chosen)
    compared = _compare(ordered, bases)
    against = "" if not bases else next(iter(chosen)) if len(chosen) == 1 else spec.choices["against"].split(":")[1]
    attack = _attack_name(ordered)
    groups = ["clean", "attacked"] if attack else ["clean"]
    head = ["", "seeds"]
    for group in groups:
        head += [f"accuracy under {attack}" if group == "attacked" else "accuracy"]
        head += [f"against {against}", "p"] if against else []
    lines = [head, ["---"] * len(head)]
    for row in ordered:
        shown = [row.name, _seeds(row)]
        for group in groups:
            shown.append(_rate(getattr(row, group)))
            shown += _told(compared.get((row.name, group))) if against else []
        lines.append(shown)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_caption(ordered, attack, len(compared))}\n\n{table}\n"


def _bases(rows: Mapping[str, Row], against: str) -> dict[str, Row]:
    """What each row is compared with."""
    first, _, second = against.partition(":")
    if second:
        return {name: rows[base] for name in rows if (base := name.replace(first, second)) != name and base in rows}
    return {name: rows[against] for name in rows if name != against} if against in rows else {}


def _attack_name(rows: Sequence[Row]) -> str | None:
    names = {str(cell.key.attack["name"]) for row in rows for cell in row.attacked.values() if cell.key.attack}
    if len(names) > 1:
        raise DataError(f"a table is of one attack: choose one of {', '.join(sorted(names))} by attack=…")
    return next(iter(names), None)


def _matrix(cells: Mapping[int, Cell], seeds: Iterable[int]) -> NDArray[np.float64]:
    return np.array([cells[seed].right for seed in seeds], dtype=np.float64)


def _rate(cells: Mapping[int, Cell]) -> str:
    if not cells:
        return "not yet run"
    found = crossed_rate(_matrix(cells, sorted(cells)))
    return f"{100 * found.estimate:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _compare(rows: Sequence[Row], bases: Mapping[str, Row]) -> dict[tuple[str, str], tuple[Comparison, float]]:
    """Every row against its base, with p-values corrected over the table."""
    found: dict[tuple[str, str], Comparison] = {}
    for row, base in ((row, bases[row.name]) for row in rows if row.name in bases):
        for group in ("clean", "attacked"):
            ours: dict[int, Cell] = getattr(row, group)
            theirs: dict[int, Cell] = getattr(base, group)
            seeds = sorted(ours.keys() & theirs.keys())
            if not seeds:
                continue
            first, second = ours[seeds[0]].key, theirs[seeds[0]].key
            if (first.data["fingerprint"], first.n) != (second.data["fingerprint"], second.n):
                raise DataError(f"{row.name!r} and {base.name!r} were asked about different texts")
            found[row.name, group] = crossed_difference(_matrix(ours, seeds), _matrix(theirs, seeds))
    corrected = holm([each.p_value for each in found.values()])
    return {name: (each, p) for (name, each), p in zip(found.items(), corrected, strict=True)}


def _told(found: tuple[Comparison, float] | None) -> list[str]:
    if found is None:
        return ["", ""]
    comparison, p_value = found
    change = comparison.difference
    text = f"{100 * change.estimate:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
    if p_value > _LEVEL:
        text += f", detectable {100 * comparison.detectable:.1f}"
    return [text, "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"]


def _seeds(row: Row) -> str:
    counts = [len(group) for group in (row.clean, row.attacked) if group]
    return "-".join(str(count) for count in sorted(set(counts)))


_IMAGES = {"digits", "mnist", "cifar10"}


def _caption(rows: Sequence[Row], attack: str | None, comparisons: int) -> str:
    sizes = {
        group: sorted({cell.key.n for row in rows for cell in getattr(row, group).values()})
        for group in ("clean", "attacked")
    }
    clean = " or ".join(f"{size:,}" for size in sizes["clean"])
    names = {cell.key.data["name"] for row in rows for cell in (*row.clean.values(), *row.attacked.values())}
    unit = "images" if names <= _IMAGES else "texts"
    parts = [f"In per cent, on {clean} test {unit}" if clean else "In per cent"]
    if attack:
        parts.append(f"under {attack} on {' or '.join(f'{size:,}' for size in sizes['attacked'])}")
    seeds = {len(group) for row in rows for group in (row.clean, row.attacked) if group}
    told = f"{' and '.join(parts)}; 95 % intervals {covered(seeds, unit)}."
    if comparisons:
        told += (
            f' p-values are corrected over the {comparisons} comparisons of the table (Holm). "Detectable":'
            " smallest detectable difference (80 % power)."
        )
    return _wrapped(told)


def _wrapped(text: str, width: int = 120) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


def written(page: str, results: Path) -> str:
    """The text of a page with every table between markers written from its ledger; the rest stays."""
    if len(_OPENED.findall(page)) != len(_MARKED.findall(page)):
        raise DataError("a table is opened and not closed: every `<!-- table: … -->` needs its `<!-- end -->`")
    known: dict[str, list[Cell]] = {}

    def table(match: re.Match[str]) -> str:
        spec = Spec.read(match["spec"])
        if spec.ledger not in known:
            known[spec.ledger] = list(Ledger(results / f"{spec.ledger}.jsonl"))
        return f"{match[1]}{render(spec, known[spec.ledger])}{match[4]}"

    return written_figures(_MARKED.sub(table, page), results)


def stale(pages: Iterable[Path], results: Path) -> list[Path]:
    """Pages whose tables differ from the ledger."""
    return [page for page in pages if (text := page.read_text(encoding="utf-8")) != written(text, results)]


def figures(cells: Iterable[Cell]) -> dict[str, Any]:
    """How many cells, by data set and attack, for a list on the terminal."""
    counts: dict[str, int] = {}
    for cell in cells:
        attack = cell.key.attack["name"] if cell.key.attack else "no attack"
        name = f"{cell.key.data['name']}, {cell.key.backbone}, {attack}"
        name += f", {cell.key.measure['name']}" if cell.key.measure else ""
        counts[name] = counts.get(name, 0) + 1
    return counts
