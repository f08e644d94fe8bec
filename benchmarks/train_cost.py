"""What a defence costs: the time of a training step and the memory it takes, beside plain training.

    python benchmarks/train_cost.py                                             MiniLM, batches of 16 x 32 tokens, CPU
    python benchmarks/train_cost.py --batch 64 --length 128 --device cuda --precision bf16 --synchronisations
    PYTHONPATH=src python3 benchmarks/train_cost.py --backbone FOLDER           a checkout that is not installed
    python benchmarks/train_cost.py --write docs/results/train_cost.md

One process, one batch of random tokens, one copy of the model per defence. A round takes a step with each defence, in
an order of its own, between two plain steps; a figure is the median over rounds of the defence's time divided by the
mean of those two, so that what the machine does besides falls out. A step is everything between two batches: forward
and backward passes, clipping, AdamW. On a CPU time is processor time of this process; on a GPU it is wall time of
`--steps` steps without waiting in between. A target is met, or missed, if all of the interval is on that side of it.

Memory is the high-water mark of a process of its own (CPU), or of the allocator with nothing else on the GPU. With
--synchronisations the places where a step waits for the GPU are counted, as torch itself reports them.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import platform
import random
import resource
import shlex
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isthmus import defences
from isthmus.core.types import Ints
from isthmus.defences import Batch, Defence
from isthmus.models import Classifier
from isthmus.training.numerics import autocast_on, make_optimizer
from isthmus.training.settings import TrainingSettings
from isthmus.training.walk import walk


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    defence: Defence
    target: float | None = None
    """Most it may cost, as a multiple of plain training."""


ROWS = (
    Row("standard", defences.Standard()),
    Row("freelb, 3 steps", defences.FreeLB(steps=3), 3.0),
    Row("pgd, 3 steps", defences.PGD(steps=3)),
    Row("infobert", defences.InfoBERT(), 2.2),
    Row("infobert with freelb, 3 steps", defences.InfoBERT(adversary="freelb", steps=3), 4.6),
    Row("smart", defences.SMART(), 3.2),
    Row("alum", defences.ALUM(), 3.2),
    Row("vib", defences.VIB(), 1.05),
    Row("vub", defences.VUB(), 1.05),
)


@dataclass(frozen=True)
class Labels:
    """What a defence may ask of the training data before it begins."""

    labels: Ints

    def __len__(self) -> int:
        return len(self.labels)

    def label_indices(self) -> Ints:
        return self.labels


@dataclass
class Training:
    """One model in training with one defence."""

    row: Row
    model: Classifier
    optimizer: torch.optim.Optimizer
    batch: Batch
    autocast: Callable[[], Any]
    taken: int = 0

    def step(self) -> None:
        """All that a trainer does between two batches."""
        self.taken += 1
        self.optimizer.zero_grad()
        batch = dataclasses.replace(self.batch, seed=self.taken)
        walk(self.row.defence, self.model, batch, backward=_backward, autocast=self.autocast)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def _backward(loss: Tensor, retain_graph: bool) -> None:
    loss.backward(retain_graph=retain_graph)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="minilm", help="an asset, a folder of an encoder, or a hub name")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=32, help="tokens of the longest text; the shortest has half")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--steps", type=int, help="steps per measurement (default: 1 on a CPU, 10 on a GPU)")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--only", help="names of rows, separated by semicolons; standard is always measured")
    parser.add_argument("--synchronisations", action="store_true", help="count where a step waits for the GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="a sentence about the machine, for the table")
    parser.add_argument("--write", type=Path, help="a Markdown file; a section with the same title is replaced")
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no cuda here")
    if chosen.synchronisations and chosen.device != "cuda":
        parser.error("--synchronisations counts waits for a GPU: add --device cuda")
    if chosen.rounds < 6 or chosen.batch < 2 or chosen.length < 4:
        parser.error("at least six rounds, for an interval of 95 %, two texts and four tokens are needed")
    chosen.steps = chosen.steps or (10 if chosen.device == "cuda" else 1)
    return chosen


def chosen_rows(only: str | None) -> list[Row]:
    if only is None:
        return list(ROWS)
    names = {name.strip() for name in only.split(";")}
    if unknown := names - {row.name for row in ROWS}:
        sys.exit(f"no row named {sorted(unknown)}; there are: {'; '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if row.name in names or row.name == "standard"]


def make_batch(model: Classifier, options: argparse.Namespace) -> Batch:
    """Random words between the special tokens of the tokenizer, of lengths from a half to the whole."""
    stream = random.Random(options.seed)
    tokenizer = model.tokenizer
    usual = [index for index in range(len(tokenizer)) if index not in set(tokenizer.all_special_ids)]
    around = tokenizer("a")["input_ids"]
    word = tokenizer("a", add_special_tokens=False)["input_ids"][0]
    place = around.index(word)
    ids = torch.full((options.batch, options.length), tokenizer.pad_token_id or 0)
    mask = torch.zeros_like(ids)
    for row in range(options.batch):
        length = options.length if row == 0 else stream.randint(options.length // 2, options.length)
        words = stream.choices(usual, k=length - len(around) + 1)
        ids[row, :length] = torch.tensor([*around[:place], *words, *around[place + 1 :]])
        mask[row, :length] = 1
    labels = torch.arange(options.batch) % 2
    device = options.device
    return Batch({"input_ids": ids.to(device), "attention_mask": mask.to(device)}, labels.to(device))


def begin(row: Row, plain: Classifier, options: argparse.Namespace) -> Training:
    """A fresh copy of the model, with whatever the defence puts into it."""
    torch.manual_seed(options.seed)
    model = copy.deepcopy(plain).to(options.device)
    batch = make_batch(model, options)
    row.defence.prepare(model, Labels(batch.labels.cpu().numpy()))
    settings = TrainingSettings(precision=options.precision, learning_rate=1e-6)
    autocast = autocast_on(torch.device(options.device), options.precision)
    return Training(row, model.train(), make_optimizer(model, settings), batch, autocast)


# Time.


def seconds(training: Training, options: argparse.Namespace) -> float:
    """Processor seconds of this process on a CPU, wall seconds until the work is done on a GPU."""
    on_gpu = options.device == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    started = clock()
    for _ in range(options.steps):
        training.step()
    if on_gpu:
        torch.cuda.synchronize()
    steps: int = options.steps
    return (clock() - started) / steps


def measure(trainings: list[Training], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of plain training, and of every defence the ratios to the plain steps around it, by name."""
    plain, others = trainings[0], trainings[1:]
    found: dict[str, list[float]] = {training.row.name: [] for training in trainings}
    for training in trainings:
        seconds(training, options)
    order = random.Random(options.seed)
    for number in range(options.rounds):
        before = seconds(plain, options)
        for training in order.sample(others, len(others)):
            taken, after = seconds(training, options), seconds(plain, options)
            found[training.row.name].append(taken / ((before + after) / 2))
            found[plain.row.name].append(after)
            before = after
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    return found


