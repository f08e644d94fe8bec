"""How long an attack takes to start: from the command to the victim's first batch, with warm caches.

The command is `isthmus attack` on five texts without the check of labels, in a process of its own that ends when the
engine hands the victim its first batch. One start fills the caches and does not count.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speed.record import Record, pinned_environment

MOST_SECONDS = 6.0
"""Seconds a start may take."""
_TEXTS = 5
_CHILD = """
import os, sys, time
from isthmus.cli.app import run
from isthmus.models.victims.classifier import ClassifierVictim

def launch(*_, **__):
    print(time.time(), time.process_time(), file=sys.stderr, flush=True)
    os._exit(0)

ClassifierVictim.launch = launch
sys.exit(run(sys.argv[1:]) or 1)
"""


def cold_start(model: Path, data: Path, recipe: str, threads: int) -> Record:
    """One start, after another one that does not count."""
    _start(model, data, recipe, threads)
    wall_s, cpu_s = _start(model, data, recipe, threads)
    return Record("start", recipe, examples=_TEXTS, wall_s=wall_s, cpu_s=cpu_s, clock="wall", notes={"cpu s": cpu_s})


def missed_by_start(records: list[Record]) -> list[str]:
    """Which starts take too long."""
    return [
        f"{record.recipe}: {record.seconds:.1f} s from the command to the first batch, {MOST_SECONDS} is the target"
        for record in records
        if record.seconds > MOST_SECONDS
    ]


def _start(model: Path, data: Path, recipe: str, threads: int) -> tuple[float, float]:
    """Wall and processor seconds of one start."""
    with tempfile.TemporaryDirectory() as out:
        command = ["attack", str(model), "--data", str(data), "--split", "test", "--attack", recipe]
        command += ["--n", str(_TEXTS), "--no-label-check", "--quiet", "--out", f"{out}/run"]
        began = time.time()
        ended = subprocess.run(
            [sys.executable, "-c", _CHILD, *command],
            env=pinned_environment(threads),
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode:
        raise SystemExit(f"the attack ended before the victim was asked:\n{ended.stderr}{ended.stdout}")
    at, cpu_s = map(float, ended.stderr.splitlines()[-1].split())
    return at - began, cpu_s
