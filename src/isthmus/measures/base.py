"""The base class of measures: parameters, one method on a `Subject`, and a `Measurement` of named figures.

    measure(subject) -> Measurement(figures, plots, texts, notes)

A measure knows nothing of folders or of how results are shown. It gets the model, the data and what is known of the
training from the subject, which loads each only when it is asked for, and returns numbers with the intervals they
deserve, curves for whoever draws them, and sentences cut into marked pieces for whoever prints them.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.core.statistics import Interval

if TYPE_CHECKING:
    from isthmus.core.types import Bools, Texts
    from isthmus.data import Dataset, Splits
    from isthmus.models import Classifier

SourceName = Literal["model", "data", "log", "snapshots", "attacks", "evaluations"]
"""What a measure may read of a run; when it changes, the measurement is taken again."""

Option = Literal["n", "splits", "seed", "every_epoch", "texts", "against"]
"""What may be asked of a measure."""


@dataclass(frozen=True)
class Figure:
    """One number of a measurement, with the bounds of its interval if it is an estimate over examples."""

    name: str
    """What it is, with its unit where that is not obvious: ``rate (bits)``."""
    estimate: float
    low: float | None = None
    high: float | None = None
    of: str = ""
    """What it was measured on: a split, a data set, a run; the column of the table."""
    share: bool = False
    """Whether it is shown as a percentage."""

    @classmethod
    def from_interval(cls, name: str, interval: Interval, of: str = "", *, share: bool = False) -> Self:
        """An estimate and its interval."""
        return cls(name, interval.estimate, interval.low, interval.high, of, share)


@dataclass(frozen=True)
class Series:
    """Points of a plot, in order."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_bounds: tuple[tuple[float, float], ...] = ()
    """Low and high of every point along x; empty where it has none."""
    y_bounds: tuple[tuple[float, float], ...] = ()
    labels: tuple[str, ...] = ()
    """A few words at every point."""
    small: bool = False
    """Of points: what the series before it was pooled from, drawn small in its colour."""
    reference: bool = False
    """Whether it is what the series of the same place among the others is checked against: dashed, in its colour."""


@dataclass(frozen=True)
class Panel:
    """A small image with a line above it."""

    title: str
    pixels: tuple[tuple[tuple[int, ...], ...], ...]
    """[height][width][1 or 3], 0 to 255."""


@dataclass(frozen=True)
class Plot:
    """A plot as axes and series, without colours."""

    name: str
    """Name of the file."""
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: Literal["line", "path", "points", "bars", "scatter", "images"] = "line"
    """``path`` colours the points by their order and names it by `order_label`; ``bars`` draws one group per x;
    ``scatter`` joins no points, and draws series that are a `reference` as dashed lines; ``images`` has `panels`."""
    order_label: str = ""
    caption: str = ""
    percent: str = ""
    """Which axes are shares: ``x``, ``y`` or ``xy``."""
    log: str = ""
    """Which axes are logarithmic: ``x``, ``y`` or ``xy``; around zero they are linear where there are such values."""
    diagonal: bool = False
    """Whether to draw the line y = x."""
    ticks: tuple[str, ...] = ()
    """Names at x = 0, 1, 2, … where x is not a number."""
    panels: tuple[tuple[Panel, ...], ...] = ()
    """Images that belong together, one example after the other; all have as many."""


@dataclass(frozen=True)
class MarkedText:
    """A text cut into pieces, each of a kind that the legend explains; pieces without a kind are plain."""

    title: str
    pieces: tuple[tuple[str, str], ...]
    """(text, kind) in reading order; the texts together are the whole."""


