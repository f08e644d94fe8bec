"""Milliseconds of an optimiser step as `train` takes it, and what each switch of the loop gives on this device.

    python benchmarks/train_steps.py --device cuda                       about a minute on an H200
    python benchmarks/train_steps.py --device cuda --only "standard;freelb, 3 steps;smart"
    python benchmarks/train_steps.py --device cpu --tiny --batches 12    what the host adds, with next to no arithmetic

Of every defence: its ordinary steps with all other switches on, and its recorded ones, with how many were replayed.
Where a recording is refused a note says why and where in the code; a row that fails says so, and the next one follows.

Texts of random words, as long as SST-2's (4 to 60 tokens), batches of 32, two epochs: the first warms up, the second is
measured between its first step and its last, the device waited for at both ends; on a CPU time is processor time.
Nothing is written to the disk, but in the last rows, whose figure is the wall time of the whole training, with its
evaluations and checkpoints, over its steps. `train_cost.py` compares defences on one fixed batch; this one measures
what surrounds the arithmetic as well.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch

from isthmus import defences
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset, Splits
from isthmus.data.images import make_images
from isthmus.defences import Defence
from isthmus.models import Classifier
from isthmus.training import TrainingSettings, captured, encoded, fit, lean, resident, train
from isthmus.training.settings import settings_for

SWITCHES = ("attention", "blocks", "lean", "recorded")
"""cuDNN's attention off, batches padded to few lengths, the lean loop, steps recorded as CUDA graphs; each adds to
those before it."""
ROWS: dict[str, Defence] = {
    "freelb, 3 steps": defences.FreeLB(steps=3),
    "smart": defences.SMART(),
    "alum": defences.ALUM(),
    "rsmi": defences.RSMI(),
    "infobert": defences.InfoBERT(),
    "infobert, freelb": defences.InfoBERT(adversary="freelb"),
    "pgd, 3 steps": defences.PGD(steps=3),
    "rdrop": defences.RDrop(),
    "freelbpp, 10 steps": defences.FreeLBpp(),
    "vib": defences.VIB(),
}


@contextlib.contextmanager
def switched(on: tuple[str, ...]) -> Iterator[None]:
    """Exactly these switches on."""
    with contextlib.ExitStack() as changed:

        def switch(place: ModuleType, name: str, value: object) -> None:
            changed.enter_context(mock.patch.object(place, name, value))

        if "attention" not in on:
            for place in (fit, resident):
                switch(place, "avoid_planned_attention", lambda device: contextlib.nullcontext())
        if "blocks" not in on:
            switch(encoded, "BLOCK", 1)
        switch(lean, "is_lean", lambda device, start: "lean" in on)
        switch(captured, "ENABLED", "recorded" in on)
        switch(captured, "_first_line", where_and_what)
        yield


def where_and_what(error: BaseException) -> str:
    """The first line of an error, and the line of isthmus that it came from."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "isthmus" in frame.filename]
    place = f", {own[-1].filename.rpartition('isthmus/')[2]}:{own[-1].lineno}: {own[-1].line}" if own else ""
    return f"{type(error).__name__}: {lines[0]}{place}"


@contextlib.contextmanager
def counting_replays() -> Iterator[list[int]]:
    """Inside, the number of rows of every replayed step is listed."""
    replayed: list[int] = []
    usual = captured.RecordedSteps._replay

    def replay(self: Any, recording: Any, rows: Any, rates: Any) -> Any:
        replayed.append(len(rows))
        return usual(self, recording, rows, rates)

    with mock.patch.object(captured.RecordedSteps, "_replay", replay):
        yield replayed


@dataclass
class Clock:
    """Notes when the first and the last step of the second epoch were done."""

    device: str
    per_epoch: int
    began: float = 0.0
    ended: float = 0.0
    steps: int = 0

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == self.steps or step not in (self.per_epoch + 1, total):
            return
        self.steps = step
        if self.device == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter() if self.device == "cuda" else time.process_time()
        if step == total:
            self.ended = now
        else:
            self.began = now

    def on_work(self, title: str, done: int, total: int, figures: str) -> None:
        """Part of what a watcher is told."""

    def on_note(self, message: str) -> None:
        if "all steps are done" not in message:
            print(f"  note: {message}", flush=True)

    @property
    def milliseconds(self) -> float:
        return (self.ended - self.began) / (self.per_epoch - 1) * 1e3


def texts(model: Classifier, count: int, seed: int) -> Dataset:
    """Random words that are one token each."""
    stream = random.Random(seed)
    special = set(model.tokenizer.all_special_tokens)
    words = [word for word in model.tokenizer.get_vocab() if word.isalpha() and word not in special]
    lengths = [min(60, max(4, round(stream.lognormvariate(3.0, 0.55)))) for _ in range(count)]
    rows = [Example(f"x:{n}", {"text": " ".join(stream.choices(words, k=k))}, n % 2) for n, k in enumerate(lengths)]
    return Dataset("random", "train", Classification(("negative", "positive")), tuple(rows))


