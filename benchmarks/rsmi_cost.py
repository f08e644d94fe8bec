"""What RSMI's defended inference and training cost, in plain forward passes and plain training steps.

    python benchmarks/rsmi_cost.py                                     a fresh MiniLM with noise, on the CPU
    python benchmarks/rsmi_cost.py --model RUN --device cuda --rows 4096 --repeats 30
    python benchmarks/rsmi_cost.py --write docs/results/rsmi_cost.md

Rounds of plain and defended passes over the same rows take turns, and the ratio is taken round by round; its interval
is a bootstrap over rounds. A CPU is measured in processor seconds of this process, so that other work on the machine
does not decide; a GPU in wall seconds. ``settled`` is the cost of a text whose first step is accepted, ``second`` that
of one that needs both steps. The share of texts that need the second depends on the model: with --model it is that of
the run given, on --data.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from isthmus.core.statistics import Interval, bootstrap_mean, wilson
from isthmus.core.types import Texts, TokenBatch, TokenVictim
from isthmus.defences import RSMI, Batch, Standard
from isthmus.inference.two_step import TwoStep
from isthmus.models import Classifier, ClassifierVictim, load_model

console = Console(width=140)
TARGETS = {"settled, k0 = 5": 7.5, "training step": 1.9}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a run trained with rsmi; by default a fresh MiniLM with the default noise")
    parser.add_argument("--data", default="rotten_tomatoes", help="texts for the share and the latency")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=64, help="rows of one round")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a row")
    parser.add_argument("--repeats", type=int, default=8, help="rounds")
    parser.add_argument("--second-rows", type=int, default=16, help="rows of a round of the second step")
    parser.add_argument("--texts", type=int, default=40, help="texts for the latency and the share")
    parser.add_argument("--write", type=Path, help="write the table there")
    return parser.parse_args()


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    ratio: Interval
    n: str


class Bench:
    """One model on one device."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        defence = RSMI()
        if options.model:
            self.model = load_model(options.model, device=options.device)
        else:
            self.model = Classifier.create("minilm", ("negative", "positive")).to(options.device)
            defence.prepare(self.model, ())  # type: ignore[arg-type]
        found = self.model.deployment
        if not isinstance(found, TwoStep):
            sys.exit(f"{options.model} was not trained with rsmi")
        self.deployment = found
        self.plain = copy.deepcopy(self.model)
        self.plain.slots.noise = None
        self.defence = dataclasses.replace(defence, masked=found.masked)

    @property
    def on_cpu(self) -> bool:
        return str(self.options.device) == "cpu"

    def seconds(self, work: Callable[[], object]) -> float:
        """Processor seconds on a CPU, wall seconds on a GPU."""
        if self.on_cpu:
            began = time.process_time()
            work()
            return time.process_time() - began
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def ratio(self, plain: Callable[[], object], other: Callable[[], object], scale: float = 1.0) -> Interval:
        """Mean of other / plain over rounds, each round timing both."""
        plain(), other()
        rounds = [self.seconds(other) / self.seconds(plain) * scale for _ in range(self.options.repeats)]
        return bootstrap_mean(rounds)

    def batch(self, rows: int) -> TokenBatch:
        """Rows of arbitrary words between the special tokens."""
        draw = np.random.default_rng(0)
        tokenizer, size = self.model.tokenizer, self.model.table.num_embeddings
        ids = draw.integers(size // 4, size // 2, (rows, self.options.tokens))
        ids[:, 0], ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
        return TokenBatch(ids.astype(np.int64), None, None, draw.integers(0, 2**62, rows).astype(np.uint64))

    def inference(self) -> list[Line]:
        """Defended answers in plain forwards per text."""
        rows, second = self.options.rows, self.options.second_rows
        plain, batch, few = ClassifierVictim(self.plain), self.batch(rows), self.batch(second)
        never = {"accept_rule": "greater", "level": 1e-9}
        lines = []
        for name, settings, work, per in [
            ("settled, no masks, k0 = 1", {"masking": "none", "k0": 1, "two_step": False}, batch, 1.0),
            ("settled, no masks, k0 = 5", {"masking": "none", "two_step": False}, batch, 1.0),
            ("settled, random masks, k0 = 5", {"masking": "random", "two_step": False}, batch, 1.0),
            ("settled, k0 = 5", {"two_step": False}, batch, 1.0),
            (f"second step too, k1 = {self.deployment.k1}", never, few, rows / second),
        ]:
            victim = self.deployment.victim(self.model, **settings)  # type: ignore[arg-type]
            ratio = self.ratio(lambda: plain.launch([batch])(), partial(_answer, victim, work), per)
            lines.append(Line(name, ratio, f"{self.options.repeats} rounds of {len(work.ids)} rows"))
            console.print(shown(lines[-1]))
        return lines

    def training(self) -> Line:
        """A training step of RSMI in plain training steps."""
        batch = self.batch(16)
        ids = torch.from_numpy(batch.ids).to(self.options.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        labels = torch.arange(len(ids), device=ids.device) % len(self.model.labels)

        def step(defence: RSMI | Standard, model: Classifier) -> Callable[[], None]:
            def work() -> None:
                model.train().zero_grad()
                for terms in defence.losses(model, Batch(inputs, labels)):
                    terms.total().backward()

            return work

        ratio = self.ratio(step(Standard(), self.plain), step(self.defence, self.model))
        line = Line("training step", ratio, f"{self.options.repeats} steps of 16 rows")
        self.model.eval(), self.plain.eval()
        console.print(shown(line))
        return line

    def latency(self, texts: Sequence[Texts]) -> tuple[str, str]:
        """Milliseconds for one text at a time, plain and defended, and seconds for 1,000 texts; wall time."""
        found = []
        for name, victim in [("plain", ClassifierVictim(self.plain)), ("defended", self.deployment.victim(self.model))]:
            victim.scores(texts[:2])
            single = [self.wall(partial(victim.scores, [text])) for text in texts]
            many = self.wall(partial(victim.scores, texts))
            p50, p95 = np.percentile(single, [50, 95]) * 1000
            found.append(
                f"{name}: p50 {p50:.0f} ms, p95 {p95:.0f} ms; {1000 * many / len(texts):.1f} s per 1,000 texts"
            )
        return found[0], found[1]

    def wall(self, work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    def share(self, texts: Sequence[Texts]) -> Interval:
        """Share of texts that need the second step."""
        victim = self.deployment.victim(self.model)
        victim.scores(texts)
        return wilson(victim.second, victim.asked)


def _answer(victim: TokenVictim, batch: TokenBatch) -> object:
    return victim.launch([batch])()


def shown(line: Line) -> str:
    interval = line.ratio
    target = f"  (target at most {TARGETS[line.what]})" if line.what in TARGETS else ""
    return f"{line.what:34} {interval.estimate:6.2f}  [{interval.low:.2f}, {interval.high:.2f}]{target}"


def page(lines: Sequence[Line], latency: Sequence[str], share: str, options: argparse.Namespace, bench: Bench) -> str:
    """The table as a page."""
    command = f"python benchmarks/rsmi_cost.py {' '.join(sys.argv[1:])}".strip()
    table = "\n".join(
        f"| {line.what} | {line.ratio.estimate:.2f} | {line.ratio.low:.2f} to {line.ratio.high:.2f} | "
        f"{TARGETS.get(line.what, '')} | {line.n} |"
        for line in lines
    )
    machine = torch.cuda.get_device_name() if not bench.on_cpu else f"{platform.machine()} CPU, one thread"
    noise = bench.model.slots.noise
    where = [] if noise is None else list(noise.layers)
    depth = bench.model.backbone.depth
    clock = "processor seconds of the process" if bench.on_cpu else "wall seconds"
    return f"""# What RSMI costs

    {command}

{machine}; torch {torch.__version__}; {options.tokens} tokens a row; {depth} blocks, noise after {where}.
Inference in plain forward passes per text, training in plain steps ({clock});
95 % bootstrap intervals over rounds.

| | plain passes | interval | target | n |
|---|---|---|---|---|
{table}

{share}

Latency, one text at a time (wall time, n = {options.texts}):

- {latency[0]}
- {latency[1]}
"""


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    bench = Bench(options)
    from isthmus import load_data

    data = load_data(options.data)["test"].sample(options.texts, 0)
    texts = [example.texts for example in data]
    lines = [*bench.inference(), bench.training()]
    found = bench.share(texts)
    whose = options.model or "a model that was never trained"
    share = (
        f"Share of {options.texts} texts of {options.data} that need the second step, of {whose}: "
        f"{found.estimate:.0%} ({found.low:.0%} to {found.high:.0%})."
    )
    console.print(share)
    latency = bench.latency(texts)
    console.print("\n".join(latency))
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(page(lines, latency, share, options, bench), encoding="utf-8")


if __name__ == "__main__":
    main()
