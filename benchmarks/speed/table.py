"""The figures as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from speed.ideal import OWN
from speed.record import Record


def show_sides(recipe: str, records: Sequence[Record], console: Console) -> None:
    """One line per side, then the ratios the benchmark exists for."""
    title = f"{recipe}, first {max(record.examples for record in records)} texts, {records[0].processor}"
    table = Table(title=title, title_justify="left")
    for name in ("side", "precision"):
        table.add_column(name)
    for name in (
        "examples/s",
        "queries/s",
        "queries",
        "filled",
        "mean batch",
        "padding",
        "memory MB",
        "success",
        "host",
    ):
        table.add_column(name, justify="right")
    for record in records:
        table.add_row(*_cells(record))
    console.print(table)
    for line in ratios(records):
        console.print(f"  {line}")


def _cells(record: Record) -> tuple[str, ...]:
    if "failed" in record.notes:
        return (record.side, record.precision, record.notes["failed"], *[""] * 8)
    attacked = bool(record.outcomes)
    return (
        record.side,
        record.precision,
        f"{record.examples_per_s:,.2f}" if attacked else "",
        f"{record.queries_per_s:,.0f}",
        f"{record.rows:,}",
        f"{record.filled:,}" if record.side == "isthmus" else "",
        f"{record.mean_batch:,.1f}",
        f"{record.padding_waste:.1%}",
        f"{record.peak_memory_mb:,.0f}",
        f"{record.success:.1%}" if attacked else "",
        f"{record.host_share:.1%}" if attacked else "",
    )


def ratios(records: Sequence[Record]) -> list[str]:
    """isthmus against TextAttack and against the ideal, and how far the two agree on each example."""
    found = {(record.side, record.precision): record for record in records if "failed" not in record.notes}
    theirs, unpadded = found.get(("textattack", "fp32")), found.get((UNPADDED, "fp32"))
    lines = []
    for precision in ("fp32", "bf16"):
        ours = found.get(("isthmus", precision))
        if ours is None:
            continue
        if theirs is not None:
            faster = ours.examples_per_s / theirs.examples_per_s
            lines.append(f"isthmus {precision}: {faster:.2f} times TextAttack's examples/s; {agreement(ours, theirs)}")
        if unpadded is not None:
            faster = ours.examples_per_s / unpadded.examples_per_s
            lines.append(f"isthmus {precision}: {faster:.2f} times TextAttack's examples/s without its padding")
        for side in IDEALS:
            ideal = found.get((side, precision))
            if ideal is not None:
                lines.append(f"isthmus {precision}: {ideal.cpu_s / ours.cpu_s:.1%} of the rate of {side}")
        if precision == "bf16":
            lines.append(unconfirmed(ours))
    return lines


UNPADDED = "textattack unpadded"
"""TextAttack with batches padded to their longest row only."""
IDEALS = ("ideal", OWN)
LEAST_OF_IDEAL = {"fp32": 0.9, "bf16": 0.85}
"""Share of either ideal's rate that isthmus must reach; confirmations in fp32 are part of the bf16 ideal."""
MOST_GROWTH = 1.5
"""How many times as much a row may cost the host on texts of 2,000 words as on texts of 200."""
LEAST_HOST = {"bare": 200_000, "everything on": 120_000}
"""Queries a second that the engine must reach on one core with a victim that costs nothing."""


def missed_targets(recipe: str, records: Sequence[Record]) -> list[str]:
    """What a recipe falls short of; a target that was not measured in fp32 counts as missed."""
    found = {(record.side, record.precision): record for record in records if "failed" not in record.notes}
    missed = []
    for precision, least in LEAST_OF_IDEAL.items():
        ours, ideal = found.get(("isthmus", precision)), found.get(("ideal", precision))
        if ours is None or ideal is None:
            if precision == "fp32":
                return [f"{recipe}: isthmus and the ideal were not both measured in fp32"]
            continue
        for side in IDEALS:
            limit = found.get((side, precision))
            share = least if limit is None else limit.cpu_s / ours.cpu_s
            if share < least:
                rate = f"{share:.1%} of the rate of {side} in {precision}"
                missed.append(f"{recipe}: {rate}, at least {least:.0%} is the target")
        for side in ("textattack", UNPADDED):
            theirs = found.get((side, "fp32"))
            if theirs is not None and ours.examples_per_s < theirs.examples_per_s:
                rates = f"{ours.examples_per_s:.2f} examples/s in {precision}, {side} has {theirs.examples_per_s:.2f}"
                missed.append(f"{recipe}: {rates}")
    return missed


def missed_by_length(records: Sequence[Record]) -> list[str]:
    """Whether a row of a long text costs too much."""
    short, long = (record.notes["us a row"] for record in records)
    if long <= MOST_GROWTH * short:
        return []
    return [f"a row costs {long / short:.2f} times as much at 2,000 words as at 200, {MOST_GROWTH} is the target"]


def missed_by_host(records: Sequence[Record]) -> list[str]:
    """Which rates of the engine alone are too low."""
    return [
        f"{record.side}: {record.queries_per_s:,.0f} queries/s, at least {LEAST_HOST[record.side]:,} is the target"
        for record in records
        if record.queries_per_s < LEAST_HOST[record.side]
    ]


def unconfirmed(record: Record) -> str:
    """The successes in bfloat16 that float32 took back."""
    gone = record.notes.get("unconfirmed", 0)
    held = sum(row["outcome"] == "succeeded" for row in record.outcomes)
    return f"bf16: {gone} successes did not hold in fp32, while {held} examples ended as successes"


def agreement(ours: Record, theirs: Record) -> str:
    """How many examples end alike: the outcome, and the very text."""
    pairs = list(zip(ours.outcomes, theirs.outcomes, strict=True))
    outcomes = sum(mine["outcome"] == other["outcome"] for mine, other in pairs)
    texts = sum(mine["perturbed"] == other["perturbed"] for mine, other in pairs)
    return f"same outcome on {outcomes}, same text on {texts} of {len(pairs)}"


def show_rates(title: str, records: Sequence[Record], console: Console) -> None:
    """Sides without a counterpart (host alone, GPU): rates, and below the table where the time goes."""
    table = Table(title=title, title_justify="left")
    for name in ("side", "precision"):
        table.add_column(name)
    for name in ("queries/s", "queries", "examples/s", "mean batch", "padding", "seconds", "host"):
        table.add_column(name, justify="right")
    for record in records:
        attacked = record.examples > 0
        table.add_row(
            record.side,
            record.precision,
            f"{record.queries_per_s:,.0f}",
            f"{record.rows:,}",
            f"{record.examples_per_s:,.0f}" if attacked else "",
            f"{record.mean_batch:,.0f}",
            f"{record.padding_waste:.1%}",
            f"{record.seconds:.2f}",
            f"{record.host_share:.1%}" if attacked else "",
        )
    console.print(table)
    for record in records:
        notes = ", ".join(f"{key} {_short(value)}" for key, value in record.notes.items())
        console.print(f"  {record.side} {record.precision}: {notes}")


def _short(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)
