"""Parts of a key, made of what a benchmark has at hand before anything is trained."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from isthmus.core import catalog
from isthmus.core.types import Classification, Task
from isthmus.data import Dataset
from isthmus.defences.base import Defence
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.settings import to_plain
from isthmus.training.settings import TrainingSettings

REPOSITORY = Path(__file__).resolve().parents[2]
_ALWAYS = ("epochs", "batch_size", "learning_rate", "max_tokens", "precision")
_WITHOUT_EFFECT = ("log_every", "checkpoint_every", "snapshots", "information", "evaluation_batch_size")


def data_key(data: Dataset, trained_on: Dataset | None = None) -> dict[str, Any]:
    """The texts that are asked about, and those the model was trained on."""
    found = {"name": data.name, "split": data.split, "fingerprint": data.fingerprint}
    return found if trained_on is None else {**found, "trained_on": trained_on.fingerprint, "texts": len(trained_on)}


def method_key(defence: str, parameters: Mapping[str, Any] | None = None, task: Task | None = None) -> dict[str, Any]:
    """A defence with every parameter, defaults filled in, so that a default that changes later makes another key.

    Defaults are those for the task, texts unless another one is given. A parameter that is then still open is left
    out: one that is added later, and does nothing unless it is set, makes no other key.
    """
    given = {name: str(value) for name, value in (parameters or {}).items()}
    method = catalog.build("defences", defence, given)
    assert isinstance(method, Defence)
    suited = to_plain(method.adapt_to(task or Classification(())))
    kept = {name: value for name, value in suited.items() if value is not None}
    return {"name": catalog.find("defences", defence).name, **({"parameters": kept} if kept else {})}


def attack_key(
    attack: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    precision: str = "fp32",
    **search: Any,
) -> dict[str, Any]:
    """An attack with every parameter, what it is made with, and how it searches a randomised model."""
    given = {name: str(value) for name, value in (parameters or {}).items()}
    built = catalog.build("attacks", attack, given)
    found = {"name": catalog.find("attacks", attack).name, **({"parameters": p} if (p := to_plain(built)) else {})}
    resources = built.resources()
    made_with = hashlib.sha256(repr(sorted(resources.items())).encode()).hexdigest()[:8]
    kept = {name: value for name, value in search.items() if value is not None}
    return {**found, "resources": made_with, "seed": seed, "precision": precision, **({"search": kept} if kept else {})}


def measure_key(measure: str, parameters: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A measure with every parameter but the place of its pairs, and what else decides its values."""
    given = {name: str(value) for name, value in (parameters or {}).items()}
    found = to_plain(catalog.build("measures", measure, given))
    found.pop("attack", None)
    return {"name": catalog.find("measures", measure).name, **({"parameters": found} if found else {}), **more}


def training_key(settings: TrainingSettings, limit: int | None = None) -> dict[str, Any]:
    """What decides a training: the settings that every table names, and every other that is not at its default."""
    usual = TrainingSettings()
    found = {
        entry.name: to_plain(value)
        for entry in dataclasses.fields(settings)
        if (value := getattr(settings, entry.name)) != getattr(usual, entry.name) or entry.name in _ALWAYS
        if entry.name not in _WITHOUT_EFFECT
    }
    return found if limit is None else {**found, "limit": limit}


def provenance(device: str | None = None, *, seconds: float | None = None, **more: Any) -> dict[str, Any]:
    """Where a cell comes from: commit, a digest of the code, versions, machine, moment."""
    here = machine(device)
    libraries = {name: version for name, version in versions().items() if name in ("python", "torch", "transformers")}
    found = {
        **({"commit": commit} if (commit := _commit()) else {}),
        "code": code_digest(),
        "made": now(),
        **libraries,
        "machine": _device_name() if device and device.startswith("cuda") else here["processor"],
        "cores": here["cores"],
    }
    return {**found, **({"seconds": round(seconds, 1)} if seconds is not None else {}), **more}


@cache
def _commit() -> str | None:
    """The commit of the working tree; a copy without git takes it from the environment."""
    if given := os.environ.get("ISTHMUS_COMMIT"):
        return given
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=REPOSITORY, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


@cache
def code_digest() -> str:
    """8 hex digits over the package's sources: what ran, even where the working tree was changed."""
    digest = hashlib.sha256()
    for path in sorted((REPOSITORY / "src").rglob("*.py")):
        digest.update(path.relative_to(REPOSITORY).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]


def _device_name() -> str:
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "no GPU"