@dataclass(frozen=True)
class Measurement:
    """The result of a measure."""

    figures: tuple[Figure, ...] = ()
    plots: tuple[Plot, ...] = ()
    texts: tuple[MarkedText, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict)
    """What each kind of piece means."""
    notes: tuple[str, ...] = ()
    """What a reader must know before trusting the figures."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Anything else that is JSON: rows of a table, sizes, seeds."""

    def figure(self, name: str, of: str | None = None) -> Figure:
        """The figure called `name`; `of` selects one if there are several."""
        for each in self.figures:
            if each.name == name and of in (None, each.of):
                return each
        known = ", ".join(sorted({f"{each.name} of {each.of}" if each.of else each.name for each in self.figures}))
        raise KeyError(f"no figure {name!r} of {of!r}; there are: {known}")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; NaN becomes null."""
        found = {entry.name: _to_json(getattr(self, entry.name)) for entry in dataclasses.fields(self)}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a dictionary that `to_json` made; keys of a newer version are ignored."""
        return cls(
            figures=tuple(Figure(**_select_known(Figure, each)) for each in value.get("figures") or ()),
            plots=tuple(_read_plot(each) for each in value.get("plots") or ()),
            texts=tuple(MarkedText(**_select_known(MarkedText, each)) for each in value.get("texts") or ()),
            legend={str(key): str(text) for key, text in (value.get("legend") or {}).items()},
            notes=tuple(str(note) for note in value.get("notes") or ()),
            details=dict(value.get("details") or {}),
        )


def _read_plot(value: Mapping[str, Any]) -> Plot:
    parts = {
        "series": tuple(_read_series(part) for part in value.get("series") or ()),
        "panels": tuple(
            tuple(Panel(**_select_known(Panel, each)) for each in row) for row in value.get("panels") or ()
        ),
    }
    return Plot(**{**_select_known(Plot, value), **parts})


def _read_series(value: Mapping[str, Any]) -> Series:
    return Series(**_select_known(Series, value))


