"""docs/results/infobert.md from the runs: the tables alone, which the page's own text surrounds."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from isthmus.core.files import read_json
from isthmus.runs.folder import RunFolder
from proof.scores import place_on
from proof.tables import held, markdown, over_seeds, paired_change

ROWS = (
    "standard",
    "infobert",
    "freelb",
    "infobert freelb",
    "smart",
    "alum",
    "bottleneck only",
    "anchors only",
    "freelb bottleneck",
    "freelb anchors",
)
PAPER = (
    ("vanilla", "91.3; 86.7/86.4", "26.5 (test)", "44.9; 57.0/57.5", "0.0; 0.0/0.0"),
    ("InfoBERT", "91.7; 86.2/86.0", "28.7 (test)", "45.4; 57.2/58.6", "36.7; 43.5/46.6"),
    ("FreeLB", "92.4; 86.9/86.5", "27.4 (test)", "50.5; 64.0/62.9", "46.6; 60.0/60.7"),
    ("InfoBERT + FreeLB", "92.2; 87.2/87.2", "28.2 (test)", "52.6; 65.6/67.3", "50.8; 61.3/62.7"),
)
"""BERT-large on SNLI + MNLI: clean; ANLI; TextFooler sets of RoBERTa-large; TextFooler sets of BERT-large itself."""

Value = Callable[["Run"], float | None]


class Run:
    """One trained model's figures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "sets.json"
        self.sets: dict[str, dict[str, int]] = read_json(path) if path.is_file() else {}

    def share(self, *names: str) -> float | None:
        """Accuracy over the pairs of several sets together."""
        found = [self.sets[name] for name in names if name in self.sets]
        total = sum(entry["n"] for entry in found)
        return sum(entry["right"] for entry in found) / total if len(found) == len(names) and total else None

    def transferred(self, prefix: str) -> float | None:
        """Accuracy on the adversarial sets that were made from other seeds' standard models."""
        own = re.search(r"seed(\d+)$", self.folder.name)
        names = [name for name in self.sets if name.startswith(prefix) and own and not name.endswith(own[0])]
        return self.share(*names) if names else None

    def calibration_error(self) -> float | None:
        """Of the development data."""
        return (RunFolder(self.folder).record().results or {}).get("dev_ece")

    @functools.cached_property
    def robust(self) -> dict[str, bool]:
        """Which of the SNLI pairs that were attacked directly the model still got right."""
        for file in RunFolder(place_on(self.folder, "snli")).attack_files():
            if file.header().get("summary"):
                return held(file)
        return {}

    def left(self, pairs: set[str]) -> float | None:
        """Accuracy under direct attack on these pairs."""
        return sum(self.robust[key] for key in pairs) / len(pairs) if pairs and self.robust else None


def runs_of(place: Path, name: str, seeds: int) -> list[Run]:
    """The runs of one row that were tested."""
    folders = [place / f"{name.replace(' ', '-')}-seed{seed}" for seed in range(seeds)]
    return [run for run in map(Run, folders) if run.sets]


def page(out: Path, seeds: int) -> str:
    """Every table: the choice on development data, then one of each backbone, and the paper's."""
    parts = ["# InfoBERT, FreeLB, SMART and ALUM on natural-language inference"]
    if tried := sorted(map(candidate, (out / "searched").glob("*.json")), key=lambda row: row[0]):
        parts += [
            "## Chosen on development data",
            markdown(["candidate", "clean", "accuracy under TextFooler", "n"], tried),
        ]
    for place in sorted(out.glob("runs*")):
        parts += [f"## {place.name.partition('-')[2] or 'minilm'}", *tables(place, seeds)]
    parts.append(markdown(["training (BERT-large)", "SNLI; MNLI m/mm", "ANLI", "sets of RoBERTa", "own sets"], PAPER))
    return "\n\n".join([*parts, ""])


def candidate(path: Path) -> list[str]:
    """A row for what was tried on development data."""
    found = read_json(path)
    rates = [f"{100 * found[key]:.1f}" for key in ("clean", "robust")]
    return [path.stem.replace("-", " "), *rates, str(found["n"])]


def tables(place: Path, seeds: int) -> Iterator[str]:
    """The runs of one backbone: all sets, and the change against standard training."""
    found = {name: runs_of(place, name, seeds) for name in ROWS}
    attacked = [set(run.robust) for runs in found.values() for run in runs if run.robust]
    shared = set.intersection(*attacked) if attacked else set()
    columns: dict[str, Value] = {
        "SNLI": lambda run: run.share("snli"),
        "MNLI m / mm": lambda run: run.share("mnli matched", "mnli mismatched"),
        "ANLI R1": lambda run: run.share("anli r1"),
        "R2": lambda run: run.share("anli r2"),
        "R3": lambda run: run.share("anli r3"),
        "ANLI": lambda run: run.share("anli r1", "anli r2", "anli r3"),
        "TextFooler SNLI set": lambda run: run.transferred("snli-"),
        "TextFooler MNLI sets": lambda run: run.transferred("mnli-"),
        # The standard models were attacked on more pairs, to make the sets; all are judged on those they share.
        f"direct TextFooler (n = {len(shared)})": lambda run: run.left(shared),
        "calibration error, dev": Run.calibration_error,
    }
    yield markdown(
        ["training", "seeds", *columns],
        [
            [name, str(len(runs)), *(over_seeds([value(run) for run in runs]) for value in columns.values())]
            for name, runs in found.items()
            if runs
        ],
    )
    if changes := list(paired(found)):
        yield markdown(["compared with standard", "accuracy under TextFooler, difference in points"], changes)


def paired(found: dict[str, list[Run]]) -> Iterator[Sequence[str]]:
    """Each method against standard training with the same seed, on the same pairs."""
    base = {run.folder.name.rpartition("-")[2]: run.robust for run in found.get("standard", [])}
    for name, runs in found.items():
        change = paired_change((run.robust, base.get(run.folder.name.rpartition("-")[2], {})) for run in runs)
        if name != "standard" and change is not None:
            yield name, change
