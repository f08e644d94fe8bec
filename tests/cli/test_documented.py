"""What there is is described, and what is described is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from isthmus.attacks.parts.limits import PRESETS
from isthmus.cli.app import app
from isthmus.core import catalog
from isthmus.core.types import Classification
from isthmus.defences import Defence

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md"]
for _folder in ("docs", "docs/guides", "docs/results"):
    PAGES += sorted(f"{_folder}/{path.name}" for path in (ROOT / _folder).glob("*.md"))
VERBS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
FAMILIES = {
    "--attack": "attacks",
    "--defence": "defences",
    "--measure": "measures",
    "--certificate": "certificates",
}


@pytest.mark.parametrize("page", ["README.md", "docs/attacks.md"])
def test_the_tables_list_every_attack_and_no_other(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = " ".join(row.split("|")[1] for row in rows)
    listed = set(re.findall(r"`([a-z_]+)`", cells))
    assert set(catalog.names("attacks")) <= listed
    others = {"isthmus", "strict", *PRESETS, *catalog.names("defences")}
    assert listed - set(catalog.names("attacks")) <= others


@pytest.mark.parametrize("page", ["README.md", "docs/defences.md"])
def test_the_tables_list_every_defence(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`([a-z_]+)`", " ".join(row.split("|")[1] for row in rows)))
    assert set(catalog.names("defences")) <= listed


def test_the_page_of_defences_gives_their_defaults() -> None:
    """The first number beside a parameter's name, in the row of its defence, is the default."""
    text = (ROOT / "docs/defences.md").read_text(encoding="utf-8")
    section = text.partition("## Defaults and modes")[2].partition("Values that others found")[0]
    checked = 0
    for row in (line.split("|") for line in section.splitlines() if line.startswith("| `")):
        for name in re.findall(r"`([a-z_]+)`", row[1]):
            defence: Defence = catalog.build("defences", name)
            defaults = defence.adapt_to(Classification(("a", "b"))).parameters  # Those of texts.
            for parameter, value in re.findall(r"([a-z_]+) (-?[\d.]+(?:e-?\d+)?)(?=[,; (]|$)", row[2]):
                if parameter in defaults:
                    assert float(value) == defaults[parameter], (name, parameter)
                    checked += 1
    assert checked > 20


def test_every_preset_is_described() -> None:
    text = (ROOT / "docs/attacks.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in PRESETS)


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Every command line of a page: its verb, and what follows."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for verb, rest in re.findall(r"isthmus +([a-z-]+) +([^`\n]*)", text):
        if verb in VERBS and rest.strip():
            # A comment ends a command; a name that is left open ("…") stands for any.
            yield verb, shlex.split(rest.partition("  #")[0].replace("…", "X"))


@pytest.mark.parametrize("page", PAGES)
def test_commands_use_options_that_exist(page: str) -> None:
    for verb, words in commands(page):
        known = {option for parameter in VERBS[verb].params for option in parameter.opts}
        options = [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
        assert set(options) <= known, (verb, words)


NOT_OURS = ("all", "shout", "margin", "word_groups", "random_weights")
"""What names several methods, and the methods that CONTRIBUTING.md adds."""


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_methods_and_parameters_that_exist(page: str) -> None:
    for verb, words in commands(page):
        given = list(pairwise(words))
        methods = [
            catalog.find(family, name)
            for option, value in given
            if (family := FAMILIES.get(option)) is not None and value not in NOT_OURS
            for name in re.split(r"[,+]", value)
            if not name.startswith("mymethods.")
        ]
        known = {parameter.name for method in methods for parameter in method.parameters}
        for option, value in given:
            # A method of the reader's own has parameters of its own, addressed by the class.
            if option == "-P" and methods and not value[0].isupper():
                assert value.partition("=")[0].rpartition(".")[2] in known, (verb, words)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    place = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (place / link).exists()] == []


def test_the_architecture_names_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    folders = [path.parent.name for path in (ROOT / "src/isthmus").glob("*/__init__.py")]
    assert [name for name in folders if not re.search(rf"^\|.*`{name}`.*\|", text, re.M)] == []
