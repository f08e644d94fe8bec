"""The public names are what the package says they are, and cost nothing until they are used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus


def declared_for_type_checkers() -> set[str]:
    tree = ast.parse(Path(inspect.getfile(isthmus)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_the_three_lists_agree() -> None:
    assert isthmus.__all__ == sorted(isthmus.__all__)
    assert declared_for_type_checkers() == set(isthmus.__all__)
    assert {*isthmus._HOMES, *isthmus._MODULES} == set(isthmus.__all__)


@pytest.mark.parametrize("name", isthmus.__all__)
def test_every_name_is_there(name: str) -> None:
    value = getattr(isthmus, name)
    assert callable(value) or inspect.ismodule(value)
    assert name in dir(isthmus)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'atacks'"):
        _ = isthmus.atacks


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import isthmus, sys; print(*sorted({'torch', 'transformers', 'numpy', 'scipy', 'rich'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
