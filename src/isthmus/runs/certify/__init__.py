"""`certify`: what can be proven about a model, one row per example, held against what attacks found.

    prepared    the command made ready: the method with its parameters, and what decides its rows
    challenges  what the certified classifier says of texts that attacks found
    probing     and where an attack of the certificate's own ends

Rows are written as they finish; the same command again skips what has a row, and ends with the same file. Then every
adversarial text of the run that lies within the certificate's threat model is shown to the certified classifier: one
that it answers otherwise within the reach of a certificate is a bug, and fails the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import isthmus
from isthmus.core.errors import VictimError
from isthmus.core.records import write_record
from isthmus.runs.certificates import Rows, alternatives, summarise_certificate
from isthmus.runs.certify.challenges import broken, challenge
from isthmus.runs.certify.prepared import PreparedCertificate
from isthmus.runs.effort import measured, summed
from isthmus.runs.folder import SCHEMA, AttackFile, RunFolder, claim
from isthmus.runs.journal import Journal
from isthmus.runs.observer import Observer, Row, Silent
from isthmus.runs.prepared import ids
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.request import CertifyRequest
from isthmus.runs.settings import plain, short_hash

if TYPE_CHECKING:
    from isthmus.certificates.base import Certified
    from isthmus.core.types import Example

__all__ = ["CertifyReport", "CertifyRequest", "certify"]


@dataclass(frozen=True)
class CertifyReport:
    """What the command did."""

    folder: RunFolder
    file: AttackFile
    header: Mapping[str, Any]
    rows: Rows
    challenges: Rows
    certified_now: int
    """Examples certified now; the others had their rows."""
    probe_queries: int = 0
    """Texts the model was asked for to know it again."""


def certify(request: CertifyRequest, observer: Observer | None = None) -> CertifyReport:
    """Certify the examples that have no row yet, then hold all rows against the run's attacks."""
    with PreparedCertificate(request, observer or Silent()) as ready:
        return _run(ready)


def _run(ready: PreparedCertificate) -> CertifyReport:
    request = ready.request
    ready.check()
    asked = ids(ready.sample)
    file, opened, known = claim(ready.choose_file, ready.settings)
    with opened as journal:
        if request.retry_errors:
            journal.forget([key for key, row in journal.rows.items() if row.get("outcome") == "error"])
        missing = [key for key in asked if key not in journal.rows]
        if missing and not journal.rows:
            ready.check_labels()
        header = _header(ready, known, len(asked))
        header["alternatives"] = alternatives(ready.folder, file, header["settings"])
        write_record(file.header_path, header)
        effort = _certify(ready, file.key, journal, set(missing)) if missing else {}
        journal.finish(ids(ready.first(header["n"])))
        rows = tuple(journal.rows[key] for key in asked)
        every = list(journal.rows.values())
    challenges = challenge(ready, file, every)
    refuted = challenges.refuting
    header |= {
        "effort": summed(known.get("effort"), effort),
        "attacks": {name: sorted(found) for name, found in challenges.attacks.items()},
        "challenges": len(challenges.rows),
        "refuted": [each["id"] for each in refuted],
        "summary": summarise_certificate(every, ready.method.unit, challenges.rows, challenges.attacks).to_json(),
    }
    write_record(file.header_path, header)
    if refuted:
        raise broken(file, refuted)
    shown = {str(row["id"]) for row in rows}
    own = tuple(each for each in challenges.rows if each["example"] in shown)
    return CertifyReport(ready.folder, file, header, rows, own, len(missing), ready.probe_queries)


def _header(ready: PreparedCertificate, known: Mapping[str, Any], asked: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "isthmus": isthmus.__version__,
        "certificate": ready.name,
        "unit": ready.method.unit,
        "hash": short_hash(ready.settings),
        "n": max(asked, int(known.get("n") or 0)),
        "statement": ready.statement,
        "is_deployed": ready.method.is_deployed(ready.victim),
        "own_attack": ready.method.own_attack,
        "settings": plain(ready.settings),
        "labels": ready.shown_labels(),
        "data": {"name": ready.data.name, "split": ready.data.split, "fingerprint": ready.data.fingerprint},
        "model": ready.source.shown,
        "created": known.get("created") or now(),
        "command": ready.request.command,
        "versions": versions(),
        "machine": machine(getattr(ready.victim, "device_type", None)),
        "effort": known.get("effort"),
    }


def _certify(ready: PreparedCertificate, key: str, journal: Journal, missing: set[str]) -> dict[str, float]:
    """Certify the examples in `missing`, and say what it cost."""
    observer = ready.observer
    observer.begin(key, len(missing) + len(journal), list(journal.rows.values()))

    def write(row: Row) -> None:
        journal.append(row)
        observer.row(key, row)

    for rejected in ready.sample.rejected:
        if rejected.id in missing:
            write({"id": rejected.id, "outcome": "error", "label": None, "reason": rejected.reason})
    examples = [example for example in ready.sample.aligned(ready.victim.labels) if example.id in missing]
    effort: dict[str, float] = {"examples": len(examples), "wall_s": 0.0, "cpu_s": 0.0, **ready.probe_effort()}
    with measured(effort):
        for result in _results(ready, examples):
            write(result.to_row())
    observer.end(key)
    return effort


def _results(ready: PreparedCertificate, examples: list[Example]) -> Iterator[Certified]:
    """Results as they finish; a text that the model fails on is an error of its own and of nobody else."""
    from isthmus.certificates.base import failed

    left = {example.id: example for example in examples}
    seed, protection, victim = ready.request.seed, ready.protection, ready.victim
    try:
        for result in ready.method(victim, examples, seed=seed, protection=protection):
            left.pop(result.id)
            yield result
    except VictimError:
        for example in list(left.values()):
            try:
                yield from ready.method(victim, [example], seed=seed, protection=protection)
            except VictimError as error:
                yield failed(example, str(error))