def text_splits(model: Classifier, batches: int) -> Splits:
    return Splits("random", {"train": texts(model, 32 * batches, 0), "dev": texts(model, 64, 1)})


def create(options: argparse.Namespace) -> Classifier:
    return tiny() if options.tiny else Classifier.create(options.backbone, ("negative", "positive"))


def tiny() -> Classifier:
    """A BERT of one narrow block: what is left is the host's work."""
    from transformers import BertConfig, BertForSequenceClassification

    from isthmus.models.backbones import StockBackbone

    plain = Classifier.create("minilm", ("negative", "positive"))
    config = BertConfig(
        vocab_size=len(plain.tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    return Classifier(StockBackbone(BertForSequenceClassification(config)), plain.tokenizer, plain.task, max_tokens=128)


def measure(defence: Defence, on: tuple[str, ...], options: argparse.Namespace, *, kept: bool = False) -> float:
    """Milliseconds a step; of a training with a folder, of everything."""
    model = create(options)
    splits = text_splits(model, options.batches)
    settings = TrainingSettings(epochs=2, learning_rate=1e-5, precision=options.precision)
    clock = Clock(options.device, options.batches)
    options_of: dict[str, Any] = {"settings": settings, "device": options.device, "progress": clock}
    with switched(on), tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        train(splits, model, defence, folder=folder if kept else None, **options_of)
        whole = (time.perf_counter() - started) * 1e3 / (2 * options.batches)
    return whole if kept else clock.milliseconds


def measure_images(on: tuple[str, ...], options: argparse.Namespace) -> float:
    """VIB's own network on random images as large as MNIST's, batches of 100."""
    stream = np.random.default_rng(0)

    def made(count: int, split: str) -> Dataset:
        images = stream.random((count, 1, 28, 28), dtype=np.float32)
        return make_images(images, np.arange(count) % 10, None, "random", split, split)

    steps = 40 if options.tiny else 600
    splits = Splits("random", {"train": made(100 * steps, "train"), "dev": made(1000, "dev")})
    clock = Clock(options.device, steps)
    settings = settings_for("images", "vib_mlp", epochs=2)
    with switched(on):
        train(splits, "vib_mlp", defences.VIB(), settings=settings, device=options.device, progress=clock)
    return clock.milliseconds


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="minilm", help="an asset, a folder of an encoder, or a hub name")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16"])
    parser.add_argument("--batches", type=int, default=48, help="of an epoch")
    parser.add_argument("--only", help="names of rows, separated by semicolons")
    parser.add_argument("--tiny", action="store_true", help="next to no arithmetic")
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no cuda here")
    if chosen.device == "cpu":
        torch.set_num_threads(1)
        chosen.precision = "fp32"
    return chosen


def main() -> None:
    options = arguments()
    started = time.perf_counter()

    def say(row: str, what: str, measured: Callable[[], float]) -> float:
        with counting_replays() as replayed:
            try:
                value = measured()
            except Exception:
                print(f"{row:18} {what:34} failed:", flush=True)
                traceback.print_exc(file=sys.stdout)
                return math.nan
        count = f", {len(replayed)} replayed" if replayed else ""
        spent = time.perf_counter() - started
        print(f"{row:18} {what:34} {value:8.2f} ms a step   ({spent:5.1f} s{count})", flush=True)
        return value

    only = None if options.only is None else {name.strip() for name in options.only.split(";")}

    def wanted(row: str) -> bool:
        return only is None or row in only

    measure(defences.Standard(), SWITCHES, argparse.Namespace(**{**vars(options), "batches": 4}))  # imports, kernels
    if wanted("standard"):
        say("standard", "Trainer", lambda: measure(defences.Standard(), (), options))
        for number, switch in enumerate(SWITCHES, 1):
            say("standard", f"+ {switch}", partial(measure, defences.Standard(), SWITCHES[:number], options))
    for name, defence in ROWS.items():
        if wanted(name):
            say(name, "ordinary steps", partial(measure, defence, SWITCHES[:-1], options))
            say(name, "+ recorded", partial(measure, defence, SWITCHES, options))
    if wanted("images"):
        say("vib on images", "ordinary steps", lambda: measure_images(SWITCHES[:-1], options))
        recorded = say("vib on images", "+ recorded", lambda: measure_images(SWITCHES, options))
        print(f"{'':18} 120,000 such steps take {recorded * 120:.0f} s without their evaluations")
    if wanted("whole"):
        say("standard, whole", "Trainer, folder", lambda: measure(defences.Standard(), (), options, kept=True))
        say(
            "standard, whole",
            "all switches, folder",
            lambda: measure(defences.Standard(), SWITCHES, options, kept=True),
        )


if __name__ == "__main__":
    main()
