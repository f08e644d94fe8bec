"""Explained texts as a figure: coloured words, originals and attacked texts, models side by side.

Words keep their places as a reader would set them: lines are broken at the width of a column, measured in the figure's
own type face.
"""

from __future__ import annotations

import io
import itertools
import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.core.errors import MissingExtra, UsageError
from isthmus.core.files import write_atomic
from isthmus.core.visible import visible
from isthmus.explanations.parts.display import find_changed_words
from isthmus.report import figures
from isthmus.report.explanation.view import largest_weight
from isthmus.report.measure import figure as plots
from isthmus.report.numerals import percent
from isthmus.runs.explained import Explained, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isthmus.explanations.base import Explanation

_SIZE, _LINE = 9.5, 15.0  # points: of the type, and from one line to the next
_WIDTH, _MARGIN, _GUTTER = 72 * figures.WIDTH, 10.0, 22.0
_FOR, _AGAINST = (31, 119, 180), (230, 126, 34)
_LONGEST = 60
"""Words of a text that a figure shows."""
_MOST = 12
"""Texts that a figure shows."""
_CLASSES = 6
"""Classes of a text that a figure shows, the most likely."""
_HIGHEST = 14_000.0
"""Points from top to bottom: no PNG can be more than twice as high. Texts that do not fit are left to the page."""


class _Word(NamedTuple):
    x: float
    line: int
    width: float
    text: str
    strength: float
    """From -1 to 1."""
    changed: bool


class _Block(NamedTuple):
    """A heading and the words below it."""

    heading: str
    words: list[_Word]
    lines: int


