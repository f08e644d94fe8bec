"""Times that were measured, kept in `results/times/attack_speed.jsonl`, and the tables of the page written from them.

A time belongs to its machine, so the processor's name is part of what a line is about; a line that is measured again
on the same processor takes the place of the old one. Tables stand on the page between

    <!-- times: cpu -->                     … every recipe, side and precision …
    <!-- end of times -->

with `cpu`, `host`, `lengths`, `start`, `gpu` or `processes`.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.files import write_atomic
from speed.record import Record

Line = dict[str, Any]
_KEY = ("kind", "processor", "recipe", "side", "precision", "n", "threads")
_MARKED = re.compile(r"(<!-- times: (?P<kind>\w+) -->\n)(?P<table>.*?)(<!-- end of times -->)", re.DOTALL)
_ORDER = (
    "textattack", "textattack unpadded", "isthmus", "ideal", "ideal, oneDNN", "raw forward", "bare", "everything on",
    "200 words", "2000 words",
)  # fmt: skip


def line_of(kind: str, runs: Sequence[Record], n: int | None, threads: int) -> Line:
    """What several runs of one side measured: the median of the seconds, and all of them."""
    seconds = [record.seconds for record in runs]
    middle = min(runs, key=lambda record: abs(record.seconds - statistics.median_low(seconds)))
    kinds = [row["outcome"] for row in middle.outcomes]
    return {
        "kind": kind, "processor": middle.processor, "recipe": middle.recipe, "side": middle.side,
        "precision": middle.precision, "n": n, "threads": threads, "seconds": [round(each, 3) for each in seconds],
        "examples": middle.examples, "rows": middle.rows, "filled": middle.filled,
        "mean_batch": round(middle.mean_batch, 2), "padding": round(middle.padding_waste, 4),
        "succeeded": kinds.count("succeeded"), "attacked": kinds.count("succeeded") + kinds.count("failed"),
        "notes": {name: value for name, value in middle.notes.items() if isinstance(value, int | float)},
    }  # fmt: skip


def read(path: Path) -> list[Line]:
    """All lines; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add(path: Path, lines: Iterable[Line]) -> None:
    """Take lines in; each replaces what was measured of the same thing on the same processor."""
    known = {_key(line): line for line in (*read(path), *lines)}
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(known.values(), key=lambda line: json.dumps(_key(line)))
    write_atomic(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ordered).encode())


def _key(line: Line) -> tuple[Any, ...]:
    return tuple(line[name] for name in _KEY)


def written(page: str, lines: Sequence[Line]) -> str:
    """The page with every table as the lines have it."""
    return _MARKED.sub(lambda found: f"{found[1]}{table(found['kind'], lines)}{found[4]}", page)


def table(kind: str, lines: Sequence[Line]) -> str:
    """One table as Markdown."""
    own = sorted(
        (line for line in lines if line["kind"] == kind),
        key=lambda line: (line["processor"], line["recipe"], line["precision"], line["n"] or 0, _place(line["side"])),
    )
    if not own:
        return "Not yet run.\n"
    kinds = {"cpu": _cpu_rows, "host": _host_rows, "lengths": _length_rows, "gpu": _gpu_rows}
    kinds |= {"processes": _process_rows, "start": _start_rows}
    return "".join(f"| {' | '.join(row)} |\n" for row in kinds[kind](own))


def _place(side: str) -> tuple[int, str]:
    """Where a side stands among the others; ways of sharing a card by their names."""
    return (_ORDER.index(side), "") if side in _ORDER else (len(_ORDER), side)


def _cpu_rows(lines: Sequence[Line]) -> list[list[str]]:
    head = ["processor", "recipe", "texts", "side", "precision", "CPU s", "rows", "filled", "mean batch", "padding"]
    rows = [[*head, "success", "isthmus against it"], ["---"] * 12]
    for line in _of_most_texts(lines):
        success = f"{line['succeeded']} of {line['attacked']}" if line["attacked"] else ""
        cells = [line["processor"], line["recipe"], str(line["n"]), line["side"], line["precision"]]
        cells += [
            _spread(line["seconds"]),
            f"{line['rows']:,}",
            f"{line['filled']:,}" if line["side"] == "isthmus" else "",
        ]
        cells += [f"{line['mean_batch']:.1f}", f"{line['padding']:.1%}", success, _against(line, lines)]
        rows.append(cells)
    return rows


