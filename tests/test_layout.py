"""Where things lie: who may import what, and that the pages name files that are there.

Which package may import which, and that private modules stay inside theirs, the contracts in pyproject.toml say and
`lint-imports` checks. Here is what they cannot say: that no private module lacks a contract, rings of single modules,
and what tests and benchmarks may import.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def private(name: str) -> bool:
    """Whether some part of a dotted name begins with an underscore."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def strangers(room: str | None, code: str) -> list[str]:
    """Private modules, functions and classes that a file imports from outside the package `room`."""
    found = [name for name in sorted(imported(code)) if private(name)]
    return [name for name in found if room is None or not name.startswith(f"isthmus.{room}.")]


def outside() -> Iterator[tuple[Path, str | None]]:
    """Files beside the library. `tests/attacks` are tests of `isthmus.attacks`, which may look inside that package.

    No others may: not benchmarks and not what tests share.
    """
    rooms = {path.name for path in (SOURCE / "isthmus").iterdir() if path.is_dir()}
    for folder in ("tests", "benchmarks", "docs/_site"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            room = path.relative_to(ROOT / folder).parts[0] if folder == "tests" else None
            yield path, room if room in rooms else None


def test_what_is_private_is_imported_by_tests_of_its_own_package_only() -> None:
    wrong = {str(path): found for path, room in outside() if (found := strangers(room, path.read_text("utf-8")))}
    assert wrong == {}


def test_a_stranger_is_seen() -> None:
    code = "def late():\n    from isthmus.models._weights import check_inside\n"
    assert strangers("attacks", code) == strangers(None, code) == ["isthmus.models._weights.check_inside"]
    assert strangers("models", code) == []
    assert strangers("cli", "from isthmus.core.files import _replace") == ["isthmus.core.files._replace"]


def test_every_private_module_has_its_contract() -> None:
    there = {f"{package}.{path.stem}": [package] for path, package in modules() if private(path.stem)}
    contracts = [each for each in settings()["contracts"] if each["type"] == "protected"]
    assert {name: each["allowed_importers"] for each in contracts for name in each["protected_modules"]} == there


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


def settings() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return found


def test_every_package_has_its_layer() -> None:
    layers = [name.strip() for line in settings()["contracts"][0]["layers"] for name in line.split("|")]
    front = {"isthmus.__init__", "isthmus.__main__"}
    here = {f"isthmus.{path.stem}" for path in (SOURCE / "isthmus").iterdir() if (path / "__init__.py").is_file()}
    here |= {f"isthmus.{path.stem}" for path in (SOURCE / "isthmus").glob("*.py")} - front
    assert sorted(layers) == sorted(here)


CLASSES_OF_TWO = {"PGD", "GaussianNoise"}
"""A method's class is named like its file, and both an attack and a defence are called `pgd`. `GaussianNoise` is a
defence and a layer, under whose name saved models name it and draw."""


def test_a_class_name_stands_for_one_class() -> None:
    places: dict[str, list[str]] = {}
    for path, _ in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.name)
    assert {name for name, files in places.items() if len(files) > 1} == CLASSES_OF_TWO


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_files_that_are_there(page: str) -> None:
    """A path in backquotes that names a folder of the package, of the tests or of the repository."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|c|md|toml))?)`", text))
    roots = (ROOT, SOURCE / "isthmus")
    known = {path.name for root in roots for path in root.iterdir() if path.is_dir()} - {"runs", "results"}
    known |= {"runs"} if page.endswith("architecture.md") else set()
    made = {"src/isthmus/attacks/words/shout.py", "src/isthmus/defences/margin_penalty.py"}
    made |= {"src/isthmus/measures/margin.py", "src/isthmus/certificates/word_groups.py"}
    made |= {"src/isthmus/explanations/random_weights.py"}
    lost = [
        name
        for name in sorted(named - made)
        if name.split("/")[0] in known and not any((root / name).exists() for root in roots)
    ]
    assert lost == []
