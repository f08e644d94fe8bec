"""Figures as inline SVG in the page's own colours, so that they follow its light and dark themes.

Matplotlib draws with stand-in colours; afterwards each is replaced by a CSS variable. Texts stay texts: they can be
selected and read aloud, and take the page's type face.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import MissingExtra
from isthmus.report.marks import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, RULE, CLEAN = "#010203", "#010204", "#010205", "#010206"
SERIES = tuple(f"#0102{index:02x}" for index in range(0x10, 0x16))
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    CLEAN: "var(--clean)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
}
WIDTH = 9.2  # inches; only the proportion to the type size counts, since the page scales the figure
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (8, 2)))


def percent_axis(axes: Axes, which: str, upto: float = 1.0) -> None:
    """Ticks and labels in percent, from 0 to 100 if `upto` is 1."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if upto == 1.0:
        axis.set_ticks([0, 0.25, 0.5, 0.75, 1.0])
        (axes.set_xlim if which == "x" else axes.set_ylim)(-0.015, 1.03)
    axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")


def spread(heights: Sequence[float], gap: float = 0.075) -> list[float]:
    """Move heights apart so that labels do not overlap, and not above the top."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = list(heights)
    for before, index in itertools.pairwise(order):
        placed[index] = max(placed[index], placed[before] + gap)
    top = 1.0 + gap / 2
    for index in reversed(order):
        placed[index] = min(placed[index], top)
        top = placed[index] - gap
    return placed


def series_colour(number: int) -> str:
    """The colour of a series by its number; after the last colour comes the first again."""
    return SERIES[number % len(SERIES)]


def interval_text(interval: Any) -> str:
    """An estimate and its interval, for readers who hear a figure."""
    return f"{interval.estimate:.1%} ({interval.low:.1%} to {interval.high:.1%})"


def style(name: str) -> dict[Any, Any]:
    """Matplotlib settings for the figure called `name`."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # the same page for the same run, and no two figures share an id
        "font.family": "sans-serif",
        "font.size": 9.5,
        "text.color": INK,
        "text.parse_math": False,  # a class may be called $pam
        "axes.labelcolor": MUTED,
        "axes.edgecolor": RULE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.labelpad": 7,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "grid.linewidth": 0.8,
    }


def inline_svg(name: str, description: str, draw: Callable[[Figure], None], height: float) -> str:
    """A figure as SVG for the page: `draw` fills it, and `description` is what a screen reader says."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "the report") from None
    with mpl.rc_context(style(name)):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _dress(buffer.getvalue(), description)


def _dress(svg: str, description: str) -> str:
    """Add the page's colours and font to a bare SVG, and a description for screen readers."""
    from html import escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for colour, variable in {**_VARIABLES, "#010207": "var(--paper)"}.items():
        body = body.replace(colour, variable)
    body = re.sub(r"font: (\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    # Of the ids that matplotlib gives to every group only those are kept that something refers to: the others are the
    # same in every figure of the page.
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', body))
    named = {name for pair in used for name in pair if name}
    body = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in named else "", body)
    # Class names and texts come from elsewhere: none may turn the page's reading direction, or be no XML.
    body = visible(body, everything=True)
    label = escape(visible(description, everything=True), quote=True)
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()
