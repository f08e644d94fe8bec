"""Every attack on four data sets, against a fine-tuned MiniLM: the table in docs/results/attacks.md.

    python benchmarks/attack_table.py --data PACK --out RUNS                  train what is missing, attack, print
    python benchmarks/attack_table.py --data PACK --out RUNS --minutes 9      stop after 9 minutes; again: go on
    python benchmarks/attack_table.py --out RUNS --write docs/results/attacks.md       only write what is there

PACK is a folder with sst2, ag_news, imdb and snli in it, each with train, dev and test .jsonl.gz and a meta.json with
the class names. A finished row is never attacked again, so the work can be cut into pieces of any length; a larger n
continues a smaller one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from isthmus.core import catalog
from isthmus.core.errors import IsthmusError
from isthmus.core.files import read_json
from isthmus.runs.folder import AttackFile, RunFolder
from isthmus.summaries.attack import summarise, together
from isthmus.training.settings import TrainingSettings
from isthmus.verbs.attack import AttackRequest, attack
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.train import TrainRequest, train

console = Console(width=140)


@dataclass(frozen=True)
class Plan:
    """A data set, how its victim is trained, and how many of its test texts are attacked."""

    name: str
    n: int
    slow: Mapping[str, int]
    """Fewer texts for attacks that ask many questions."""
    epochs: int = 2
    limit: int | None = None


PLANS = (
    Plan("sst2", 500, {"clare": 200, "hardlabel": 200}),
    Plan("ag_news", 500, {"clare": 100, "hardlabel": 200, "genetic": 200, "iga": 200, "pso": 200}),
    Plan("snli", 500, {"clare": 200, "hardlabel": 200}),
    Plan("imdb", 100, {"clare": 10, "hardlabel": 50, "genetic": 50, "iga": 50, "pso": 50}),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with sst2, ag_news, imdb and snli")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs, one each")
    parser.add_argument("--sets", nargs="+", default=[plan.name for plan in PLANS])
    parser.add_argument("--attacks", nargs="+", default=catalog.names("attacks"))
    parser.add_argument("--n", type=int, help="at most this many texts, for a quick look")
    parser.add_argument("--minutes", type=float, help="minutes after which no new attack starts")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--in-flight", type=int)
    parser.add_argument("--budget", type=int, help="maximum queries per text")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--write", type=Path, help="write the table there instead of attacking")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.write is not None:
        options.write.write_text(page(options.out), encoding="utf-8")
        return
    if options.data is None or not options.data.is_dir():
        sys.exit("give the folder of the data sets with --data (it should hold sst2, ag_news, imdb and snli)")
    end = time.monotonic() + 60 * (options.minutes or 1e6)
    plans = [plan for plan in PLANS if plan.name in options.sets]
    for plan in plans:
        train_victim(plan, options.data, options.out)
    if options.train_only:
        return
    # Attack after attack, so that a run that was cut short has something of every data set.
    for name in options.attacks:
        for plan in plans:
            if time.monotonic() < end:
                attack_victim(plan, name, options)


def train_victim(plan: Plan, data: Path, out: Path) -> None:
    """Fine-tune MiniLM, unless that was done."""
    settings = TrainingSettings(epochs=plan.epochs)
    request = TrainRequest(DataRequest(str(data / plan.name)), settings=settings, limit=plan.limit, out=out / plan.name)
    began = time.monotonic()
    report = train(request)
    results = report.record.results or {}
    console.print(f"{plan.name}: dev accuracy {results.get('dev_accuracy')} ({time.monotonic() - began:.0f} s)")


def attack_victim(plan: Plan, name: str, options: argparse.Namespace) -> None:
    """One attack on one data set; what goes wrong is said, and the next one begins."""
    n = min(plan.slow.get(name, plan.n), options.n or plan.n)
    request = AttackRequest(
        str(options.out / plan.name),
        (name,),
        n=n,
        budget=options.budget,
        precision=options.precision,
        in_flight=options.in_flight,
        command=f"isthmus attack {plan.name} --attack {name} --n {n} --precision {options.precision}",
    )
    began = time.monotonic()
    try:
        report = attack(request)
    except IsthmusError as error:
        console.print(f"[red]{plan.name} {name}: {error}[/red]")
        return
    header = report.outcomes[0].header
    summary, effort = header["summary"], header.get("effort") or {}
    rates = f"racc {summary['racc']:.3f} asr {summary['asr'] or 0:.3f} queries {summary['avg_queries'] or 0:8.1f}"
    cost = f"{time.monotonic() - began:6.1f} s, {effort.get('forwarded', 0)} rows"
    console.print(f"{plan.name:8} {name:12} n={summary['n']:4} {rates} {cost} {summary['outcomes']}")


# ---------------------------------------------------------------------- the page


def headers(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """The headers of all finished attacks of a run, by name."""
    for path in sorted(folder.attacks_path.glob("*.json")):
        header = read_json(path)
        if isinstance(header, dict) and header.get("summary"):
            yield header


TITLE = """# Every attack on a fine-tuned MiniLM

