"""How fast a model answers, and what reading costs it. Clock times: they stand in the header, beside the effort, and
decide nothing.

    p50, p95           seconds until one text, asked alone, is answered
    texts per second   in batches as full as the sample allows, the median of several rounds
    passes per text    forward passes of the network in such a round, a gradient counted as one more; where it is known
    second step        share of the texts that a model with two steps did not settle in the first
    cost of 1,000      price of an hour / 3600 · 1000 / texts per second

A quantile has the interval of its order statistics, a rate of texts the range of its rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isthmus.core.errors import RunError
from isthmus.core.statistics import Interval, quantile, wilson

TEXTS = 50
"""Texts that are asked one by one."""
_WARM_UP, _FEWEST, _SECONDS = 3, 10, 10.0
_ROUNDS = 3
_MOST = {"cpu": 256, "cuda": 4096}
"""Texts of a round."""

AskModel = Callable[[Sequence[int]], object]
"""Answers the texts at these places of a sample, and has them when it returns."""


@dataclass(frozen=True)
class Speed:
    """The measured times."""

    p50: Interval
    p95: Interval
    single: int
    texts_per_second: Interval
    batch: int
    passes: float | None = None
    second: Interval | None = None

    def to_json(self) -> dict[str, Any]:
        """Seconds and rates; null for NaN and infinity."""
        return {
            "p50_s": _figure(self.p50),
            "p95_s": _figure(self.p95),
            "single_texts": self.single,
            "texts_per_second": _figure(self.texts_per_second),
            "batch_texts": self.batch,
            "passes_per_text": None if self.passes is None else round(self.passes, 4),
            "second_step": None if self.second is None else _figure(self.second),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Speed:
        """Read the speed from a header."""
        passes, second = record.get("passes_per_text"), record.get("second_step")
        try:
            return cls(
                p50=_read_quantile(record.get("p50_s")),
                p95=_read_quantile(record.get("p95_s")),
                single=int(record.get("single_texts") or 0),
                texts_per_second=Interval.from_json(record.get("texts_per_second")),
                batch=int(record.get("batch_texts") or 0),
                passes=None if passes is None else float(passes),
                second=None if second is None else Interval.from_json(second),
            )
        except (TypeError, ValueError) as error:
            raise RunError(f"this is no record of a model's speed: {error}") from error

    def cost_of_thousand(self, price_per_hour: float | None) -> float | None:
        """Cost of 1,000 texts at a price per hour of the machine; None if speed or price is unknown."""
        rate = self.texts_per_second.estimate
        if not rate > 0 or price_per_hour is None:
            return None
        return price_per_hour / 3600 * 1000 / rate


def measure(ask: AskModel, texts: int, *, single: int, device: str = "cpu", model: Any = None) -> Speed:
    """Time up to `single` texts one by one, then many in one call; `model` counts its forward passes."""
    first = range(min(single, texts))
    for place in first[:_WARM_UP]:
        ask([place])
    alone: list[float] = []
    for place in first:
        alone.append(_seconds(ask, [place]))
        if len(alone) >= _FEWEST and sum(alone) > _SECONDS:
            break
    affordable = int(_SECONDS / (_ROUNDS + 1) / max(float(np.median(alone)), 1e-6))
    many = range(max(1, min(texts, _MOST.get(device, _MOST["cpu"]), max(16, affordable))))
    before = _count_passes(model)
    ask(many)
    passes, asked, second = (now - then for now, then in zip(_count_passes(model), before, strict=True))
    rates = [len(many) / _seconds(ask, many) for _ in range(_ROUNDS)]
    return Speed(
        p50=quantile(alone, 0.5),
        p95=quantile(alone, 0.95),
        single=len(alone),
        texts_per_second=Interval(float(np.median(rates)), min(rates), max(rates)),
        batch=len(many),
        passes=passes / len(many) if passes else None,
        second=wilson(second, asked) if asked else None,
    )


def _seconds(ask: AskModel, places: Sequence[int]) -> float:
    began = time.perf_counter()
    ask(places)
    return time.perf_counter() - began


def _count_passes(model: Any) -> tuple[int, int, int]:
    """Count passes, answers, and answers of the second step so far."""
    inner = next((each for each in _layers(model) if hasattr(each, "passes")), None)
    return tuple(int(getattr(inner, name, 0)) for name in ("passes", "asked", "second"))  # type: ignore[return-value]


def _layers(model: Any) -> list[Any]:
    """A victim and the victims or models that it calls."""
    return [model, getattr(model, "inner", None), getattr(model, "base", None)]


def _figure(interval: Interval) -> dict[str, float | None]:
    """An interval for a record, to four digits: a time may be microseconds or minutes."""
    return {name: _round_digits(getattr(interval, name)) for name in ("estimate", "low", "high")}


def _read_quantile(value: Any) -> Interval:
    """Read the interval of a quantile; a bound that is null is infinite: the sample was too small for it."""
    found = Interval.from_json(value)
    low = -math.inf if math.isnan(found.low) else found.low
    return replace(found, low=low, high=math.inf if math.isnan(found.high) else found.high)


def _round_digits(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
