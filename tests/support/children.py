"""Trainings that need a process of their own: killed ones, two that train together, one with a limited processor.

Run as a script with a folder to write to. Each runs in a child, forked before any arithmetic, so that only one process
pays for the imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import question_toys
import torch
import training_toys as toys

import isthmus.training.fit
import isthmus.training.trainer
from isthmus import defences
from isthmus.arithmetic import randomness
from isthmus.core.seeds import derive
from isthmus.core.types import Output
from isthmus.defences import Batch, Defence, Terms
from isthmus.models import Classifier
from isthmus.training import Resident, TrainingSettings, train, train_resident
from isthmus.training.numerics import autocast_on
from isthmus.training.walk import walk

SETTINGS = TrainingSettings(
    precision="fp32", epochs=3, batch_size=8, learning_rate=1e-2, log_every=3, checkpoint_every=3, patience=3
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class DiesAt:
    step: int

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == self.step:
            die()


def train_toy(folder: Path, defence: Defence | None = None, progress: Any = None) -> Classifier:
    options: dict[str, Any] = {"settings": SETTINGS, "folder": folder, "progress": progress, "device": "cpu"}
    return train(toys.splits(32, 16), toys.classifier(), defence, **options)


def train_questions(folder: Path, progress: Any = None) -> Classifier:
    data = question_toys.splits(20, 8)
    return train(data, question_toys.answerer(), settings=SETTINGS, folder=folder, progress=progress, device="cpu")


def fresh_words(folder: Path) -> toys.FreshWords:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return toys.FreshWords(str(folder.with_suffix(".notes")))


class Network(torch.nn.Module):
    """Two layers with dropout, over vectors."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)
            )

    def forward(self, vectors: torch.Tensor) -> Output:
        return Output(self.layers(vectors))


def clusters(size: int, seed: int) -> Resident:
    stream = torch.Generator().manual_seed(seed)
    labels = torch.arange(size) % 3
    centres = torch.eye(6)[:3] * 2
    return Resident({"vectors": centres[labels] + torch.randn(size, 6, generator=stream)}, labels)


def train_vectors(folder: Path, progress: Any = None) -> torch.nn.Module:
    return train_resident(
        clusters(64, 1), Network(), dev=clusters(30, 2), settings=SETTINGS, folder=folder, progress=progress
    )


def in_a_checkpoint(folder: Path) -> None:
    """Killed while the third checkpoint is being written: weights and optimiser are there, the rest is not."""
    real, calls = torch.save, []

    def save(value: Any, path: Any, *arguments: Any, **options: Any) -> None:
        calls.append(path)
        if len(calls) == 8:  # optimiser, scheduler, random state: three calls a checkpoint
            Path(path).write_bytes(b"half")
            die()
        real(value, path, *arguments, **options)

    torch.save = save  # type: ignore[assignment]
    train_toy(folder)


def before_the_model_is_saved(folder: Path) -> None:
    Classifier.save = lambda *_: die()  # type: ignore[method-assign]
    train_toy(folder)


SCENARIOS: dict[str, Callable[[Path], Any]] = {
    "before_any_checkpoint": lambda folder: train_toy(folder, progress=DiesAt(2)),
    "in_the_second_epoch": lambda folder: train_toy(folder, progress=DiesAt(8)),
    "just_after_a_checkpoint": lambda folder: train_toy(folder, progress=DiesAt(7)),
    "in_a_checkpoint": in_a_checkpoint,
    "before_the_model_is_saved": before_the_model_is_saved,
    "examples_before_any_checkpoint": lambda folder: train_toy(folder, fresh_words(folder), DiesAt(1)),
    "examples_in_the_second_epoch": lambda folder: train_toy(folder, fresh_words(folder), DiesAt(7)),
    "examples_at_the_start_of_the_third": lambda folder: train_toy(folder, fresh_words(folder), DiesAt(9)),
    "resident": lambda folder: train_vectors(folder, DiesAt(13)),
    "questions": lambda folder: train_questions(folder, DiesAt(8)),
}


TOGETHER = TrainingSettings(
    precision="fp32",
    epochs=2,
    batch_size=4,
    learning_rate=0.3,
    log_every=1,
    checkpoint_every=3,
    group_by_length=False,
    patience=5,
)
"""In two processes a step takes eight examples."""
ALONE = replace(TOGETHER, batch_size=8)
SHARED_DEFENCES = {"ascent": toys.Ascent(steps=3, size=0.5, start=0.0), "examples": toys.FreshWords()}


LOUD: dict[str, Any] = {"noise": 0.05, "step_size": 0.05, "radius": 0.1}
"""Far from what rounding decides."""
BY_PROCESS: dict[str, Defence] = {
    "freelb": defences.FreeLB(steps=2, step_size=0.3, init_magnitude=0.2),
    "infobert": defences.InfoBERT(alpha=0.1, beta=0.1, adversary="freelb", steps=2, step_size=0.3),
    "smart": defences.SMART(**LOUD, momentum=0.5),
    "vub": defences.VUB(beta=0.05, adversary="pgd", steps=2, step_size=0.3),
}
"""What they draw, and what InfoBERT measures, belongs to one process and its share of the batch."""