One victim per data set, one seed. The test texts are the first n of a seeded stratified order, so attacks with a
smaller n have a subset of the same texts. Rates with 95 % Wilson intervals, means with bootstrap intervals. "Nothing
tried" is the number of texts without candidates; they are counted as robust. "All together" is the union of the attacks
of the table, on their common texts.
"""


def page(out: Path) -> str:
    """The table as Markdown."""
    lines, used = [TITLE], dict[str, None]()
    for plan in PLANS:
        folder = RunFolder(out / plan.name)
        if folder.attacks_path.is_dir():
            found = list(headers(folder))
            lines += [*section(plan, folder), *(row(header["attack"], header["summary"]) for header in found)]
            lines += [row(f"all together ({len(found)} attacks)", union(folder, found)), ""]
            for header in found:
                for kind, name in header["settings"].get("resources", {}).items():
                    used[f"{header['attack']}: {kind} = {name}"] = None
    return "\n".join([*lines, "## Resources", "", *(f"- {line}" for line in used), ""])


def section(plan: Plan, folder: RunFolder) -> list[str]:
    """A heading, the victim, and the head of the table."""
    results = folder.record().results or {}
    columns: tuple[str, ...] = ("attack", "n", "accuracy", "robust accuracy", "success", "nothing tried", "queries")
    columns += ("words changed", "similarity")
    return [
        f"## {plan.name}",
        "",
        f"MiniLM, {results.get('examples', 0):,} training texts, {plan.epochs} epochs; accuracy on the development "
        f"split {100 * (results.get('dev_accuracy') or 0):.1f} % (n = {results.get('dev_examples', 0):,}).",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]


def union(folder: RunFolder, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary of all attacks together."""
    tables = [AttackFile(folder.attacks_path, header["attack"]).results() for header in found]
    return summarise(together(tables)).to_json()


def row(name: str, summary: Mapping[str, Any]) -> str:
    """One attack: rates in percent with their 95 % intervals."""
    cells = [name, str(summary["n"]), *(percent(summary, key) for key in ("sacc", "racc", "asr"))]
    cells.append(str(summary.get("no_candidates", "-")))
    cells.append(f"{summary['avg_queries']:.0f}" if summary["avg_queries"] is not None else "-")
    cells += [percent(summary, "words_changed"), "-" if summary.get("similarity") is None else number(summary)]
    return "| " + " | ".join(cells) + " |"


def percent(summary: Mapping[str, Any], key: str) -> str:
    value, bounds = summary[key], summary["intervals"][key]
    if value is None:
        return "-"
    return f"{100 * value:.1f} ({100 * bounds[0]:.1f}-{100 * bounds[1]:.1f})"


def number(summary: Mapping[str, Any]) -> str:
    low, high = summary["intervals"]["similarity"]
    return f"{summary['similarity']:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    main()
