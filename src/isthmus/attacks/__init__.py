"""Attacks: one method, one file, in words/ (texts) and gradient/ (tensors); shared steps of the former in parts/.

A new file is found by its name; the list below is for type checkers and is checked against the files by a test.

    >>> from isthmus import attack, attacks
    >>> found = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                attacks.DeepWordBug(edit="swap"), [("a dull plot", 0)], labels=("bad", "good"))
    >>> found[0].perturbed["text"]
    'a dlul plot'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isthmus.core import catalog

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackRun, AttackSettings, WordAttack
    from isthmus.attacks.gradient.auto import Auto
    from isthmus.attacks.gradient.base import GradientAttack, GradientResult, GradientSettings
    from isthmus.attacks.gradient.bim import BIM
    from isthmus.attacks.gradient.cw import CW
    from isthmus.attacks.gradient.deepfool import DeepFool
    from isthmus.attacks.gradient.fgsm import FGSM
    from isthmus.attacks.gradient.margin_pgd import MarginPGD
    from isthmus.attacks.gradient.parts.targets import (
        Draws,
        EmbeddingTarget,
        EncoderTarget,
        GradientTarget,
        ModuleTarget,
    )
    from isthmus.attacks.gradient.pgd import PGD
    from isthmus.attacks.parts.goals import Evasion, Targeted, Untargeted
    from isthmus.attacks.parts.protection import Protection
    from isthmus.attacks.result import AttackResult
    from isthmus.attacks.words.badchars import BadChars
    from isthmus.attacks.words.bae import BAE
    from isthmus.attacks.words.bertattack import BertAttack
    from isthmus.attacks.words.clare import CLARE
    from isthmus.attacks.words.deepwordbug import DeepWordBug
    from isthmus.attacks.words.genetic import Genetic
    from isthmus.attacks.words.goodwords import GoodWords
    from isthmus.attacks.words.hardlabel import HardLabel
    from isthmus.attacks.words.hotflip import HotFlip
    from isthmus.attacks.words.iga import IGA
    from isthmus.attacks.words.leet import Leet
    from isthmus.attacks.words.pso import PSO
    from isthmus.attacks.words.pwws import PWWS
    from isthmus.attacks.words.random import Random
    from isthmus.attacks.words.textbugger import TextBugger
    from isthmus.attacks.words.textfooler import TextFooler

__all__ = [
    "BAE",
    "BIM",
    "CLARE",
    "CW",
    "FGSM",
    "IGA",
    "PGD",
    "PSO",
    "PWWS",
    "AttackResult",
    "AttackRun",
    "AttackSettings",
    "Auto",
    "BadChars",
    "BertAttack",
    "DeepFool",
    "DeepWordBug",
    "Draws",
    "EmbeddingTarget",
    "EncoderTarget",
    "Evasion",
    "Genetic",
    "GoodWords",
    "GradientAttack",
    "GradientResult",
    "GradientSettings",
    "GradientTarget",
    "HardLabel",
    "HotFlip",
    "Leet",
    "MarginPGD",
    "ModuleTarget",
    "Protection",
    "Random",
    "Targeted",
    "TextBugger",
    "TextFooler",
    "Untargeted",
    "WordAttack",
]

_HOMES = {
    "AttackResult": "result",
    "AttackRun": "base",
    "AttackSettings": "base",
    "Draws": "gradient.parts.targets",
    "EmbeddingTarget": "gradient.parts.targets",
    "EncoderTarget": "gradient.parts.targets",
    "Evasion": "parts.goals",
    "GradientAttack": "gradient.base",
    "GradientResult": "gradient.base",
    "GradientSettings": "gradient.base",
    "GradientTarget": "gradient.parts.targets",
    "ModuleTarget": "gradient.parts.targets",
    "Protection": "parts.protection",
    "Targeted": "parts.goals",
    "Untargeted": "parts.goals",
    "WordAttack": "base",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    for entry in catalog.entries("attacks"):
        if entry.class_name == name:
            return entry.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_HOMES, *(entry.class_name for entry in catalog.entries("attacks"))})
