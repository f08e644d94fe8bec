"""Prepares a certify command: the method with its parameters, and the settings of its rows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.core.files import make_folder
from isthmus.runs.folder import AttackFile
from isthmus.runs.provenance import hash_named_files
from isthmus.runs.settings import to_plain
from isthmus.verbs.model_loading import deciding
from isthmus.verbs.prepared_model import PreparedSample
from isthmus.verbs.request import CertifyRequest

if TYPE_CHECKING:
    from isthmus.certificates.base import Certificate
    from isthmus.core.types import Example


class PreparedCertificate(PreparedSample[CertifyRequest]):
    """A prepared certify command."""

    verb = "certify"

    def check(self) -> None:
        """Check the command before anything is certified."""
        if self.request.precision != "fp32":
            raise UsageError(f"certificates are computed in fp32, not {self.request.precision!r}")
        method = self.method
        _ = self.source, self.sample
        if self.data.task.name == "images" and "images" not in method.tasks:
            raise UsageError(f"{self.name} is about words, and {self.data.name} holds images: --certificate gaussian")
        if self.data.task.name != "images":
            self.protection.check(self.data.fields)
        if self.data.task.name not in ("classification", "images"):
            raise UsageError(f"certificates are for classification, and {self.data.name} holds {self.data.task.name}")
        if self.fingerprint is None:
            method.check(self.victim)  # Before it is asked for anything.
        _ = self.folder
        method.check(self.victim)
        method.check_options(self.victim, self.request.victim)

    @cached_property
    def name(self) -> str:
        """The certificate's name."""
        return catalog.find("certificates", self.request.certificate).name

    @cached_property
    def method(self) -> Certificate:
        """The certificate with its parameters."""
        method: Certificate = catalog.build("certificates", self.name, self.request.parameters)
        return method

    @property
    def statement(self) -> dict[str, Any]:
        """The claim, including the model's inference options."""
        statement: dict[str, Any] = to_plain(self.method.statement(self.victim))
        given = sorted(deciding(self.request.victim).items())
        asked = ", ".join(f"{key}={str(value).lower()}" for key, value in given)
        if asked:
            statement["classifier"] += f" (with {asked})"
        if spared := self._spared:
            statement["threat_model"] += f"; {spared} cannot be substituted"
        return statement

    @property
    def _spared(self) -> str:
        """The protected words, if the certificate is about words."""
        request = self.request
        pattern = f"words that match {request.protect_pattern}" if request.protect_pattern else ""
        kinds = f"words of a {' or '.join(request.protect_kinds)}" if request.protect_kinds else ""
        columns = f"words of {', '.join(request.protect)}" if request.protect else ""
        return " and ".join(part for part in (pattern, kinds, columns) if part) if self.method.unit == "words" else ""

    @cached_property
    def examples(self) -> dict[str, Example]:
        """Every example of the split, by id."""
        return {example.id: example for example in self.first(None).align_labels(self.victim.labels)}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the rows."""
        request, options = self.request, deciding(self.request.victim)
        files = hash_named_files(self.method)
        return {
            "certificate": self.name,
            "parameters": to_plain(self.method),
            "resources": dict(self.method.resources(self.victim)),
            "seed": request.seed,
            "protection": self.protection.settings,
            "labels": request.labels,
            "data": {"split": self.data.split, "fingerprint": self.data.fingerprint},
            "model": self.identity,
            **({"victim": options} if options else {}),
            **({"files": files} if files else {}),
        }

    def choose_file(self) -> AttackFile:
        """Choose the file of the rows; another process may take a free name in the meantime."""
        make_folder(self.folder.certificates_path)
        return self.folder.certificate_file(self.name, self.settings)
