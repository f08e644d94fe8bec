"""Attacks the certified classifier itself: every example up to its certificate, and step by step beyond.

    within    strength of the example's certificate           another answer is a contradiction
    beyond    every further strength at which rates are given, until the model is fooled

So the accuracy under this attack is known at every strength, and lies above certified accuracy unless one of the two is
wrong. What was answered is kept in the journal of challenges, where the same command finds it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.certificates.base import Certified, Probe
from isthmus.runs.journal import Journal
from isthmus.summaries.certificate import grid, is_fooled
from isthmus.verbs.certify.prepared_certificate import PreparedCertificate

if TYPE_CHECKING:
    from isthmus.certificates.base import ChallengeAnswer
    from isthmus.core.types import Example

_AT_ONCE = 32


def probe(ready: PreparedCertificate, results: Sequence[Certified], journal: Journal) -> list[dict[str, Any]]:
    """Attack every example that is certified or right; examples in the journal are not attacked again."""
    name = ready.method.own_attack
    if name is None:
        return []
    found: list[dict[str, Any]] = []
    turned: set[str] = set()
    for level in (None, *(strength for strength in grid(results, ready.method.unit) if strength > 0)):
        asked = dict(_make_probes(name, ready.examples, [each for each in results if each.id not in turned], level))
        fresh = [each for each in asked.values() if each.key not in journal.rows]
        if fresh:
            how = "within their certificates" if level is None else f"within {level:g}"
            ready.observer.note(f"{name}: attacking {len(fresh)} examples {how}")
        for start in range(0, len(fresh), _AT_ONCE):
            some = fresh[start : start + _AT_ONCE]
            for each, answer in zip(some, ready.method.probe(ready.victim, some, ready.request.seed), strict=True):
                journal.append(_make_row(name, each, answer, inside=level is None))
        answered = {key: journal.rows[each.key] for key, each in asked.items()}
        found += answered.values()
        turned |= {key for key, row in answered.items() if is_fooled(row)}
    return found


def _make_probes(
    name: str, examples: Mapping[str, Example], results: Sequence[Certified], level: float | None
) -> Iterator[tuple[str, Probe]]:
    """Yield the strength of the attack for each example, by its id."""
    for result in results:
        example = examples.get(result.id)
        if example is None or result.prediction is None or not _counts(result, level):
            continue
        strength = result.strength if level is None else level
        code = hashlib.sha256(f"{result.prediction} {strength!r}".encode()).hexdigest()[:8]
        yield example.id, Probe(f"{name}/{example.id}/{code}", example.texts, result.prediction, strength)


def _counts(result: Certified, level: float | None) -> bool:
    if level is None:
        return result.outcome in ("certified", "wrong") and result.strength > 0
    return result.is_right and result.strength < level


def _make_row(name: str, probe: Probe, answer: ChallengeAnswer, *, inside: bool) -> dict[str, Any]:
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
