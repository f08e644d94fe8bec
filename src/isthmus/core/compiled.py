"""The compiled part of the engine, if it was built: `part` is its module, or None.

It is made from ``_compiled.c`` when isthmus is installed on a machine with a C compiler (`hatch_build.py`). Everything
in it is written in Python, too, and gives the same results; ISTHMUS_PURE=1 in the environment leaves it unused.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

SWITCH = "ISTHMUS_PURE"


def _load() -> ModuleType | None:
    if os.environ.get(SWITCH, "") not in ("", "0"):
        return None
    try:
        from isthmus.core import _compiled
    except ImportError:
        return None
    return _compiled if is_current(_compiled, Path(__file__).with_name("_compiled.c")) else None


def is_current(module: ModuleType, source: Path) -> bool:
    """Whether the module was built from this source: a checkout may be newer than its compiled file."""
    try:
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError:
        return True
    return getattr(module, "SOURCE_DIGEST", "") == digest


part: Any = _load()
"""The module, or None. Whoever uses it says what happens without it."""


def why_not() -> str:
    """The reason why the compiled part is not used."""
    if os.environ.get(SWITCH, "") not in ("", "0"):
        return f"{SWITCH} is set"
    if any(Path(__file__).parent.glob("_compiled.*so")):
        return "it was built from another version: run python hatch_build.py in the checkout, or install isthmus again"
    return "it was not built: no C compiler or Python headers when isthmus was installed"
