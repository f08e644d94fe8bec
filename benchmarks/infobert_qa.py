"""InfoBERT beside standard training and FreeLB on extractive question answering: a table of docs/results/infobert.md.

    python benchmarks/infobert_qa.py --data PACK --out RUNS train --workers 4     four runs at a time
    python benchmarks/infobert_qa.py --data PACK --out RUNS test --workers 4
    python benchmarks/infobert_qa.py --out RUNS --write FILE                      the table of what is there

PACK is a folder with squadshifts_newwiki (what is trained on: SQuAD's training file is not always available), squad and
adversarial_squad. A tenth of the training questions, whole articles' contexts together, is development data. The climb
and the weights of the regularisers are those that the authors released for SQuAD; nothing is chosen on the test sets.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from pathlib import Path

from isthmus.core.files import make_folder, read_json, write_atomic, write_json
from isthmus.summaries.questions import evaluate_answers
from isthmus.training.settings import settings_for
from isthmus.verbs.sources import DataRequest
from proof.beside import Task, console, work_off
from proof.grid import Grid, Method, parser
from proof.tables import markdown, over_seeds

CLIMB = {"scale": "paper", "steps": 2, "step_size": 2e-2, "init_magnitude": 2e-2, "max_norm": 4e-2}
INFORMATION = {"alpha": 5e-3, "beta": 5e-5, "lowest": 0.75, "highest": 0.95}
METHODS = (
    Method("standard"),
    Method("infobert", "infobert", INFORMATION),
    Method("freelb", "freelb", CLIMB),
    Method("infobert freelb", "infobert", {**INFORMATION, **CLIMB, "adversary": "freelb"}),
)
SETS = {
    "squad": ("squad", "dev"),
    "addsent": ("adversarial_squad", "addsent"),
    "addonesent": ("adversarial_squad", "addonesent"),
}
PAPER = (
    ("vanilla", "93.5 / 86.9", "72.9 / 66.6", "80.6 / 74.3"),
    ("InfoBERT", "93.5 / 87.0", "78.5 / 72.9", "84.6 / 78.3"),
    ("FreeLB", "93.8 / 87.3", "76.3 / 70.3", "82.3 / 76.2"),
    ("InfoBERT + FreeLB", "93.7 / 87.0", "78.0 / 71.8", "83.6 / 77.1"),
)
"""RoBERTa-large, F1 / exact match."""


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("work", nargs="?", choices=("train", "test"))
    options.add_argument("--data", type=Path, help="folder with squadshifts_newwiki, squad and adversarial_squad")
    options.add_argument("--backbone", default="minilm")
    options.add_argument("--learning-rate", type=float, default=1e-4, help="MiniLM's; large encoders want 3e-5")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--n", type=int, help="at most this many questions of each set, for a quick look")
    options.add_argument("--limit", type=int, help="maximum training questions, for a quick look")
    return options.parse_args()


def main() -> None:
    options = arguments()
    if options.write is not None:
        options.write.write_text(page(options.out, options.seeds), encoding="utf-8")
        return
    needed = ("squadshifts_newwiki", "squad", "adversarial_squad")
    missing = [name for name in needed if not (options.data and (options.data / name).is_dir())]
    if options.work is None:
        sys.exit("say what to do, before the options: train, test")
    if missing:
        sys.exit(f"give --data, a folder with all it takes; it lacks {', '.join(missing)}")
    settings = settings_for("qa", epochs=options.epochs, learning_rate=options.learning_rate, checkpoint_every=None)
    data = DataRequest(str(training_data(options.data, options.out)), task="qa")
    grid = Grid(METHODS, options.seeds, data, options.backbone, settings, options.out, options.limit)
    work = grid.train if options.work == "train" else functools.partial(test, options)
    cells = grid.cells(options.part)
    tasks = [
        Task(f"{options.work} {method.name} {seed}", functools.partial(work, method, seed)) for method, seed in cells
    ]
    work_off(tasks, workers=options.workers, minutes=options.minutes)


def training_data(pack: Path, out: Path) -> Path:
    """The questions of squadshifts_newwiki, published as a test set, under the name of a training split."""
    folder = make_folder(out / "data")
    if not (folder / "train.jsonl.gz").is_file():
        (source,) = (pack / "squadshifts_newwiki").glob("*.jsonl.gz")
        write_atomic(folder / "train.jsonl.gz", source.read_bytes())
    return folder


def test(options: argparse.Namespace, method: Method, seed: int) -> None:
    """Exact match and F1 of one run on every set, kept beside it."""
    import torch

    from isthmus.models import load_model

    folder = method.folder(options.out, seed)
    path = folder / "sets.json"
    known = read_json(path) if path.is_file() else {}
    if not (folder / "model").is_dir():
        console.print(f"{folder.name} is not trained yet")
        return
    model = load_model(folder, device="cuda" if torch.cuda.is_available() else "cpu")
    for name, (pack, split) in SETS.items():
        if name not in known:
            data = DataRequest(str(options.data / pack), task="qa").load()[split]
            data = data if options.n is None else dataclasses.replace(data, examples=data.examples[: options.n])
            found = evaluate_answers(model, data, batch_size=64)
            known[name] = found.to_dict()
            write_json(path, known)
            best = found.worst or found.overall
            console.print(f"{folder.name:28} {name:12} F1 {best.f1.estimate:.3f} EM {best.exact_match.estimate:.3f}")


def page(out: Path, seeds: int) -> str:
    """The table: F1 / exact match of each set, over seeds."""
    rows = []
    for method in METHODS:
        paths = [method.folder(out, seed) / "sets.json" for seed in range(seeds)]
        runs = [read_json(path) for path in paths if path.is_file()]
        cells = []
        for name in SETS:
            figures = [run[name].get("worst") or run[name]["overall"] for run in runs if name in run]
            pair = [over_seeds([each[key]["estimate"] for each in figures]) for key in ("f1", "exact_match")]
            cells.append(" / ".join(pair))
        rows.append([method.name, str(len(runs)), *cells])
    ours = markdown(["training (MiniLM)", "seeds", "SQuAD dev", "AddSent, worst variant", "AddOneSent"], rows)
    theirs = markdown(["training (RoBERTa-large)", "SQuAD dev", "AddSent", "AddOneSent"], PAPER)
    return f"{ours}\n\n{theirs}\n"


if __name__ == "__main__":
    main()
