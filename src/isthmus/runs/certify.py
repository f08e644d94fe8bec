"""`certify`: what can be proven about a model, one row per example, held against what attacks found.

Rows are written as they finish; the same command again skips what has a row, and ends with the same file. Then every
adversarial text of the run that lies within the certificate's threat model is shown to the certified classifier: one
that it answers otherwise within the reach of a certificate is a bug, and fails the command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isthmus
from isthmus.core import catalog
from isthmus.core.errors import BrokenCertificate, UsageError, VictimError
from isthmus.core.files import make_folder, write_json
from isthmus.runs.certificates import Rows, summarise_certificate
from isthmus.runs.effort import measured, summed
from isthmus.runs.folder import SCHEMA, AttackFile, RunFolder
from isthmus.runs.journal import Journal
from isthmus.runs.observer import Observer, Row, Silent
from isthmus.runs.prepared import Prepared, ids
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.request import AttackRequest
from isthmus.runs.settings import plain, short_hash
from isthmus.runs.sources import DataRequest

if TYPE_CHECKING:
    from isthmus.certify.base import Certificate, Certified
    from isthmus.core.types import Example

_CHALLENGES_AT_ONCE = 16


@dataclass(frozen=True)
class CertifyRequest:
    """Everything the command says."""

    model: str
    certificate: str = "gaussian"
    parameters: Mapping[str, str] = field(default_factory=dict)
    data: DataRequest | None = None
    split: str | None = None
    n: int | None = 200
    seed: int = 0
    out: Path | None = None
    labels: tuple[str, ...] | None = None
    protect: tuple[str, ...] | None = None
    protect_pattern: str | None = None
    device: str | None = None
    label_check: bool = True
    retry_errors: bool = False
    command: str | None = None


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


def certify(request: CertifyRequest, observer: Observer | None = None) -> CertifyReport:
    """Certify the examples that have no row yet, then hold all rows against the run's attacks."""
    work = _Certify(request, observer or Silent())
    return work.run()


