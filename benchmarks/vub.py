"""VIB and VUB heads on frozen embeddings, beside the standard head: the tables in docs/results/vub.md.

    python benchmarks/vub.py --data SST2 --backbone FOLDER --out RUNS                  train, score, attack
    python benchmarks/vub.py --data SST2 --backbone FOLDER --out RUNS --workers 6      the same, six runs at a time
    python benchmarks/vub.py --out RUNS --write docs/results/vub.md                    only write what is there

FOLDER is a classifier that was fine-tuned on the data (`isthmus train --data SST2`): as in the paper its encoder stands
still, and only what follows it is trained, for 150 epochs. Every beta is shown, so nothing is chosen on test data. A
finished run is never made again; the work can be cut into pieces of any length.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

from isthmus.core.calibration import cross_entropies, expected_calibration_error
from isthmus.core.files import write_json
from isthmus.core.types import Floats, Ints
from isthmus.training.settings import TrainingSettings
from isthmus.verbs.sources import DataRequest
from proof.beside import Task, work_off
from proof.grid import Grid, Method, attack_run, parser

SCHEDULE = TrainingSettings(
    trains="head",
    epochs=150,
    batch_size=16,
    learning_rate=1e-4,
    schedule="staircase",
    decay=0.97,
    decay_epochs=2,
    warmup=0.0,
    optimizer="adam",
    betas=(0.5, 0.999),
    weight_decay=0.0,
    max_grad_norm=0.0,
    precision="fp32",
    log_every=1000,
    checkpoint_every=None,
)
"""That of the paper."""

METHODS = (
    Method("standard"),
    *(Method(f"{name} {beta:g}", name, {"beta": beta}) for name in ("vib", "vub") for beta in (1e-1, 1e-2, 1e-3)),
)
WAYS = ("mean", "sample", "average")
"""How a stochastic head is seen: by its mean code, by one draw, by the average over `--draws` draws."""


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.set_defaults(seeds=5)
    options.add_argument("--data", type=Path, help="folder with train, dev and test")
    options.add_argument("--backbone", type=Path, help="a classifier fine-tuned on it")
    options.add_argument("--n", type=int, default=200, help="test texts attacked")
    options.add_argument("--attacks", nargs="*", default=["deepwordbug", "pwws"])
    options.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options.add_argument("--draws", type=int, default=12)
    options.add_argument("--max-tokens", type=int, default=128)
    options.add_argument("--batch", type=int, default=SCHEDULE.batch_size, help="vectors in a batch (the paper: 16)")
    options.add_argument("--precision", default="fp32", choices=("fp32", "bf16"), help="of the model under attack")
    options.add_argument("--limit", type=int, help="maximum training texts, for a quick look")
    return options.parse_args()


def main() -> None:
    options = arguments()
    if options.write is not None:
        from proof.vub_page import page

        options.write.write_text(page(options.out, METHODS, options.seeds), encoding="utf-8")
        return
    for name in ("data", "backbone"):
        folder = getattr(options, name)
        if folder is None or not folder.is_dir():
            sys.exit(f"give --{name}: a folder that exists, not {folder}")
    settings = dataclasses.replace(SCHEDULE, max_tokens=options.max_tokens, batch_size=options.batch)
    data = DataRequest(str(options.data))
    grid = Grid(METHODS, options.seeds, data, str(options.backbone), settings, options.out, options.limit)
    scorer, cells = Scorer(data, options.draws), grid.cells(options.part)
    tasks = [
        Task(method.folder(options.out, seed).name, functools.partial(train_and_score, grid, scorer, method, seed))
        for method, seed in cells
    ]
    # Every run has its clean figures before the first is attacked. Attacks on one run take turns in its folder.
    for method, seed in cells:
        folder = method.folder(options.out, seed)
        work = functools.partial(attack_head, folder, ways_of(method, options.ways), options)
        tasks.append(Task(f"attacks on {folder.name}", work, (folder.name,)))
    work_off(tasks, workers=options.workers, minutes=options.minutes)


def ways_of(method: Method, wanted: list[str] | tuple[str, ...] = WAYS) -> list[str]:
    """A head without a bottleneck has one way only."""
    return [way for way in wanted if way == "mean" or method.parameters]


def train_and_score(grid: Grid, scorer: Scorer, method: Method, seed: int) -> None:
    scorer.score(grid.train(method, seed).path, ways_of(method))


class Scorer:
    """Clean scores on the whole test split, from vectors that all runs share because the encoder is frozen."""

    def __init__(self, data: DataRequest, draws: int) -> None:
        self.data, self.draws = data, draws
        self.vectors: Any = None

    def score(self, folder: Path, ways: list[str]) -> None:
        """Accuracy, cross-entropy and calibration of one run, seen in each of its ways."""
        if (folder / "clean.json").is_file():
            return
        import torch

        from isthmus.models import load_model
        from isthmus.models.bottleneck import GaussianBottleneck
        from isthmus.training.head import vectors_of
        from isthmus.training.head_only import HeadOnly

        model = load_model(folder)
        if self.vectors is None:
            self.vectors = vectors_of(model, self.data.load()["test"].align_labels(model.labels), 64)
        head = HeadOnly(model).eval()
        found = {}
        for way in ways:
            if isinstance(head.bottleneck, GaussianBottleneck):
                head.bottleneck.inference = "mean" if way == "mean" else "sample"
            with torch.no_grad():
                draws = [
                    torch.softmax(head(**self.vectors.inputs).logits, dim=-1)
                    for _ in range(self.draws if way == "average" else 1)
                ]
            found[way] = figures(torch.stack(draws).mean(dim=0).cpu().numpy(), self.vectors.label_indices())
        write_json(folder / "clean.json", found)


def figures(scores: Floats, labels: Ints) -> dict[str, float]:
    """Accuracy, cross-entropy and expected calibration error (15 bins of equal width)."""
    right = scores.argmax(axis=1) == labels
    return {
        "n": len(labels),
        "accuracy": float(right.mean()),
        "cross_entropy": float(cross_entropies(scores, labels).mean()),
        "ece": expected_calibration_error(scores.max(axis=1), right),
    }


def attack_head(folder: Path, ways: list[str], options: argparse.Namespace) -> None:
    """Every attack on one run, seen in each of its ways; the texts are the same for every run."""
    for way in ways:
        victim: dict[str, Any] = {}
        if "standard" not in folder.name:
            victim["latent"] = "mean" if way == "mean" else "sample"
        if way == "average":
            victim["draws"] = options.draws
        for name in options.attacks:
            attack_run(folder, name, n=options.n, split="test", victim=victim, precision=options.precision)


if __name__ == "__main__":
    main()
