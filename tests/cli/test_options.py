"""An option of an attack is declared once; command line, request and settings take it from there."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from typer.main import get_command

from isthmus.attacks.base import AttackSettings
from isthmus.attacks.options import AttackOptions, SearchOptions, flag
from isthmus.cli.app import app
from isthmus.core.errors import UsageError
from isthmus.verbs.attack.gradient import OF_WORDS
from isthmus.verbs.request import AttackRequest

FIELDS = {field.name: field for field in dataclasses.fields(AttackOptions)}
SHOWN: dict[str, Any] = {each.name: each for each in get_command(app).commands["attack"].params}  # type: ignore[attr-defined]
BOUNDS = [
    (name, wrong)
    for name, field in FIELDS.items()
    for bound, wrong in (
        (field.metadata["least"], (field.metadata["least"] or 0) - 1),
        (field.metadata["most"], (field.metadata["most"] or 0) + 1),
        (field.metadata["above"], field.metadata["above"]),
        (field.metadata["above"], float("nan")),
        (field.metadata["above"], float("inf")),
    )
    if bound is not None
]


@pytest.mark.parametrize("name", FIELDS)
def test_the_command_line_and_a_request_have_every_option_with_its_default(name: str) -> None:
    assert SHOWN[name].opts == [flag(name)]
    assert SHOWN[name].help == FIELDS[name].metadata["help"]
    assert SHOWN[name].default == FIELDS[name].default == getattr(AttackRequest("model", attacks=("pwws",)), name)
    assert (name in OF_WORDS) == FIELDS[name].metadata["of_words"]


def test_the_settings_of_python_have_the_options_of_a_search() -> None:
    assert AttackSettings(restarts=5, budget=7).values(SearchOptions) == {
        "budget": 7, "budget_per_word": None, "fresh": 20, "restarts": 5, "search_draws": None,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "wrong"), BOUNDS)
def test_a_value_out_of_bounds_is_refused_by_the_name_that_was_used(name: str, wrong: float) -> None:
    with pytest.raises(UsageError, match=f"^{flag(name)} must be .*, not {wrong}$"):
        AttackRequest("model", attacks=("pwws",), **{name: wrong})  # type: ignore[arg-type]
    if name in {field.name for field in dataclasses.fields(SearchOptions)}:
        with pytest.raises(UsageError, match=f"^{name} must be .*, not {wrong}$"):
            AttackSettings(**{name: wrong})  # type: ignore[arg-type]
