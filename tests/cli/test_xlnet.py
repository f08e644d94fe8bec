from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_xlnet_is_trained_and_attacked(isthmus: Any, place: Path) -> None:
    from encoder_toys import save_encoder

    save_encoder("xlnet", place / "xlnet")
    trained = isthmus(
        "train", "--backbone", "xlnet", "--data", "reviews.csv", "--out", "out", "-S", "epochs=1", "--defence", "freelb"
    )  # fmt: skip
    assert trained.code == 0, trained.err
    attacked = isthmus("attack", "out", "--attack", "deepwordbug,hotflip", "--n", 4, "--no-label-check", "--json")
    assert attacked.code == 0, attacked.err
    rows = [json.loads(row) for file in (place / "out" / "attacks").glob("*.jsonl") for row in file.open()]
    assert len(rows) == 8
    assert {row["outcome"] for row in rows} <= {"succeeded", "failed", "skipped"}
