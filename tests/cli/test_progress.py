"""What a bar says while work runs, and what it leaves on the screen."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from isthmus.cli.app import run
from isthmus.cli.progress import Meter, _clock


def lines(done: int, terminal: bool) -> list[str]:
    stream = io.StringIO()
    meter = Meter(Console(file=stream, force_terminal=terminal, width=100, color_system=None))
    meter.start("pwws", 10)
    meter.update(done, "fooled 3")
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


def test_times_are_short() -> None:
    assert [_clock(each) for each in (None, 0.4, 59.6, 3599, 3661)] == ["0:00", "0:00", "1:00", "59:59", "1:01:01"]


def test_the_other_spelling_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "defenses"]) == 0
    assert "freelb" in capsys.readouterr().out
    assert run(["train", "--data", "rotten_tomatoes", "--defense", "freelbb"]) == 2
    assert "'freelb'" in capsys.readouterr().err
