"""Votes of a randomised classifier, and what they prove.

    p_A  >=  p = Beta⁻¹(α; k, n - k + 1)          Clopper and Pearson, with probability at least 1 - α over the draws

k of n draws voted for A, where A was chosen by other draws: a class chosen and estimated on the same draws would look
better than it is. Where every draw agrees p = α^(1/n), so that nothing can be certified unless α^(1/n) > 1/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

from isthmus.certificates.base import Challenge, ChallengeAnswer
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.statistics import clopper_pearson_lower
from isthmus.core.types import Ints, Keys
from isthmus.inference.synonym_draws import draw_keys


@dataclass(frozen=True, slots=True)
class Ballot:
    """Draws of one text: their number, and the key of their randomness."""

    text: Any
    key: int
    draws: int

    def keys(self) -> Keys:
        """One key per draw."""
        return draw_keys(self.key, self.draws)


class Voter(Protocol):
    """A randomised classifier of texts."""

    def votes(self, ballots: Sequence[Ballot]) -> Ints:
        """Votes for each class [ballots, classes]; fewer than the draws if an answer was NaN."""


def check_draws(alpha: float, n0: int, n: int) -> None:
    """Refuse numbers of draws that cannot certify anything, and say which could."""
    if not 0 < alpha < 1:
        raise UsageError(
            f"alpha is the chance that a certificate is wrong and lies strictly between 0 and 1, not {alpha}"
        )
    if n0 < 1:
        raise UsageError(f"n0 draws choose the class: at least 1, not {n0}")
    least = smallest_n(alpha)
    if n < least:
        raise UsageError(
            f"{n} draws can certify nothing at alpha={alpha:g}: even if all agree, the class is shown to have a "
            f"probability of only {alpha ** (1 / n) if n > 0 else 0:.3f}; the smallest n that could certify is {least}"
        )


def probability(alpha: float) -> str:
    """The confidence of a certificate, in words."""
    return (
        f"at least {1 - alpha:g} for each example, over the draws (Clopper-Pearson); of n examples at most "
        f"{alpha:g} n false certificates are to be expected"
    )


CHOSEN_BEFORE = (
    "the draws, alpha, the noise and the seed were chosen before any of these certificates was seen: certifying again "
    "with more draws after an abstention, or choosing by the certificates, costs the probability"
)
"""An assumption of every certificate that draws."""


def smallest_n(alpha: float) -> int:
    """The fewest draws after which α^(1/n) > 1/2."""
    return math.floor(math.log(alpha) / math.log(0.5)) + 1


def two_stages(
    voter: Voter, texts: Sequence[Any], ids: Sequence[str], seed: int, n0: int, n: int, name: str
) -> tuple[Ints, Ints]:
    """Votes of the selection draws and of the estimation draws, which share no randomness."""
    stages = [
        [Ballot(text, derive(seed, "certify", name, stage, key), draws) for text, key in zip(texts, ids, strict=True)]
        for stage, draws in (("selection", n0), ("estimation", n))
    ]
    votes = voter.votes([ballot for stage in stages for ballot in stage])
    return votes[: len(texts)], votes[len(texts) :]


def lower_bound(votes: int, n: int, alpha: float) -> float:
    """Lower confidence bound of a class's probability."""
    return clopper_pearson_lower(votes, n, alpha)


def upper_bound(votes: int, n: int, alpha: float) -> float:
    """Upper confidence bound of a class's probability."""
    return 1.0 - clopper_pearson_lower(n - votes, n, alpha)


def answer_challenge(votes: Ints, challenge: Challenge, n: int, alpha: float) -> ChallengeAnswer:
    """The majority class; it refutes a certificate if the certified class is significantly below one half.

    A draw that was not answered may have been for that class.
    """
    own = int(votes[challenge.prediction])
    at_most = own + n - int(votes.sum())
    return ChallengeAnswer(int(votes.argmax()), upper_bound(at_most, n, alpha) < 0.5, {"votes": own, "draws": n})


def leaving(share: float, draws: int) -> float:
    """The probability that a class of this share has no majority among k draws: P[Bin(k, w) <= k / 2].

    With more than half of the votes a class wins whatever the others have, so that of a vote between several classes
    this is an upper bound.
    """
    from scipy.stats import binom

    return float(binom.cdf(draws // 2, draws, share))


def count_draws_needed(share: float, chance: float = 0.01, most: int = 1_000_001) -> int | None:
    """The smallest odd number of draws whose majority errs with at most this probability; None: more than `most`."""
    if leaving(share, most) > chance:
        return None
    low, high = 0, (most - 1) // 2  # 2 i + 1 draws: the chance falls with i, for a share above one half
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if leaving(share, 2 * middle + 1) <= chance else (middle + 1, high)
    return 2 * low + 1


def radius(p: float, sigma: float) -> float:
    """Cohen's R = σ Φ⁻¹(p); negative if p is not above one half: the certificate abstains."""
    return sigma * NormalDist().inv_cdf(p) if p > 0.5 else -1.0


def groups(sizes: Sequence[int], most: int) -> list[range]:
    """Groups of consecutive items whose sizes add up to about `most`, at least one item each."""
    found, start, total = [], 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            found.append(range(start, place))
            start, total = place, 0
        total += size
    return [*found, range(start, len(sizes))] if sizes else []