def save(explained: Sequence[Explained], title: str, paths: Sequence[Path]) -> list[Path]:
    """Draw the first texts into files whose names end in .svg or .png."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "figures of explanations") from None
    for path in paths:
        check_path(path)
    colours = plots.light()
    style = {key: colours.get(value, value) if isinstance(value, str) else value
             for key, value in figures.style(f"explained {title}").items()}  # fmt: skip
    style["svg.fonttype"] = "path"  # In another type face the words would not fit their grounds.
    with mpl.rc_context(style), warnings.catch_warnings():
        # What the type face has no sign for is drawn as a box; the page shows it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        texts = _that_fit([_make_columns(each) for each in explained[:_MOST]])
        shown = explained[: len(texts)]
        height = 2 * _MARGIN + 2 * _LINE + sum(_height(columns) + 2.2 * _LINE for columns in texts)
        paper = colours[plots._PAPER]
        figure = Figure(figsize=(_WIDTH / 72, height / 72), facecolor=paper)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, _WIDTH)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        _draw(axes, shown, texts, title, colours)
        for path in paths:
            buffer = io.BytesIO()
            metadata: Any = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
            figure.savefig(buffer, format=path.suffix[1:], dpi=160, metadata=metadata, facecolor=paper)
            write_atomic(path, buffer.getvalue())
    return list(paths)


def check_path(path: Path) -> None:
    """Refuse a file name whose extension is not a figure format."""
    if path.suffix not in (".svg", ".png"):
        raise UsageError(f"a figure must be .svg or .png, not {path.name!r}")


def _that_fit(texts: list[list[list[_Block]]]) -> list[list[list[_Block]]]:
    """The first texts that fit into a figure, at least one."""
    ends = list(itertools.accumulate(_height(columns) + 2.2 * _LINE for columns in texts))
    return texts[: max(1, sum(end <= _HIGHEST for end in ends))]


def _draw(
    axes: Axes,
    shown: Sequence[Explained],
    texts: Sequence[list[list[_Block]]],
    title: str,
    colours: dict[str, str],
) -> None:
    ink, muted = colours[figures.INK], colours[figures.MUTED]
    y = _MARGIN + _LINE
    axes.text(_MARGIN, y, visible(title), fontsize=10.5, color=ink)
    y += _LINE
    for each, columns in zip(shown, texts, strict=True):
        truth = f"   truly {each.truth}" if each.truth is not None else ""
        axes.text(_MARGIN, y, visible(f"{each.title}{truth}"), fontsize=8.5, color=muted)
        y += _LINE
        for number, blocks in enumerate(columns):
            left, top = _MARGIN + number * (_column_width(len(columns)) + _GUTTER), y
            for block in blocks:
                axes.text(left, top, block.heading, fontsize=8.5, color=muted)
                for word in block.words:
                    _draw_word(axes, left + word.x, top + (1 + word.line) * _LINE, word, ink)
                top += (block.lines + 1.5) * _LINE
        y += _height(columns) + 1.2 * _LINE


def _draw_word(axes: Axes, x: float, y: float, word: _Word, ink: str) -> None:
    from matplotlib.patches import Rectangle

    if abs(word.strength) >= 0.03:
        red, green, blue = (part / 255 for part in (_FOR if word.strength > 0 else _AGAINST))
        box = (x - 1.0, y - 0.85 * _SIZE), word.width + 2.0, 1.2 * _SIZE
        axes.add_patch(Rectangle(*box, facecolor=(red, green, blue, 0.65 * abs(word.strength)), linewidth=0))
    axes.text(x, y, word.text, fontsize=_SIZE, color=ink)
    if word.changed:
        axes.plot([x, x + word.width], [y + 2.6, y + 2.6], color=ink, linewidth=0.9)


def _height(columns: Sequence[Sequence[_Block]]) -> float:
    return max(sum((block.lines + 1.5) * _LINE for block in blocks) for blocks in columns)


def _column_width(columns: int) -> float:
    return (_WIDTH - 2 * _MARGIN - (columns - 1) * _GUTTER) / columns


def _make_columns(each: Explained) -> list[list[_Block]]:
    """One column per model; for a single model, the original and the attacked text."""
    alone = len(each.readings) == 1
    count = len(each.readings[0].sides) if alone else len(each.readings)
    width = _column_width(count)
    if alone:
        return [list(side) for side in _sides(each.readings[0], width, "")]
    return [
        [block for side in _sides(reading, width, f"{reading.model}   ") for block in side] for reading in each.readings
    ]


def _sides(reading: Reading, width: float, name: str) -> Iterator[list[_Block]]:
    """The text, then the attacked text, each with one block per class."""
    changed: tuple[Collection[int], ...] = ((), ())
    if reading.attacked is not None:
        changed = (), find_changed_words(reading.original, reading.attacked)[1]
    for (side, found), places in zip(reading.sides, changed, strict=False):
        blocks = []
        for row in _rows_to_show(found):
            label = found.classes[row]
            own = " (predicted)" if label == found.prediction else ""
            said = f"{found.labels[label]} {percent(found.scores[label])}{own}"
            heading = visible(f"{name}{side}   {said}".strip())
            blocks.append(_Block(heading, *_set(found, row, width, places)))
        yield blocks


def _rows_to_show(found: Explanation) -> list[int]:
    """The rows of weights that are shown, in their order."""
    rows = sorted(range(len(found.classes)), key=lambda row: -found.scores[found.classes[row]])
    return sorted(rows[:_CLASSES])


def _set(found: Explanation, row: int, width: float, changed: Collection[int]) -> tuple[list[_Word], int]:
    """Place the words, and count the lines."""
    largest = largest_weight(found, row)
    placed: list[_Word] = []
    x, line, place = 0.0, 0, -1
    for piece, weight in found.pieces(row):
        place += weight is not None
        if place >= _LONGEST:
            placed.append(_Word(x, line, 0.0, "…", 0.0, False))
            break
        text = " ".join(visible(piece).split("\n"))
        if weight is None and not text.strip():
            x += _advance(" ") if x else 0.0
            continue
        text = _shorten(text, width)
        wide = _advance(text)
        if x + wide > width and x:
            x, line, text = 0.0, line + 1, text.lstrip()
        strength = weight / largest if weight is not None and largest and math.isfinite(weight) else 0.0
        placed.append(_Word(x, line, wide, text, strength, weight is not None and place in changed))
        x += wide
    return placed, line + 1


def _shorten(text: str, width: float) -> str:
    """The beginning of a text that is too long for a line."""
    if (wide := _advance(text)) <= width:
        return text
    kept = text[: int(len(text) * width / wide)]
    while kept and _advance(f"{kept}…") > width:
        kept = kept[:-1]
    return f"{kept}…"


def _advance(text: str) -> float:
    """Width of a text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    found: float = text_to_path.get_text_width_height_descent(text, FontProperties(size=_SIZE), False)[0]
    return found
