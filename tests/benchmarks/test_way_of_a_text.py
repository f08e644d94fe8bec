"""The benchmark that counts functions on the way of a text: what it counts, and what not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from way_of_a_text import LIBRARY, WORK, Function, Part, Tracer, count_source, divide, is_participle, short_functions

FIRST = '''"""A module."""

# The reason.
Keys = tuple[int, str]


class Row:
    """One."""

    def __init__(self):  # What is there.
        self.size = 1

    @property
    def packed(self):
        return sorted([each for each in (2, 1)])


def packed(row):
    return told(row)


def told(row):
    """Say it."""
    return (lambda: row.packed)()


def count(upto):
    for number in range(upto):
        yield number


def run():
    def inner():
        return list(count(3))

    inner()
    return inner()


def other():
    return 1
'''
SECOND = """import first


class Row:
    pass


def embed():
    return 2


def work():
    embed()
    return first.run()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "first.py").write_text(FIRST)
    (tmp_path / "second.py").write_text(SECOND)
    return tmp_path


@pytest.fixture
def load(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    monkeypatch.syspath_prepend(str(package))

    def named(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield named
    for name in ("first", "second"):
        sys.modules.pop(name, None)


def names(functions: Iterable[Function]) -> set[str]:
    return {each.name for each in functions}


def test_a_function_counts_once_and_comprehensions_not_at_all(package: Path, load: Callable[[str], ModuleType]) -> None:
    with Tracer(package) as tracer:
        first = load("first")
        first.packed(first.Row())
        first.run()
    assert names(tracer.entered) == {"Row.__init__", "Row.packed", "packed", "told", "run", "run.inner", "count"}
    assert Part.of(tracer.entered) == Part(7, 1)


def test_other_threads_are_seen_and_other_packages_are_not(package: Path, load: Callable[[str], ModuleType]) -> None:
    first = load("first")
    with Tracer(package) as tracer:
        worker = threading.Thread(target=first.other)
        worker.start()
        worker.join()
        importlib.util.find_spec("json")
    assert names(tracer.entered) == {"other"}


def test_parts_are_told_apart_by_what_is_on_the_stack(package: Path, load: Callable[[str], ModuleType]) -> None:
    second = load("second")
    with Tracer(package, ("work", "run")) as tracer:
        second.embed()
        second.work()
        second.first.other()
    under = {function.name: marks for function, marks in tracer.entered.items()}
    assert under["embed"] == {frozenset(), frozenset({"work"})}
    assert under["count"] == {frozenset({"work", "run"})}
    assert under["other"] == {frozenset()}


def test_what_is_entered_in_both_belongs_to_the_way_of_the_text() -> None:
    both, loading, search, row = (Function("a.py", line, f"f{line}") for line in range(4))
    entered = {
        both: {frozenset[str](), frozenset({WORK})},
        loading: {frozenset[str](), frozenset({LIBRARY})},  # A rehearsal attacks before any row is made.
        search: {frozenset({WORK, LIBRARY})},
        row: {frozenset({WORK})},
    }
    assert divide(entered) == {
        "whole": {both, loading, search, row},
        "start": {loading},
        "text": {both, search, row},
        "library": {search},
    }


def test_the_source_is_counted(package: Path) -> None:
    found = count_source(package)
    assert (found.files, found.lines) == (2, len(FIRST.splitlines()) + len(SECOND.splitlines()))
    assert found.functions == 10
    assert found.type_names == 2
    assert found.types_in_several_files == ("Row",)
    assert found.participles == ("packed", "told")  # The property is a value.
    assert found.comment_lines == 1
    assert found.functions_per_1000_lines == pytest.approx(1000 * 10 / found.lines)
    assert found.share_in_several_files == 0.5


@pytest.mark.parametrize(("name", "is_one"), [
    ("packed", True), ("_told", True), ("forwarded_rows", True), ("made_of", True), ("embed", False), ("seed", False),
    ("pack", False), ("red", False), ("need_more", False), ("_", False),
])  # fmt: skip
def test_participles(name: str, is_one: bool) -> None:
    assert is_participle(name) is is_one


def test_short_functions_say_how_often_they_are_used(package: Path, load: Callable[[str], ModuleType]) -> None:
    first = load("first")
    with Tracer(package) as tracer:
        first.packed(first.Row())
        first.run()
    found = {each.function.name: (each.body, each.uses) for each in short_functions(package, tracer.entered)}
    assert found["told"] == (1, 1)  # Its docstring is not part of its body.
    assert found["Row.packed"] == (1, 1)
    assert found["count"] == (2, 1)
    assert "run" not in found


def test_one_text_is_attacked() -> None:
    """The command line of the script, from the toy to the table."""
    script = Path(__file__).parents[2] / "benchmarks" / "way_of_a_text.py"
    done = subprocess.run([sys.executable, str(script), "--functions"], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert any(line.startswith("library  attacks/words/deepwordbug.py") for line in lines)
    assert any(line.startswith("library  engine/assembly.py") for line in lines)
    assert any(line.startswith("text     runs/journal.py") for line in lines)
    assert any(line.startswith("start    cli/attack.py") for line in lines)
    counts = {
        line[:28].strip(): [int(each) for each in line[28:].split()]
        for line in lines
        if line[28:].replace(" ", "").isdigit()
    }
    whole, start, text, library = (
        counts[name]
        for name in ("the whole command", "start, loading, figures", "way of the text", "of that, the library")
    )
    assert start[0] + text[0] == whole[0]
    assert text[0] > library[0] > 50
