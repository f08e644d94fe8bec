"""What a bar says while work runs, and what it leaves on the screen."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from isthmus.cli.app import run
from isthmus.cli.progress import Meter, _clock


def lines(done: int, terminal: bool, key: str = "pwws", figures: str = "fooled 3", width: int = 100) -> list[str]:
    stream = io.StringIO()
    meter = Meter(Console(file=stream, force_terminal=terminal, width=width, color_system=None))
    meter.start(key, 10)
    meter.update(done, figures)
    meter.stop()
    return [
        line for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())) if line.strip()
    ]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("done", [10, 4])
def test_the_last_line_says_what_the_time_is(done: int, terminal: bool) -> None:
    """Also of work that was interrupted, where a bar would otherwise end with a guess of what is left."""
    last = lines(done, terminal)[-1]
    assert f"{done}/10" in last
    assert re.search(r"\d elapsed" if terminal else r"\d s elapsed", last)
    assert "left" not in last


def test_nothing_is_cut_where_the_line_is_short() -> None:
    """Figures that do not fit behind the bar stand under it."""
    figures = "fooled 312  withstood 45  skipped 120  timed out 3  errors 2  1,212,345 queries"
    for width in (80, 60):
        found = lines(10, True, "deepwordbug@829db66c", figures, width)
        assert max(map(len, found)) <= width
        assert "…" not in "".join(found)
        last = " ".join(" ".join(found).rpartition("deepwordbug")[2].split())
        assert last.startswith("@829db66c ")
        assert "10/10 0:00 elapsed" in last
        assert last.endswith(figures.replace("  ", " "))
    assert re.search("10/10 0:00 elapsed +fooled 3", lines(10, True)[-1])


def test_times_are_short() -> None:
    assert [_clock(each) for each in (None, 0.4, 59.6, 3599, 3661)] == ["0:00", "0:00", "1:00", "59:59", "1:01:01"]


def test_the_other_spelling_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "defenses"]) == 0
    assert "freelb" in capsys.readouterr().out
    assert run(["train", "--data", "rotten_tomatoes", "--defense", "freelbb"]) == 2
    assert "'freelb'" in capsys.readouterr().err
