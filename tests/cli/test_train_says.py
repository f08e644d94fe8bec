from __future__ import annotations

from pathlib import Path
from typing import Any


def test_a_training_says_what_it_does_after_its_last_step(isthmus: Any, place: Path) -> None:
    from encoder_toys import save_encoder

    save_encoder("bert", place / "bert")
    ended = isthmus("train", "--backbone", "bert", "--data", "reviews.csv", "--out", "out", "-S", "epochs=2")
    assert ended.code == 0, ended.err
    said = [
        "training",
        "all steps are done; evaluating on the development data",
        "saving the model  0/1",
        "saving the model  1/1",
        "calibration on",
    ]
    places = [ended.err.index(each) for each in said]
    assert places == sorted(places), ended.err
    assert ended.err.count(said[1]) == 1
