"""isthmus makes text classifiers hard to fool, and proves how hard.

    import isthmus

    data = isthmus.load_data("rotten_tomatoes")
    model = isthmus.train(data, backbone="minilm", defence=isthmus.defences.FreeLB(), folder="runs/freelb")
    found = isthmus.attack("runs/freelb", "textfooler", n=200)
    print(found.summary().racc)

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus import attacks, certificates, defences, explanations, measures
    from isthmus.api import (
        GoalRequest,
        Observer,
        Run,
        Verdict,
        attack,
        certify,
        convert,
        evaluate,
        explain,
        export,
        fetch_assets,
        gate,
        list_assets,
        measure,
        open_run,
        show_words,
        train,
        verify_assets,
        write_report,
    )
    from isthmus.attacks.base import AttackSettings
    from isthmus.attacks.options import AttackOptions
    from isthmus.attacks.result import AttackResult
    from isthmus.core.errors import IsthmusError
    from isthmus.core.types import Example, Victim
    from isthmus.data import Dataset, Splits, load_data
    from isthmus.models import load_model
    from isthmus.models.victims import load_victim
    from isthmus.results import AttackResults, CertificateResults, EvaluationResults, QuestionResults
    from isthmus.training.settings import TrainingSettings

__version__ = "0.1.0"

_HOMES = {
    "AttackOptions": "isthmus.attacks.options",
    "AttackResult": "isthmus.attacks.result",
    "AttackResults": "isthmus.results",
    "AttackSettings": "isthmus.attacks.base",
    "CertificateResults": "isthmus.results",
    "Dataset": "isthmus.data",
    "EvaluationResults": "isthmus.results",
    "Example": "isthmus.core.types",
    "GoalRequest": "isthmus.api",
    "IsthmusError": "isthmus.core.errors",
    "Observer": "isthmus.api",
    "QuestionResults": "isthmus.results",
    "Run": "isthmus.api",
    "Splits": "isthmus.data",
    "TrainingSettings": "isthmus.training.settings",
    "Verdict": "isthmus.api",
    "Victim": "isthmus.core.types",
    "attack": "isthmus.api",
    "certify": "isthmus.api",
    "convert": "isthmus.api",
    "evaluate": "isthmus.api",
    "explain": "isthmus.api",
    "export": "isthmus.api",
    "fetch_assets": "isthmus.api",
    "gate": "isthmus.api",
    "list_assets": "isthmus.api",
    "load_data": "isthmus.data",
    "load_model": "isthmus.models",
    "load_victim": "isthmus.models.victims",
    "measure": "isthmus.api",
    "open_run": "isthmus.api",
    "show_words": "isthmus.api",
    "train": "isthmus.api",
    "verify_assets": "isthmus.api",
    "write_report": "isthmus.api",
}
_MODULES = ("attacks", "certificates", "defences", "explanations", "measures")

__all__ = [
    "AttackOptions", "AttackResult", "AttackResults", "AttackSettings", "CertificateResults", "Dataset",
    "EvaluationResults", "Example", "GoalRequest", "IsthmusError", "Observer", "QuestionResults", "Run", "Splits",
    "TrainingSettings", "Verdict", "Victim", "attack", "attacks", "certificates", "certify", "convert", "defences",
    "evaluate", "explain", "explanations", "export", "fetch_assets", "gate", "list_assets", "load_data",
    "load_model", "load_victim", "measure", "measures", "open_run", "show_words", "train", "verify_assets",
    "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"isthmus.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'isthmus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
