"""Cells of the tables that benchmarks write from run folders."""

from __future__ import annotations

import re

from proof.tables import lost_share, over_seeds


def test_seeds_that_agree_have_no_interval_of_length_zero() -> None:
    assert over_seeds([0.05, 0.05, 0.05]) == "5.0 (3 seeds agree)"
    assert re.fullmatch(r"5\.0 ± 2\.5", over_seeds([0.04, 0.05, 0.06]))
    assert over_seeds([0.05, None]) == "5.0"


def test_the_share_of_a_gain_that_is_lost_has_an_interval() -> None:
    names = [str(place) for place in range(75)]
    ours = {name: place < 55 for place, name in enumerate(names)}
    without = {name: place < 18 for place, name in enumerate(names)}
    base = {name: place < 8 for place, name in enumerate(names)}
    found = re.fullmatch(r"79 \((\d+) to (\d+)\)", lost_share(ours, without, base))
    assert found is not None
    assert 60 < int(found[1]) < 79 < int(found[2]) < 95
    assert lost_share(base, base, base) == "-"
