"""Training on a GPU: the lean loop and recorded steps go the way of the Trainer and of ordinary steps."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus import defences
from isthmus.core import progress as work
from isthmus.data import Splits
from isthmus.data.images import make_images
from isthmus.defences import Defence
from isthmus.models import ImageClassifier
from isthmus.models.image_backbones import MLP
from isthmus.training import TrainingSettings, captured, encoded, lean, train
from isthmus.training.settings import settings_for

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SETTINGS = TrainingSettings(precision="fp32", epochs=4, batch_size=8, learning_rate=1e-3, log_every=3, information=0)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(work, "note", told.append)
    return told


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches whose recordings were replayed."""
    seen: list[int] = []
    usual = captured.RecordedSteps._replay

    def counted(self: Any, recording: Any, rows: Any, rates: Any) -> Any:
        seen.append(len(rows))
        return usual(self, recording, rows, rates)

    monkeypatch.setattr(captured.RecordedSteps, "_replay", counted)
    return seen


def fitted(
    folder: Path | None, defence: Defence, *, dropout: float = 0.0, settings: TrainingSettings = SETTINGS, **rest: Any
) -> dict[str, torch.Tensor]:
    model = toys.classifier(dropout=dropout)
    train(toys.splits(100, 16), model, defence, settings=settings, folder=folder, device="cuda", **rest)
    return toys.weights(model.cpu())


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in map(json.loads, (folder / "train.jsonl").read_text().splitlines()) if "loss" in row]


