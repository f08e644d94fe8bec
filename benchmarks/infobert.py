"""InfoBERT beside standard training, FreeLB, SMART and ALUM on SNLI + MNLI: the tables in docs/results/infobert.md.

    python benchmarks/infobert.py --data PACK --out RUNS search --workers 8   one seed of every candidate, dev data only
    python benchmarks/infobert.py --data PACK --out RUNS train                every method with every seed
    python benchmarks/infobert.py --data PACK --out RUNS sets                 TextFooler on the standard models
    python benchmarks/infobert.py --data PACK --out RUNS test                 every set, and a direct attack
    python benchmarks/infobert.py --data PACK --out RUNS all --workers 15     the last three, each as soon as it can
    python benchmarks/infobert.py --data PACK --out RUNS train --backbone mpnet --learning-rate 5e-5 --methods standard
    python benchmarks/infobert.py --out RUNS --write docs/results/infobert.md

PACK is a folder with snli, mnli and anli in it (.jsonl.gz with premise, hypothesis and label). `search` tries strengths
of the regularisers and of the climb on development data alone: accuracy on its clean pairs, and accuracy left by
TextFooler on the first `--search-n` of them; the best candidate of each method, by their mean, is what `train` trains.
Adversarial sets are static: TextFooler's successes against the standard models, given to every other model.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from isthmus.core.files import make_folder, read_json, write_atomic, write_json
from isthmus.data import Dataset, load_data
from isthmus.runs.folder import RunFolder
from isthmus.training.settings import TrainingSettings
from isthmus.verbs.sources import DataRequest
from proof.beside import Task, console, work_off
from proof.grid import Grid, Method, attack_run, parser
from proof.scores import accuracy_on, place_on

LABELS = ["entailment", "neutral", "contradiction"]
SETTINGS = TrainingSettings(epochs=3, batch_size=128, learning_rate=2e-4, max_tokens=128, checkpoint_every=None)
"""Of every method alike; the step size is that of MiniLM, chosen for standard training on development data."""

SOURCES = {"snli": ("test",), "mnli": ("test_matched", "test_mismatched")}
"""What adversarial sets are made of."""

CANDIDATES: dict[str, list[Method]] = {
    "standard": [Method("standard")],
    "infobert": [
        Method(f"infobert b{beta:g} a{alpha:g}", "infobert", {"preset": "paper", "beta": beta, "alpha": alpha})
        for beta, alpha in ((5e-1, 5e-3), (5e-2, 5e-3), (5e-2, 5e-2), (5e-3, 5e-3), (5e-3, 5e-2), (1e-3, 5e-3))
    ],
    "freelb": [
        Method(
            f"freelb s{size:g}",
            "freelb",
            {"scale": "paper", "step_size": size, "init_magnitude": size, "max_norm": 3 * size},
        )
        for size in (0.003, 0.01, 0.03, 0.1)
    ],
    "smart": [Method(f"smart l{strength:g}", "smart", {"mode": "paper", "strength": strength}) for strength in (1, 5)],
    "alum": [Method(f"alum l{strength:g}", "alum", {"mode": "paper", "strength": strength}) for strength in (1, 10)],
}


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("work", nargs="?", choices=("search", "train", "sets", "test", "all"))
    options.add_argument("--data", type=Path, help="folder with snli, mnli and anli")
    options.add_argument("--backbone", default="minilm")
    options.add_argument("--learning-rate", type=float, default=SETTINGS.learning_rate)
    options.add_argument("--methods", nargs="+", help="only these rows")
    options.add_argument("--n", type=int, default=500, help="pairs attacked directly")
    options.add_argument("--search-n", type=int, default=300)
    options.add_argument("--set-n", type=int, default=1000, help="pairs of which adversarial sets are made")
    options.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    options.add_argument("--limit", type=int, help="maximum training pairs, for a quick look")
    return options.parse_args()


def main() -> None:
    options = arguments()
    if options.write is not None:
        from proof.infobert_page import page

        options.write.write_text(page(options.out, options.seeds), encoding="utf-8")
        return
    missing = [name for name in ("snli", "mnli", "anli") if not (options.data and (options.data / name).is_dir())]
    if options.work is None:  # an option that takes several words would swallow it
        sys.exit("say what to do, before the options: search, train, sets, test, all")
    if missing:
        sys.exit(f"give --data, a folder with all it takes; it lacks {', '.join(missing)}")
    joined = join(options.data, options.out / "data")
    tasks = searching(options, joined) if options.work == "search" else proving(options, joined)
    work_off(tasks, workers=options.workers, minutes=options.minutes)


# ---------------------------------------------------------------------- data


def join(pack: Path, out: Path) -> Path:
    """SNLI and MNLI as one data set: train, and a dev split of 2,000 pairs of each."""
    if not (out / "meta.json").is_file():
        make_folder(out)
        for split, most in (("train", None), ("dev", 2000)):
            parts = [load_data(pack / name, split).align_labels(LABELS) for name in ("snli", "mnli")]
            rows = [row for part in parts for row in rows_of(part if most is None else part.sample(most, 0))]
            write_atomic(out / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        write_json(out / "meta.json", {"labels": LABELS})
    return out


def rows_of(data: Dataset) -> Iterator[dict[str, Any]]:
    for example in data:
        yield {**example.texts, "label": example.label}


def test_sets(pack: Path) -> dict[str, Dataset]:
    """The clean and the collected sets by name."""
    found = {"snli": load_data(pack / "snli", "test")}
    found |= {f"mnli {part}": load_data(pack / "mnli", f"test_{part}") for part in ("matched", "mismatched")}
    found |= {f"anli r{number}": load_data(pack / "anli", f"dev_r{number}") for number in (1, 2, 3)}
    return {name: data.align_labels(LABELS) for name, data in found.items()}


# ---------------------------------------------------------------------- choosing on development data


def searching(options: argparse.Namespace, joined: Path) -> Iterator[Task]:
    """One seed of every candidate; figures from development data alone."""
    methods = [method for candidates in CANDIDATES.values() for method in candidates]
    grid = make_grid(options, joined, methods, "search", seeds=1)
    for method, _ in grid.cells(options.part):
        yield Task(method.name, functools.partial(try_out, grid, method, options))


def try_out(grid: Grid, method: Method, options: argparse.Namespace) -> None:
    """Train one candidate and write down how it does on development data, before and after TextFooler."""
    folder = grid.train(method, 0)
    summary = attack_run(folder.path, "textfooler", n=options.search_n, split="dev", precision=options.precision)
    clean = (folder.record().results or {}).get("dev_accuracy")
    write_json(judgement(options.out, method), {"clean": clean, "robust": summary["racc"], "n": summary["n"]})


def judgement(out: Path, method: Method) -> Path:
    """Where the figures of a candidate stand; they are kept when its weights are not."""
    return make_folder(out / "searched") / f"{method.name.replace(' ', '-')}.json"


def chosen(out: Path) -> dict[str, Method]:
    """The rows of the table: the best candidate of each method, and what is made of it."""
    best = {}
    for name, candidates in CANDIDATES.items():
        scored = []
        for place, candidate in enumerate(candidates):
            if judgement(out, candidate).is_file():
                found = read_json(judgement(out, candidate))
                scored.append(((found["clean"] + found["robust"]) / 2, -place, candidate))
        if not scored:
            sys.exit(f"no candidate of {name} was tried: run `search` first")
        best[name] = max(scored, key=lambda entry: entry[:2])[2]
    climb = {key: best["freelb"].parameters[key] for key in ("scale", "step_size", "init_magnitude", "max_norm")}
    information = dict(best["infobert"].parameters)
    rows = {name: dataclasses.replace(method, name=name) for name, method in best.items()}
    rows["bottleneck only"] = Method("bottleneck only", "infobert", {**information, "alpha": 0})
    rows["anchors only"] = Method("anchors only", "infobert", {**information, "beta": 0})
    together = {**information, **climb, "adversary": "freelb"}
    rows["infobert freelb"] = Method("infobert freelb", "infobert", together)
    rows["freelb bottleneck"] = Method("freelb bottleneck", "infobert", {**together, "alpha": 0})
    rows["freelb anchors"] = Method("freelb anchors", "infobert", {**together, "beta": 0})
    return rows


# ---------------------------------------------------------------------- training and testing


def make_grid(
    options: argparse.Namespace, joined: Path, methods: Iterable[Method], place: str, seeds: int | None = None
) -> Grid:
    wanted = [method for method in methods if options.methods is None or method.name in options.methods]
    settings = dataclasses.replace(SETTINGS, learning_rate=options.learning_rate)
    return Grid(
        wanted, seeds or options.seeds, DataRequest(str(joined)), options.backbone, settings, options.out / place,
        options.limit,
    )  # fmt: skip


def place_of(backbone: str) -> str:
    """The folder of a backbone's runs: MiniLM is what everything is shown on."""
    return "runs" if backbone == "minilm" else f"runs-{Path(backbone).name}"


