"""What the benchmark of gradient attacks says of what is missing, and what it takes for a miss."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gradient_attacks
from gradient_attacks import Line, agree
from gradient_models import CASES
from isthmus.attacks import Draws


def ask(monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    monkeypatch.setattr(sys, "argv", ["gradient_attacks.py", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        gradient_attacks.main()
    return str(ended.value)


def test_missing_data_and_missing_peers_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "there is no train.npz" in ask(monkeypatch, "--data", tmp_path)
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", images=np.zeros((2, 28, 28), np.uint8), labels=np.zeros(2, np.uint8))
    assert "--peers-python" in ask(monkeypatch, "--data", tmp_path)
    assert "--peers-python" in ask(monkeypatch, "--data", tmp_path, "--peers-python", tmp_path / "none")


def line(side: str, case: str, fooled: int, length: float = 1.0) -> Line:
    right = torch.arange(200) < 190
    return Line(side, "mlp", case, right, torch.arange(200) < fooled, torch.full((200,), length), 1.0)


@pytest.mark.parametrize(
    ("case", "ours", "theirs", "lengths", "words"),
    [
        ("pgd", 100, 101, (1.0, 1.0), None),
        ("pgd", 100, 104, (1.0, 1.0), "success is -2.1 points"),
        ("deepfool", 190, 190, (1.02, 1.0), None),
        ("deepfool", 190, 190, (1.04, 1.0), "median distance is 1.040 of theirs"),
        ("auto", 100, 101, (1.0, 1.0), None),
        ("auto", 100, 104, (1.0, 1.0), "2.0 points more survive"),
        ("auto", 110, 100, (1.0, 1.0), None),
        ("auto", 180, 180, (1.0, 1.0), "5% survive"),
    ],
)
def test_a_miss_is_said_and_what_is_close_is_not(
    case: str, ours: int, theirs: int, lengths: tuple[float, float], words: str | None
) -> None:
    missed: list[str] = []
    agree(line("isthmus", case, ours, lengths[0]), line("foolbox", case, theirs, lengths[1]), missed)
    assert bool(missed) is (words is not None)
    assert words is None or words in missed[0]


def test_every_case_is_an_attack_with_its_settings() -> None:
    for name, settings in CASES.items():
        attack = gradient_attacks.attack_of(name)
        assert {key: getattr(attack, key) for key in settings} == settings


def test_the_passes_of_an_attack_are_counted_and_replayed() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 12))
    model.requires_grad_(False)
    pixels = torch.rand(9, 1, 4, 4)
    labels = model(pixels).argmax(dim=1)
    for name in ("pgd", "deepfool", "cw"):
        attack = gradient_attacks.attack_of(name)
        passes = gradient_attacks.traced(attack, model, pixels, labels)
        found = attack.run(model, pixels, labels)
        assert sum(rows for rows, _ in passes) == found.forward
        assert sum(rows * backward for rows, backward in passes) == found.backward
        assert max(backward for _, backward in passes) == (9 if name == "deepfool" else 1)
        again = gradient_attacks.Traced(model)
        rows = torch.arange(len(pixels))
        replayed = Replayed(again, rows)
        gradient_attacks.replay(passes, replayed, pixels)
        assert again.passes == passes


class Replayed(torch.nn.Module):
    def __init__(self, target: gradient_attacks.Traced, rows: torch.Tensor) -> None:
        super().__init__()
        self.target, self.rows = target, rows

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        draws = Draws(self.rows[: len(inputs)], self.rows[: len(inputs)].unsqueeze(1))
        return self.target.logits(inputs, draws).squeeze(1)
