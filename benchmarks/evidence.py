"""The evidence behind docs/results: trains, tests and attacks, unit by unit, into `results/<page>.jsonl`.

    python benchmarks/evidence.py --data PACK --list                               the plan, and what is done
    python benchmarks/evidence.py --data PACK --runs RUNS --workers 14 --deadline 500 --stop 570
    python benchmarks/evidence.py --data PACK --runs RUNS --only minimum           one stage
    python benchmarks/evidence.py --data PACK --runs RUNS --only "snli freelb*"    units by their title

PACK is a folder with sst2, snli, mnli, qnli and ag_news. A unit is one training with one seed, the accuracy of the
model on the whole test split, and TextFooler on its first texts, in every way in which a randomised model is asked.
Each figure is a cell of the ledger. A cell that is there is not run again; one that is finished is on the disk at once.
After --deadline nothing new is begun, after --stop what still runs is ended, so that a machine that is lent by the hour
keeps what it finished. Trainings and half-finished attacks stay in RUNS, and the same command goes on with them.
`proof/plan.py` says what is run, and in which order.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from isthmus.core.errors import IsthmusError
from ledger import Ledger
from proof.plan import STAGES, Unit, plan, wanted
from proof.units import Place, asked, do, loaded
from proof.workers import Ended, work_off

REPOSITORY = Path(__file__).resolve().parents[1]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="folder with sst2, snli, mnli, qnli and ag_news")
    options.add_argument("--runs", type=Path, default=Path("runs/evidence"), help="folder of the trained models")
    options.add_argument("--results", type=Path, default=REPOSITORY / "results", help="folder of the ledger's files")
    options.add_argument("--assets", type=Path, help="folder of word lists and encoders, in place of ISTHMUS_CACHE")
    options.add_argument("--backbone", default="minilm", help="what the ledger calls the encoder")
    options.add_argument("--backbone-folder", type=Path, help="where the encoder is, if not known by that name")
    options.add_argument(
        "--only", nargs="+", default=[], metavar="STAGE|TITLE", help=f"{', '.join(STAGES)}, or patterns"
    )
    options.add_argument("--list", action="store_true", help="print the plan instead of running it")
    options.add_argument("--workers", type=int, default=1, help="processes beside each other, on one GPU")
    options.add_argument("--deadline", type=float, help="seconds after which no new job starts")
    options.add_argument("--stop", type=float, help="seconds after which running jobs are ended")
    options.add_argument(
        "--search-draws", type=int, help="shared draws whose mean the search against a random model sees"
    )
    options.add_argument("--restarts", type=int, help="restarts of such a search")
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of attacks on random models")
    options.add_argument("--set", nargs="+", default=[], metavar="DEFENCE.PARAMETER=VALUE", help="for all of its units")
    options.add_argument("--n", type=int, help="number of attacked texts, for a quick look")
    options.add_argument("--limit", type=int, help="maximum training texts, for a quick look")
    options.add_argument("--epochs", type=int, help="number of epochs, for a quick look")
    options.add_argument("--device", help="cuda or cpu")
    return options.parse_args(words)


def main() -> None:
    began = time.monotonic()
    options = arguments()
    if options.assets is not None:
        os.environ["ISTHMUS_CACHE"] = str(options.assets)
    try:
        place = place_of(options)
        units = [place.fitted(unit) for unit in wanted(plan(changes(options.set)), options.only)]
        if not units:
            sys.exit(f"nothing of the plan is called {', '.join(options.only)}")
        if missing := sorted({unit.data for unit in units if not (place.data / unit.data).is_dir()}):
            sys.exit(f"--data {place.data} lacks {', '.join(missing)}")
        there = {page: Ledger(place.results / f"{page}.jsonl").cells() for page in {unit.page for unit in units}}
        missing_cells = [sum(each.key.id not in there[unit.page] for each in asked(unit, place)) for unit in units]
        if options.list:
            listed(units, missing_cells, place)
            return
    except IsthmusError as error:
        sys.exit(str(error))
    todo = [unit for unit, count in zip(units, missing_cells, strict=True) if count]
    print(f"{len(todo)} of {len(units)} units have something to run", flush=True)
    ended = run(todo, place, began, options)
    print(f"{len(ended.done)} done, {len(ended.failed)} failed, {len(ended.left)} left", flush=True)
    if ended.failed:
        sys.exit("failed: " + ", ".join(todo[number].title for number in ended.failed))


def place_of(options: argparse.Namespace) -> Place:
    given = {"search_draws": options.search_draws, "restarts": options.restarts}
    return Place(
        data=options.data,
        runs=options.runs,
        results=options.results,
        backbone=options.backbone,
        source=None if options.backbone_folder is None else str(options.backbone_folder),
        limit=options.limit,
        epochs=options.epochs,
        n=options.n,
        search={name: value for name, value in given.items() if value is not None},
        precision=options.precision,
        device=options.device,
    )


def changes(words: list[str]) -> dict[str, dict[str, str]]:
    """`freelb.steps=2` for every unit of freelb."""
    found: dict[str, dict[str, str]] = {}
    for word in words:
        name, _, value = word.partition("=")
        defence, _, parameter = name.partition(".")
        if not (defence and parameter and value):
            sys.exit(f"--set takes DEFENCE.PARAMETER=VALUE, not {word!r}")
        found.setdefault(defence, {})[parameter] = value
    return found


def listed(units: list[Unit], missing: list[int], place: Place) -> None:
    """The plan: cells that are done, and an estimate of the seconds for those that are not."""
    total = 0.0
    for unit, count in zip(units, missing, strict=True):
        whole = len(asked(unit, place))
        seconds = unit.estimate(len(loaded(place.data / unit.data, "train"))) if count else 0.0
        total += seconds
        state = "done" if not count else f"{whole - count} of {whole} cells done, about {seconds:.0f} s"
        print(f"{unit.stage:9} {unit.title:45} {state}")
    print(f"{sum(map(bool, missing))} of {len(units)} units to run, about {total / 60:.0f} minutes of workers")


def run(todo: list[Unit], place: Place, began: float, options: argparse.Namespace) -> Ended:
    """The units beside each other."""
    deadline, stop = (None if seconds is None else began + seconds for seconds in (options.deadline, options.stop))

    def work(number: int) -> str:
        return do(todo[number], place, lambda: deadline is None or time.monotonic() < deadline)

    titles = [unit.title for unit in todo]
    return work_off(titles, work, workers=options.workers, deadline=deadline, stop=stop)


if __name__ == "__main__":
    main()
