"""`certify`: certified robustness of each example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.given import Data, as_names, as_path, data_request, find_victim, open_data, refuse_out, take_sample
from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.results import CertificateResults

if TYPE_CHECKING:
    from isthmus.certificates.base import Certificate


def certify(
    model: Any,
    certificate: str | Certificate = "gaussian",
    data: Data = None,
    *,
    examples: int | None = 200,
    split: str | None = None,
    seed: int = 0,
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    **parameters: Any,
) -> CertificateResults:
    """Compute certified robustness of each example.

    Arguments as of `attack`; `examples` is how many are certified, since `n` is a parameter of most certificates.

    >>> from isthmus import certify
    >>> found = certify(lambda texts: [[0.1, 0.9] for _ in texts], "synonym", [("a fine film", 1)],
    ...                 labels=("bad", "good"), table=table, n0=5, n=20)
    >>> found[0].outcome
    'certified'
    """
    if parameters and not isinstance(certificate, str):
        raise UsageError("parameters belong to the certificate: give them where it is made, or name it instead")
    request = data_request(data)
    if isinstance(model, str | Path) and isinstance(certificate, str) and request is not False:
        from isthmus.verbs.certify import CertifyRequest
        from isthmus.verbs.certify import certify as run

        report = run(
            CertifyRequest(
                str(model), n=examples, seed=seed, out=as_path(out), labels=as_names(labels), device=device,
                data=request, split=split, parameters=parameters, certificate=certificate,
            )
        )  # fmt: skip
        (outcome,) = report.outcomes
        names = tuple(outcome.header.get("labels") or ())
        return CertificateResults(outcome.file.key, outcome.results, names, report.folder, str(outcome.header["unit"]))
    refuse_out(out)
    method = catalog.build("certificates", certificate, parameters) if isinstance(certificate, str) else certificate
    victim, sample = find_victim(model, labels, device), take_sample(open_data(model, data), split, examples, seed)
    aligned = sample.align_labels(victim.labels)
    found = {each.id: each for each in method(victim, aligned.examples, seed=seed)}
    name = certificate if isinstance(certificate, str) else type(certificate).__name__.lower()
    return CertificateResults(
        name, tuple(found[each.id] for each in aligned), tuple(victim.labels), None, type(method).unit
    )
