"""Numbers as text; a dash if there is no number."""

from __future__ import annotations

import math

from isthmus.core.statistics import Interval


def percent(value: float | None) -> str:
    """``83.0 %``."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def bare_percent(value: float) -> str:
    """``83.0``."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def percent_bounds(interval: Interval, unit: bool = True) -> str:
    """``77.2 – 87.6 %``, or ``77.2–87.6`` without the unit."""
    if math.isnan(interval.estimate):
        return ""
    low, high = (f"{100 * bound:.1f}".replace("100.0", "100") for bound in (interval.low, interval.high))
    return f"{low} – {high} %" if unit else f"{low}–{high}"


def decimal(value: float) -> str:
    """``41.3``; no decimals from a hundred on."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}"


def short_bounds(interval: Interval) -> str:
    """``38.0–44.9``, or ``1.2k–1.4k`` from a thousand on."""
    return "" if math.isnan(interval.estimate) else f"{_shorten_number(interval.low)}–{_shorten_number(interval.high)}"


def _shorten_number(value: float) -> str:
    if value < 999.5:
        return decimal(value)
    return f"{value / 1e3:.1f}k" if value < 99_950 else f"{value / 1e3:.0f}k"


def two(value: float) -> str:
    """``0.93``."""
    return "–" if math.isnan(value) else f"{value:.2f}"


def two_bounds(interval: Interval) -> str:
    """``.91–.95``; a cosine is seldom negative."""
    if math.isnan(interval.estimate):
        return ""
    return "–".join(f"{bound:.2f}".replace("0.", ".", 1) for bound in (interval.low, interval.high))


def three_bounds(interval: Interval) -> str:
    """``.012–.034``."""
    if math.isnan(interval.estimate):
        return ""
    return "–".join(f"{bound:.3f}".removeprefix("0") for bound in (interval.low, interval.high))


def width(value: float) -> str:
    """A share as the CSS width of a bar."""
    return "0" if math.isnan(value) else f"{100 * value:.2f}%"


def three(value: float | None) -> str:
    """``0.934``."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"
