"""`certify`: proven robustness, one row per example, checked against the results of attacks.

    prepared_certificate  the command made ready: the method with its parameters, and what decides its rows
    challenges            what the certified classifier says of texts that attacks found
    probing               and where an attack of the certificate's own ends

Rows are written as they finish; the same command again skips what has a row, and ends with the same file. Then every
adversarial text of the run that lies within the certificate's threat model is shown to the certified classifier: one
that it answers otherwise within the reach of a certificate is a bug, and fails the command.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.certificates.base import Certified, make_failed
from isthmus.core.errors import VictimError
from isthmus.runs.folder import AttackFile
from isthmus.runs.journal import Journal
from isthmus.summaries.certificate import ChallengeRows, alternatives, summarise_certificate
from isthmus.verbs.certify.challenges import Challenges, challenge, make_broken_error
from isthmus.verbs.certify.prepared_certificate import PreparedCertificate
from isthmus.verbs.observer import Observer
from isthmus.verbs.prepared_model import ids
from isthmus.verbs.request import CertifyRequest
from isthmus.verbs.rows_file import RowsJob, RowsReport

if TYPE_CHECKING:
    from isthmus.core.types import Example
    from isthmus.data import Rejected

__all__ = ["CertifyReport", "CertifyRequest", "certify"]


@dataclass(frozen=True)
class CertifyReport(RowsReport[Certified]):
    """Result of the command."""

    challenges: ChallengeRows = ()
    """Texts that were checked against the certificates."""


def certify(request: CertifyRequest, observer: Observer | None = None) -> CertifyReport:
    """Certify the examples without a row, then check all rows against the run's attacks."""
    with PreparedCertificate(request, observer or Observer()) as ready:
        ready.check()
        job = _Certification(ready)
        done = job.run()
        if refuted := job.challenges.refuting:
            raise make_broken_error(done.file, refuted)
        shown = {result.id for result in done.results}
        own = tuple(each for each in job.challenges.rows if each["example"] in shown)
        return CertifyReport(ready.folder, (done,), ready.probe_queries, challenges=own)


@dataclass(eq=False)
class _Certification(RowsJob[Certified]):
    """The rows of the command's certificate."""

    ready: PreparedCertificate

    def __post_init__(self) -> None:
        self.challenges = Challenges([], {})

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that decide the rows."""
        return self.ready.settings

    @cached_property
    def asked(self) -> Sequence[str]:
        """Ids of the sample."""
        return ids(self.ready.sample)

    @property
    def unusable(self) -> Sequence[Rejected]:
        """Rows of the sample without a usable text or label."""
        return self.ready.sample.rejected

    def choose_file(self) -> AttackFile:
        """Choose the file of these settings."""
        return self.ready.choose_file()

    def begin(self) -> None:
        """Stop if the model's labels cannot match those of the data."""
        self.ready.check_labels()

    def revise(self, header: dict[str, Any], results: Sequence[Certified]) -> bool:
        """False: the certificates must still be checked against new attacks."""
        del header, results
        return False

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Describe claim, method and data."""
        ready = self.ready
        return {
            "certificate": ready.name,
            "unit": ready.method.unit,
            "n": max(len(self.asked), int(known.get("n") or 0)),
            "statement": ready.statement,
            "is_deployed": ready.method.is_deployed(ready.victim),
            "own_attack": ready.method.own_attack,
            "labels": ready.choose_label_names(),
            "data": {"name": ready.data.name, "split": ready.data.split, "fingerprint": ready.data.fingerprint},
        }

    def read(self, row: Mapping[str, Any]) -> Certified:
        """Read the result of a row."""
        return Certified.from_row(row)

    def reject(self, bad: Rejected) -> Certified:
        """Make the error of an unusable row."""
        return Certified(bad.id, "error", None, reason=bad.reason)

    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[Certified, None, None]:
        """Certify the missing examples, many in one batch."""
        del file, journal, effort
        ready = self.ready
        examples = [example for example in ready.sample.align_labels(ready.victim.labels) if example.id in missing]
        return _results(ready, examples)

    def order(self, header: Mapping[str, Any]) -> Sequence[str]:
        """Ids in the order of the sample."""
        return ids(self.ready.first(header["n"]))

    def conclude(self, file: AttackFile, header: Mapping[str, Any], results: Sequence[Certified]) -> dict[str, Any]:
        """Check the certificates against the attacks, and compute the figures of both."""
        ready = self.ready
        self.challenges = found = challenge(ready, file, results)
        return {
            "alternatives": alternatives(ready.folder, file, header["settings"]),
            "attacks": {name: sorted(tried) for name, tried in found.attacks.items()},
            "challenges": len(found.rows),
            "refuted": [each["id"] for each in found.refuting],
            "summary": summarise_certificate(results, ready.method.unit, found.rows, found.attacks).to_json(),
        }


def _results(ready: PreparedCertificate, examples: list[Example]) -> Generator[Certified, None, None]:
    """Yield results as they finish; a text that the model fails on is an error of its own only."""
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
                yield make_failed(example, str(error))
