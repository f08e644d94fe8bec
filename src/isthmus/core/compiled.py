"""The compiled part of the engine, where it was built: `part` is its module, or None.

It is made from ``_compiled.c`` when isthmus is installed on a machine with a C compiler (`hatch_build.py`). Everything
in it is written in Python, too, and gives the same results; ISTHMUS_PURE=1 in the environment leaves it unused.
"""

from __future__ import annotations

import os
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
    return _compiled


part: Any = _load()
"""The module, or None. Whoever uses it says what happens without it."""


def why_not() -> str:
    """Why the compiled part is not used."""
    if os.environ.get(SWITCH, "") not in ("", "0"):
        return f"{SWITCH} is set"
    return "it was not built: no C compiler or Python headers when isthmus was installed"
