"""Methods and data sets of other packages: found by metadata, described from source, imported on use.

    package.module:Class        any class on the Python path, or in the folder the command is called from
    name                        an entry point of an installed package, in the group ``isthmus.attacks`` or another

Nothing here imports an extension but `load`. Where the source of one lies is asked of the path finder, folder by
folder: Python's own look-up would import the package around a module to find it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from isthmus.core.errors import UsageError

GROUP = "isthmus."
"""What a group of entry points begins with; the family follows."""
_SPEC = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Extension:
    """One object of another package, not imported."""

    name: str
    """By which a command names it."""
    module: str
    attribute: str
    distribution: str | None = None
    """The installed package that announces it; None where it was named as module:Class."""
    clashes_with: str | None = None
    """The shorter name that something else has already; it is then known as module:Class."""

    @property
    def spec(self) -> str:
        """``module:Class``."""
        return f"{self.module}:{self.attribute}"

    @property
    def path(self) -> Path | None:
        """Its source file; None if there is none."""
        return source_of(self.module)

    def load(self) -> Any:
        """Import the module, which runs its code, and return the object."""
        _look_here()
        try:
            module = importlib.import_module(self.module)
        except SyntaxError as error:
            where = f"{error.filename}, line {error.lineno}"
            raise UsageError(f"cannot import {self.module!r} of {self.spec!r}: {error.msg} ({where})") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UsageError(
                f"cannot import {self.module!r} of {self.spec!r}: {type(error).__name__}: {error}"
            ) from error
        if not hasattr(module, self.attribute):
            raise UsageError(f"{self.module!r} has no attribute {self.attribute!r}")
        return getattr(module, self.attribute)


def is_spec(name: str) -> bool:
    """Whether a name has the form ``package.module:Class``."""
    return _SPEC.fullmatch(name) is not None


def from_spec(name: str) -> Extension:
    """The object that ``package.module:Class`` names; nothing is imported."""
    if not is_spec(name):
        raise UsageError(f"{name!r} is not of the form package.module:Class")
    module, _, attribute = name.partition(":")
    return Extension(name, module, attribute)


def find_announced(family: str, taken: Iterable[str] = ()) -> tuple[Extension, ...]:
    """The entry points of a family, by name. If a name is `taken` or announced twice, its module:Class is used instead.

    Metadata is read and nothing is imported.
    """
    found: dict[str, list[Extension]] = {}
    seen = set()
    for point in importlib.metadata.entry_points(group=GROUP + family):
        distribution = None if point.dist is None else point.dist.name
        if not is_spec(point.value) or (point.name, point.value) in seen:
            continue  # The same package may lie on the path twice.
        seen.add((point.name, point.value))
        module, _, attribute = point.value.partition(":")
        found.setdefault(plain_name(point.name), []).append(Extension(point.name, module, attribute, distribution))
    reserved = {plain_name(name) for name in taken}
    named = [
        Extension(one.spec, one.module, one.attribute, one.distribution, clashes_with=one.name)
        if plain in reserved or len(several) > 1 or is_spec(one.name)
        else one
        for plain, several in found.items()
        for one in several
    ]
    return tuple(sorted(named, key=lambda one: one.name))


def plain_name(name: str) -> str:
    """A name in its plain form: case, hyphens and underscores do not matter."""
    return name.lower().replace("_", "").replace("-", "")


def source_of(module: str) -> Path | None:
    """The source file of a module; None if it is not on the path, or has no source. Nothing is imported."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for number in range(len(parts)):
        name = ".".join(parts[: number + 1])
        spec = _top(name) if number == 0 else PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and number + 1 < len(parts):
            return None
    file = None if spec is None or spec.origin is None else Path(spec.origin)
    return file if file is not None and file.suffix == ".py" and file.is_file() else None


def _top(name: str) -> ModuleSpec | None:
    """The place of a top-level module; the current folder is searched too, which an installed command would not do."""
    here = PathFinder.find_spec(name, [str(Path.cwd())])
    if here is not None and here.origin is not None:
        return here
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # A module that somebody made by hand has no spec.
        return None


def _look_here() -> None:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
