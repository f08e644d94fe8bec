"""Robust accuracy of a randomised model as its scores are averaged over more draws, and with the same draws for all.

    python benchmarks/draws_sweep.py RUN --attack textfooler --n 100 --draws 1 5 10 50
    python benchmarks/draws_sweep.py RUN -V masking=random -V two_step=false -V k0=1    RSMI's random masking, Table 3
    isthmus report RUN                                                                  draws it

An attack that sees one draw may fail because of the noise in what it sees; with scores averaged over many draws that
excuse is gone. Robust accuracy that falls with the number of draws was obfuscation. ``fixed`` gives every query the
same draws: the model as a deterministic one. Every line is an attack of its own in the run folder, continued if it is
asked for again; successes are judged on fresh draws.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from isthmus.cli.options import victim as victim_options
from isthmus.core.statistics import Interval
from isthmus.runs.attack import AttackRequest, attack
from isthmus.runs.summary import Summary, summarise

console = Console(width=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder with a randomised model")
    parser.add_argument("--attack", default="textfooler")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 5, 10, 50])
    parser.add_argument("-V", "--victim", action="append", metavar="KEY=VALUE", help="as for isthmus attack")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--fresh", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--precision", default="fp32")
    return parser.parse_args()


def line(options: argparse.Namespace, **more: object) -> Summary:
    """The figures of one attack."""
    request = AttackRequest(
        model=options.run,
        attacks=(options.attack,),
        n=options.n,
        seed=options.seed,
        budget=options.budget,
        fresh=options.fresh,
        device=options.device,
        precision=options.precision,
        victim={**victim_options(options.victim, None), **more},
        label_check=False,
    )
    (outcome,) = attack(request).outcomes
    return summarise(outcome.rows)


def cell(interval: Interval) -> str:
    return f"{100 * interval.estimate:.1f} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def main() -> None:
    options = arguments()
    table = Table(title=f"{options.attack} on {options.run}, n {options.n}")
    for name in ("draws", "clean accuracy", "robust accuracy", "expected", "attack success", "queries", "abstained"):
        table.add_column(name, justify="right")
    lines = [(str(draws), {} if draws == 1 else {"draws": draws}) for draws in options.draws]
    for name, more in [*lines, ("fixed", {"fixed": True})]:
        summary = line(options, **more)
        expected = "" if summary.fresh is None else cell(summary.fresh.expected_racc)
        queries = f"{summary.avg_queries.estimate:.0f}"
        figures = [cell(summary.sacc), cell(summary.racc), expected, cell(summary.asr), queries]
        table.add_row(name, *figures, str(summary.abstained))
        console.print(f"draws {name}: robust accuracy {cell(summary.racc)}")
    console.print(table)


if __name__ == "__main__":
    main()