@dataclass(frozen=True)
class InHalves(Defence):
    """One process that does what two would: each half of a batch by itself, with the draws of its process."""

    inner: Defence
    taken: list[int] = field(default_factory=list, repr=False)

    def prepare(self, model: Classifier, data: Any) -> None:
        self.inner.prepare(model, data)

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        self.taken.append(len(batch))
        streams = [module for module in model.modules() if isinstance(module, randomness.Stream)]
        counts = [stream.count for stream in streams]
        for rank, rows in enumerate((slice(0, 4), slice(4, 8))):
            for stream, count in zip(streams, counts, strict=True):
                stream.count = count
            length = int(batch.inputs["attention_mask"][rows].sum(1).max())
            inputs = {name: value[rows, :length] for name, value in batch.inputs.items()}
            seed = derive(0, "batch", len(self.taken), 0, rank)
            half = Batch(inputs, batch.labels[rows], seed=seed, opens_step=rank == 0)
            with mock.patch.object(randomness, "_rank", return_value=rank):
                for terms in self.inner.losses(model, half):
                    yield Terms({name: value / 2 for name, value in terms.values.items()}, terms.retain_graph)


def descend(folder: Path, settings: TrainingSettings, defence: Defence) -> Classifier:
    setattr(isthmus.training.fit, "make_optimizer", toys.plain_descent)  # noqa: B010
    data = toys.splits(32, 15)
    return train(data, toys.classifier(dropout=0.0), defence, settings=settings, folder=folder, device="cpu")


def descend_questions(folder: Path, batch_size: int) -> Classifier:
    setattr(isthmus.training.fit, "make_optimizer", toys.plain_descent)  # noqa: B010
    settings = replace(TOGETHER, batch_size=batch_size)
    data = question_toys.splits(21, 7)  # Their windows fill whole batches, so that none is read twice.
    return train(data, question_toys.answerer(dropout=0.0), settings=settings, folder=folder, device="cpu")


def one_of_two(root: Path, rank: int, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    fitted = {"auxiliary": OneDensity(alpha=0.0, beta=0.01, p_t_given_x="auxiliary")}
    for name, defence in (SHARED_DEFENCES | BY_PROCESS | fitted).items():
        assert_same(descend(root / name, TOGETHER, defence))
    descend_questions(root / "questions", TOGETHER.batch_size)


def assert_same(model: torch.nn.Module) -> None:
    """Both processes hold the same weights."""
    largest = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in largest:
        torch.distributed.all_reduce(parameter, op=torch.distributed.ReduceOp.MAX)
    assert all(torch.equal(mine, most) for mine, most in zip(model.parameters(), largest, strict=True))


@dataclass(frozen=True)
class OneDensity(defences.InfoBERT):
    """Looks after every step whether the density that is fitted beside the model is the same in both processes."""

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        auxiliary: Any = model.companions["auxiliary"]
        before = auxiliary.mean[0].weight.clone()
        yield from super().losses(model, batch)
        assert not torch.equal(auxiliary.mean[0].weight, before)
        assert_same(auxiliary)


@dataclass(frozen=True)
class WatchesTypes(Defence):
    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        assert model(**batch.inputs).logits.dtype == torch.bfloat16
        assert model.table.weight.dtype == torch.float32
        yield from super().losses(model, batch)


def in_bf16(folder: Path) -> None:
    # Some virtual machines crash in the matrix unit they announce; without it the arithmetic is the same.
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    settings = TrainingSettings(epochs=6, batch_size=16, learning_rate=1e-2, log_every=1, precision="bf16")
    data, model = toys.splits(64, 32), toys.classifier(dropout=0.0)
    train(data, model, WatchesTypes(), settings=settings, folder=folder, device="cpu")
    assert "forward" not in vars(model)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    (folder / "gradients.json").write_text(json.dumps({name: nearness(defence) for name, defence in NEAR.items()}))


NEAR: dict[str, Defence] = {
    **BY_PROCESS,
    "pgd": defences.PGD(steps=2, step_size=0.3),
    "alum": defences.ALUM(**LOUD),
    "vib": defences.VIB(beta=0.05),
    "infobert-standard": defences.InfoBERT(alpha=0.1, beta=0.1),
}


def nearness(defence: Defence) -> dict[str, float]:
    """How far a step in bfloat16 agrees with one in float32: cosine and length of the gradients."""
    found = []
    for autocast in (contextlib.nullcontext, autocast_on(torch.device("cpu"), "bf16")):
        model = toys.classifier(dropout=0.0).train()
        defence.prepare(model, data := toys.dataset("train", 16, 0))
        labels = torch.tensor(data.label_indices())
        batch = Batch(model.encode([example.texts for example in data]), labels, seed=3)
        walk(defence, model, batch, backward=lambda loss, keep: loss.backward(retain_graph=keep), autocast=autocast)
        gradients = [value.grad for value in model.parameters() if value.grad is not None]
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        found.append(torch.cat([gradient.flatten() for gradient in gradients]))
    exact, rounded = found
    cosine = torch.nn.functional.cosine_similarity(exact, rounded, dim=0)
    return {"cosine": float(cosine), "length": float(rounded.norm() / exact.norm())}


def start(function: Callable[..., Any], *arguments: Any) -> int:
    """Fork a child that runs `function`; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(root: Path) -> None:
    torch.set_num_threads(1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ordinary = [start(one_of_two, root / "together", rank, port) for rank in range(2)]
    ordinary.append(start(in_bf16, root / "bf16"))
    for name, scenario in SCENARIOS.items():
        _, status = os.waitpid(start(scenario, root / name), 0)
        assert os.WIFSIGNALED(status), f"{name} was not killed"
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert [os.waitpid(child, 0)[1] for child in ordinary] == [0, 0, 0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
