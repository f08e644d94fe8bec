"""Progress on stderr: a bar with running figures in a terminal, else a line every few seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import typer

from isthmus.cli.console import progress_console
from isthmus.core.errors import ExitCode
from isthmus.verbs.observer import Observer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, Task, TaskID

    from isthmus.assets import FetchProgress as AssetProgress
    from isthmus.verbs.observer import RowResult

_LINE_EVERY_S = 10.0
_BAR_WIDTH = 20


class Meter:
    """Progress of one piece of work."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._title, self._total, self._done = "", 0.0, 0.0
        self._printed = self._began = 0.0

    def start(self, title: str, total: float, done: float = 0.0) -> None:
        """Start showing `title`, of which `done` is already finished."""
        self.stop()
        self._title, self._total, self._done = title, total, done
        self._printed = self._began = time.monotonic()
        if self.console.is_terminal:
            self._bar = _bar(self.console)
            self._task = self._bar.add_task(title, total=total, completed=int(done), figures="", over=False)
            self._bar.start()
        else:
            self._line("")

    def update(self, done: float, figures: str = "") -> None:
        """Show how much is done and the figures so far."""
        self._done = done
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, figures=figures)
        elif time.monotonic() - self._printed > _LINE_EVERY_S:
            self._line(figures)

    def stop(self, figures: str = "") -> None:
        """Stop; the last state stays on the screen."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, over=True)
            if figures:
                self._bar.update(self._task, figures=figures)
            self._bar.stop()
            self._bar = self._task = None
        elif self._title:
            self._line(figures, over=True)
        self._title = ""

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        from isthmus.report.marks import visible

        self.console.print(Text(visible(message), style="dim"), soft_wrap=True)

    def _line(self, figures: str, over: bool = False) -> None:
        from rich.text import Text

        self._printed = time.monotonic()
        share = f"{self._done:,.0f}/{self._total:,.0f}" if self._total else ""
        seconds = f"{self._printed - self._began:.0f} s{' elapsed' if over else ''}"
        self.console.print(
            Text("  ".join(part for part in (self._title, share, seconds, figures) if part)), soft_wrap=True
        )


def _bar(console: Console) -> Progress:
    from rich.padding import Padding
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column, Table
    from rich.text import Text

    class Time(ProgressColumn):
        """Time left while it runs, time elapsed at the end."""

        def render(self, task: Task) -> Text:
            """The time, labelled as left or elapsed."""
            return Text(_describe_time(task))

    class BarWithFigures(Progress):
        """A bar whose figures stand behind it, or under it where the line is too short for both."""

        def get_renderables(self) -> Iterator[RenderableType]:
            """The bar, and its figures."""
            for task in self.tasks:
                bar = self.make_tasks_table([task])
                figures = Text(str(task.fields["figures"]), style="dim", overflow="fold")
                done = f"{task.completed:.0f}/{task.total or 0:.0f}"
                gaps = 4
                taken = len(task.description) + _BAR_WIDTH + len(done) + len(_describe_time(task)) + gaps
                if taken + figures.cell_len <= self.console.width:
                    line = Table.grid(padding=(0, 1))
                    line.add_row(bar, figures)
                    yield line
                else:
                    yield bar
                    yield Padding(figures, (0, 0, 0, 2))

    return BarWithFigures(
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
        BarColumn(bar_width=_BAR_WIDTH),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        Time(table_column=Column(no_wrap=True)),
        console=console,
        refresh_per_second=5,
    )


def _describe_time(task: Task) -> str:
    """Time left while it runs, time elapsed at the end."""
    if task.finished or task.fields.get("over"):
        taken = task.finished_time if task.finished else task.elapsed
        return f"{_clock(taken)} elapsed"
    return "" if task.time_remaining is None else f"{_clock(task.time_remaining)} left"


def _clock(seconds: float | None) -> str:
    """Minutes and seconds, and hours if any."""
    minutes, rest = divmod(round(seconds or 0.0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class TrainingBar:
    """Progress of training, with its latest figures."""

    def __init__(self, quiet: bool) -> None:
        self.meter = Meter(progress_console(quiet))
        self._title = ""
        self._figures: dict[str, float] = {}

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        """Called after a training step."""
        if self._title != "training":
            self._title = "training"
            self.meter.start(self._title, total, max(step - 1, 0))
        self._figures |= metrics
        self.meter.update(step, self._describe())

    def on_work(self, title: str, done: int, total: int, figures: str) -> None:
        """Called when part of the work that training waits for is done, such as an attack on the model."""
        if self._title != title:
            self.meter.stop(self._describe() if self._title == "training" else "")
            self._title = title
            self.meter.start(title, total)
        self.meter.update(done, figures)
        if done >= total:
            self.meter.stop(figures)
            self._title = ""

    def on_note(self, message: str) -> None:
        """Called with a note for the user."""
        self.meter.note(message)

    def close(self) -> None:
        """Called when training ends."""
        if self._title:
            self.meter.stop(self._describe() if self._title == "training" else "")

    def _describe(self) -> str:
        parts = []
        if "loss" in self._figures:
            parts.append(f"loss {self._figures['loss']:.3f}")
        if "dev_accuracy" in self._figures:
            parts.append(f"dev {100 * self._figures['dev_accuracy']:.1f} %")
        if "dev_f1" in self._figures:
            parts.append(f"dev F1 {100 * self._figures['dev_f1']:.1f} %")
        return "  ".join(parts)


class RowsBar(Observer):
    """Progress example by example, with the outcomes so far."""

    words: ClassVar[Mapping[str, str]]
    """Shown names of outcomes; outcomes that did not occur are left out."""
    always: ClassVar[Sequence[str]]
    """Outcomes that are always shown."""

    def __init__(self, quiet: bool) -> None:
        self.meter = Meter(progress_console(quiet))
        self._counts: dict[str, int] = {}

    def note(self, message: str) -> None:
        """Called with a note for the user."""
        self.meter.note(message)

    def begin(self, key: str, total: int, results: Sequence[RowResult]) -> None:
        """Called when the work starts, or resumes after `results`."""
        self._counts = {}
        for result in results:
            self._count(result)
        if results:
            self.meter.note(f"{key}: resuming after {len(results)} of {total} examples")
        self.meter.start(key, total, len(results))

    def result(self, key: str, result: RowResult) -> None:
        """Called when an example is finished."""
        del key
        self._count(result)
        self.meter.update(sum(self._counts.values()), self._figures())

    def queries(self, key: str, count: int) -> None:
        """Called with the number of model queries so far."""
        del key
        self.meter.update(sum(self._counts.values()), f"{self._figures()}  {count:,} queries")

    def end(self, key: str) -> None:
        """Called when the work is finished."""
        del key
        self.meter.stop(self._figures())

    def _count(self, result: RowResult) -> None:
        self._counts[result.outcome] = self._counts.get(result.outcome, 0) + 1

    def _figures(self) -> str:
        # Counts, not rates: what falls quickly ends first, so a rate of what has ended would mislead.
        shown = [
            (word, self._counts.get(key, 0))
            for key, word in self.words.items()
            if key in self._counts or key in self.always
        ]
        return "  ".join(f"{word} {count}" for word, count in shown)


class AttackBar(RowsBar):
    """Progress of an attack."""

    words: ClassVar[Mapping[str, str]] = {
        "succeeded": "fooled",
        "failed": "withstood",
        "skipped": "skipped",
        "timed_out": "timed out",
        "error": "errors",
        "abstained": "abstained",
    }
    always = ("succeeded", "failed")


class CertifyBar(RowsBar):
    """Progress of a certificate."""

    words: ClassVar[Mapping[str, str]] = {
        "certified": "certified",
        "abstained": "abstained",
        "wrong": "wrong",
        "error": "errors",
    }
    always = ("certified", "abstained")


class EvaluateBar(RowsBar):
    """Progress of an evaluation."""

    words: ClassVar[Mapping[str, str]] = {"right": "right", "wrong": "wrong", "error": "errors"}
    always = ("right", "wrong")


@contextlib.contextmanager
def show_rows(bar: RowsBar, quiet: bool) -> Iterator[None]:
    """Show work whose finished examples are kept: an interruption is not an error."""
    try:
        with fetching(quiet):
            yield
    except KeyboardInterrupt:
        bar.meter.stop()
        bar.meter.note("interrupted: finished examples are kept; the same command resumes")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        bar.meter.stop()


class MeasureBar:
    """Progress of a measure."""

    def __init__(self, quiet: bool) -> None:
        self.meter = Meter(progress_console(quiet))
        self._title: str | None = None

    def step(self, title: str, done: int, total: int) -> None:
        """Called when part of `title` is done."""
        if title != self._title:
            self.meter.start(title, total)
            self._title = title
        self.meter.update(done)

    def close(self) -> None:
        """Called when all measures are done."""
        self.meter.stop()


@contextlib.contextmanager
def fetching(quiet: bool) -> Iterator[None]:
    """Inside, downloads of assets show their progress."""
    from isthmus import assets

    meter = Meter(progress_console(quiet))
    with assets.reporting(_asset_reporter(meter)):
        try:
            yield
        finally:
            meter.stop()


def _asset_reporter(meter: Meter) -> Callable[[AssetProgress], None]:
    showing: list[str] = []

    def report(progress: AssetProgress) -> None:
        title = f"{progress.stage} {progress.asset}"
        # Checking a file again takes a moment and is no news; a bar that flashes by would be.
        if progress.stage == "checking":
            return
        if showing != [title]:
            showing[:] = [title]
            meter.start(title, progress.total / 1e6, 0)
        meter.update(progress.done / 1e6, "MB")

    return report