@pytest.mark.parametrize("defence", [defences.Standard(), defences.VIB(latent=4), defences.FreeLB(steps=2)], ids=str)
def test_the_lean_loop_goes_the_way_of_the_trainer(
    defence: Defence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setattr(encoded, "BLOCK", 1)
    for name, is_lean in (("trainer", False), ("lean", True)):
        monkeypatch.setattr(lean, "ENABLED", is_lean)
        fitted(tmp_path / name, defence)
    assert np.allclose(losses(tmp_path / "trainer"), losses(tmp_path / "lean"), rtol=2e-3, atol=1e-4)
    assert notes == []


def go_both_ways(
    folder: Path, patch: pytest.MonkeyPatch, defence: Defence, *, dropout: float, precision: Any, **of_bf16: float
) -> None:
    """Train in ordinary steps and in recorded ones; the losses are close, in bfloat16 within `of_bf16`."""
    for name, enabled in (("ordinary", False), ("recorded", True)):
        patch.setattr(captured, "ENABLED", enabled)
        fitted(folder / name, defence, dropout=dropout, settings=replace(SETTINGS, precision=precision))
    near = of_bf16 if precision == "bf16" else {"rtol": 2e-3, "atol": 1e-4}
    assert np.allclose(losses(folder / "ordinary"), losses(folder / "recorded"), **near)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("defence", [defences.Standard(), defences.VIB(latent=4), defences.VUB(latent=4)], ids=str)
def test_recorded_steps_go_the_way_of_ordinary_ones(
    defence: Defence,
    dropout: float,
    precision: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    notes: list[str],
    replays: list[int],
) -> None:
    go_both_ways(tmp_path, monkeypatch, defence, dropout=dropout, precision=precision, rtol=3e-2, atol=1e-2)
    assert notes == []
    assert len(replays) > 20


OF_SEVERAL_PASSES = [
    defences.FreeLB(steps=3),
    defences.FreeLBpp(steps=3),
    defences.PGD(steps=2),
    defences.SMART(),
    defences.ALUM(),
    defences.RDrop(),
    defences.RSMI(),
    defences.RSMI(masking="random"),
    defences.InfoBERT(),
    defences.InfoBERT(adversary="freelb", p_t_given_x="auxiliary"),
    defences.VIB(latent=4, adversary="freelb"),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("defence", OF_SEVERAL_PASSES, ids=str)
def test_recorded_steps_of_several_passes_go_the_way_of_ordinary_ones(
    defence: Defence,
    precision: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    notes: list[str],
    replays: list[int],
) -> None:
    # Dropout, so that masks that the passes do not share would show.
    go_both_ways(tmp_path, monkeypatch, defence, dropout=0.3, precision=precision, rtol=5e-2, atol=2e-2)
    assert notes == []
    assert len(replays) > 20


@pytest.mark.parametrize("kind", ["dropout", "generator"])
def test_a_recording_sets_the_stream_of_dropout_back(kind: str) -> None:
    # What passes that share their masks rely on, of torch alone.
    ones, device = torch.ones(1000, device="cuda"), torch.device("cuda")

    def draw() -> torch.Tensor:
        if kind == "dropout":
            return torch.nn.functional.dropout(ones, 0.5)
        return torch.empty_like(ones).uniform_()

    def three() -> torch.Tensor:
        state = torch.cuda.get_rng_state(device)
        first, _ = draw(), draw()
        torch.cuda.set_rng_state(state, device)
        return torch.stack([first, draw(), draw()])

    with captured.own_stream(device, True):
        three()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(device)):
            found = three()
        for seed in (1, 2):
            torch.cuda.manual_seed(seed)
            expected, state = three(), torch.cuda.get_rng_state(device)
            torch.cuda.manual_seed(seed)
            graph.replay()
            assert torch.equal(found, expected)
            assert torch.equal(found[0], found[1])
            assert not torch.equal(found[1], found[2])
            assert torch.equal(torch.cuda.get_rng_state(device), state)


class Stops(Exception):
    """Ends a training."""


class StopsAt(toys.Recorder):
    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == 31:
            raise Stops


@pytest.mark.parametrize(
    "defence",
    [
        defences.VIB(latent=4),
        defences.FreeLB(steps=2),
        defences.SMART(momentum=0.5),
        defences.InfoBERT(adversary="freelb", steps=2, p_t_given_x="auxiliary"),
    ],
    ids=str,
)
def test_a_recorded_training_is_continued(defence: Defence, tmp_path: Path, notes: list[str]) -> None:
    settings = replace(SETTINGS, checkpoint_every=15)
    fitted(tmp_path / "whole", defence, dropout=0.1, settings=settings)
    with pytest.raises(Stops):
        fitted(tmp_path / "parts", defence, dropout=0.1, settings=settings, progress=StopsAt())
    fitted(tmp_path / "parts", defence, dropout=0.1, settings=settings)
    assert np.allclose(losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=2e-3, atol=1e-4)
    assert notes == []


def test_a_failed_recording_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    usual = captured.RecordedSteps._walk

    def looks(self: Any, batch: Any) -> Any:
        found = usual(self, batch)
        if torch.cuda.is_current_stream_capturing():
            found[1].tolist()
        return found

    monkeypatch.setattr(captured, "ENABLED", False)
    fitted(tmp_path / "ordinary", defences.Standard(), dropout=0.1)
    monkeypatch.setattr(captured, "ENABLED", True)
    monkeypatch.setattr(captured.RecordedSteps, "_walk", looks)
    fitted(tmp_path / "failed", defences.Standard(), dropout=0.1)
    assert len(notes) == 1
    assert np.allclose(losses(tmp_path / "ordinary"), losses(tmp_path / "failed"), rtol=2e-3, atol=1e-4)


def held_for_good() -> int:
    """Bytes that stay allocated, without the space that cuBLAS keeps for every stream it has worked on."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


def test_recordings_make_room_where_an_ordinary_step_lacks_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    usual, before = captured.RecordedSteps._walk, held_for_good()
    held: list[torch.Tensor] = []

    def starves(self: Any, batch: Any) -> Any:
        found = usual(self, batch)
        if self._recorded and batch.tap is None:
            held.append(torch.empty(1 << 50, dtype=torch.uint8, device="cuda"))
        return found

    monkeypatch.setattr(captured, "ENABLED", False)
    fitted(tmp_path / "ordinary", defences.SMART(momentum=0.5))
    monkeypatch.setattr(captured, "ENABLED", True)
    monkeypatch.setattr(captured.RecordedSteps, "_walk", starves)
    fitted(tmp_path / "starved", defences.SMART(momentum=0.5))
    assert len(notes) == 1
    assert "too little memory" in notes[0]
    assert np.allclose(losses(tmp_path / "ordinary"), losses(tmp_path / "starved"), rtol=2e-3, atol=1e-4)
    assert held_for_good() < before + (64 << 20)


@pytest.mark.parametrize("place", ["walk", "evaluate"])
def test_recordings_make_room_for_last_batches_and_evaluations(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], replays: list[int]
) -> None:
    usual = getattr(lean, place)

    def starves(*given: Any, **named: Any) -> Any:
        found = usual(*given, **named)
        if replays and not notes:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        return found

    monkeypatch.setattr(captured, "ENABLED", False)
    fitted(tmp_path / "ordinary", defences.SMART(momentum=0.5))
    monkeypatch.setattr(captured, "ENABLED", True)
    monkeypatch.setattr(lean, place, starves)
    fitted(tmp_path / "starved", defences.SMART(momentum=0.5))
    assert len(notes) == 1
    assert "too little memory" in notes[0]
    assert np.allclose(losses(tmp_path / "ordinary"), losses(tmp_path / "starved"), rtol=2e-3, atol=1e-4)


def test_a_step_that_looks_at_a_number_is_not_recorded(monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> None:
    usual = captured.RecordedSteps._walk

    def looks(self: Any, batch: Any) -> Any:
        found = usual(self, batch)
        found[1].tolist()
        return found

    monkeypatch.setattr(captured.RecordedSteps, "_walk", looks)
    fitted(None, defences.Standard())
    assert "a step waits for the GPU" in notes[0]
    assert len(notes) == 1


def images(defence: Defence, folder: Path) -> None:
    stream = np.random.default_rng(0)

    def part(count: int, split: str) -> Any:
        labels = np.arange(count) % 3
        pixels = stream.uniform(0, 0.3, (count, 1, 6, 6))
        pixels[np.arange(count), 0, 2 * labels] += 0.6
        return make_images(pixels.astype(np.float32), labels, None, "toy", split, split)

    splits = Splits("toy", {"train": part(200, "train"), "dev": part(24, "dev")})
    torch.manual_seed(0)
    model = ImageClassifier(MLP(splits.task.shape, (16, 8)), splits.task)  # type: ignore[union-attr]
    settings = settings_for("images", "mlp", epochs=4, batch_size=16, learning_rate=3e-3, log_every=3)
    train(splits, model, defence, settings=settings, folder=folder, device="cuda")  # type: ignore[arg-type]


OF_IMAGES = [
    defences.Standard(),
    defences.VIB(latent=4),
    defences.VUB(latent=4),
    defences.Adversarial(attack="fgsm", attack_parameters="epsilon=0.05", base="vib"),
]


@pytest.mark.parametrize("defence", OF_IMAGES, ids=str)
def test_recorded_steps_over_images(
    defence: Defence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], replays: list[int]
) -> None:
    for name, enabled in (("ordinary", False), ("recorded", True)):
        monkeypatch.setattr(captured, "ENABLED", enabled)
        images(defence, tmp_path / name)
    assert len(replays) > 30
    assert not [note for note in notes if "CUDA graphs" in note]
    assert np.allclose(losses(tmp_path / "ordinary"), losses(tmp_path / "recorded"), rtol=2e-3, atol=1e-4)
