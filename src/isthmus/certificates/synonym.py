"""SAFER's certificate for the substitution of synonyms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from isthmus.attacks.parts.protection import Protection
from isthmus.certificates._substitutions import SubstitutionSpace
from isthmus.certificates._votes import (
    CHOSEN_BEFORE,
    Ballot,
    answer_challenge,
    check_draws,
    count_draws_needed,
    groups,
    leaving,
    lower_bound,
    probability,
    two_stages,
)
from isthmus.certificates.base import (
    Certificate,
    Certified,
    Challenge,
    ChallengeAnswer,
    Statement,
    make_certified,
    make_failed,
)
from isthmus.core.seeds import derive
from isthmus.core.types import Example, Ints, Texts, Victim
from isthmus.inference.synonym_reading import reader_of
from isthmus.lexicon.by_name import load_table
from isthmus.lexicon.synonyms import SynonymTable

_ROWS_AT_ONCE = {"cpu": 4_096, "cuda": 65_536}
_TEXTS_AT_ONCE = 8_192


@dataclass(frozen=True, kw_only=True)
class Synonym(Certificate):
    """Certify that no substitution of synonyms changes the vote over random synonyms (Ye et al., 2020).

        g(x) = argmax_c P[ f(z) = c ],  z_i drawn from P(x_i), the perturbation set of word i
        certified for r words where   p - 1 + q_(1) q_(2) … q_(r) > 1/2

    with p a lower bound of P[ f(z) = A ] and q_(1) <= q_(2) <= … the overlaps q(x_i) of the words that can be
    substituted (`isthmus.lexicon.synonyms`). Substituting r words moves the distribution of z by at most
    1 - q_(1) … q_(r) in total variation, whichever words they are: only the r smallest overlaps are multiplied.

    g takes the class of the largest probability, which no finite vote knows. What a vote of k draws does in the worst
    case within the certificate follows from the share w = p - 1 + q_(1) … q_(r) that the class is sure to keep:

        P[ the vote of k draws leaves A ]  <=  P[ Bin(k, w) <= k/2 ]

    Each row has w, this chance for the k that the model is deployed with, and the k for which it is 1 %.

    References:
        Ye, Gong, Liu: SAFER: A Structure-free Approach for Certified Robustness to Adversarial Word Substitutions.
        ACL 2020.

    Where we depart:
        The released script counts votes without choosing the class by other draws and adds a fixed margin of 0.01: here
        selection and estimation draws are separate, and the margin is Clopper and Pearson's. q uses the larger of the
        two sets, which is SAFER's number where both have one size and stays right where a user's table has others.

    Relations:
        `exact` needs no smoothing and no probability where the space is small or the model a `cnn` or `lstm`;
        `gaussian` speaks about embeddings. The defence `safer` trains a model for this, with the same table.

    Example:
        ``isthmus certify runs/safer --certificate synonym --n 200``
    """

    unit: ClassVar[Literal["radius", "words"]] = "words"

    table: str | None = None
    """Synonym table: safer, glove, a .json file or a run folder; by default the model's own, else safer."""
    n0: int = 100
    """Number of draws that choose the class."""
    n: int = 1000
    """Number of draws that estimate its probability."""
    alpha: float = 0.001
    """Probability that the certificate of an example is wrong."""

    def __post_init__(self) -> None:
        check_draws(self.alpha, self.n0, self.n)

    def options_without_effect(self, victim: Victim) -> Mapping[str, str]:
        """Options of how the model itself draws synonyms: the certificate draws them instead."""
        deployment = getattr(getattr(victim, "model", None), "deployment", None)
        if getattr(deployment, "kind", None) != "synonyms":
            return {}
        return {
            **dict.fromkeys(("draws", "answer", "fixed"), "it draws synonyms itself; remove it, or set -P n0 and -P n"),
            "deployed": "it reads the model underneath anyway; remove it, or name another table by -P table",
        }

    def statement(self, victim: Victim) -> Statement:
        """The claim about this victim."""
        return Statement(
            classifier="the majority vote of this model over texts whose words are drawn from their perturbation sets, "
            "not the model on the text itself",
            threat_model="any substitution of up to a given number of words by synonyms of the table; nothing "
            f"inserted, deleted or misspelt ({table_of(victim, self.table).title})",
            probability=probability(self.alpha),
            assumptions=(
                "the draws of different words and of different samples are independent",
                "synonymy goes both ways in the table",
                CHOSEN_BEFORE,
                "the attacker keeps to the table: another list of synonyms is another threat",
            ),
        )

    def resources(self, victim: Victim) -> Mapping[str, str]:
        """The synonym table."""
        return {"synonyms": table_of(victim, self.table).title}

    def is_deployed(self, victim: Victim) -> bool:
        """Whether the victim itself votes over draws from this table."""
        own: SynonymTable | None = getattr(victim, "table", None)
        # Behind a front end the draws are those of the text as it was read, not of the text itself.
        votes = getattr(victim, "answer", "vote") == "vote" and not hasattr(victim, "inner")
        return own is not None and votes and own.fingerprint == table_of(victim, self.table).fingerprint

    def certify(
        self, victim: Victim, examples: Sequence[Example], seed: int, protection: Protection
    ) -> Iterator[Certified]:
        """Select the class, estimate its probability, count the words; several examples share a batch."""
        table = table_of(victim, self.table)
        voter = SynonymVoter(base_of(victim), table)
        deployed = int(getattr(victim, "draws", 0)) if self.is_deployed(victim) else None
        for group in groups([self.n0 + self.n] * len(examples), voter.rows_at_once):
            chosen = [examples[place] for place in group]
            texts, ids = [example.texts for example in chosen], [example.id for example in chosen]
            for example, first, second in zip(
                chosen, *two_stages(voter, texts, ids, seed, self.n0, self.n, "synonym"), strict=True
            ):
                if first.sum() < self.n0 or second.sum() < self.n:
                    yield make_failed(example, "the model answered NaN for some draws")
                    continue
                space = SubstitutionSpace.of(example.texts, table, protection)
                overlaps = sorted(table.overlap(space.words[place]) for place in space.positions)
                yield self._settle(example, space, overlaps, first, second, deployed)

    def _settle(
        self,
        example: Example,
        space: SubstitutionSpace,
        overlaps: Sequence[float],
        first: Ints,
        second: Ints,
        deployed: int | None,
    ) -> Certified:
        votes = int(second[first.argmax()])
        p = lower_bound(votes, self.n, self.alpha)
        held = substitutions(p, overlaps)
        share = p - 1 + math.prod(overlaps[: int(min(held, len(overlaps)))]) if held >= 0 else None
        return make_certified(
            example,
            int(first.argmax()),
            held,
            p_lower=p,
            votes=votes,
            draws=self.n,
            selection=first.tolist(),
            **space.sizes(),
            overlap=math.prod(overlaps),
            worst_share=share,
            deployed_draws=deployed,
            deployed_leaves=None if share is None or deployed is None else leaving(share, deployed),
            draws_for_1_percent=None if share is None else count_draws_needed(share),
        )

    def needs(self, victim: Victim, example: Example, texts: Texts, protection: Protection) -> float | None:
        """Number of words substituted."""
        return SubstitutionSpace.of(example.texts, table_of(victim, self.table), protection).distance(texts)

    def challenge(self, victim: Victim, challenges: Sequence[Challenge], seed: int) -> list[ChallengeAnswer]:
        """Majority votes of the smoothed classifier on other texts."""
        table = table_of(victim, self.table)
        voter = SynonymVoter(base_of(victim), table)
        keys = [derive(seed, "certify", "synonym", "challenge", challenge.key) for challenge in challenges]
        ballots = [Ballot(challenge.texts, key, self.n) for challenge, key in zip(challenges, keys, strict=True)]
        return [
            answer_challenge(votes, challenge, self.n, self.alpha)
            for votes, challenge in zip(voter.votes(ballots), challenges, strict=True)
        ]


