"""Robust accuracy of a randomised model as searches see more of its draws.

    python benchmarks/draws_sweep.py RUN --search-draws 0 4 8 16 28 --n 100 --rows rows.jsonl
    python benchmarks/draws_sweep.py RUN --attack textfooler --n 100 --draws 1 5 10 50
    python benchmarks/draws_sweep.py RUN -V masking=random -V two_step=false -V k0=1    RSMI's random masking, Table 3
    isthmus report RUN                                                                  draws the second and the third

An attack that sees one draw may fail because of the noise in what it sees, or stop at a lucky one.

``--search-draws`` compares searches over K draws that stay the same throughout (0: another draw for every query, with
second looks and restarts). All are judged alike, on fresh draws of the model as it is deployed. The table has the
texts each leaves, McNemar's exact test against the first line, and the draws it took; the last lines are the union of
the first search with each of the others. ``--rows`` writes one line of JSON for each text and search.

``--draws`` gives the victim's answers as means over K draws (``-V draws=K``) to the search of single draws, and to its
judge. Robust accuracy that falls with the number of draws was obfuscation. ``fixed`` gives every query the same draws:
the model as a deterministic one.

Every line is an attack of its own in the run folder, continued if it is asked for again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.attacks.result import AttackResult
from isthmus.cli.options import victim as victim_options
from isthmus.core.statistics import Interval, bootstrap_mean, mcnemar
from isthmus.summaries.attack import summarise, together
from isthmus.verbs.attack import AttackRequest, attack
from isthmus.verbs.sources import DataRequest

console = Console(width=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder with a randomised model")
    parser.add_argument("--data", help="other data than the run's own")
    parser.add_argument("--out", type=Path, help="where rows go, where it is not the run's own folder")
    parser.add_argument("--attack", default="textfooler")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--search-draws", type=int, nargs="+", metavar="K", help="compare searches over shared draws")
    parser.add_argument("--rows", type=Path, help="with --search-draws: a JSON line for each text and search")
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 5, 10, 50])
    parser.add_argument("-V", "--victim", action="append", metavar="KEY=VALUE", help="as for isthmus attack")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--fresh", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--precision", default="fp32")
    return parser.parse_args()


def attacked(options: argparse.Namespace, search_draws: int, **more: object) -> tuple[AttackResult, ...]:
    """The results of one attack."""
    request = AttackRequest(
        model=options.run,
        attacks=(options.attack,),
        data=None if options.data is None else DataRequest(options.data),
        out=options.out,
        n=options.n,
        seed=options.seed,
        budget=options.budget,
        fresh=options.fresh,
        restarts=options.restarts,
        search_draws=search_draws,
        device=options.device,
        precision=options.precision,
        victim={**victim_options(options.victim, None), **more},
        label_check=False,
    )
    (outcome,) = attack(request).outcomes
    return outcome.results


def cell(interval: Interval, scale: float = 100) -> str:
    return f"{scale * interval.estimate:.1f} ({scale * interval.low:.1f}–{scale * interval.high:.1f})"


# ---------------------------------------------------------------------- searches


def left(rows: Sequence[AttackResult]) -> list[bool]:
    """For every text whether the model holds it."""
    return [row.outcome == "failed" for row in rows]


def compared(name: str, rows: Sequence[AttackResult], first: Sequence[AttackResult]) -> dict[str, str]:
    """One line of the table."""
    summary = summarise(rows)
    assert [row.id for row in rows] == [row.id for row in first]
    test, held = mcnemar(left(rows), left(first)), left(rows)
    tried = [float(row.logical_queries) for row in rows if row.outcome in ("succeeded", "failed")]
    texts = [float(row.physical_queries) for row in rows if row.outcome in ("succeeded", "failed")]
    return {
        "search draws": name,
        "right": str(summary.correct),
        "left": str(sum(held)),
        "robust accuracy": cell(summary.racc),
        "expected": "" if summary.fresh is None else cell(summary.fresh.expected_racc),
        "claimed, held": "" if summary.fresh is None else f"{summary.fresh.claimed}, {summary.fresh.held}",
        "against the first": "" if rows is first else f"{test.b} : {test.c}, p {test.p_value:.2g}",
        "draws a text": cell(bootstrap_mean(tried), 1),
        "texts": f"{bootstrap_mean(texts).estimate:.0f}",
    }


def searches(options: argparse.Namespace) -> None:
    """Compare searches over shared draws."""
    found: dict[str, Sequence[AttackResult]] = {}
    for draws in options.search_draws:
        rows = attacked(options, draws)
        found[str(draws)] = rows
        console.print(f"search draws {draws}: robust accuracy {cell(summarise(rows).racc)}")
        if options.rows is not None:
            with options.rows.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({"search_draws": draws, **row.to_row()}) + "\n" for row in rows)
    first, *others = found
    found |= {f"{first} or {other}": together([found[first], found[other]]) for other in others}
    lines = [compared(name, rows, found[first]) for name, rows in found.items()]
    table = Table(title=f"{options.attack} on {options.run}, n {options.n}, {options.fresh} fresh draws")
    for heading in lines[0]:
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(*line.values())
    console.print(table)


# ---------------------------------------------------------------------- means for answers


def means(options: argparse.Namespace) -> None:
    """Compare means over more and more answers."""
    table = Table(title=f"{options.attack} on {options.run}, n {options.n}")
    for name in ("draws", "clean accuracy", "robust accuracy", "expected", "attack success", "queries", "abstained"):
        table.add_column(name, justify="right")
    lines: list[tuple[str, dict[str, Any]]] = [
        (str(draws), {} if draws == 1 else {"draws": draws}) for draws in options.draws
    ]
    for name, more in [*lines, ("fixed", {"fixed": True})]:
        summary = summarise(attacked(options, 0, **more))
        expected = "" if summary.fresh is None else cell(summary.fresh.expected_racc)
        figures = [cell(summary.sacc), cell(summary.racc), expected, cell(summary.asr)]
        table.add_row(name, *figures, f"{summary.avg_queries.estimate:.0f}", str(summary.abstained))
        console.print(f"draws {name}: robust accuracy {cell(summary.racc)}")
    console.print(table)


def main() -> None:
    options = arguments()
    if options.search_draws:
        searches(options)
    else:
        means(options)


if __name__ == "__main__":
    main()
