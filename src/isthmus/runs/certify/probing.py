"""A certificate attacked on its own ground: every example as far as it is certified, and step by step beyond.

    within    strength of the example's certificate           one answer otherwise is a contradiction
    beyond    every further strength at which rates are given, until the example is turned

So the accuracy under this attack is known at every strength, and lies above certified accuracy unless one of the two is
wrong. What was answered is kept in the journal of challenges, where the same command finds it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from isthmus.certificates.base import Probe, strength_of
from isthmus.runs.certificates import Row, Rows, grid, is_fooled, is_right
from isthmus.runs.certify.prepared import PreparedCertificate
from isthmus.runs.journal import Journal

if TYPE_CHECKING:
    from isthmus.certificates.base import Answer
    from isthmus.core.types import Example

_AT_ONCE = 32


def probe(ready: PreparedCertificate, rows: Rows, journal: Journal) -> list[dict[str, Any]]:
    """Attack every example that has a certificate or a right answer; what the journal holds is not attacked again."""
    name = ready.method.own_attack
    if name is None:
        return []
    found: list[dict[str, Any]] = []
    turned: set[str] = set()
    for level in (None, *(strength for strength in grid(rows, ready.method.unit) if strength > 0)):
        asked = dict(_asked(name, ready.examples, [row for row in rows if row["id"] not in turned], level))
        fresh = [each for each in asked.values() if each.key not in journal.rows]
        if fresh:
            how = "within their certificates" if level is None else f"within {level:g}"
            ready.observer.note(f"{name}: attacking {len(fresh)} examples {how}")
        for start in range(0, len(fresh), _AT_ONCE):
            some = fresh[start : start + _AT_ONCE]
            for each, answer in zip(some, ready.method.probe(ready.victim, some, ready.request.seed), strict=True):
                journal.append(_row(name, each, answer, inside=level is None))
        answered = {key: journal.rows[each.key] for key, each in asked.items()}
        found += answered.values()
        turned |= {key for key, row in answered.items() if is_fooled(row)}
    return found


def _asked(name: str, examples: Mapping[str, Example], rows: Rows, level: float | None) -> Iterator[tuple[str, Probe]]:
    """By the id of the example, how far it is to be attacked."""
    for row in rows:
        example = examples.get(str(row["id"]))
        if example is None or not _counts(row, level):
            continue
        strength = strength_of(row) if level is None else level
        code = hashlib.sha256(f"{row['prediction']} {strength!r}".encode()).hexdigest()[:8]
        yield example.id, Probe(f"{name}/{example.id}/{code}", example.texts, int(row["prediction"]), strength)


def _counts(row: Row, level: float | None) -> bool:
    if level is None:
        return row["outcome"] in ("certified", "wrong") and strength_of(row) > 0
    return is_right(row) and strength_of(row) < level


def _row(name: str, probe: Probe, answer: Answer, *, inside: bool) -> dict[str, Any]:
    return {
        "id": probe.key,
        "example": probe.key.split("/", 1)[1].rpartition("/")[0],
        "attack": name,
        "certified": probe.prediction,
        "within": probe.strength,
        "needs": answer.needs,
        "inside": inside,
        "prediction": answer.prediction,
        "refutes": answer.refutes,
        "contradicts": inside and answer.refutes,
        **answer.details,
    }
