"""Every heading can be reached, and no two elements share an id."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.report.contents import PLACE, add_contents
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder

OLDER = Path(__file__).parents[1] / "fixtures" / "runs"


def links(page: str, name: str) -> list[str]:
    return re.findall(rf'<nav class="contents" aria-label="{name}">(.*?)</nav>', page)


def test_headings_get_ids_and_links() -> None:
    page = (
        f'{PLACE}<h2 id="given">A <b>b</b></h2><h3>One &amp; two</h3><p id="one-two-2"></p><h3>One, two</h3><h2>C</h2>'
    )
    found = add_contents(page)
    assert links(found, "Contents") == ['<a href="#given">A b</a><a href="#c">C</a>']
    assert links(found, "Parts") == ['<a href="#one-two">One &amp; two</a><a href="#one-two-3">One, two</a>']
    assert '<h3 id="one-two-3">One, two</h3>' in found
    assert '</h2><nav class="contents" aria-label="Parts">' in found
    assert add_contents(f"{PLACE}<h2>漢字</h2>").endswith('<h2 id="part">漢字</h2>')


def check(page: str) -> list[str]:
    """Assert what is true of every page; the targets of its links."""
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'<a href="#([^"]+)"', page)
    assert set(targets) <= set(ids)
    assert not re.findall(r"<h[23]>", page)
    assert set(re.findall(r'<h2 id="([^"]+)"', page)) <= set(targets)
    sections = re.split(r"<h2 ", page)[1:]
    for section in sections:
        parts = re.findall(r'<h3 id="([^"]+)"', section)
        assert len(parts) < 2 or set(parts) <= set(targets)
    assert re.findall(r"<th(?! scope=)[^a-z]", page) == []
    return targets


@pytest.mark.parametrize("name", ["texts", "drawn", "images", "function"])
def test_every_heading_of_an_older_run_is_reached(name: str) -> None:
    targets = check(render(read_run(RunFolder(OLDER / name))))
    expected = {
        "texts": {"attacks", "examples", "evaluations", "explanations", "certificates", "measures", "training"},
        "drawn": {"attacks", "randomised", "evaluations", "training"},
        "images": {"attacks", "examples", "evaluations", "training"},
        "function": {"attacks", "evasion", "examples", "evaluations"},
    }
    assert expected[name] | {"origin"} <= set(targets)


def test_attacks_on_embeddings_and_what_has_no_result_are_in_the_contents(
    run_folder: RunFolder, add_attack: Callable[..., None], make_row: Callable[..., dict[str, Any]]
) -> None:
    rows = [make_row(number, "succeeded", random.Random(0)) | {"linf": 0.1, "l2": 0.3} for number in range(20)]
    add_attack(run_folder, "pgd", rows)
    run_folder.embeddings_path.mkdir()
    for path in run_folder.attacks_path.glob("pgd*"):
        path.rename(run_folder.embeddings_path / path.name)
    run = read_run(run_folder)
    assert [view.key for view in run.embeddings] == ["pgd"]
    assert {"embeddings", "without-result", "commands"} <= set(check(render(run)))
