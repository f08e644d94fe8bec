"""`@abstractmethod` is obeyed only in a class made by ABCMeta; elsewhere it is a word that nobody checks."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABCMeta

import isthmus


def test_abstract_methods_stand_in_abstract_classes_only() -> None:
    wrong, seen = [], 0
    for module in pkgutil.walk_packages(isthmus.__path__, "isthmus."):
        if module.name.endswith(("__main__", "_textattack_wrapper", "integrations.textattack")):
            continue  # One runs the program, the others need a library that is not installed with the rest.
        for name, kind in vars(importlib.import_module(module.name)).items():
            if not inspect.isclass(kind) or kind.__module__ != module.name:
                continue
            if any(getattr(each, "__isabstractmethod__", False) for each in vars(kind).values()):
                seen += 1
                if not isinstance(kind, ABCMeta):
                    wrong.append(f"{module.name}.{name}")
    assert seen >= 10
    assert not wrong
