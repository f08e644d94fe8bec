"""How fast texts are explained, beside the passes of the model alone and beside captum.

    python benchmarks/explain_speed.py                                 MiniLM on the CPU, one thread
    python benchmarks/explain_speed.py --pairs 30 --targets            exit code 1 where a target is missed
    python benchmarks/explain_speed.py --device cuda --pairs 1000
    python benchmarks/explain_speed.py --write docs/results/explain_speed.md

Integrated gradients at 50 steps over pairs (a text, and the same with some words replaced), steps of many texts in one
batch:

    bare      the same rows, their embeddings made beforehand, one forward and one backward pass each, in full batches
    captum    one text a call, its steps in one batch, the same baseline and rule; both sides begin with the text

LIME over the same texts: `bare` is the forward pass alone over the rows that the engine sent, in full batches in the
order of their lengths. Sides take turns within a round and the ratio is taken round by round; its interval is a
bootstrap over rounds. A CPU is measured in processor seconds of this process, so that other work on the machine does
not decide, a GPU in wall seconds. Memory is the peak of a process of its own, with few and with four times as many
pairs, at fewer steps and samples.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from isthmus import load_data
from isthmus.core.statistics import Interval, bootstrap_mean
from isthmus.core.types import Example
from isthmus.explanations import LIME, IntegratedGradients
from isthmus.models import Classifier, ClassifierVictim
from isthmus.runs.provenance import processor_name, usable_cores
from isthmus.text.words import Words
from speed.ideal import pack, unpadded
from speed.victims import NotingVictim

console = Console(width=140)
BATCHES = {"cpu": (32, 64), "cuda": (256, 1024, 4096)}
TARGETS = {"integrated gradients / bare": 0.9, "integrated gradients / captum": 1.0, "LIME / bare": 0.9}
"""Rates of ours over rates of the other side."""
MEMORY = 1.1
"""How much more four times as many pairs may take."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="rotten_tomatoes")
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of texts for integrated gradients")
    parser.add_argument("--lime-texts", type=int, default=8, help="texts for LIME")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--samples", type=int, default=1000, help="of LIME")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--skip", choices=("gradients", "lime", "memory"), nargs="*", default=())
    parser.add_argument("--targets", action="store_true", help="exit code 1 where a target is missed")
    parser.add_argument("--write", type=Path, help="write the page there")
    parser.add_argument("--memory-of", choices=("gradients", "lime"), help=argparse.SUPPRESS)
    return parser.parse_args()


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    ratio: Interval
    n: str

    @property
    def is_met(self) -> bool:
        """Whether the estimate reaches the target; without one it does."""
        return self.what not in TARGETS or self.ratio.estimate >= TARGETS[self.what]


