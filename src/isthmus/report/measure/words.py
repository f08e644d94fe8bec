"""Learned importance of words: lists for the terminal, and a file of all words."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.files import write_atomic
from isthmus.core.visible import visible
from isthmus.measures.base import Measurement

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ORDERS = ("importance", "frequency", "replaced")


class WordRow(NamedTuple):
    """One word of one run."""

    run: str
    word: str
    importance: float
    frequency: int
    replaced: int


def check_order(order: str) -> None:
    """Refuse an unknown sort order."""
    if order not in ORDERS:
        raise UnknownName("order of words", order, ORDERS)


def check_path(path: Path) -> None:
    """Refuse a file name whose extension is not a known format."""
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"cannot tell the format of {str(path)!r}: use the extension .csv or .jsonl")


def word_rows(found: Measurement) -> list[WordRow]:
    """The words that a measurement lists, run by run."""
    runs: Sequence[Mapping[str, object]] = found.details.get("runs") or ()
    return [
        WordRow(str(run["run"]), str(word), float(importance), int(frequency), int(replaced))
        for run in runs
        for word, importance, frequency, replaced in run["rows"]  # type: ignore[attr-defined]
    ]


def print_words(console: Console, rows: Sequence[WordRow], n: int, order: str, least: int = 1) -> None:
    """Print the first words of every run, and the last if sorted by importance; words seen less often are counted."""
    from rich.columns import Columns
    from rich.text import Text

    for run in dict.fromkeys(row.run for row in rows):
        own = [row for row in rows if row.run == run]
        common = [row for row in own if row.frequency >= least]
        ranked = sorted(common, key=lambda row: (-getattr(row, order), -row.frequency, row.word))
        lists = {f"largest {order}": ranked[:n]}
        if order == "importance" and len(ranked) > n:
            lists["smallest importance"] = ranked[::-1][:n]
        console.print()
        rare = len(own) - len(common)
        times = "once" if least == 2 else f"{least - 1:,} times at most"
        told = f"   {len(own):,} words" + (f"; {rare:,} seen {times} are not listed" if rare else "")
        console.print(Text.assemble((visible(run), "bold"), (told, "dim")))
        if not common:
            console.print(f"no word of the training data is seen {least:,} times: try --least 1")
            continue
        console.print(Columns([_make_words_table(title, listed) for title, listed in lists.items()], padding=(0, 4)))


def _make_words_table(title: str, rows: Sequence[WordRow]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(Text(title), overflow="fold", min_width=14)
    for name in ("importance", "in training", "replaced"):
        table.add_column(name, justify="right")
    for row in rows:
        word = Text(visible(row.word, everything=True))
        table.add_row(word, f"{row.importance:.3f}", f"{row.frequency:,}", f"{row.replaced:,}")
    return table


def write_words(rows: Sequence[WordRow], path: Path) -> None:
    """Write every word, one line each."""
    check_path(path)
    if path.suffix.lower() == ".jsonl":
        write_atomic(path, "".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows))
        return
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(WordRow._fields)
    writer.writerows(rows)
    write_atomic(path, stream.getvalue())
