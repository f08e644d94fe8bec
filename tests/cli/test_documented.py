"""What there is is described, and what is described is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isthmus.attacks.parts.limits import PRESETS
from isthmus.core import catalog

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/attacks.md"])
def test_the_tables_list_every_attack_and_no_other(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = " ".join(row.split("|")[1] for row in rows)
    listed = set(re.findall(r"`([a-z]+)`", cells))
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
            defaults = catalog.build("defences", name).parameters  # type: ignore[attr-defined]
            for parameter, value in re.findall(r"([a-z_]+) (-?[\d.]+(?:e-?\d+)?)(?=[,; (]|$)", row[2]):
                if parameter in defaults:
                    assert float(value) == defaults[parameter], (name, parameter)
                    checked += 1
    assert checked > 20


def test_every_preset_is_described() -> None:
    text = (ROOT / "docs/attacks.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in PRESETS)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/attacks.md",
        "docs/augmentation.md",
        "docs/certificates.md",
        "docs/evaluate.md",
        "docs/question-answering.md",
    ],
)
def test_commands_in_the_text_use_options_that_exist(page: str) -> None:
    from typer.main import get_command

    from isthmus.cli.app import app

    program = get_command(app)
    verbs = program.commands  # type: ignore[attr-defined]
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        for verb, rest in re.findall(r"isthmus (attack|train|evaluate|report|export|certify) ([^`\n]*)", line):
            known = {option for parameter in verbs[verb].params for option in parameter.opts}
            for option in re.findall(r"(?<!\S)(--?[a-zA-Z][\w-]*)", rest):
                assert option in known, f"{page}: {line}"
