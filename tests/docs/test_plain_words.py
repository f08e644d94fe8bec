"""What a reader sees is written in the words of the field: phrases that were replaced once do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

WANTED = {
    r"\bmost (queries|generations|candidates|steps|draws|texts) (per|for|an|a|in|of the)\b": "maximum … per …",
    r"\bnew beginnings?\b": "restarts",
    r"\bunseen draws\b": "fresh random draws",
    r"\banew\b": "again",
    r"\brightly\b": "correctly",
    r"\bwhom\b": "who, which (or name the thing)",
    r"\bso many (draws|texts|words|queries|epochs|steps|evaluations|seconds|copies|rows|tokens|keys)\b": "N",
    r"\bhow-manieth\b": "rank, position",
    r"\b(keep|depend on|in) company\b|\bor company\b": "the rest of the batch, other examples",
    r"\bmodels beside the victim\b": "auxiliary models",
    r"\bhow to ask\b": "inference options",
    r"\bhangs? by\b": "depends on, is driven by",
    r"\bcalls the model's outputs\b": "dataset label names, in the model's class order",
    r"\bup to where\b": "up to which strength, how far",
    r"\bno option of this (kind of )?model\b": "not a valid option for this model",
    r"\bdata to measure on: give some\b": "no data to measure on: pass `data`",
    r"\bwrongly asked\b": "usage error",
    r"\bheld against\b": "checked against, compared with",
    r"\bnothing was tried on\b": "had no candidates",
    r"\b(are|is|was|were) turned\b(?! (into|off|on|around|upside|a\b))": "fooled",
    r"\b(texts|examples|words) that stay right\b": "withstood",
    r"\bstands? there twice\b": "is named twice",
    r"\bwhose algorithm\b": "variant of the algorithm",
    r"\bwho tells which\b": "tagger that says which",
    r"\bnothing to speak of\b": "practically none",
    r"\bcan(not|'t) be had\b|\bto be had\b": "not available, or what to install",
    r"\bsomebody else's\b": "another",
    r"\bfor want of\b": "because of, without",
    r"\b(drawn|starts?|started) afresh\b": "again",
    r"\bfooled \S+  held\b|\"failed\": \"held\"": "withstood, as in the report",
}
"""A pattern that must not occur, and what to write instead."""

EXCEPTIONS = {
    # The checksums of three assets cover these notes.
    ("src/isthmus/assets/_prepare.py", "anew"),
    # A list of English pronouns.
    ("src/isthmus/attacks/parts/merging.py", "whom"),
}
"""File and matched words that may stay, each with its reason."""


@dataclass(frozen=True)
class Found:
    """A phrase that must not occur."""

    file: str
    line: int
    words: str
    write: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words!r}: write {self.write!r}"


def sources() -> list[Path]:
    """Everything whose words a reader sees: pages, code (help, messages, docstrings), the report's template."""
    return sorted(
        [
            *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")),
            *(REPOSITORY / "docs").rglob("*.md"),
            *(REPOSITORY / "src" / "isthmus").rglob("*.py"),
            *(REPOSITORY / "src" / "isthmus" / "report" / "templates").rglob("*.html"),
            *(REPOSITORY / "benchmarks").rglob("*.py"),
        ]
    )


def find(name: str, text: str) -> Iterator[Found]:
    """Every phrase in a text, with its line; a phrase may go on in the next line."""
    for pattern, write in WANTED.items():
        spaced = pattern.replace(" ", r"[ ]*\s+" if "  " not in pattern else " ")
        for match in re.finditer(spaced, text, re.IGNORECASE):
            words = " ".join(match.group().split())
            if (name, words.lower()) not in EXCEPTIONS:
                yield Found(name, text.count("\n", 0, match.start()) + 1, words, write)


def unreleased(changelog: str) -> str:
    """The part of the changelog that is not published yet: all up to the second heading of a version."""
    headings = [match.start() for match in re.finditer(r"^## ", changelog, re.MULTILINE)]
    return changelog[: headings[1]] if len(headings) > 1 else changelog


def complaints(found: Iterable[Found]) -> str:
    """One line for each phrase."""
    return "\n".join(map(str, found))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_words_are_plain(path: Path) -> None:
    found = list(find(path.relative_to(REPOSITORY).as_posix(), path.read_text(encoding="utf-8")))
    assert not found, complaints(found)


def test_the_unreleased_changes_are_plain() -> None:
    found = list(find("CHANGELOG.md", unreleased((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"))))
    assert not found, complaints(found)


def test_a_phrase_is_found_and_the_remedy_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Fine.\nIt takes most queries per text, and new\nbeginnings after a failure.\n")
    found = list(find("page.md", page.read_text()))
    assert [(each.line, each.write) for each in found] == [(2, "maximum … per …"), (2, "restarts")]
    assert "page.md:2: 'new beginnings': write 'restarts'" in complaints(found)


@pytest.mark.parametrize(("file", "words"), sorted(EXCEPTIONS))
def test_an_exception_is_still_needed(file: str, words: str) -> None:
    assert re.search(rf"\b{words}\b", (REPOSITORY / file).read_text(encoding="utf-8"), re.IGNORECASE)