def interval(values: list[float], level: float = 0.95) -> tuple[float, float]:
    """Of the median, without assumptions: the order statistics that hold it with at least this probability."""
    from scipy.stats import binom

    ordered = sorted(values)
    below = int(binom.ppf((1 - level) / 2, len(ordered), 0.5))
    return ordered[max(0, below - 1)], ordered[min(len(ordered) - 1, len(ordered) - below)]


# Memory and waits.


def peak_on_gpu(row: Row, plain: Classifier, options: argparse.Namespace) -> float:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    training = begin(row, plain, options)
    for _ in range(2):
        training.step()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated())


def peak_on_cpu(row: Row, plain: Classifier, options: argparse.Namespace) -> float:
    """Of a child that is forked before this process has done any arithmetic."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            training = begin(row, plain, options)
            for _ in range(2):
                training.step()
            unit = 1 if platform.system() == "Darwin" else 1024
            os.write(writing, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return float(answer or "nan")


def waits(training: Training) -> int:
    """How often one step waits for the GPU."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            training.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in caught)


# What is said.


def machine(options: argparse.Namespace) -> str:
    if options.device == "cuda":
        return torch.cuda.get_device_name()
    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {options.threads} of {os.cpu_count()} threads"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def title(options: argparse.Namespace) -> str:
    backbone = Path(options.backbone).name
    kind = "GPU" if options.device == "cuda" else "CPU"
    return f"## {kind}, {options.precision}, {backbone}, {options.batch} texts of {options.length} tokens"


def table(
    rows: list[Row],
    found: Mapping[str, list[float]],
    memory: Mapping[str, float],
    counted: Mapping[str, int],
    options: argparse.Namespace,
) -> str:
    clock = "wall" if options.device == "cuda" else "processor"
    plain = statistics.median(found["standard"])
    note = f" {options.note}" if options.note else ""
    heading = "| defence | step time / standard | 95 % interval | target | | peak memory | / standard |"
    lines = [
        title(options), "", f"    {command()}", "",
        f"{machine(options)}; torch {torch.__version__}.{note} {options.rounds} rounds; a plain step takes "
        f"{plain * 1e3:.1f} ms of {clock} time.", "",
        heading + (" waits |" if counted else ""), "|---|---|---|---|---|---|---|" + ("---|" if counted else ""),
    ]  # fmt: skip
    for row in rows:
        cells = [row.name]
        cells += ["1", "", "", ""] if row.name == "standard" else timing(row, found[row.name])
        cells += [f"{memory[row.name] / 2**20:,.0f} MiB", f"{memory[row.name] / memory['standard']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |" + (f" {counted[row.name]} |" if counted else ""))
    if counted:
        extra = max(counted.values()) - counted["standard"]
        lines += ["", f"Waits for the GPU in a step, beyond those of plain training: {max(0, extra)}."]
    return "\n".join(lines) + "\n"


def timing(row: Row, ratios: list[float]) -> list[str]:
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    cells = [f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
    if row.target is None:
        return [*cells, "", ""]
    verdict = "met" if high <= row.target else "**missed**" if low > row.target else "undecided"
    return [*cells, f"≤ {row.target:g}", verdict]


def command() -> str:
    words = sys.argv[1:]
    for option in ("--write", "--note"):
        if option in words:
            place = words.index(option)
            words = words[:place] + words[place + 2 :]
    return shlex.join(["python", "benchmarks/train_cost.py", *words])


def write(path: Path, section: str) -> None:
    """Put the section in the place of one with the same title, or at the end."""
    text = path.read_text() if path.is_file() else "# The cost of a training step\n"
    heading = section.splitlines()[0]
    before, found, after = text.partition(f"{heading}\n")
    if found:
        _, mark, rest = after.partition("\n## ")
        text = before + section + (f"\n## {rest}" if mark else "")
    else:
        text = f"{text.rstrip()}\n\n{section}"
    path.write_text(text)


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    rows = chosen_rows(options.only)
    plain = Classifier.create(options.backbone, ("negative", "positive"), seed=options.seed)
    peak = peak_on_gpu if options.device == "cuda" else peak_on_cpu
    memory = {row.name: peak(row, plain, options) for row in rows}
    trainings = [begin(row, plain, options) for row in rows]
    found = measure(trainings, options)
    counted = {training.row.name: waits(training) for training in trainings} if options.synchronisations else {}
    section = table(rows, found, memory, counted, options)
    print(section)
    if options.write is not None:
        write(options.write, section)


if __name__ == "__main__":
    main()
