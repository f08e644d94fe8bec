"""Whole trainings whose steps are recorded by a stand-in for CUDA graphs: they end like those of ordinary steps."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import image_toys
import pytest
import torch
import training_toys as toys
from graph_tape import Tape, play_on_cpu

from isthmus import defences
from isthmus.arithmetic.randomness import BatchStream
from isthmus.core import progress as work
from isthmus.data import Splits
from isthmus.defences import Batch, Defence
from isthmus.models import Classifier
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.training import TrainingSettings, captured, encoded, lean, resident, shares, train
from isthmus.training.epoch_information import EpochInformation
from isthmus.training.settings import settings_for

SETTINGS = TrainingSettings(
    precision="fp32", epochs=3, batch_size=8, learning_rate=2.0**-7, log_every=3, checkpoint_every=4, evaluate_every=5,
    patience=99, information=0,
)  # fmt: skip
Trained = tuple[dict[str, torch.Tensor], str]


class Stops(Exception):
    """Ends a training."""


class StopsAt(toys.Recorder):
    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == 20:
            raise Stops


class Played:
    """The recordings of a training, and what it noted."""

    def __init__(self) -> None:
        self.tapes: list[Tape] = []
        self.notes: list[str] = []

    def check(self, least: int = 8) -> None:
        """Recordings were made, trusted and replayed."""
        assert not [note for note in self.notes if "CUDA" in note]
        assert sum(tape.replays for tape in self.tapes) > least


@contextlib.contextmanager
def playing(played: Played, most: int = captured.LARGEST) -> Iterator[pytest.MonkeyPatch]:
    """Inside, up to `most` shapes of batches are recorded."""
    with pytest.MonkeyPatch.context() as patch:
        play_on_cpu(patch, played.tapes)
        patch.setattr(captured, "LARGEST", most)
        patch.setattr(work, "note", played.notes.append)
        patch.setattr(lean, "is_lean", lambda device, start: True)
        patch.setattr(lean.Due, "is_due", lambda self: True)
        patch.setattr(encoded, "BLOCK", 1)
        patch.setattr(shares, "EVERY", 10)
        # A recording reads step sizes in float32.
        patch.setattr(TrainingSettings, "rate", lambda self, epochs: 2.0**-7 / 2 ** int(epochs))
        yield patch


def trained(
    folder: Path, defence: Defence, *, settings: TrainingSettings = SETTINGS, model: Any = None, progress: Any = None
) -> Trained:
    model = model or toys.classifier()
    train(toys.splits(100, 16), model, defence, settings=settings, folder=folder, device="cpu", progress=progress)
    return toys.weights(model), (folder / "train.jsonl").read_text()


def of_images(folder: Path, defence: Defence, **settings: Any) -> Trained:
    chosen = settings_for("images", "mlp", epochs=4, batch_size=16, learning_rate=2.0**-7, **settings)
    data = Splits("toy", {"train": image_toys.images(100, "train"), "dev": image_toys.images(20, "dev")})
    model = image_toys.image_model(bottleneck=False)
    train(data, model, defence, settings=chosen, folder=folder, device="cpu")
    return toys.weights(model), (folder / "train.jsonl").read_text()


def check_same(one: Trained, other: Trained) -> None:
    assert other[1] == one[1]
    assert toys.same_bits(other[0], one[0])


SEVERAL_PASSES = [
    defences.FreeLB(steps=2),
    defences.FreeLBpp(steps=3),
    defences.PGD(steps=2),
    defences.SMART(momentum=0.5),
    defences.ALUM(steps=2),
    defences.RDrop(),
    defences.RSMI(),
    defences.RSMI(masking="random", beta=0.0),
    defences.InfoBERT(critic_rate=2.0**-9, mode="paper"),
    defences.InfoBERT(critic_rate=2.0**-9, adversary="freelb", steps=2, p_t_given_x="auxiliary"),
    defences.VIB(latent=4, adversary="pgd", steps=2),
]


@pytest.mark.parametrize("defence", [defences.Standard(), *SEVERAL_PASSES], ids=lambda value: str(value)[:40])
def test_a_recorded_training_is_the_ordinary_one(defence: Defence, tmp_path: Path) -> None:
    found: list[Trained] = []
    for most in (0, captured.LARGEST):
        with playing(played := Played(), most):
            found.append(trained(tmp_path / str(most), defence))
    check_same(*found)
    played.check()
    assert len(played.tapes) > 2


def frozen() -> Classifier:
    model = toys.classifier()
    model.table.requires_grad_(False)
    return model


def noisy() -> Classifier:
    return toys.classifier().fill(noise=GaussianNoise(0.1, (0, 1)))


@pytest.mark.parametrize("make", [frozen, noisy])
@pytest.mark.parametrize("defence", [SEVERAL_PASSES[0], SEVERAL_PASSES[3]], ids=lambda value: str(value)[:40])
def test_models_with_frozen_words_and_with_noise(make: Any, defence: Defence, tmp_path: Path) -> None:
    found, settings = list[Trained](), replace(SETTINGS, precision="bf16", max_grad_norm=0.0)
    for most in (0, captured.LARGEST):
        with playing(played := Played(), most):
            found.append(trained(tmp_path / str(most), defence, model=make(), settings=settings))
    check_same(*found)
    played.check()


@pytest.mark.parametrize("number", [3, 6, 9])
def test_a_recorded_training_that_is_continued_ends_like_one_that_was_not_interrupted(
    number: int, tmp_path: Path
) -> None:
    defence = SEVERAL_PASSES[number]
    with playing(played := Played()):
        whole = trained(tmp_path / "whole", defence)
        before = len(played.tapes)
        with pytest.raises(Stops):
            trained(tmp_path / "parts", defence, progress=StopsAt())
        assert len(played.tapes) > before
        check_same(whole, trained(tmp_path / "parts", defence))
    played.check()


@contextlib.contextmanager
def starving(played: Played, places: list[tuple[Any, str]]) -> Iterator[None]:
    """Inside, work in these places lacks memory at its end, the second time that there are recordings, and after it."""
    calls = 0

    def starve(usual: Any) -> Any:
        def work(*given: Any, **named: Any) -> Any:
            nonlocal calls
            found = usual(*given, **named)
            if played.tapes and not any("CUDA" in note for note in played.notes):
                calls += 1
                if calls > 1:
                    for model in given:
                        if isinstance(model, torch.nn.Module):
                            model.eval()
                    raise torch.OutOfMemoryError("CUDA out of memory")
            return found

        return work

    with pytest.MonkeyPatch.context() as patch:
        for place, name in places:
            patch.setattr(place, name, starve(getattr(place, name)))
        yield


WORK = {
    "last batches": [(lean, "walk"), (resident, "walk")],
    "measured gradients": [(shares.GradientShares, "add")],
    "evaluations": [(lean, "evaluate"), (resident, "evaluate")],
    "information": [(EpochInformation, "_pass_sample")],
}


@pytest.mark.parametrize("kind", WORK)
@pytest.mark.parametrize("defence", [SEVERAL_PASSES[3], SEVERAL_PASSES[9], None], ids=["smart", "infobert", "images"])
def test_recordings_make_room_for_other_work(defence: Defence | None, kind: str, tmp_path: Path) -> None:
    found: list[Trained] = []
    settings = replace(SETTINGS, information=12, max_grad_norm=0.0)
    for most in (0, captured.LARGEST):
        with playing(played := Played(), most), starving(played, WORK[kind] if most else []):
            if defence is None:
                found.append(of_images(tmp_path / str(most), defences.VIB(latent=4), information=30, max_grad_norm=0.0))
            else:
                found.append(trained(tmp_path / str(most), defence, settings=settings))
    # The loop adds up a norm in another order than a recording.
    check_same(*[(weights, re.sub(r'"gradient_norm": .*', "", log)) for weights, log in found])
    said = [note for note in played.notes if "CUDA" in note]
    assert len(said) == 1
    assert "too little memory" in said[0]


@pytest.mark.parametrize(
    "defence",
    [defences.VIB(latent=4), defences.Adversarial(attack="fgsm", attack_parameters="epsilon=0.05", base="vib")],
    ids=["vib", "fgsm"],
)
def test_averaged_weights_of_images(defence: Defence, tmp_path: Path) -> None:
    found: list[Trained] = []
    for most in (0, captured.LARGEST):
        with playing(played := Played(), most):
            found.append(of_images(tmp_path / str(most), defence, average_weights=0.9))
    check_same(*found)
    played.check()


def test_a_draw_that_is_frozen_shows(tmp_path: Path) -> None:
    # Of the stand-in itself: what is not handed out is the same at every replay.
    found: list[Trained] = []
    for most in (0, captured.LARGEST):
        with playing(played := Played(), most) as patch:
            patch.setattr(Batch, "draws", lambda self, name: BatchStream(name, self.seed))
            found.append(trained(tmp_path / str(most), SEVERAL_PASSES[0]))
    assert played.tapes
    assert found[0][1] != found[1][1]
