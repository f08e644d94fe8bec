"""Figures of a certificate, computed from its results alone.

With N examples asked for, of which every one has a result:

    clean accuracy      right answers of the certified classifier / N
    certified(s)        examples whose right answer holds up to strength s / N
    empirical(s)        right answers that nothing within strength s, found by an attack, turned / N

certified(s) <= empirical(s) example by example, whatever the attack: a text that an attack found within the reach of an
example's certificate and that the certified classifier answers otherwise refutes it, which is a bug and not a result.
For a randomised classifier such a text refutes if the certified class is surely below one half; a bare majority of
draws against it may be chance. An abstention, an error and a wrong answer are never certified. Rates carry Wilson
intervals.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.statistics import Interval, wilson
from isthmus.runs.folder import AttackFile, RunFolder

if TYPE_CHECKING:
    from isthmus.certificates.base import Certified

ChallengeRows = Sequence[Mapping[str, Any]]
"""Texts that attacks found and what the certified classifier says of them, as their journal holds them."""


@dataclass(frozen=True)
class Level:
    """The rates at one strength."""

    strength: float
    certified: Interval
    empirical: Interval | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; an infinite strength is ``all``."""
        return {
            "strength": "all" if math.isinf(self.strength) else self.strength,
            "certified": self.certified.to_dict(),
            "empirical": None if self.empirical is None else self.empirical.to_dict(),
        }


@dataclass(frozen=True)
class DeployedVote:
    """The worst case of the deployed finite vote where the vote of all draws is certified."""

    draws: int | None
    """Of the deployed model; None where it is not deployed as this vote."""
    mean: float | None
    """The chance that it leaves the certified class, at most, on average over the certified examples."""
    worst: float | None
    """And of the example where that is largest."""
    draws_for_1_percent: int | None
    """Draws for which the chance is at most 1 % for half of the certified examples; None: more than a million."""


@dataclass(frozen=True)
class SubstituteCounts:
    """The number of substitutes in the certified texts."""

    none: int
    """Texts without a word that can be substituted: certified for any classifier that classifies them correctly."""
    whole: int | None
    """Texts with such words whose sets all overlap completely (product of q = 1): the bound needs only p > 1/2."""
    words: float
    """The median text's words."""
    substitutable: float
    """Number of its words with synonyms."""
    synonyms: float
    """Total number of synonyms."""
    overlap: float | None
    """The median product of q."""


@dataclass(frozen=True)
class CertificateSummary:
    """The figures of one certificate on one sample."""

    n: int
    clean: Interval
    abstained: int
    wrong: int
    errors: int
    substitutes: SubstituteCounts | None
    """Where the certificate is about words, and something was certified."""
    deployed: DeployedVote | None
    """Where it is about a vote over synonyms, and something was certified."""
    levels: tuple[Level, ...]
    """From the clean text on."""
    challenged: int
    """Adversarial texts, and points of its own attack, that were checked against it."""
    attacks: tuple[str, ...]
    """The attacks they come from."""

    @property
    def nothing(self) -> int:
        """Number certified without anything to substitute: only protected words, or none in the table."""
        return 0 if self.substitutes is None else self.substitutes.none

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "n": self.n,
            "clean": self.clean.to_dict(),
            "outcomes": {
                "certified": self.n - self.abstained - self.wrong - self.errors,
                "abstained": self.abstained,
                "wrong": self.wrong,
                "error": self.errors,
            },
            "nothing_to_substitute": self.nothing,
            "substitutes": None if self.substitutes is None else asdict(self.substitutes),
            "deployed": None if self.deployed is None else asdict(self.deployed),
            "levels": [level.to_json() for level in self.levels],
            "challenged": self.challenged,
            "attacks": list(self.attacks),
        }


def accuracy_at(results: Sequence[Certified], strength: float) -> Interval:
    """Certified accuracy at a strength."""
    holds = sum(result.outcome == "certified" and result.strength >= strength for result in results)
    return wilson(holds, len(results))


def is_fooled(challenge: Mapping[str, Any]) -> bool:
    """Whether the certified classifier predicts another class; inside a certificate a bare majority may be chance."""
    return bool(challenge["refutes"]) or (challenge["prediction"] != challenge["certified"] and not challenge["inside"])