class Bench:
    """One model on one device."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, options.device
        self.model = Classifier.create(options.backbone, ("negative", "positive")).to(options.device).eval()
        self.model.requires_grad_(requires_grad=False)
        self.victim = ClassifierVictim(self.model)

    def examples(self, pairs: int) -> list[Example]:
        """Texts, and each again with a tenth of its words, at least one, replaced by words of others."""
        data = load_data(self.options.data)["test"].sample(pairs, 0)
        pool = sorted({word for example in data for word in Words.of(example.texts["text"])})
        stream = np.random.default_rng(0)
        found = []
        for example in data:
            words = Words.of(example.texts["text"])
            places = stream.permutation(len(words))[: max(1, len(words) // 10)].tolist()
            other = words.replace({place: pool[int(stream.integers(len(pool)))] for place in places})
            found += [Example(example.id, example.texts, 0), Example(f"{example.id}'", {"text": str(other)}, 0)]
        return found

    def seconds(self, work: Callable[[], object]) -> float:
        """Processor seconds on a CPU, wall seconds on a GPU."""
        if self.device == "cpu":
            began = time.process_time()
            work()
            return time.process_time() - began
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def rounds(self, sides: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        """Seconds of every side in every round; the first side begins the first round, the second the next."""
        for work in sides.values():
            work()
        found: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(self.options.repeats):
            names = list(sides)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found[name].append(self.seconds(sides[name]))
        return found

    def gradients(self) -> list[Line]:
        """Integrated gradients beside bare passes and captum."""
        examples = self.examples(self.options.pairs)
        method = IntegratedGradients(steps=self.options.steps)
        ids = [self._ids(example) for example in examples]
        batches = self._best(lambda size: self._rows(ids, size), self._differentiate)
        took = self.rounds(
            {
                "ours": lambda: list(method(self.victim, examples)),
                "bare": lambda: self._differentiate(batches),
                "captum": lambda: self._captum(examples),
            }
        )
        n = f"{self.options.repeats} rounds of {len(examples)} texts, {self.options.steps} steps"
        rate = len(examples) / np.mean(took["ours"])
        console.print(f"integrated gradients: {rate:.2f} texts/s, batches of {len(batches[0])} rows bare")
        return [
            Line(f"integrated gradients / {side}", _ratio(took[side], took["ours"]), n) for side in ("bare", "captum")
        ]

    def _ids(self, example: Example) -> torch.Tensor:
        encoded = self.model.tokenizer(example.texts["text"], truncation=True, max_length=self.model.max_tokens)
        return torch.tensor(encoded["input_ids"], device=self.device)

    def _ends(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings of a text and of the baseline."""
        with torch.no_grad():
            end = self.model.embed(ids[None])
            special = self.model.special_mask(ids[None]).unsqueeze(-1)
            return torch.where(special, end, torch.zeros_like(end)), end

    def _rows(self, texts: Sequence[torch.Tensor], size: int) -> list[torch.Tensor]:
        """Points on the paths of all texts, in batches of rows of equal length."""
        steps = (torch.arange(self.options.steps, device=self.device) + 0.5) / self.options.steps
        of_length: dict[int, list[torch.Tensor]] = {}
        for ids in texts:
            start, end = self._ends(ids)
            of_length.setdefault(len(ids), []).append(start + steps.view(-1, 1, 1) * (end - start))
        return [part for rows in of_length.values() for part in torch.cat(rows).split(size)]

    def _differentiate(self, batches: Sequence[torch.Tensor]) -> None:
        for batch in batches:
            leaf = batch.detach().requires_grad_()
            logits = self._network(leaf)
            torch.autograd.grad(logits[:, 0].sum(), leaf)

    def _network(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Logits of rows of embeddings, and nothing around it."""
        logits: torch.Tensor = self.model(None, None, None, embeddings).logits
        return logits

    def _captum(self, examples: Sequence[Example]) -> None:
        from captum.attr import IntegratedGradients as Captum

        captum = Captum(self._network)
        for example in examples:
            start, end = self._ends(self._ids(example))
            with torch.no_grad():
                target = int(self._network(end).argmax())
            captum.attribute(end, start, target=target, n_steps=self.options.steps, method="riemann_middle").sum(-1)

    def _best(self, make: Callable[[int], Any], work: Callable[[Any], None]) -> Any:
        """The batches of the size that is fastest."""
        found: list[tuple[float, int, Any]] = []
        for size in BATCHES["cpu" if self.device == "cpu" else "cuda"]:
            batches = make(size)
            found.append((self.seconds(partial(work, batches)), len(found), batches))
        return min(found)[2]

    def lime(self) -> list[Line]:
        """LIME beside the forward pass of the rows that it sends."""
        examples = self.examples(-(-self.options.lime_texts // 2))[: self.options.lime_texts]
        method = LIME(samples=self.options.samples)
        noting = NotingVictim(self.victim)
        list(method(noting, examples))
        rows = unpadded(noting.sent)
        batches = self._best(lambda size: list(pack(rows, size, self.device)), self._forward)
        took = self.rounds(
            {"ours": lambda: list(method(self.victim, examples)), "bare": lambda: self._forward(batches)}
        )
        console.print(
            f"LIME: {len(rows)} rows of {len(examples)} texts, {len(rows) / np.mean(took['ours']):.0f} rows/s, "
            f"batches of {len(batches[0].ids)} rows bare"
        )
        n = f"{self.options.repeats} rounds of {len(rows)} rows of {len(examples)} texts"
        return [Line("LIME / bare", _ratio(took["bare"], took["ours"]), n)]

    def _forward(self, batches: Sequence[Any]) -> None:
        with torch.inference_mode():
            for batch in batches:
                self.model(batch.ids, batch.mask)


def _ratio(other: Sequence[float], ours: Sequence[float]) -> Interval:
    """Our rate over theirs, round by round."""
    return bootstrap_mean([theirs / own for theirs, own in zip(other, ours, strict=True)])


def memory(options: argparse.Namespace, which: str) -> tuple[float, float]:
    """Peak memory in MB with `--pairs`, or texts of LIME, and with four times as many, each in a process of its own."""
    found = []
    for factor in (1, 4):
        sizes = {
            "--pairs": max(4, options.pairs // 4) * factor,
            "--lime-texts": max(2, options.lime_texts // 4) * factor,
        }
        command = [
            sys.executable, __file__, "--memory-of", which, "--steps", "10", "--samples", "100", "--device",
            options.device, "--data", options.data, "--backbone", options.backbone,
            *(str(part) for pair in sizes.items() for part in pair),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(float(json.loads(done.stdout.splitlines()[-1])))
    return found[0], found[1]


def print_peak(options: argparse.Namespace) -> None:
    """What the process took at most, in MB."""
    bench = Bench(options)
    texts = options.pairs if options.memory_of == "gradients" else -(-options.lime_texts // 2)
    method = (
        IntegratedGradients(steps=options.steps) if options.memory_of == "gradients" else LIME(samples=options.samples)
    )
    for _ in method(bench.victim, bench.examples(texts)):
        pass
    print(json.dumps(torch.cuda.max_memory_allocated() / 2**20 if options.device != "cpu" else peak_memory_mb()))


def peak_memory_mb() -> float:
    """Of this program alone: what getrusage gives begins with the size of the process that started it."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text().splitlines()
        return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def machine(options: argparse.Namespace) -> str:
    if options.device != "cpu":
        return torch.cuda.get_device_name()
    return f"{processor_name()}, {torch.get_num_threads()} of {usable_cores()} threads"


def shown(line: Line) -> str:
    target = TARGETS.get(line.what)
    told = "" if target is None else f"  target {target:.2f}: {'met' if line.is_met else 'MISSED'}"
    return f"{line.what:32} {line.ratio.estimate:5.2f}  [{line.ratio.low:.2f}, {line.ratio.high:.2f}]{told}"


def page(lines: Sequence[Line], peaks: Sequence[tuple[str, float, float]], options: argparse.Namespace) -> str:
    """The table as a page."""
    command = f"python benchmarks/explain_speed.py {' '.join(sys.argv[1:])}".strip()
    table = "\n".join(
        f"| {line.what} | {line.ratio.estimate:.2f} | {line.ratio.low:.2f} to {line.ratio.high:.2f} | "
        f"{TARGETS.get(line.what, '')} | {line.n} |"
        for line in lines
    )
    memory_lines = "\n".join(
        f"- {name}: {few:,.0f} MB, with four times as many {many:,.0f} MB" for name, few, many in peaks
    )
    clock = "processor seconds of the process" if options.device == "cpu" else "wall seconds"
    return f"""# How fast texts are explained

    {command}

{machine(options)}; torch {torch.__version__}; {options.backbone}; {options.data}; {clock}.
Our rate over that of the other side, 95 % bootstrap intervals over rounds; larger is better.

| | ratio | interval | target | n |
|---|---|---|---|---|
{table}

Peak memory of a process:

{memory_lines}
"""


def main() -> None:
    options = arguments()
    if options.device == "cpu":
        torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.memory_of:
        print_peak(options)
        return
    console.print(f"{machine(options)}; torch {torch.__version__}; {options.backbone}")
    bench = Bench(options)
    lines: list[Line] = []
    for name, work in (("gradients", bench.gradients), ("lime", bench.lime)):
        if name not in options.skip:
            lines += work()
            for line in lines[-2 if name == "gradients" else -1 :]:
                console.print(shown(line))
    peaks: list[tuple[str, float, float]] = []
    if "memory" not in options.skip:
        for name in ("gradients", "lime"):
            few, many = memory(options, name)
            peaks.append((name, few, many))
            told = "flat" if many <= MEMORY * few else "GROWS"
            console.print(f"memory of {name}: {few:,.0f} MB, four times as many texts {many:,.0f} MB: {told}")
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(page(lines, peaks, options), encoding="utf-8")
    missed = [line.what for line in lines if not line.is_met] + [
        f"memory of {name}" for name, few, many in peaks if many > MEMORY * few
    ]
    if options.targets and missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
