"""Output: results on stdout, everything else on stderr, and one JSON object last if asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def results(as_json: bool, quiet: bool = False) -> Console:
    """The console for tables and texts: stdout, or stderr if stdout is reserved for the JSON object."""
    from rich.console import Console

    return _spelling(Console(stderr=as_json, quiet=quiet and as_json, highlight=False, soft_wrap=False))


def progress_console(quiet: bool) -> Console:
    """The console for progress and notes: stderr."""
    from rich.console import Console

    return _spelling(Console(stderr=True, quiet=quiet, highlight=False))


def _spelling(console: Console) -> Console:
    """The console with control characters escaped: names and texts come from other people."""
    from rich.console import ConsoleOptions, RenderableType, RenderHook
    from rich.segment import Segment

    from isthmus.report.marks import visible

    class Spelled:
        def __init__(self, inside: RenderableType) -> None:
            self.inside = inside

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
            for segment in console.render(self.inside, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Spelled(each) for each in renderables]

    console.push_render_hook(Hook())
    return console


def to_stderr(message: str) -> None:
    """Print one message, not wrapped, with control characters escaped."""
    from isthmus.report.marks import visible

    sys.stdout.flush()
    print(visible(message), file=sys.stderr, flush=True)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object as one line on stdout."""
    line = json.dumps(value, ensure_ascii=True, allow_nan=False)
    print(line, flush=True)
