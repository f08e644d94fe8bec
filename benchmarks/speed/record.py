"""What one measurement is: the figures that were taken, and those that follow from them.

examples/s     = examples / processor seconds       (one thread, so a shared machine does not disturb it)
queries/s      = rows forwarded / processor seconds
padding waste  = 1 - tokens / tokens forwarded
host share     = 1 - model seconds / all seconds
success        = succeeded / (succeeded + failed)
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from isthmus.runs.provenance import processor_name


@dataclass
class Record:
    """One side, one recipe, one precision."""

    side: str
    recipe: str
    precision: str = "fp32"
    examples: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    model_s: float = 0.0
    rows: int = 0
    batches: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    filled: int = 0
    """Rows forwarded that nobody asked for, repeated to fill a batch."""
    peak_memory_mb: float = 0.0
    clock: str = "cpu"
    """Which of the two times the rates use: ``cpu`` on processors, ``wall`` where a GPU works beside it."""
    processor: str = field(default_factory=lambda: processor())
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.cpu_s if self.clock == "cpu" else self.wall_s

    @property
    def examples_per_s(self) -> float:
        return self.examples / self.seconds if self.seconds else 0.0

    @property
    def queries_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def mean_batch(self) -> float:
        return self.rows / self.batches if self.batches else 0.0

    @property
    def padding_waste(self) -> float:
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0

    @property
    def host_share(self) -> float:
        return 1 - self.model_s / self.seconds if self.seconds else 0.0

    @property
    def success(self) -> float:
        kinds = [row["outcome"] for row in self.outcomes]
        attacked = kinds.count("succeeded") + kinds.count("failed")
        return kinds.count("succeeded") / attacked if attacked else 0.0

    def write(self, path: Path) -> None:
        derived = ("examples_per_s", "queries_per_s", "mean_batch", "padding_waste", "host_share", "success")
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = asdict(self) | {name: getattr(self, name) for name in derived}
        path.write_text(json.dumps(figures, ensure_ascii=False, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        row = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{name: row[name] for name in cls.__dataclass_fields__ if name in row})


class Clock:
    """Wall and processor seconds of a `with` block."""

    wall_s = cpu_s = 0.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._started[0]
        self.cpu_s = time.process_time() - self._started[1]


@functools.cache
def processor() -> str:
    """The processor's name and the widest of its instructions that decide a rate: one name stands for several kinds."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        flags = set()
    kinds = {"amx_bf16": "AMX", "avx512_bf16": "AVX512_BF16", "avx512f": "AVX-512", "avx2": "AVX2"}
    return ", ".join([processor_name(), *[name for flag, name in kinds.items() if flag in flags][:1]])


def peak_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def card_name() -> str:
    """The name of the first GPU, asked of its driver: this process need not use it."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()[0].strip()


def pinned_environment(threads: int) -> dict[str, str]:
    """The environment of a measured process: as many threads as it has cores, and no network."""
    single = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return os.environ | single | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