def _of_most_texts(lines: Sequence[Line]) -> list[Line]:
    """What was measured again on more texts, on the same processor, is kept in the file and not shown."""
    most: dict[tuple[Any, ...], int] = {}
    for line in lines:
        kind = tuple(line[name] for name in _KEY if name != "n")
        most[kind] = max(most.get(kind, 0), line["n"] or 0)
    return [line for line in lines if (line["n"] or 0) == most[tuple(line[name] for name in _KEY if name != "n")]]


def _against(line: Line, lines: Sequence[Line]) -> str:
    """How many times as fast isthmus is, run by run; of an ideal the share that it reaches."""
    if line["side"] == "isthmus":
        return ""
    same = [each for each in lines if all(each[name] == line[name] for name in ("processor", "recipe", "n", "threads"))]
    found = []
    for ours in same:
        limit = line["side"].startswith("ideal")
        if ours["side"] != "isthmus" or (limit and ours["precision"] != line["precision"]):
            continue
        ratios = [theirs / own for theirs, own in zip(line["seconds"], ours["seconds"], strict=False)]
        if limit:
            found.append(f"{_spread([100 * ratio for ratio in ratios], 0)} %")
        else:
            found.append(f"{_spread(ratios)} times in {ours['precision']}")
    return ", ".join(found)


def _spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and in brackets the least and the most where there are several."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def _host_rows(lines: Sequence[Line]) -> list[list[str]]:
    rows = [["processor", "", "texts", "compiled part", "queries/s", "µs a text"], ["---"] * 6]
    for line in lines:
        rates = [line["rows"] / seconds for seconds in line["seconds"]]
        cells = [
            line["processor"],
            line["side"],
            f"{line['examples']:,}",
            "yes" if line["notes"].get("compiled") else "no",
        ]
        rows.append([*cells, _spread(rates, 0), f"{1e6 * statistics.median(line['seconds']) / line['examples']:.0f}"])
    return rows


def _gpu_rows(lines: Sequence[Line]) -> list[list[str]]:
    head = ["card", "recipe", "precision", "texts", "side", "rows", "mean batch", "rows/s", "of the raw rate"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        rates, share = [line["rows"] / seconds for seconds in line["seconds"]], line["notes"].get("of the raw rate")
        cells = [
            line["processor"],
            line["recipe"],
            line["precision"],
            f"{line['examples']:,}" if line["examples"] else "",
        ]
        cells += [line["side"], f"{line['rows']:,}", f"{line['mean_batch']:.0f}", _spread(rates, 0)]
        rows.append([*cells, "" if share is None else f"{share:.0%}"])
    return rows


def _process_rows(lines: Sequence[Line]) -> list[list[str]]:
    head = ["processor", "attack", "precision", "texts", "processes, how they share the card", "queries/s"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        rates = [line["rows"] / seconds for seconds in line["seconds"]]
        cells = [line["processor"], line["recipe"], line["precision"], f"{line['n']:,}", line["side"]]
        rows.append([*cells, _spread(rates, 0)])
    return rows


def _start_rows(lines: Sequence[Line]) -> list[list[str]]:
    rows = [["processor", "attack", "seconds to the first batch", "of them the processor's"], ["---"] * 4]
    for line in lines:
        cells = [line["processor"], line["recipe"], _spread(line["seconds"], 1)]
        rows.append([*cells, f"{line['notes']['cpu s']:.1f}"])
    return rows


def _length_rows(lines: Sequence[Line]) -> list[list[str]]:
    rows = [["processor", "texts of", "texts", "queries", "µs a query", "µs a row forwarded"], ["---"] * 6]
    for line in lines:
        notes = line["notes"]
        cells = [line["processor"], line["side"], str(line["n"]), f"{notes['logical queries']:,}"]
        rows.append([*cells, f"{notes['us a query']:.0f}", f"{notes['us a row']:.0f}"])
    return rows
