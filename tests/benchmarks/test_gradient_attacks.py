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
