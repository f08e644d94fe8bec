"""A grid of runs: every method with every seed, each a run folder that is made once and never again.

The work may be cut into parts, done by several processes (`proof.beside`) and stopped at any moment: a finished run is
left as it is, an unfinished one is continued.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.runs.folder import RunFolder
from isthmus.training.settings import TrainingSettings
from isthmus.verbs.attack import attack
from isthmus.verbs.request import AttackRequest
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.train import TrainRequest, train
from proof.beside import console


@dataclass(frozen=True)
class Method:
    """One row of a table: a defence with its parameters."""

    name: str
    defence: str = "standard"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def folder(self, out: Path, seed: int) -> Path:
        """Where its run with this seed lies."""
        return out / f"{self.name.replace(' ', '-')}-seed{seed}"


@dataclass(frozen=True)
class Grid:
    """Methods and seeds on one data set and one backbone."""

    methods: Sequence[Method]
    seeds: int
    data: DataRequest
    backbone: str
    settings: TrainingSettings
    out: Path
    limit: int | None = None

    def cells(self, part: str = "0/1") -> list[tuple[Method, int]]:
        """The runs of one part, seed by seed, so that a cut leaves whole seeds."""
        number, parts = map(int, part.split("/"))
        return [(method, seed) for seed in range(self.seeds) for method in self.methods][number::parts]

    def train(self, method: Method, seed: int) -> RunFolder:
        """The trained run, trained now unless that was done."""
        began = time.monotonic()
        report = train(
            TrainRequest(
                self.data,
                backbone=self.backbone,
                defence=method.defence,
                parameters={key: str(value) for key, value in method.parameters.items()},
                settings=self.settings,
                limit=self.limit,
                seed=seed,
                out=method.folder(self.out, seed),
            )
        )
        if not report.was_finished:
            results = report.record.results or {}
            scores = ", ".join(
                f"{key} {value:.4f}"
                for key, value in results.items()
                if key.startswith("dev_") and isinstance(value, float)
            )
            console.print(f"{method.name:24} seed {seed}: {scores} ({time.monotonic() - began:.0f} s)")
        return report.folder


def attack_run(folder: Path, name: str, **request: Any) -> dict[str, Any]:
    """The summary of one attack on one run.

    A model that a method holds at chance is a result here, not a mistake in its labels. Texts that end in an error are
    none: what they come from (a GPU's memory, as a rule) is raised, and the same call again asks for these texts alone.
    """
    began = time.monotonic()
    report = attack(AttackRequest(str(folder), (name,), label_check=False, retry_errors=True, **request))
    (outcome,) = report.outcomes
    summary: dict[str, Any] = outcome.header["summary"]
    if errors := summary["outcomes"]["error"]:
        raise RuntimeError(f"{name} on {folder.name}: {errors} of {summary['n']} texts ended in an error")
    if outcome.made:
        rates = f"sacc {summary['sacc']:.3f} racc {summary['racc']:.3f} queries {summary['avg_queries'] or 0:.0f}"
        console.print(f"{folder.name:28} {name:12} n={summary['n']} {rates} ({time.monotonic() - began:.0f} s)")
    return summary


def parser(text: str | None) -> argparse.ArgumentParser:
    """The options every grid has."""
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--out", type=Path, required=True, help="folder of the runs")
    found.add_argument("--seeds", type=int, default=3)
    found.add_argument("--part", default="0/1", metavar="I/K", help="only the I-th of every K runs")
    found.add_argument("--workers", type=int, default=1, help="processes beside each other, on one GPU")
    found.add_argument("--minutes", type=float, default=1e6, help="minutes after which no new job starts")
    found.add_argument("--write", type=Path, help="write the page there instead of running")
    return found
