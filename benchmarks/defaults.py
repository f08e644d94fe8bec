"""Every defence at its defaults on Rotten Tomatoes, beside standard training: what does it cost in accuracy?

    python benchmarks/defaults.py --list                                        what is done, and what is not
    python benchmarks/defaults.py --backbone cnn --device cpu                   one process on the CPU
    python benchmarks/defaults.py --backbone minilm --device cuda --workers 12 --assets CACHE --deadline 500 --stop 580
    python benchmarks/defaults.py --check                                       exit code 1 where one costs too much

A unit is one training with one seed and the accuracy of the deployed model on the whole test split; each is one line of
`results/defaults.jsonl`. A line that is there is not run again. Several workers may share a GPU; after --deadline
nothing new is begun, after --stop what still runs is ended, and the same command goes on. Trainings stay in --runs.

--check compares every defence with standard training on the same seeds and texts. The lower end of the interval, which
counts seeds and texts (`isthmus.core.crossed`), must lie above -3 points; `rsmi` and `safer`, which answer by draws,
are excused, since their price is stated where they are described.

Assets: CACHE (or ISTHMUS_CACHE) holds rotten_tomatoes, minilm (the encoder, and what TextFooler measures similarity
with), counterfitted-standin-1.npz (synonyms of `safer`, `random_substitution` and TextFooler), wordnet (parts of
speech), and for cnn and lstm glove.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from isthmus import assets
from isthmus.core import catalog
from isthmus.core.crossed import Comparison, crossed_difference
from isthmus.core.errors import IsthmusError
from isthmus.core.statistics import Interval
from isthmus.training.settings import settings_for
from ledger import Cell, Ledger
from proof.grid import Method
from proof.plan import Unit
from proof.units import Place, asked, do
from proof.workers import work_off

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = "rotten_tomatoes"
LOWEST = -0.03
"""The lower end of a difference in accuracy must lie above it."""
EXCUSED = ("rsmi", "safer")
HEAVY = ("freelbpp", "advaug", "adversarial", "flat")
"""Run last: they take as long as all others together."""


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backbone", nargs="+", default=["cnn", "minilm"], help="cnn, lstm, minilm, mpnet")
    options.add_argument("--defences", nargs="+", help="only these")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--list", action="store_true", help="print what is done instead of running")
    options.add_argument("--check", action="store_true", help="compare what is done instead of running")
    options.add_argument("--runs", type=Path, default=Path("runs/defaults"), help="folder of the trained models")
    options.add_argument("--results", type=Path, default=REPOSITORY / "results", help="folder of the ledger's files")
    options.add_argument("--assets", type=Path, help="folder of data, encoders and word lists: ISTHMUS_CACHE")
    options.add_argument("--data", type=Path, help=f"folder that holds {DATA}; by default the assets'")
    options.add_argument("--device", help="cuda or cpu")
    options.add_argument("--workers", type=int, default=1, help="processes beside each other")
    options.add_argument("--deadline", type=float, help="seconds after which no new job starts")
    options.add_argument("--stop", type=float, help="seconds after which running jobs are ended")
    options.add_argument("--limit-train", type=int, help="maximum training texts, for a quick look")
    options.add_argument("--epochs", type=int, help="number of epochs, for a quick look")
    return options.parse_args(words)


def main() -> None:
    began = time.monotonic()
    options = arguments()
    if options.assets is not None:
        os.environ["ISTHMUS_CACHE"] = str(options.assets.resolve())
    if options.check:
        sys.exit(report(Ledger(options.results / "defaults.jsonl"), options.backbone))
    try:
        work = [(unit, place) for place in places(options) for unit in units(place, options)]
        there = Ledger(options.results / "defaults.jsonl").cells()
        todo = [(unit, place) for unit, place in work if any(each.key.id not in there for each in asked(unit, place))]
    except IsthmusError as error:
        sys.exit(str(error))
    if options.list:
        for unit, place in work:
            print(f"{place.backbone:8} {unit.title:45} {'to run' if (unit, place) in todo else 'done'}")
    print(f"{len(todo)} of {len(work)} units to run", flush=True)
    if options.list or not todo:
        return
    deadline, stop = (None if seconds is None else began + seconds for seconds in (options.deadline, options.stop))
    ended = work_off(
        [f"{place.backbone} {unit.title}" for unit, place in todo],
        lambda number: do(*todo[number]),
        workers=options.workers,
        deadline=deadline,
        stop=stop,
    )
    print(f"{len(ended.done)} done, {len(ended.failed)} failed, {len(ended.left)} left", flush=True)
    if ended.failed:
        sys.exit("failed: " + ", ".join(todo[number][0].title for number in ended.failed))


def places(options: argparse.Namespace) -> list[Place]:
    """One for each backbone."""
    data = options.data or assets.path(DATA).parent
    return [
        Place(
            data=data,
            runs=options.runs / backbone,
            results=options.results,
            backbone=backbone,
            limit=options.limit_train,
            device=options.device,
        )
        for backbone in options.backbone
    ]


def units(place: Place, options: argparse.Namespace) -> list[Unit]:
    """Every defence with every seed, seed after seed; the slow ones last."""
    names = options.defences or catalog.names("defences")
    given = {} if options.epochs is None else {"epochs": options.epochs}
    settings = settings_for(
        "classification", place.backbone, precision="fp32", checkpoint_every=None, information=0, **given
    )
    # A cut leaves whole seeds.
    ordered = sorted(
        ((name, seed) for name in names for seed in range(options.seeds)),
        key=lambda each: (each[0] in HEAVY, each[1], each[0] != "standard", each[0]),
    )
    return [
        Unit("defaults", "defaults", DATA, Method(name, name), seed, settings, 0, attacks=()) for name, seed in ordered
    ]


def compared(cells: Iterable[Cell], backbone: str) -> dict[str, Comparison]:
    """Every defence against standard training, on the seeds that both have."""
    rows: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        # Rows with a name of their own are of other parameters than the defaults.
        is_default = cell.row == cell.key.method["name"] and "limit" not in cell.key.training
        if cell.key.backbone == backbone and is_default:
            rows.setdefault(cell.row, {})[cell.key.seed] = cell
    plain = rows.pop("standard", {})
    found = {}
    for name, row in sorted(rows.items()):
        if seeds := sorted(row.keys() & plain.keys()):
            ours, theirs = (np.array([each[seed].right for seed in seeds], float) for each in (row, plain))
            found[name] = crossed_difference(ours, theirs)
    return found


def judged(change: Interval) -> str:
    """Three seeds that differ much leave a wide interval, whatever the defence costs."""
    if change.low > LOWEST:
        return "holds"
    return "too dear" if change.estimate <= LOWEST else "not known well enough"


def report(cells: Iterable[Cell], backbones: Iterable[str]) -> str | None:
    """Print the comparisons; the complaint, if there is one."""
    cells = list(cells)
    dear, seen = [], 0
    for backbone in backbones:
        for name, found in compared(cells, backbone).items():
            change, seen = found.difference, seen + 1
            verdict = "its cost is stated" if name in EXCUSED else judged(change)
            print(
                f"{backbone:8} {name:20} {found.seeds} seeds  {100 * change.estimate:+5.1f} "
                f"({100 * change.low:+.1f} to {100 * change.high:+.1f})  {verdict}"
            )
            if verdict in ("too dear", "not known well enough"):
                dear.append(f"{name} ({backbone})")
    if not seen:
        return "nothing to compare: the ledger has no defence with standard training beside it"
    return f"too dear, or not known well enough: {', '.join(dear)}" if dear else None


if __name__ == "__main__":
    main()
