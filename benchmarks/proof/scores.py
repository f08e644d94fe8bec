"""Accuracy of a run on many sets, kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isthmus.core.files import read_json, write_json
from isthmus.data import Dataset


def place_on(folder: Path, name: str) -> Path:
    """Where attacks on a run go that begin with texts of another data set than its own."""
    return folder / f"on-{name}"


def accuracy_on(folder: Path, sets: Mapping[str, Dataset]) -> dict[str, dict[str, int]]:
    """{set: {n, right}}, from the file beside the run where they are known."""
    path = folder / "sets.json"
    known: dict[str, dict[str, int]] = read_json(path) if path.is_file() else {}
    missing = {name: data for name, data in sets.items() if name not in known}
    if missing:
        import torch

        from isthmus.models import load_model
        from isthmus.training.encoded import EncodedExamples

        model = load_model(folder, device="cuda" if torch.cuda.is_available() else "cpu")
        for name, data in missing.items():
            aligned = data.align_labels(model.labels)
            right = torch.zeros((), dtype=torch.int64, device=model.device)
            with torch.inference_mode():
                for batch in EncodedExamples(model, aligned.examples, aligned.fields).batches(256, model.device):
                    right += (model(**batch.inputs).logits.argmax(dim=-1) == batch.labels).sum()
            known[name] = {"n": len(aligned), "right": int(right)}
        write_json(path, known)
    return known
