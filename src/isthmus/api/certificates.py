"""`certify`: certified robustness of each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments, check_count, check_seed
from isthmus.api.given import (
    Data,
    as_names,
    as_path,
    data_request,
    find_victim,
    is_named,
    open_data,
    refuse_out,
    take_sample,
    warn_of_errors,
)
from isthmus.api.rows import make_certificate_results
from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.results import CertificateResults

if TYPE_CHECKING:
    from isthmus.attacks.parts.protection import Protection
    from isthmus.certificates.base import Certificate, Certified
    from isthmus.verbs.observer import Observer


def certify(
    model: Any,
    certificate: str | Certificate = "gaussian",
    data: Data = None,
    *,
    examples: int | None = 200,
    split: str | None = None,
    seed: int = 0,
    protection: Protection | None = None,
    labels: Sequence[str] | None = None,
    victim: Mapping[str, Any] | None = None,
    label_check: bool = True,
    retry_errors: bool = False,
    out: str | Path | None = None,
    device: str | None = None,
    progress: Observer | None = None,
    **parameters: Any,
) -> CertificateResults:
    """Compute certified robustness of each example.

    Arguments as of `attack`; `examples` is how many are certified, since `n` is a parameter of most certificates, and
    `protection` the words that nobody can substitute.

    >>> from isthmus import certify
    >>> found = certify(lambda texts: [[0.1, 0.9] for _ in texts], "synonym", [("a fine film", 1)],
    ...                 labels=("bad", "good"), table=table, n0=5, n=20)
    >>> found[0].outcome
    'certified'
    """
    from isthmus.attacks.parts.protection import Protection

    check_arguments(
        split=split, labels=labels, victim=victim, label_check=label_check, retry_errors=retry_errors, out=out,
        device=device, progress=progress,
    )  # fmt: skip
    examples, seed = check_count("examples", examples), check_seed(seed)
    if not isinstance(certificate, str) and (isinstance(certificate, type) or not hasattr(certificate, "unit")):
        raise UsageError(
            "certificate takes a name (isthmus list certificates) or a certificate with its parameters "
            f"(isthmus.certificates.Synonym()), not {certificate!r:.80}"
        )
    if protection is not None and not isinstance(protection, Protection):
        raise UsageError(f"protection takes isthmus.attacks.Protection(…), not {protection!r:.80}")
    if parameters and not isinstance(certificate, str):
        raise UsageError("parameters belong to the certificate: give them where it is made, or name it instead")
    request = data_request(data)
    if is_named(model) and isinstance(certificate, str) and request is not False:
        from isthmus.verbs.certify import CertifyRequest
        from isthmus.verbs.certify import certify as run

        spared = protection or Protection()
        report = run(
            CertifyRequest(
                str(model), n=examples, seed=seed, out=as_path(out), labels=as_names(labels), victim=victim or {},
                device=device, label_check=label_check, retry_errors=retry_errors, data=request, split=split,
                parameters=parameters, certificate=certificate, protect=spared.columns,
                protect_pattern=spared.pattern, protect_kinds=spared.kinds,
            ),
            progress,
        )  # fmt: skip
        (done,) = report.outcomes
        return make_certificate_results(done.file.key, done.header, done.results, report.folder)
    from isthmus.verbs.observer import Observer

    refuse_out(out, "the certificate is an object" if not isinstance(certificate, str) else "")
    method = catalog.build("certificates", certificate, parameters) if isinstance(certificate, str) else certificate
    name = certificate if isinstance(certificate, str) else type(certificate).__name__.lower()
    subject = find_victim(model, labels, device, victim)
    sample = take_sample(open_data(model, data), split, examples, seed).align_labels(subject.labels)
    if protection is not None:
        protection.check(sample.fields)
        protection.try_on(each.texts for each in sample)
    observer = progress or Observer()
    observer.begin(name, len(sample), ())
    found: dict[str, Certified] = {}
    for each in method(subject, sample.examples, seed=seed, protection=protection):
        found[each.id] = each
        observer.result(name, each)
    observer.end(name)
    results = tuple(found[each.id] for each in sample)
    warn_of_errors(name, results)
    return CertificateResults(name, results, tuple(subject.labels), None, type(method).unit)
