"""Queries a second of 1, 2 and 4 processes that share one card, in time slices and by NVIDIA's multi-process service.

    python benchmarks/processes.py --model RUN_OR_FOLDER --data rotten_tomatoes
    python benchmarks/processes.py --device cpu --n 64 --processes 1 2         a try without a GPU; no figures
    python benchmarks/processes.py ... --repeats 3 --results results --targets    kept in the ledger; exit 1 if too slow

Without --model a fresh MiniLM is attacked, without --data texts of random words as long as SST-2's. Processes are
started once for each way of sharing the card and warmed up by a cohort each; loading is not part of the figures. Where
nvidia-cuda-mps-control is found, a service of this command's own is started and stopped again; it takes a card that
nobody has set to exclusive use by others. Wall time; each figure is the median of --repeats runs. With --results every
run is kept in times/attack_speed.jsonl, from which `attack_speed.py --side page` writes the table.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from isthmus import load_data
from isthmus.attacks.base import AttackSettings
from isthmus.attacks.parts.limits import Limits
from isthmus.attacks.processes import AT_ONCE, AttackWatch, Job, Workers, cohorts_of
from isthmus.core import catalog
from isthmus.core.errors import IsthmusError
from isthmus.core.types import Example
from isthmus.verbs.attack.auxiliary_models import names_of
from speed import ledger
from speed.models import Models
from speed.record import Record, card_name

CONTROL = "nvidia-cuda-mps-control"
LEAST = {"deepwordbug": 100_000, "textfooler": 80_000}
"""Queries a second that up to four processes must get out of one card."""


def texts(options: argparse.Namespace) -> list[Example]:
    if options.data is not None:
        found = load_data(options.data)["train"].sample(options.n, 0)
        return list(found)
    stream = random.Random(0)
    words = ("good", "bad", "film", "story", "plot", "dull", "fine", "warm", "cold", "quiet", "actor", "scene", "long")
    sizes = [min(50, max(4, round(stream.lognormvariate(2.8, 0.5)))) for _ in range(options.n)]
    return [Example(f"x:{n}", {"text": " ".join(stream.choices(words, k=size))}, n % 2) for n, size in enumerate(sizes)]


@contextlib.contextmanager
def service(wanted: bool) -> Iterator[None]:
    """The multi-process service, for the processes that are started inside."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        names = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for path in names.values():
            Path(path).mkdir()
        os.environ |= names
        try:
            subprocess.run([CONTROL, "-d"], check=True)
            try:
                yield
            finally:
                subprocess.run([CONTROL], input=b"quit\n", check=False)
                time.sleep(1)
        finally:
            for name in names:
                os.environ.pop(name, None)


def job_of(name: str) -> Job:
    """An attack with its defaults, and the names of its auxiliary models."""
    attack = catalog.build("attacks", name, {})
    return Job(attack, AttackSettings(), names_of(attack, Limits(), None))


def warm_up(workers: Workers, job: Job, examples: list[Example], most: int, on_gpu: bool) -> None:
    """Let every process attack once: on a GPU a whole cohort, which takes memory and chooses kernels."""
    each = len(cohorts_of(examples, most, on_gpu=True)[0]) if on_gpu else 4
    chosen = (examples * (1 + each * most // len(examples)))[: each * most]
    cohorts = [chosen[start : start + each] for start in range(0, len(chosen), each)]
    list(workers.attack(job, cohorts, {example.id for example in chosen}))


def measured(workers: Workers, job: Job, examples: list[Example], on_gpu: bool) -> Record:
    """One attack over all texts: its queries, and the wall time."""
    watch, began = AttackWatch(), time.perf_counter()
    cohorts = cohorts_of(examples, workers.processes, on_gpu=on_gpu)
    at_once = AT_ONCE if on_gpu else 1
    for _ in workers.attack(job, cohorts, {example.id for example in examples}, watch, at_once=at_once):
        pass
    record = Record("", catalog.name_of(job.attack, "attacks"), examples=len(examples), clock="wall")
    record.wall_s = time.perf_counter() - began
    record.rows = sum(each.scores.logical for each in watch.statistics)
    return record


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a run, or a folder of a classifier")
    parser.add_argument("--data", help="anything that isthmus reads as data; its training split is attacked")
    parser.add_argument("--attack", nargs="+", default=["deepwordbug"], help="one after the other")
    parser.add_argument("--n", type=int, default=6144)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--no-mps", action="store_true", help="time slices alone")
    parser.add_argument("--results", type=Path, help="keep every run in times/attack_speed.jsonl of this folder")
    parser.add_argument("--targets", action="store_true", help=f"exit 1 where no way reaches {LEAST} queries/s")
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        chosen.precision = "fp32"
    return chosen


def main() -> None:
    options = arguments()
    started = time.perf_counter()
    examples, on_gpu = texts(options), options.device != "cpu"
    jobs = [job_of(name) for name in options.attack]
    ways = {"time slices": False}
    if on_gpu and not options.no_mps:
        if shutil.which(CONTROL):
            ways["multi-process service"] = True
        else:
            print(f"{CONTROL} is not installed here: time slices alone")
    most, best = max(options.processes), dict.fromkeys(options.attack, 0.0)
    for way, with_service in ways.items():
        try:
            with (
                service(with_service),
                Workers(Models(options.model, options.device, options.precision), most) as workers,
            ):
                for name, job in zip(options.attack, jobs, strict=True):
                    workers.processes = most
                    warm_up(workers, job, examples, most, on_gpu)
                    for count in options.processes:
                        workers.processes = count
                        runs = [measured(workers, job, examples, on_gpu) for _ in range(options.repeats)]
                        keep(options, f"{count}, {way}", runs)
                        found = statistics.median(record.queries_per_s for record in runs)
                        best[name] = max(best[name], found)
                        seconds = time.perf_counter() - started
                        print(
                            f"{name:12} {way:22} {count} process{'es' if count > 1 else '  '} "
                            f"{found:>12,.0f} queries/s   ({seconds:.0f} s)",
                            flush=True,
                        )
        except (OSError, subprocess.CalledProcessError, IsthmusError) as error:
            print(f"{way}: {error}", flush=True)
    missed = [
        f"{name} {best[name]:,.0f} of {LEAST[name]:,}" for name in options.attack if best[name] < LEAST.get(name, 0)
    ]
    if options.targets and missed:
        sys.exit(f"missed, queries/s: {', '.join(missed)}")


def keep(options: argparse.Namespace, side: str, runs: list[Record]) -> None:
    """The runs of one way of sharing the card as a line of the ledger."""
    if options.results is None:
        return
    for record in runs:
        record.side, record.precision = side, options.precision
        if options.device != "cpu":
            record.processor = card_name()
    line = ledger.line_of("processes", runs, options.n, 1)
    ledger.add(options.results / "times" / "attack_speed.jsonl", [line])


if __name__ == "__main__":
    main()
