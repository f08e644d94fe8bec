"""Notes under a certificate's rates: trivial cases, the deployed vote, and attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.report.numerals import percent
from isthmus.summaries.certificate import CertificateSummary, is_fooled

if TYPE_CHECKING:
    from isthmus.report.certificate.view import CertificateView


def notes(view: CertificateView) -> list[str]:
    """Notes that a reader needs besides the rates."""
    summary, found = view.summary, []
    counts = [
        f"{count} {what}"
        for count, what in (
            (summary.abstained, "abstained"),
            (summary.wrong, "misclassified"),
            (summary.errors, "without an answer"),
        )
        if count
    ]
    if not view.is_complete:
        examples, texts = view.missing
        found.append(
            f"{examples} examples and {texts} texts of attacks have no rows yet: run the same command to resume."
        )
    if counts:
        found.append(f"Of {summary.n} examples {', '.join(counts)}; none of these is certified.")
    found += _about_substitutes(summary) + _about_the_deployed_vote(summary) + _about_alternatives(view)
    swaps = [result.details for result in view.results if result.details.get("swaps")]
    if swaps:
        total, inside = (sum(int(details[key]) for details in swaps) for key in ("swaps", "swaps_inside"))
        words = sum(int(details["words_inside"]) > 0 for details in swaps)
        found.append(
            f"{inside:,} of {total:,} single synonym substitutions lie inside the ball; in {words} of {len(swaps)} "
            "texts any one word may be substituted without leaving it."
        )
    found += _about_own_attack(view) + _about_attacks(view)
    if view.refuted:
        found.append(f"{len(view.refuted)} certificates are refuted. This is a bug: {', '.join(view.refuted[:3])}")
    return found


def _about_alternatives(view: CertificateView) -> list[str]:
    others = [str(each) for each in view.header.get("alternatives") or ()]
    if not others:
        return []
    alpha = float((view.header.get("settings") or {}).get("parameters", {}).get("alpha", 0.0))
    tries = len(others) + 1
    return [
        f"The same classifier and examples were certified {tries} times, with different draws or noise (also "
        f"{', '.join(others)}). The best of {tries} may be a false certificate with probability up to "
        f"{tries * alpha:g} per example, not {alpha:g}: choose n, alpha, sigma and seed beforehand, on other data."
    ]


def _about_own_attack(view: CertificateView) -> list[str]:
    if view.own_attack is None:
        return []
    points = [each for each in view.challenges if each["attack"] == view.own_attack]
    within = sum(bool(each["inside"]) for each in points)
    right = sum(result.is_right for result in view.results)
    turned = len({each["example"] for each in points if is_fooled(each)})
    told = f"{view.own_attack} attacked {within} examples within their certificates"
    told += "." if view.refuted else " and fooled the model on none of them."
    if len(points) > within:
        furthest = max(float(each["within"]) for each in points)
        told += f" Beyond them it changed {turned} of {right} correct predictions within {furthest:.3g}."
    return [told]


def _about_attacks(view: CertificateView) -> list[str]:
    names = [name for name in view.attacks if name != view.own_attack]
    texts = [each for each in view.challenges if each["attack"] != view.own_attack]
    if not names:
        if view.own_attack is not None:
            return []
        told = "No attack of this run stays within the threat model, so the certificates were not checked by attacks."
        return [told + (" An attack that does: --attack pwws -P table=TABLE." if view.unit == "words" else "")]
    named = ", ".join(names)
    missing = len({result.id for result in view.results} - {key for ids in view.attacks.values() for key in ids})
    fooled = sum(map(is_fooled, texts))
    held = "1 adversarial example" if len(texts) == 1 else f"{len(texts)} adversarial examples"
    told = (
        f"Checked against the certificates: {held} of {named}, of which {fooled} fool{'s' if fooled == 1 else ''} the "
        "certified classifier"
    )
    told += "." if view.refuted else ", none inside its certificate."
    if not texts:
        told = f"{named} found no text within the threat model to check against the certificates."
    if view.unit == "radius" and texts:
        told += f" The nearest is at {min(float(each['needs']) for each in texts):.3g}."
    if not view.header.get("is_deployed"):
        told += " They were found on the model without this smoothing, so they are a weaker test."
    if missing:
        told += f" {missing} of the examples were not attacked, so accuracy under attack is not given."
    return [told]


def _about_substitutes(summary: CertificateSummary) -> list[str]:
    """The share of the rate that is trivial."""
    own, found = summary.substitutes, []
    if own is None:
        return []
    if own.none:
        are, them = ("is", "it") if own.none == 1 else ("are", "them")
        found.append(f"{own.none} {are} certified because nothing in {them} can be substituted.")
    if own.whole:
        has = "1 has" if own.whole == 1 else f"{own.whole} have"
        found.append(
            f"{has} only synonym sets that overlap completely (product of q = 1): any p above one half is enough."
        )
    if own.synonyms:
        told = (
            f"The median certified text has {own.substitutable:g} of {own.words:g} words with synonyms, "
            f"{own.synonyms:g} synonyms in all"
        )
        found.append(told + ("." if own.overlap is None else f", and a product of q of {own.overlap:.3f}."))
    return found


def _about_the_deployed_vote(summary: CertificateSummary) -> list[str]:
    """The relation of a vote over finitely many draws to the certified vote over all draws."""
    own = summary.deployed
    if own is None:
        return []
    needed = "more than a million draws" if own.draws_for_1_percent is None else f"{own.draws_for_1_percent:,} draws"
    if own.draws is None or own.mean is None or own.worst is None:
        return [
            "The certificate is for the vote over all draws. A vote of finitely many may err where its class has "
            f"little more than half: in the worst case half of the certified examples need {needed} for 1 %."
        ]
    return [
        f"The certificate is for the vote over all draws; the deployed vote has {own.draws}. In the worst case "
        f"within its certificate an example leaves its class with probability at most {percent(own.mean)} on average "
        f"({percent(own.worst)} where that is largest); half of them need {needed} for 1 % (-V draws=...)."
    ]
