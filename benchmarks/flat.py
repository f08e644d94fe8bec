"""The evidence behind docs/results/flat.md: does FLAT do what its paper says? Unit by unit, into `results/flat.jsonl`.

    python benchmarks/flat.py --data PACK --list                              the plan, what is done, what it costs
    python benchmarks/flat.py --data PACK --runs RUNS --only search --workers 14 --device cuda
    python benchmarks/flat.py --choose                                        beta and gamma by development data
    python benchmarks/flat.py --data PACK --runs RUNS --only headline ablation --workers 14 --deadline 500 --stop 560
    python benchmarks/flat.py --data PACK --by-class                          which class withstands the attacks
    python benchmarks/tables.py write

PACK is a folder with sst2, and with trec6, ag_news and imdb for the stages of that name. A unit is one training with
one seed and what is asked of the model: its accuracy on the whole test split, what attacks leave of it, and how far
the words that decide stay the same under attack. Each figure is a cell of the ledger. A cell that is there is not run
again; one that is finished is on the disk at once. After --deadline nothing new is begun, after --stop what still runs
is ended. Trainings and half-finished attacks stay in RUNS, and the same command goes on with them; units that share a
training share its folder. `proof/flat_plan.py` says what is run, and in which order.

Assets (all offline once they are in the cache): `minilm` (sentence encoder of TextFooler, BAE, CLARE and of the limits;
masked language model of BAE, CLARE and genetic; the backbone of that name), `wordnet` (parts of speech, PWWS, PSO),
counterfitted-standin-1.npz (TextFooler, genetic, IGA), `glove` (word vectors of lstm and cnn).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from evidence import REPOSITORY, run
from isthmus.core.errors import IsthmusError
from ledger import Cell, Ledger
from proof import by_class
from proof.flat_plan import ABLATION, BACKBONES, CHOSEN, HEADLINE, PAGE, STAGES, chosen, plan, seconds, shortened
from proof.plan import Unit, wanted
from proof.units import Place, asked, loaded


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, help="folder with sst2, trec6, ag_news and imdb")
    options.add_argument("--runs", type=Path, default=Path("runs/flat"), help="folder of the trained models")
    options.add_argument("--results", type=Path, default=REPOSITORY / "results", help="folder of the ledger's files")
    options.add_argument("--assets", type=Path, help="folder of word lists and encoders, in place of ISTHMUS_CACHE")
    options.add_argument(
        "--only", nargs="+", default=[], metavar="STAGE|TITLE", help=f"{', '.join(STAGES)}, or patterns"
    )
    options.add_argument("--list", action="store_true", help="print the plan instead of running it")
    options.add_argument("--choose", action="store_true", help="print what development data say of beta and gamma")
    options.add_argument("--by-class", action="store_true", help="print which class withstands the attacks, on SST-2")
    options.add_argument("--workers", type=int, default=1, help="processes beside each other, on one GPU")
    options.add_argument("--deadline", type=float, help="seconds after which nothing new is begun")
    options.add_argument("--stop", type=float, help="seconds after which what still runs is ended")
    options.add_argument("--points", type=int, help="training texts of each round; 2,000 for minilm, else all")
    options.add_argument("--pairs", type=int, default=1000, help="pairs that are explained")
    options.add_argument("--n", type=int, help="texts to attack, for a quick look")
    options.add_argument("--limit", type=int, help="texts to train on, for a quick look")
    options.add_argument("--epochs", type=int, help="epochs of training, for a quick look")
    options.add_argument("--device", help="cuda or cpu")
    found = options.parse_args(words)
    if found.data is None and not found.choose:
        options.error("--data is needed")
    return found


def main() -> None:
    began = time.monotonic()
    options = arguments()
    if options.assets is not None:
        os.environ["ISTHMUS_CACHE"] = str(options.assets)
    try:
        book = Ledger(options.results / f"{PAGE}.jsonl").cells()
        if options.choose:
            for backbone, used in CHOSEN.items():
                found = chosen(book.values(), backbone)
                print(f"{backbone}: the plan has {used}, the search says {found or 'nothing: it is not complete'}")
            return
        if options.by_class:
            print(classes(book.values(), options.data))
            return
        place = place_of(options)
        units = [
            place.fitted(shortened(unit, options.epochs))
            for unit in wanted(plan(options.points, options.pairs), options.only)
        ]
        if not units:
            sys.exit(f"nothing of the plan is called {', '.join(options.only)}")
        absent = sorted({unit.data for unit in units if not (place.data / unit.data).is_dir()})
        if absent:
            print(f"left out, since --data {place.data} lacks them: {', '.join(absent)}", flush=True)
            units = [unit for unit in units if unit.data not in absent]
        missing = [sum(each.key.id not in book for each in asked(unit, place)) for unit in units]
        if options.list:
            listed(units, missing, place)
            return
        todo = [unit for unit, count in zip(units, missing, strict=True) if count]
        print(f"{len(todo)} of {len(units)} units have something to run", flush=True)
        if todo:
            warm(todo, place)
    except IsthmusError as error:
        sys.exit(str(error))
    ended = run(todo, place, began, options)
    print(f"{len(ended.done)} done, {len(ended.failed)} failed, {len(ended.left)} left", flush=True)
    if ended.failed:
        sys.exit("failed: " + ", ".join(todo[number].title for number in ended.failed))


def classes(cells: Iterable[Cell], pack: Path) -> str:
    """Every row of SST-2 under the attack it is trained with, beside the rows without attacks in training."""
    kept, test = list(cells), loaded(pack / "sst2", "test")
    found = []
    for attack, ending in (("textfooler", ""), ("pwws", "-pwws")):
        trained = [f"{name}{ending}" for name in (*HEADLINE[1:], *ABLATION)]
        for backbone in BACKBONES:
            rows = ["base", "base-frozen", *trained]
            found.append(f"{backbone}, {attack}\n\n{by_class.table(kept, test, backbone, attack, rows)}")
    return "\n\n".join(found)


def place_of(options: argparse.Namespace) -> Place:
    return Place(
        data=options.data,
        runs=options.runs,
        results=options.results,
        limit=options.limit,
        epochs=options.epochs,
        n=options.n,
        device=options.device,
    )


def warm(todo: list[Unit], place: Place) -> None:
    """Look up the neighbours of every word before the workers are forked: each would need many seconds for them."""
    from isthmus.lexicon.by_name import load_neighbours
    from isthmus.text.words import Words

    texts = [
        example
        for name in sorted({unit.data for unit in todo})
        for split in ("train", *sorted({split for unit in todo if unit.data == name for split in unit.tests}))
        for example in loaded(place.data / name, split).examples[: place.limit]
    ]
    words = {word for example in texts for text in example.texts.values() for word in Words.of(text)}
    load_neighbours("counterfitted").prefetch(sorted(words), 50)


def listed(units: list[Unit], missing: list[int], place: Place) -> None:
    """The plan: cells that are done, and an estimate of the seconds for those that are not."""
    by_stage: dict[str, float] = {}
    for unit, count in zip(units, missing, strict=True):
        whole = len(asked(unit, place))
        cost = seconds(unit, len(loaded(place.data / unit.data, "train"))) if count else 0.0
        by_stage[unit.stage] = by_stage.get(unit.stage, 0.0) + cost
        state = "done" if not count else f"{whole - count} of {whole} cells done, about {cost:.0f} s"
        print(f"{unit.stage:12} {unit.title:55} {state}")
    for stage, cost in by_stage.items():
        print(f"{stage:12} about {cost:,.0f} seconds of one of a dozen workers")
    print(f"{sum(map(bool, missing))} of {len(units)} units to run")


if __name__ == "__main__":
    main()
