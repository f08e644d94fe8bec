"""Data sets of other packages: a function without arguments, by entry point or as ``package.module:function``.

It returns `Splits`, a `Dataset`, or anything that `isthmus.data.plain.as_splits` takes: pairs of text and label, a
frame, a `datasets.Dataset`. It is found by metadata and source, and imported when the data are asked for.
"""

from __future__ import annotations

import ast
from pathlib import Path

from isthmus import assets
from isthmus.core import extensions
from isthmus.core.errors import DataError
from isthmus.core.extensions import Extension
from isthmus.data.dataset import Splits


def find_extension(source: str) -> Extension | None:
    """The extension named by a source; None for files, known names and hub names."""
    if Path(source).expanduser().exists():
        return None
    known = (*assets.names("data"), "digits")
    if source in known or assets.user_folder(source) is not None:
        return None
    for one in extensions.find_announced("data", known):
        if source == one.name:
            return one
    if not extensions.is_spec(source):
        return None
    found = extensions.from_spec(source)
    # The hub has names of this form, too (glue:sst2): one of ours has a source that defines it.
    return found if found.path is not None and _defines(found.path, found.attribute) else None


def is_code(source: str) -> bool:
    """Whether a source is code that the user names as ``package.module:function``, not an announced name."""
    return extensions.is_spec(source) and find_extension(source) is not None


def from_extension(extension: Extension, name: str | None) -> Splits:
    """Call the function and return its data."""
    from isthmus.data.plain import as_splits

    made = extension.load()
    if callable(made):
        try:
            made = made()
        except Exception as error:
            raise DataError(f"{extension.spec} raised {type(error).__name__}: {error}") from error
    return as_splits(made, name or extension.name)


def _defines(path: Path, name: str) -> bool:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, ValueError, OSError):
        return False
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return name in found
