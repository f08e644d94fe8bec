"""Where things lie: who may import what, and that the pages name files that are there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGES = ["CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted((SOURCE / "isthmus").rglob("*.py")):
        yield path, ".".join(path.relative_to(SOURCE).parent.parts)


def imported(code: str) -> set[str]:
    """Every module or name of isthmus that a file imports, those inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "isthmus"}


def strangers(package: str, code: str) -> list[str]:
    """Modules whose names begin with an underscore and that lie in a package which `package` is no part of."""
    wrong = []
    for name in sorted(imported(code)):
        parts = name.split(".")
        for place, part in enumerate(parts):
            owner = ".".join(parts[:place])
            if part.startswith("_") and not part.startswith("__") and is_file(parts[: place + 1]):
                wrong += [] if f"{package}.".startswith(f"{owner}.") else [name]
    return wrong


def is_file(parts: list[str]) -> bool:
    return SOURCE.joinpath(*parts).with_suffix(".py").is_file() or SOURCE.joinpath(*parts).is_dir()


def test_private_modules_are_imported_by_their_own_package_only() -> None:
    wrong = {str(path): found for path, package in modules() if (found := strangers(package, path.read_text("utf-8")))}
    assert wrong == {}


def test_a_stranger_is_seen() -> None:
    code = "def late():\n    from isthmus.models._weights import check_inside\n"
    assert strangers("isthmus.verbs.attack", code) == ["isthmus.models._weights.check_inside"]
    assert strangers("isthmus.models.victims", code) == []


def links(name: str, code: str, known: set[str]) -> set[str]:
    """The modules of `known` that a module imports when it runs, inside functions too; not for types alone."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(code)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
        waiting += ast.iter_child_nodes(node)
    return (found & known) - {name}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which reaches all others of its group."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += graph[name]
        return seen

    reached = {name: reach(name) for name in graph}
    rings = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(ring) for ring in rings if ring)


def test_no_modules_import_each_other_in_a_ring() -> None:
    """Imports inside functions count: an import that is only put off still ties two modules together."""
    paths = {}
    for path, package in modules():
        paths[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    graph = {name: links(name, path.read_text("utf-8"), set(paths)) for name, path in paths.items()}
    assert cycles(graph) == []


def test_a_ring_is_seen() -> None:
    known = {"isthmus.a", "isthmus.b", "isthmus.c"}
    late = "def late():\n    from isthmus import a\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from isthmus.a import A\n"
    graph = {"isthmus.a": links("isthmus.a", "import isthmus.b\nimport isthmus.c\n", known)}
    graph |= {"isthmus.b": links("isthmus.b", late, known), "isthmus.c": links("isthmus.c", typed, known)}
    assert cycles(graph) == [["isthmus.a", "isthmus.b"]]


def test_every_package_has_its_layer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = [name.strip() for line in settings["contracts"][0]["layers"] for name in line.split("|")]
    front = {"isthmus.__init__", "isthmus.__main__"}
    here = {f"isthmus.{path.stem}" for path in (SOURCE / "isthmus").iterdir() if (path / "__init__.py").is_file()}
    here |= {f"isthmus.{path.stem}" for path in (SOURCE / "isthmus").glob("*.py")} - front
    assert sorted(layers) == sorted(here)


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_files_that_are_there(page: str) -> None:
    """A path in backquotes that names a folder of the package, of the tests or of the repository."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|c|md|toml))?)`", text))
    roots = (ROOT, SOURCE / "isthmus")
    known = {path.name for root in roots for path in root.iterdir() if path.is_dir()} - {"runs", "results"}
    known |= {"runs"} if page.endswith("architecture.md") else set()
    made = {"src/isthmus/attacks/words/shout.py", "src/isthmus/defences/margin_penalty.py"}
    made |= {"src/isthmus/measures/mymeasure.py", "src/isthmus/certificates/mycertificate.py"}
    lost = [
        name
        for name in sorted(named - made)
        if name.split("/")[0] in known and not any((root / name).exists() for root in roots)
    ]
    assert lost == []