def proving(options: argparse.Namespace, joined: Path) -> list[Task]:
    """What was asked for. A row is tested as soon as it can be, so that a cut leaves whole rows."""
    grid = make_grid(options, joined, chosen(options.out).values(), place_of(options.backbone))
    cells = grid.cells(options.part)
    # The sets wait for the standard models, and everything waits for the sets.
    cells.sort(key=lambda cell: cell[0].name != "standard")
    train = [Task(f"train {named(*cell)}", functools.partial(grid.train, *cell)) for cell in cells]
    standard = Method("standard")
    sets = [
        Task(
            f"sets of {name} {seed}",
            functools.partial(make_sets, standard.folder(options.out / "runs", seed), name, seed, options),
            (f"train {named(standard, seed)}",),
        )
        for seed in range(options.seeds)
        for name in SOURCES
    ]
    test = [
        Task(
            f"test {named(method, seed)}",
            functools.partial(test_one, method.folder(grid.out, seed), options),
            (f"train {named(method, seed)}", *(task.name for task in sets)),
        )
        for method, seed in cells
    ]
    return {"train": train, "sets": sets, "test": test, "all": [*sets, *test, *train]}[options.work]


def named(method: Method, seed: int) -> str:
    return f"{method.name} {seed}"


def make_sets(folder: Path, name: str, seed: int, options: argparse.Namespace) -> None:
    """TextFooler's successes against the standard model of one seed."""
    for split in SOURCES[name]:
        request = {"data": DataRequest(str(options.data / name)), "split": split, "n": options.set_n}
        attack_run(folder, "textfooler", out=place_on(folder, name), precision=options.precision, **request)
        write_set(folder, name, split, options.out / "sets" / f"{name}-{split}-seed{seed}.jsonl.gz")


def write_set(folder: Path, name: str, split: str, path: Path) -> None:
    """The successes of one attack as a file of pairs."""
    for file in RunFolder(place_on(folder, name)).attack_files():
        if file.header()["data"]["split"] == split:
            fooled = [row for row in file.rows() if row["outcome"] == "succeeded"]
            rows = [{**row["perturbed"], "label": row["label"]} for row in fooled]
            make_folder(path.parent)
            write_atomic(path, gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0))
            console.print(f"{path.name}: {len(rows)} pairs")


def test_one(folder: Path, options: argparse.Namespace) -> None:
    """Every set on one run, and TextFooler on the first n pairs of SNLI."""
    if not (folder / "model").is_dir():
        console.print(f"{folder.name} is not trained yet")
        return
    sets = test_sets(options.data)
    for path in sorted((options.out / "sets").glob("*.jsonl.gz")):
        sets[path.name.split(".")[0]] = load_data(path, "all", labels=LABELS)
    accuracy_on(folder, sets)
    data = DataRequest(str(options.data / "snli"))
    request = {"data": data, "split": "test", "n": options.n, "precision": options.precision}
    attack_run(folder, "textfooler", out=place_on(folder, "snli"), **request)


if __name__ == "__main__":
    main()