@dataclass
class _Certify:
    request: CertifyRequest
    observer: Observer

    @cached_property
    def ready(self) -> Prepared:
        """Model, data and folder, as an attack finds them."""
        asked = self.request
        return Prepared(
            AttackRequest(
                model=asked.model, attacks=(), data=asked.data, split=asked.split, n=asked.n, seed=asked.seed,
                out=asked.out, labels=asked.labels, protect=asked.protect, protect_pattern=asked.protect_pattern,
                device=asked.device, label_check=asked.label_check, command=asked.command,
            ),
            self.observer,
        )  # fmt: skip

    @cached_property
    def name(self) -> str:
        """The certificate's name."""
        return catalog.find("certificates", self.request.certificate).name

    @cached_property
    def method(self) -> Certificate:
        """The certificate with its parameters."""
        method: Certificate = catalog.build("certificates", self.name, self.request.parameters)
        return method

    def run(self) -> CertifyReport:
        """Find what is wrong first, then work."""
        ready, method = self.ready, self.method
        _ = ready.source, ready.sample
        ready.protection.check(ready.data.fields)
        if ready.data.task.name != "classification":
            raise UsageError(f"certificates are for classification, and {ready.data.name} holds {ready.data.task.name}")
        folder = ready.folder
        method.check(ready.victim)
        make_folder(folder.certificates_path)
        file = folder.certificate_file(self.name, self.settings)
        asked = ids(ready.sample)
        with Journal(file.rows_path) as journal:
            known = file.header() if file.header_path.exists() else {}
            if self.request.retry_errors:
                journal.forget([key for key, row in journal.rows.items() if row.get("outcome") == "error"])
            missing = [key for key in asked if key not in journal.rows]
            if missing and not journal.rows:
                ready.check_labels()
            header = self._header(known, len(asked))
            write_json(file.header_path, header)
            effort = self._certify(file, journal, set(missing)) if missing else {}
            journal.finish(ids(ready.first(header["n"])))
            rows = tuple(journal.rows[key] for key in asked)
            every = list(journal.rows.values())
        challenges, attacks = self._challenge(folder, file, every)
        refuted = [challenge for challenge in challenges if challenge["contradicts"]]
        header |= {
            "effort": summed(known.get("effort"), effort),
            "attacks": {name: sorted(found) for name, found in attacks.items()},
            "refuted": [challenge["id"] for challenge in refuted],
            "summary": summarise_certificate(every, method.unit, challenges, attacks).to_json(),
        }
        write_json(file.header_path, header)
        if refuted:
            raise _broken(file, refuted)
        shown = {str(row["id"]) for row in rows}
        own = tuple(challenge for challenge in challenges if challenge["example"] in shown)
        return CertifyReport(folder, file, header, rows, own, len(missing))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What decides the rows."""
        ready, request = self.ready, self.request
        return {
            "certificate": self.name,
            "parameters": plain(self.method),
            "resources": dict(self.method.resources(ready.victim)),
            "seed": request.seed,
            "protection": {"columns": request.protect, "pattern": request.protect_pattern},
            "labels": request.labels,
            "data": {"split": ready.data.split, "fingerprint": ready.data.fingerprint},
            "model": ready.fingerprint or ready.source.shown,
        }

    def _header(self, known: Mapping[str, Any], asked: int) -> dict[str, Any]:
        ready = self.ready
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "certificate": self.name,
            "unit": self.method.unit,
            "hash": short_hash(self.settings),
            "n": max(asked, int(known.get("n") or 0)),
            "statement": plain(self.method.statement(ready.victim)),
            "is_deployed": self.method.is_deployed(ready.victim),
            "settings": plain(self.settings),
            "labels": ready.shown_labels(),
            "data": {"name": ready.data.name, "split": ready.data.split, "fingerprint": ready.data.fingerprint},
            "model": ready.source.shown,
            "created": known.get("created") or now(),
            "command": self.request.command,
            "versions": versions(),
            "machine": machine(getattr(ready.victim, "device_type", None)),
            "effort": known.get("effort"),
        }

    def _certify(self, file: AttackFile, journal: Journal, missing: set[str]) -> dict[str, float]:
        """Certify the examples in `missing`, and say what it cost."""
        ready, observer = self.ready, self.observer
        observer.begin(file.key, len(missing) + len(journal), list(journal.rows.values()))

        def write(row: Row) -> None:
            journal.append(row)
            observer.row(file.key, row)

        for rejected in ready.sample.rejected:
            if rejected.id in missing:
                write({"id": rejected.id, "outcome": "error", "label": None, "reason": rejected.reason})
        examples = [example for example in ready.sample.aligned(ready.victim.labels) if example.id in missing]
        effort: dict[str, float] = {"examples": len(examples), "wall_s": 0.0, "cpu_s": 0.0}
        with measured(effort):
            for result in self._results(examples):
                write(result.to_row())
        observer.end(file.key)
        return effort

    def _results(self, examples: list[Example]) -> Iterator[Certified]:
        """Results as they finish; a text that the model fails on is an error of its own and of nobody else."""
        from isthmus.certify.base import failed

        left = {example.id: example for example in examples}
        seed, protection, victim = self.request.seed, self.ready.protection, self.ready.victim
        try:
            for result in self.method(victim, examples, seed=seed, protection=protection):
                left.pop(result.id)
                yield result
        except VictimError:
            for example in list(left.values()):
                try:
                    yield from self.method(victim, [example], seed=seed, protection=protection)
                except VictimError as error:
                    yield failed(example, str(error))

    # ------------------------------------------------------------------ what attacks found

    def _challenge(
        self, folder: RunFolder, file: AttackFile, rows: Rows
    ) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
        """Show the certified classifier every adversarial text within its threat model; and which attacks count."""
        found, attacks = self._within(folder, {str(row["id"]): row for row in rows})
        with Journal(file.challenges_path) as journal:
            fresh = [challenge for challenge in found if challenge["id"] not in journal.rows]
            if fresh:
                self.observer.note(f"holding {len(fresh)} adversarial texts against the certificates")
            for start in range(0, len(fresh), _CHALLENGES_AT_ONCE):
                for answered in self._answers(fresh[start : start + _CHALLENGES_AT_ONCE]):
                    journal.append(answered)
            known = {challenge["id"]: journal.rows[challenge["id"]] for challenge in found}
            journal.forget([key for key in journal.rows if key not in known])  # of attacks that were run again since
            journal.finish(list(known))
        return [self._judged(challenge, known[challenge["id"]]) for challenge in found], attacks

    def _within(self, folder: RunFolder, rows: Mapping[str, Row]) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
        """Successes of the run's attacks that the certificate's threat model covers."""
        ready = self.ready
        every = ready.first(None).aligned(ready.victim.labels)
        examples = {example.id: example for example in every if example.id in rows}
        tables = [name.rpartition("table ")[2] for name in self.method.resources(ready.victim).values()]
        found: list[dict[str, Any]] = []
        attacks: dict[str, list[str]] = {}
        for attack in folder.attack_files():
            settings = attack.header().get("settings") or {}
            if (settings.get("data") or {}).get("fingerprint") != ready.data.fingerprint:
                continue
            own, there = [], []
            for row in attack.rows():
                example = examples.get(str(row["id"]))
                if example is None or dict(row.get("original") or {}) != example.texts:
                    continue
                there.append(example.id)
                certificate = rows[example.id]
                if row["outcome"] != "succeeded" or not row.get("perturbed") or certificate.get("prediction") is None:
                    continue
                needs = self.method.needs(ready.victim, example, row["perturbed"], ready.protection)
                if needs is not None:
                    same = settings.get("model") == self.settings["model"]
                    own.append(_challenge(attack.key, example.id, certificate, row, needs, same))
            keeps_to_table = any(code in str(settings.get("resources")) for code in tables)
            if own or (keeps_to_table and self.method.unit == "words"):
                found += own
                attacks[attack.key] = there
        return found, attacks

    def _answers(self, found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        from isthmus.certify.base import Challenge

        asked = [Challenge(each["id"], each["perturbed"], each["certified"]) for each in found]
        for each, answer in zip(found, self.method.challenge(self.ready.victim, asked, self.request.seed), strict=True):
            yield {**each, "prediction": answer.prediction, "refutes": answer.refutes, **answer.details}

    def _judged(self, challenge: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
        """Whether a certificate and an attack contradict each other; what the row says now counts, not what it said."""
        row = {**answered, **challenge}
        # Where nothing is drawn, a success that the model does not repeat is as wrong as one that it does.
        certain = not self.ready.victim.stochastic and self.method.is_deployed(self.ready.victim)
        row["contradicts"] = row["inside"] and (row["refutes"] or (certain and row["same_model"]))
        return row


def _challenge(attack: str, example: str, certificate: Row, row: Row, needs: float, same_model: bool) -> dict[str, Any]:
    from isthmus.certify.base import strength_of

    text = "\x1f".join(row["perturbed"].values())
    code = hashlib.sha256(f"{certificate['prediction']}\x1f{text}".encode(errors="surrogatepass")).hexdigest()[:8]
    return {
        "id": f"{attack}/{example}/{code}",
        "example": example,
        "attack": attack,
        "perturbed": dict(row["perturbed"]),
        "certified": certificate["prediction"],
        "needs": needs,
        "inside": certificate["outcome"] in ("certified", "wrong") and needs <= strength_of(certificate),
        "same_model": same_model,
    }


def _broken(file: AttackFile, refuted: Rows) -> BrokenCertificate:
    first = refuted[0]
    what = (
        "the certified classifier answers it otherwise"
        if first["refutes"]
        else "the model does not answer it otherwise, so the attack's row cannot be right"
    )
    more = f" ({len(refuted)} such texts in all)" if len(refuted) > 1 else ""
    return BrokenCertificate(
        f"example {first['example']}: {first['attack']} found a text within its certificate (it needs "
        f"{first['needs']:g}), and {what}{more}. A certificate or an attack is wrong, which is a bug: please report it "
        f"with {file.rows_path} and {file.challenges_path}"
    )