def _select_known(kind: type[Any], value: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"estimate": math.nan}
    names = {entry.name for entry in dataclasses.fields(kind)}
    return {key: _tuples(numbers.get(key) if part is None else part) for key, part in value.items() if key in names}


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(math.nan if part is None else _tuples(part) for part in value)
    return value


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _to_json(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


@dataclass(frozen=True, eq=False)
class Robustness:
    """The examples that a model classifies correctly, clean and under an attack or on adversarial texts."""

    name: str
    """The attack or the evaluation."""
    robust: Bools
    clean: Bools | None = None
    """Of the same examples unattacked; None where these are not known."""


@dataclass(frozen=True)
class AdversarialTexts:
    """Adversarial texts, with their originals if known."""

    name: str
    adversarial: Dataset
    benign: Dataset | None
    """The same examples unattacked, in the same order."""


@dataclass(frozen=True)
class TextPair:
    """A text and its adversarial version."""

    id: str
    label: int
    """The true class, numbered as the model's are."""
    outcome: Literal["succeeded", "failed"]
    original: Texts
    perturbed: Texts


@dataclass(frozen=True)
class TextPairs:
    """The texts of an attack, by outcome."""

    name: str
    pairs: tuple[TextPair, ...]
    skipped: int = 0
    """Texts that were wrong from the start, and so not attacked."""


@dataclass(frozen=True)
class Facts:
    """Facts about the training of a model."""

    defence: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    log: Sequence[Mapping[str, Any]] = ()
    """Rows of the training log."""


@dataclass(frozen=True)
class Asked:
    """The requested examples and options; None leaves a choice to the measure."""

    n: int | None = None
    """Examples of each split."""
    splits: tuple[str, ...] = ()
    seed: int = 0
    """Of samples, fits and draws."""
    every_epoch: bool = False
    """Whether to measure every snapshot of the training, and not only the model."""
    texts: tuple[str, ...] = ()
    """Sentences to look at, in place of the data's."""

    def non_defaults(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in dataclasses.fields(self)
            if getattr(self, entry.name) != entry.default
        }


Step = Callable[[str, int, int], None]
"""Told what is being done, and how far it is."""


def _no_model() -> Any:
    raise UsageError("no model to measure: pass `model`, or the folder of a finished training")


def _no_data() -> Any:
    raise UsageError("no data to measure on: pass `data`")


def _no_attack(name: str | None) -> Any:
    raise UsageError("there is no attack to read: attack the model first, or name a file of adversarial texts")


@dataclass(eq=False)
class Subject:
    """The run to measure. Model and data are loaded on first use."""

    name: str
    load_model: Callable[[], Classifier] = _no_model
    load_splits: Callable[[], Splits] = _no_data
    facts: Facts = field(default_factory=Facts)
    asked: Asked = field(default_factory=Asked)
    snapshots: Mapping[int, Callable[[Classifier], None]] = field(default_factory=dict)
    """For every epoch that was kept, what puts its weights into the model."""
    adversarial: Callable[[str | None], AdversarialTexts] = _no_attack
    """Adversarial texts by the name of an attack or of a file; None takes the first attack there is."""
    pairs: Callable[[str | None], TextPairs] = _no_attack
    """The same with the texts of attacks that failed, as far as those got."""
    robustness: Callable[[str | None], Robustness] = _no_attack
    """The outcome of an attack or an evaluation, by name."""
    substitutions: Callable[[], Mapping[str, int]] = dict
    """How often attacks on the model replaced each word, over all texts they looked at."""
    others: tuple[Subject, ...] = ()
    """Further runs, for a measure that compares."""
    step: Step = lambda _title, _done, _total: None

    @classmethod
    def of(cls, model: Classifier, splits: Splits, asked: Asked | None = None, name: str = "model") -> Self:
        """Make a subject of a model and data in memory."""
        return cls(name, lambda: model, lambda: splits, asked=asked or Asked())

    @cached_property
    def model(self) -> Classifier:
        """The classifier, in evaluation mode."""
        model = self.load_model()
        if not hasattr(model, "eval"):
            raise UsageError(
                f"a model of type {type(model).__name__} cannot be measured: pass a run folder, or a classifier "
                "(isthmus.load_model)"
            )
        return model.eval()

    @cached_property
    def splits(self) -> Splits:
        """Every split of the data."""
        return self.load_splits()

    def split_names(self, default: Sequence[str] = ("train", "dev", "test")) -> tuple[str, ...]:
        """Names of the requested splits, or of those in `default` that exist."""
        if self.asked.splits:
            return tuple(self.splits.find_split(split).split for split in self.asked.splits)
        found = tuple(split for split in default if split in self.splits)
        return found or (self.splits.evaluation().split,)

    def sample(self, split: str, default: int | None = None, *, size: int | None = None) -> Dataset:
        """The first n examples of a split's seeded stratified order, with labels in the model's order.

        n is `size`, else what was asked for, else `default`; None takes them all.
        """
        n = next((count for count in (size, self.asked.n, default) if count is not None), None)
        data = self.splits.find_split(split).sample(n, self.asked.seed)
        return data.align_labels(self.model.labels) if data.labels else data

    def epochs(self) -> tuple[int, ...]:
        """The epochs whose weights were saved; an error says how to save them if there are none."""
        if not self.snapshots:
            raise UsageError(
                f"{self.name} kept no weights of single epochs: train it with -S snapshots=true to measure every epoch"
            )
        return tuple(sorted(self.snapshots))


@dataclass(frozen=True)
class Measure(ABC):
    """Base class of all measures: a frozen dataclass of parameters with one method to write."""

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed")
    """What it heeds of what is asked; the rest is kept from it, so that it changes no result."""
    compares: ClassVar[bool] = False
    """Whether it looks at all runs given at once; else each is measured by itself."""

    @final
    @property
    def name(self) -> str:
        """The name `isthmus list measures` shows: the file's name, or the class's for a class of your own."""
        return catalog.name_of(self, "measures")

    @final
    def heeds(self, option: Option) -> bool:
        """Whether an option affects this measure; a measure that compares takes one more run in any case."""
        return option in self.takes or (self.compares and option == "against")

    @abstractmethod
    def measure(self, subject: Subject) -> Measurement:
        """Measure the subject."""

    @final
    def __call__(self, model: Classifier, data: Splits, /, **asked: Any) -> Measurement:
        """Measure a model on data in memory; `asked` are the fields of `Asked`."""
        return self.measure(Subject.of(model, data, Asked(**asked)))
