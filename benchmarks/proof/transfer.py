"""Texts that fooled a model in one way of asking it, put to the same model in another.

A defence that moves with every query may only blind the search of an attack. Whether it holds the texts is seen by
making them where nothing blinds the search, and asking the defended model about them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.attacks.options import RESTARTS
from isthmus.core.errors import IsthmusError
from isthmus.models import load_victim
from isthmus.runs.folder import AttackFile, RunFolder

if TYPE_CHECKING:
    from isthmus.models.victims.classifier import InferencePrecision

DRAWS = 20
"""Answers to every text, each by draws of its own."""


class Way(NamedTuple):
    """A way of asking a model."""

    name: str
    options: Mapping[str, Any]


def attacked(folder: Path, attack: str, options: Mapping[str, Any], restarts: int) -> AttackFile | None:
    """The finished attack on a run that was asked in this way; one with errors is not finished."""
    for file in RunFolder(folder).attack_files() if folder.is_dir() else ():
        header = file.header()
        done = header.get("summary") and not header["summary"]["outcomes"]["error"]
        settings = header["settings"]
        how = settings.get("randomised", {})
        begun = None if how.get("search_draws") else how.get("restarts", RESTARTS)
        asked = dict(settings.get("victim") or {}), begun
        if done and header["attack"] == attack and asked == (dict(options), restarts):
            return file
    return None


def transferred(folder: Path, source: str) -> dict[str, float]:
    """For each text that was carried over the share of answers that are right; nothing where that was not done."""
    file = _file(folder, source)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def transfer(folder: Path, attack: str, source: Way, target: Way, restarts: int, precision: InferencePrecision) -> None:
    """Carry the successes of an attack over; a finished one is left as it is."""
    made = attacked(folder, attack, source.options, restarts)
    if made is None:
        raise IsthmusError(f"{folder}: no finished {attack} that asked with {dict(source.options)}")
    if _file(folder, source.name).is_file():
        return
    fooled = [row for row in made.rows() if row["outcome"] == "succeeded"]
    if not fooled:
        return
    victim = load_victim(folder / "model", precision=precision, **target.options)
    scores = victim.scores([row["perturbed"] for row in fooled for _ in range(DRAWS)])
    right = (scores.argmax(axis=1).reshape(-1, DRAWS) == [[row["label"]] for row in fooled]).mean(axis=1)
    shares = {row["id"]: float(share) for row, share in zip(fooled, right, strict=True)}
    _file(folder, source.name).write_text(json.dumps(shares), encoding="utf-8")


def _file(folder: Path, source: str) -> Path:
    return folder / f"transfer {source}.json"
