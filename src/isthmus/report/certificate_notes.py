"""What a reader must know beside a certificate's rates: what is trivial, what is deployed, and what attacks say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.report.numerals import percent
from isthmus.runs.certificates import CertificateSummary, is_fooled

if TYPE_CHECKING:
    from isthmus.report.certificates import CertificateView


def notes(view: CertificateView) -> list[str]:
    """What a reader must know beside the rates."""
    summary, found = view.summary, []
    counts = [
        f"{count} {what}"
        for count, what in (
            (summary.abstained, "abstained"),
            (summary.wrong, "answered wrongly"),
            (summary.errors, "without an answer"),
        )
        if count
    ]
    if not view.is_complete:
        examples, texts = view.missing
        found.append(f"Rows of {examples} examples and of {texts} of attacks are missing: run the command again.")
    if counts:
        found.append(f"Of {summary.n} examples {', '.join(counts)}; none of these is certified.")
    found += _about_substitutes(summary) + _about_the_deployed_vote(summary) + _about_alternatives(view)
    swaps = [result.details for result in view.results if result.details.get("swaps")]
    if swaps:
        total, inside = (sum(int(details[key]) for details in swaps) for key in ("swaps", "swaps_inside"))
        words = sum(int(details["words_inside"]) > 0 for details in swaps)
        found.append(
            f"{inside:,} of {total:,} single swaps of synonyms lie inside the ball; in {words} of {len(swaps)} "
            "texts any one word may be swapped without leaving it."
        )
    found += _about_own_attack(view) + _about_attacks(view)
    if view.refuted:
        found.append(f"{len(view.refuted)} certificates are refuted, which is a bug: {', '.join(view.refuted[:3])}")
    return found


def _about_alternatives(view: CertificateView) -> list[str]:
    others = [str(each) for each in view.header.get("alternatives") or ()]
    if not others:
        return []
    alpha = float((view.header.get("settings") or {}).get("parameters", {}).get("alpha", 0.0))
    tries = len(others) + 1
    return [
        f"The same classifier and examples were certified {tries} times, with other draws or noise (also "
        f"{', '.join(others)}). Whoever takes the best of {tries} has false certificates with a chance of up to "
        f"{tries * alpha:g} an example, not {alpha:g}: settle n, alpha, sigma and seed beforehand, on other data."
    ]


def _about_own_attack(view: CertificateView) -> list[str]:
    if view.own_attack is None:
        return []
    points = [each for each in view.challenges if each["attack"] == view.own_attack]
    within = sum(bool(each["inside"]) for each in points)
    right = sum(result.is_right for result in view.results)
    turned = len({each["example"] for each in points if is_fooled(each)})
    told = f"{view.own_attack} attacked {within} examples within their certificates"
    told += "." if view.refuted else " and turned none of them."
    if len(points) > within:
        furthest = max(float(each["within"]) for each in points)
        told += f" Beyond them it turned {turned} of {right} right answers within {furthest:.3g}."
    return [told]


def _about_attacks(view: CertificateView) -> list[str]:
    names = [name for name in view.attacks if name != view.own_attack]
    texts = [each for each in view.challenges if each["attack"] != view.own_attack]
    if not names:
        if view.own_attack is not None:
            return []
        told = "No attack of this run keeps to the threat model, so nothing was held against the certificates."
        return [told + (" One that does: --attack pwws -P table=TABLE." if view.unit == "words" else "")]
    named = ", ".join(names)
    missing = len({result.id for result in view.results} - {key for ids in view.attacks.values() for key in ids})
    fooled = sum(map(is_fooled, texts))
    held = "1 adversarial example" if len(texts) == 1 else f"{len(texts)} adversarial examples"
    told = (
        f"Held against the certificates: {held} of {named}, of which {fooled} fool{'s' if fooled == 1 else ''} the "
        "certified classifier"
    )
    told += "." if view.refuted else ", none inside its certificate."
    if not texts:
        told = f"{named} found nothing within the threat model that would have to be held against the certificates."
    if view.unit == "radius" and texts:
        told += f" The nearest lies {min(float(each['needs']) for each in texts):.3g} away."
    if not view.header.get("is_deployed"):
        told += " They were found against the model without this smoothing, so they are weaker than they could be."
    if missing:
        told += f" Of {missing} of the examples no attack is known, so accuracy under attack is not given."
    return [told]


def _about_substitutes(summary: CertificateSummary) -> list[str]:
    """How much of the rate is trivial."""
    own, found = summary.substitutes, []
    if own is None:
        return []
    if own.none:
        are, them = ("is", "it") if own.none == 1 else ("are", "them")
        found.append(f"{own.none} {are} certified because nothing in {them} can be substituted.")
    if own.whole:
        has = "1 has" if own.whole == 1 else f"{own.whole} have"
        found.append(f"{has} only sets that overlap wholly (product of q = 1): there any p above one half is enough.")
    if own.synonyms:
        told = (
            f"The median certified text has {own.substitutable:g} of {own.words:g} words with synonyms, "
            f"{own.synonyms:g} synonyms in all"
        )
        found.append(told + ("." if own.overlap is None else f", and a product of q of {own.overlap:.3f}."))
    return found


def _about_the_deployed_vote(summary: CertificateSummary) -> list[str]:
    """What a vote of finitely many draws keeps of what is certified about the vote of all of them."""
    own = summary.deployed
    if own is None:
        return []
    needed = "more than a million draws" if own.draws_for_1_percent is None else f"{own.draws_for_1_percent:,} draws"
    if own.draws is None or own.mean is None or own.worst is None:
        return [
            "Certified is the vote of all draws. A vote of finitely many may err where its class has little more than "
            f"half: in the worst case half of the certified examples need {needed} for a chance of 1 %."
        ]
    return [
        f"Certified is the vote of all draws; deployed is one of {own.draws}. In the worst case within its certificate "
        f"an example leaves its class with a chance of at most {percent(own.mean)} on average "
        f"({percent(own.worst)} where that is largest); half of them need {needed} for 1 % (-V draws=...)."
    ]
