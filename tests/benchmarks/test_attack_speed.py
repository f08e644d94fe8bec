"""The benchmark of attacks says which targets were missed."""

from __future__ import annotations

import pytest

from speed.record import Record
from speed.table import missed_targets


def records(ours: float, theirs: float | None = None) -> list[Record]:
    found = [Record("isthmus", "pwws", "fp32", 10, cpu_s=ours), Record("ideal", "pwws", "fp32", 10, cpu_s=9.0)]
    return found if theirs is None else [*found, Record("textattack", "pwws", "fp32", 10, cpu_s=theirs)]


@pytest.mark.parametrize(("ours", "theirs", "missed"), [
    (9.9, None, []),
    (10.1, None, ["89.1% of the ideal"]),
    (9.9, 20.0, []),
    (9.9, 5.0, ["TextAttack has 2.00"]),
    (18.0, 5.0, ["50.0% of the ideal", "TextAttack has 2.00"]),
])  # fmt: skip
def test_targets(ours: float, theirs: float | None, missed: list[str]) -> None:
    found = missed_targets("pwws", records(ours, theirs))
    assert len(found) == len(missed)
    assert all(part in line for part, line in zip(missed, found, strict=True))


def test_what_was_not_measured_is_missed() -> None:
    (line,) = missed_targets("pwws", [Record("isthmus", "pwws", notes={"failed": "exit 1"}), records(9.9)[1]])
    assert "not both measured" in line


def test_the_processor_is_named() -> None:
    assert Record("isthmus", "pwws").processor
