from __future__ import annotations

import pytest

from isthmus.cli.gate import FAILED, INCONCLUSIVE, PASSED, Bar, verdict
from isthmus.core.statistics import wilson


@pytest.mark.parametrize(
    ("right", "n", "least", "code"),
    [
        (90, 100, 0.5, PASSED),
        (10, 100, 0.5, FAILED),
        (50, 100, 0.5, INCONCLUSIVE),
        (0, 100, 0.0, PASSED),
        (100, 100, 1.0, INCONCLUSIVE),
        (0, 0, 0.4, INCONCLUSIVE),
    ],
)
def test_the_interval_decides(right: int, n: int, least: float, code: int) -> None:
    assert verdict(wilson(right, n), least) == code


def test_several_rates_can_have_a_bar() -> None:
    assert Bar.parse("racc=0.40, sacc=0.85").least == {"racc": 0.4, "sacc": 0.85}