def substitutions(p: float, overlaps: Sequence[float]) -> float:
    """Number of words for which p - 1 + Π q > 1/2, the smallest q first; infinite: all of them, negative: none."""
    if p <= 0.5:
        return -1.0
    product = 1.0
    for held, overlap in enumerate(sorted(overlaps)):
        product *= overlap
        if p - 1 + product <= 0.5:
            return float(held)
    return math.inf


def table_of(victim: Victim, source: str | None) -> SynonymTable:
    """The requested table, else the victim's own, else SAFER's."""
    own: SynonymTable | None = getattr(victim, "table", None)
    if source is not None:
        return load_table(source)
    return own if own is not None else load_table("safer")


def base_of(victim: Victim) -> Victim:
    """The classifier that a victim with random synonyms applies to each draw; other victims themselves."""
    base: Victim | None = getattr(victim, "base", None)
    return victim if base is None or getattr(victim, "table", None) is None else base


class SynonymVoter:
    """The base classifier on texts whose words are drawn."""

    def __init__(self, base: Victim, table: SynonymTable) -> None:
        self.base, self.reader = base, reader_of(base, table)
        kind = getattr(base, "device_type", "cpu")
        self.rows_at_once = _ROWS_AT_ONCE.get(kind, _ROWS_AT_ONCE["cpu"])

    def votes(self, ballots: Sequence[Ballot]) -> Ints:
        """Count the votes for each class [ballots, classes]."""
        counts = np.zeros((len(ballots), len(self.base.labels)), np.int64)
        parts = [
            (number, own)
            for number, ballot in enumerate(ballots)
            for own in np.split(ballot.keys(), range(_TEXTS_AT_ONCE, ballot.draws, _TEXTS_AT_ONCE))
        ]
        for group in groups([len(own) for _, own in parts], _TEXTS_AT_ONCE):
            numbers, keys = [parts[place][0] for place in group], [parts[place][1] for place in group]
            scores = self.reader.scores([ballots[number].text for number in numbers], keys)
            owners = np.repeat(numbers, [len(own) for own in keys])
            whole = np.isfinite(scores).all(axis=1)
            # add.at and not +=: a ballot has many draws here, and each is counted.
            np.add.at(counts, (owners, np.nan_to_num(scores).argmax(axis=1)), whole)
        return counts
