"""Figures of a certificate, computed from its rows and from nothing else.

With N examples asked for, of which every one has a row:

    clean accuracy      right answers of the certified classifier / N
    certified(s)        examples whose right answer holds up to strength s / N
    empirical(s)        right answers that nothing within strength s, found by an attack, turned / N

certified(s) <= empirical(s) example by example, whatever the attack: a text that an attack found within the reach of an
example's certificate and that the certified classifier answers otherwise refutes it, which is a bug and not a result.
For a randomised classifier such a text refutes if the certified class is surely below one half; a bare majority of
draws against it may be chance. An abstention, an error and a wrong answer are never certified. Rates carry Wilson
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.certify.base import strength_of
from isthmus.core.statistics import Interval, wilson

Row = Mapping[str, Any]
Rows = Sequence[Row]


@dataclass(frozen=True)
class Level:
    """The rates at one strength."""

    strength: float
    certified: Interval
    empirical: Interval | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; an infinite strength is ``all``."""
        return {
            "strength": "all" if math.isinf(self.strength) else self.strength,
            "certified": self.certified.to_dict(),
            "empirical": None if self.empirical is None else self.empirical.to_dict(),
        }


@dataclass(frozen=True)
class CertificateSummary:
    """The figures of one certificate on one sample."""

    n: int
    clean: Interval
    abstained: int
    wrong: int
    errors: int
    nothing: int
    """Certified though there was nothing to substitute: protected words only, or none in the table."""
    levels: tuple[Level, ...]
    """From the clean text on."""
    challenged: int
    """Adversarial texts, and points of its own attack, that were held against it."""
    attacks: tuple[str, ...]
    """The attacks they come from."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "n": self.n,
            "clean": self.clean.to_dict(),
            "outcomes": {
                "certified": self.n - self.abstained - self.wrong - self.errors,
                "abstained": self.abstained,
                "wrong": self.wrong,
                "error": self.errors,
            },
            "nothing_to_substitute": self.nothing,
            "levels": [level.to_json() for level in self.levels],
            "challenged": self.challenged,
            "attacks": list(self.attacks),
        }


def is_certified(row: Row, strength: float) -> bool:
    """Whether the right answer is certified up to a strength."""
    return row["outcome"] == "certified" and strength_of(row) >= strength


def certified_at(rows: Rows, strength: float) -> Interval:
    """Certified accuracy at a strength."""
    return wilson(sum(is_certified(row, strength) for row in rows), len(rows))


def is_right(row: Row) -> bool:
    """Whether the certified classifier's answer is the label, certified or not."""
    return row.get("prediction") is not None and row["prediction"] == row["label"]


def is_fooled(challenge: Row) -> bool:
    """Whether the certified classifier answers a text otherwise; inside a certificate a bare majority may be chance."""
    return bool(challenge["refutes"]) or (challenge["prediction"] != challenge["certified"] and not challenge["inside"])


def summarise_certificate(
    rows: Rows, unit: str, challenges: Rows = (), attacks: Mapping[str, Iterable[str]] | None = None
) -> CertificateSummary:
    """The figures of `rows`; `attacks` says which examples each attack that counts has a row for."""
    certain = [row for row in rows if row["outcome"] == "certified"]
    return CertificateSummary(
        n=len(rows),
        clean=wilson(sum(map(is_right, rows)), len(rows)),
        abstained=sum(row["outcome"] == "abstained" for row in rows),
        wrong=sum(row["outcome"] == "wrong" for row in rows),
        errors=sum(row["outcome"] == "error" for row in rows),
        nothing=sum(row.get("substitutable") == 0 for row in certain) if unit == "words" else 0,
        levels=tuple(levels(rows, grid(rows, unit), challenges, attacks)),
        challenged=len(challenges),
        attacks=tuple(attacks or ()),
    )


def levels(
    rows: Rows, strengths: Sequence[float], challenges: Rows, attacks: Mapping[str, Iterable[str]] | None
) -> list[Level]:
    """The rates at each strength; the empirical one where every example was attacked within the threat model."""
    attacked = {key for found in (attacks or {}).values() for key in found}
    compared = bool(attacks) and {str(row["id"]) for row in rows} <= attacked
    turned: dict[str, float] = {}
    for challenge in challenges:
        if is_fooled(challenge):
            key = str(challenge["example"])
            turned[key] = min(turned.get(key, math.inf), float(challenge["needs"]))
    return [_level(rows, strength, turned if compared else None) for strength in strengths]


def _level(rows: Rows, strength: float, turned: Mapping[str, float] | None) -> Level:
    certified = certified_at(rows, strength)
    if turned is None:
        return Level(strength, certified, None)
    # Against all words every text that was found counts, however many words it took.
    held = [
        row for row in rows if is_right(row) and (str(row["id"]) not in turned or turned[str(row["id"])] > strength)
    ]
    return Level(strength, certified, wilson(len(held), len(rows)))


def grid(rows: Rows, unit: str) -> list[float]:
    """Strengths at which rates are given: a round step of radii, or numbers of words up to all of them."""
    found = [strength_of(row) for row in rows if row["outcome"] == "certified"]
    finite = [strength for strength in found if not math.isinf(strength)]
    if unit == "words":
        most = int(max(finite, default=0.0))
        shown = [0, 1, 2, 3, 4, 5, *range(10, 101, 5)]
        return [float(count) for count in shown if count <= max(1, most)] + [math.inf]
    longest = max(finite, default=0.0)
    if longest <= 0:
        return [0.0]
    step = _round_step(longest / 6)
    return [round(step * place, 10) for place in range(math.ceil(longest / step) + 1)]


def _round_step(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value)
