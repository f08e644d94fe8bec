"""Checks certificates against the adversarial texts that attacks found.

Every adversarial text of the run that lies within the certificate's threat model is shown to the certified classifier:
one that it answers otherwise within the reach of a certificate refutes it. So does a point that the certificate's own
attack finds there (`isthmus.verbs.certify.probing`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import BrokenCertificate
from isthmus.runs.folder import AttackFile
from isthmus.runs.journal import Journal
from isthmus.summaries.certificate import ChallengeRows
from isthmus.verbs.certify.prepared_certificate import PreparedCertificate
from isthmus.verbs.certify.probing import probe

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult
    from isthmus.certificates.base import Certified

_AT_ONCE = 16


@dataclass(frozen=True)
class Challenges:
    """The texts within a certificate's threat model, with the certified classifier's predictions.

    Adversarial texts of the run's attacks, and points that the certificate's own attack found.
    """

    rows: list[dict[str, Any]]
    attacks: dict[str, list[str]]
    """Each attack that keeps to the threat model, with the examples it was run on."""

    @property
    def refuting(self) -> list[dict[str, Any]]:
        """Texts that contradict a certificate: none, unless something is wrong."""
        return [row for row in self.rows if row["contradicts"]]


def challenge(ready: PreparedCertificate, file: AttackFile, results: Sequence[Certified]) -> Challenges:
    """Classify every text that the run's attacks found within the threat model by the certified classifier."""
    found, attacks = _within(ready, {result.id: result for result in results})
    with Journal(file.challenges_path) as journal:
        fresh = [each for each in found if each["id"] not in journal.rows]
        if fresh:
            ready.observer.note(f"checking {len(fresh)} adversarial texts against the certificates")
        for start in range(0, len(fresh), _AT_ONCE):
            for answered in _answer(ready, fresh[start : start + _AT_ONCE]):
                journal.append(_without_image(answered))
        probed = probe(ready, results, journal)
        known = {each["id"]: journal.rows[each["id"]] for each in (*found, *probed)}
        journal.forget([key for key in journal.rows if key not in known])  # of attacks that were run again since
        journal.finish(list(known))
    if ready.method.own_attack is not None:
        attacks[ready.method.own_attack] = [result.id for result in results]
    judged = [_without_image(_judge(ready, each, known[each["id"]])) for each in found]
    return Challenges([*judged, *probed], attacks)


def _within(
    ready: PreparedCertificate, certified: Mapping[str, Certified]
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Successes of the run's attacks within the certificate's threat model, and the attacks that count."""
    examples = {key: example for key, example in ready.examples.items() if key in certified}
    tables = [name.rpartition("table ")[2] for name in ready.method.resources(ready.victim).values()]
    found: list[dict[str, Any]] = []
    attacks: dict[str, list[str]] = {}
    for attack in ready.folder.attack_files():
        settings = attack.header().get("settings") or {}
        if (settings.get("data") or {}).get("fingerprint") != ready.data.fingerprint:
            continue
        tried = [
            result
            for result in attack.results()
            if result.id in examples and dict(result.original) == examples[result.id].texts
        ]
        same_model = model_and_options(settings) == model_and_options(ready.settings)
        own = list(_find_covered(ready, attack, tried, certified, same_model))
        keeps_to_table = any(code in str(settings.get("resources")) for code in tables)
        if own or (keeps_to_table and ready.method.unit == "words"):
            found += own
            attacks[attack.key] = [result.id for result in tried]
    return found, attacks


def _find_covered(
    ready: PreparedCertificate,
    attack: AttackFile,
    tried: Sequence[AttackResult],
    certified: Mapping[str, Certified],
    same_model: bool,
) -> Iterator[dict[str, Any]]:
    """Successes of one attack within the threat model."""
    images = _read_images(attack)
    for result in tried:
        certificate = certified[result.id]
        perturbed: Any = {"image": images[result.id]} if result.id in images else result.perturbed
        is_changed = result.is_changed or result.id in images
        if result.outcome != "succeeded" or not is_changed or certificate.prediction is None:
            continue
        needs = ready.method.needs(ready.victim, ready.examples[result.id], perturbed, ready.protection)
        if needs is not None:
            yield _make_row(attack.key, certificate, perturbed, needs, same_model)


def _read_images(attack: AttackFile) -> Mapping[str, Any]:
    """The adversarial images of an attack on images, by example."""
    if not attack.images_path.is_file():
        return {}
    from isthmus.verbs.attack.images import read_images

    return read_images(attack.images_path)


def _without_image(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its image: images are stored beside the rows of their attack."""
    if any(not isinstance(value, str) for value in (row.get("perturbed") or {}).values()):
        return {key: value for key, value in row.items() if key != "perturbed"}
    return row


def model_and_options(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The model and its inference options: other options make another classifier."""
    return settings.get("model"), settings.get("victim") or {}


def _make_row(
    attack: str, certificate: Certified, perturbed: Mapping[str, Any], needs: float, same_model: bool
) -> dict[str, Any]:
    values = perturbed.values()
    text = "\x1f".join(value if isinstance(value, str) else value.tobytes().hex() for value in values)
    code = hashlib.sha256(f"{certificate.prediction}\x1f{text}".encode(errors="surrogatepass")).hexdigest()[:8]
    return {
        "id": f"{attack}/{certificate.id}/{code}",
        "example": certificate.id,
        "attack": attack,
        "perturbed": dict(perturbed),
        "certified": certificate.prediction,
        "needs": needs,
        "inside": certificate.outcome in ("certified", "wrong") and needs <= certificate.strength,
        "same_model": same_model,
    }


def _answer(ready: PreparedCertificate, found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    from isthmus.certificates.base import Challenge

    asked = [Challenge(each["id"], each["perturbed"], each["certified"]) for each in found]
    for each, answer in zip(found, ready.method.challenge(ready.victim, asked, ready.request.seed), strict=True):
        yield {**each, "prediction": answer.prediction, "refutes": answer.refutes, **answer.details}


def _judge(ready: PreparedCertificate, challenge: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
    """Judge whether certificate and attack contradict each other, by the row's current content."""
    row = {**answered, **challenge}
    # Where nothing is drawn, a success that the model does not repeat is as wrong as one that it does.
    certain = not ready.victim.stochastic and ready.method.is_deployed(ready.victim)
    row["contradicts"] = row["inside"] and (row["refutes"] or (certain and row["same_model"]))
    return row


def make_broken_error(file: AttackFile, refuted: ChallengeRows) -> BrokenCertificate:
    """Make the error for a certificate that is refuted."""
    first = refuted[0]
    thing = "text" if "perturbed" in first else "point"
    what = (
        "the certified classifier changes its prediction"
        if first["refutes"]
        else "the model does not change its prediction, so the attack's row is wrong"
    )
    more = f" ({len(refuted)} such {thing}s in all)" if len(refuted) > 1 else ""
    return BrokenCertificate(
        f"example {first['example']}: {first['attack']} found a {thing} within its certificate (it needs "
        f"{first['needs']:g}), and {what}{more}. A certificate or an attack is wrong. This is a bug: please report it "
        f"with {file.rows_path} and {file.challenges_path}"
    )