def summarise_certificate(
    results: Sequence[Certified],
    unit: str,
    challenges: ChallengeRows = (),
    attacks: Mapping[str, Iterable[str]] | None = None,
) -> CertificateSummary:
    """Compute the figures of `results`; `attacks` holds the examples that each counted attack has a result for."""
    certain = [result for result in results if result.outcome == "certified"]
    return CertificateSummary(
        n=len(results),
        clean=wilson(sum(result.is_right for result in results), len(results)),
        abstained=sum(result.outcome == "abstained" for result in results),
        wrong=sum(result.outcome == "wrong" for result in results),
        errors=sum(result.outcome == "error" for result in results),
        substitutes=_substitutes(certain) if unit == "words" and certain else None,
        deployed=_summarise_deployed([result for result in certain if result.details.get("worst_share") is not None]),
        levels=tuple(levels(results, grid(results, unit), challenges, attacks)),
        challenged=len(challenges),
        attacks=tuple(attacks or ()),
    )


def _substitutes(certain: Sequence[Certified]) -> SubstituteCounts:
    every = [result.details for result in certain]
    counted = [details for details in every if "synonyms" in details]  # Results of earlier versions do not say.
    overlaps = [details["overlap"] for details in every if details.get("overlap") is not None]

    def median(name: str) -> float:
        return float(statistics.median(int(details[name]) for details in counted)) if counted else 0.0

    return SubstituteCounts(
        none=sum(details.get("substitutable") == 0 for details in every),
        whole=sum(details["overlap"] == 1 and details["substitutable"] > 0 for details in every) if overlaps else None,
        words=median("words"),
        substitutable=median("substitutable"),
        synonyms=median("synonyms"),
        overlap=float(statistics.median(overlaps)) if overlaps else None,
    )


def _summarise_deployed(certain: Sequence[Certified]) -> DeployedVote | None:
    if not certain:
        return None
    every = [result.details for result in certain]
    chances = [float(details["deployed_leaves"]) for details in every if details.get("deployed_leaves") is not None]
    needed = statistics.median_high(details["draws_for_1_percent"] or math.inf for details in every)
    return DeployedVote(
        draws=next((details["deployed_draws"] for details in every if details.get("deployed_draws")), None),
        mean=statistics.fmean(chances) if chances else None,
        worst=max(chances, default=None),
        draws_for_1_percent=None if math.isinf(needed) else int(needed),
    )


_DRAWN = ("n", "n0", "alpha", "sigma")


def alternatives(folder: RunFolder, file: AttackFile, settings: Mapping[str, Any]) -> list[str]:
    """Other certificates of the same classifier on the same data that differ only in their draws or noise.

    Whoever takes the best of them, or one for one example and another for the next, has no certificate at alpha.
    """
    own = _apart_from_draws(settings)
    if not {"n0", "alpha"} <= set(settings.get("parameters") or {}):
        return []
    return [
        other.key
        for other in folder.certificate_files()
        if other.key != file.key and _apart_from_draws(other.header().get("settings") or {}) == own
    ]


def _apart_from_draws(settings: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {key: value for key, value in (settings.get("parameters") or {}).items() if key not in _DRAWN}
    return {**{key: value for key, value in settings.items() if key != "seed"}, "parameters": parameters}


def levels(
    results: Sequence[Certified],
    strengths: Sequence[float],
    challenges: ChallengeRows,
    attacks: Mapping[str, Iterable[str]] | None,
) -> list[Level]:
    """The rates at each strength; the empirical rate if every example was attacked within the threat model."""
    attacked = {key for found in (attacks or {}).values() for key in found}
    compared = bool(attacks) and {result.id for result in results} <= attacked
    turned: dict[str, float] = {}
    for challenge in challenges:
        if is_fooled(challenge):
            key = str(challenge["example"])
            turned[key] = min(turned.get(key, math.inf), float(challenge["needs"]))
    return [_level(results, strength, turned if compared else None) for strength in strengths]


def _level(results: Sequence[Certified], strength: float, turned: Mapping[str, float] | None) -> Level:
    certified = accuracy_at(results, strength)
    if turned is None:
        return Level(strength, certified, None)
    # Against all words every text that was found counts, however many words it took.
    held = sum(each.is_right and (each.id not in turned or turned[each.id] > strength) for each in results)
    return Level(strength, certified, wilson(held, len(results)))


def grid(results: Sequence[Certified], unit: str) -> list[float]:
    """Strengths at which rates are given: radii in round steps, or numbers of words up to all of them."""
    found = [result.strength for result in results if result.outcome == "certified"]
    finite = [strength for strength in found if not math.isinf(strength)]
    if unit == "words":
        most = int(max(finite, default=0.0))
        shown = [0, 1, 2, 3, 4, 5, *range(10, 101, 5)]
        return [float(count) for count in shown if count <= max(1, most)] + [math.inf]
    longest = max(finite, default=0.0)
    if longest <= 0:
        return [0.0]
    step = _round_step(longest / 6)
    return [round(step * place, 10) for place in range(math.ceil(longest / step) + 1)]


def _round_step(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value)
