"""Cohen's certificate for Gaussian noise on the embedding sequence, or on the pixels of an image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from isthmus.attacks.parts.protection import Protection
from isthmus.certificates._votes import (
    CHOSEN_BEFORE,
    Ballot,
    answer_challenge,
    check_draws,
    groups,
    lower_bound,
    probability,
    radius,
    two_stages,
)
from isthmus.certificates.base import (
    Certificate,
    Certified,
    Challenge,
    ChallengeAnswer,
    Probe,
    Statement,
    make_certified,
    make_failed,
)
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Example, ImageClassification, Texts, Victim

if TYPE_CHECKING:
    from isthmus.certificates._gaussian_noise import NoisyReader
    from isthmus.certificates._pixel_noise import PixelReader
    from isthmus.lexicon.synonyms import SynonymTable

_OF_SEVERAL_DRAWS = (
    "draws", "fixed", "answer", "aggregate", "k0", "k1", "two_step", "accept_rule", "level", "min_count", "candidates",
)  # fmt: skip
_VOTE = (
    "it lets n draws of a single noisy pass vote, whatever the model itself makes of several; remove it, set "
    "-P n0 and -P n, or change the pass by -V masked, -V masking or -V deployed"
)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Certificate):
    """Certify that no change of the embeddings within a radius changes the smoothed prediction (Cohen et al., 2019).

        g(e) = argmax_c P[ f(e + σε) = c ],  ε ~ N(0, I) on every token that is not padding
        R = σ Φ⁻¹(p),  p a lower bound of P[ f(e + σε) = A ];  abstains where p <= 1/2

    g is constant on the L2 ball of radius R around the flattened embedding sequence e; of an image e are its pixels, in
    [0, 1], and noisy ones are not clipped. f may be random itself (noise
    inside the encoder) and may mask words, as long as the mask comes from the noisy embeddings: noise and mask are then
    part of f, and the argument never looks inside it. Gaussian noise that the model itself puts on its embeddings adds
    to σ (the root of the sum of squares).

    References:
        Cohen, Rosenfeld, Kolter: Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.

    Where we depart:
        Cohen's one-sided test is theirs, on embeddings instead of pixels. The radius printed in the RSMI paper,
        1/(2σ) Π (1 + σ_l²) (Φ⁻¹(p_A) - Φ⁻¹(p_B)), is not used: a radius must grow with σ, and a linear classifier at
        a distance of 0.3 would get 1.2 at σ = 0.5. `paper_radius` shows it in a column named "not a certificate".

    Relations:
        The measure `embedding_pgd` attacks the same ball; with `pgd` its attack checks every certificate, and
        accuracy under it is drawn above certified accuracy. `synonym` certifies substitutions of words, which an
        embedding ball does not: whether actual swaps lie inside the ball is counted beside it (`table`).

    Example:
        ``isthmus certify runs/demo --certificate gaussian -P sigma=0.05 --n 200``
    """

    unit: ClassVar[Literal["radius", "words"]] = "radius"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "images")

    sigma: float = 0.05
    """Standard deviation of the noise on every coordinate of every token's embedding, or on every pixel."""
    n0: int = 100
    """Number of draws that choose the class."""
    n: int = 1000
    """Number of draws that estimate its probability."""
    alpha: float = 0.001
    """Probability that the certificate of an example is wrong."""
    table: str | None = None
    """Synonym table whose swaps are counted inside the ball; by default the model's own, if it has one."""
    paper_radius: bool = False
    """Add the radius that the RSMI paper prints, in a column named "not a certificate"."""
    pgd: int = 0
    """Steps of an attack on the embeddings that every certificate has to withstand; 0 makes none."""
    pgd_draws: int = 16
    """Number of draws to average its gradient over."""
    pgd_restarts: int = 1
    """Number of its restarts."""

    def __post_init__(self) -> None:
        if not self.sigma > 0 or math.isinf(self.sigma):
            raise UsageError(
                f"sigma={self.sigma:g}: without noise there is no ball to certify; give a positive number such as 0.05"
            )
        check_draws(self.alpha, self.n0, self.n)
        if self.pgd < 0:
            raise UsageError(f"pgd is the number of steps of an attack (0: no attack), not {self.pgd}")
        if self.pgd_draws < 1 or self.pgd_restarts < 1:
            raise UsageError(f"pgd_draws and pgd_restarts are at least 1, not {self.pgd_draws} and {self.pgd_restarts}")

    def check(self, victim: Victim) -> None:
        """Refuse a victim whose model is not at hand: the noise is added to its embeddings."""
        super().check(victim)
        if reads_pixels(victim):
            if self.pgd or self.table is not None or self.paper_radius:
                raise UsageError(
                    "pgd, table and paper_radius are about texts: leave them out. Adversarial images of the run's "
                    "attacks are checked against the certificates"
                )
            return
        if not hasattr(getattr(victim, "model", None), "embed"):
            raise UsageError(
                f"gaussian puts noise on word embeddings, and a {type(victim).__name__} has none that can be reached: "
                "certify a run or a transformers model, or use --certificate synonym"
            )

    def options_without_effect(self, victim: Victim) -> Mapping[str, str]:
        """Options of averaging several draws: the certified classifier is the model's single pass, masks included."""
        del victim
        return dict.fromkeys(_OF_SEVERAL_DRAWS, _VOTE)

    def statement(self, victim: Victim) -> Statement:
        """The claim about this victim."""
        from isthmus.certificates._gaussian_noise import masks_of

        masks, sigma = masks_of(victim), self._reader(victim).total_sigma
        if reads_pixels(victim):
            has_pixels = victim.model.task.has_pixels  # type: ignore[attr-defined]
            what, whole = ("pixels, in [0, 1],", "image") if has_pixels else ("features", "vector")
            return Statement(
                classifier=f"the majority vote of this model under Gaussian noise of deviation {sigma:g} on the "
                f"{what.split(',')[0]}, not the model without noise",
                threat_model=f"any change of the {what} whose L2 norm over the whole {whole} is within the radius",
                probability=probability(self.alpha),
                assumptions=(
                    "the draws of different samples are independent",
                    "noise inside the model belongs to the classifier",
                    "the proof is about real numbers: rounding of pixels and noise to float32 is not accounted for",
                    CHOSEN_BEFORE,
                ),
            )
        told = ""
        if masks is not None:
            count = f"{masks.masked} word{'s' * (masks.masked > 1)}"
            told = f", with {count} masked in each draw as its noisy embeddings say"
        return Statement(
            classifier=f"the majority vote of this model under Gaussian noise of deviation {sigma:g} on the "
            f"embeddings of all tokens{told}, not the model without noise",
            threat_model="any change of the embeddings whose L2 norm over the flattened sequence is within the radius, "
            "with the number of tokens kept",
            probability=probability(self.alpha),
            assumptions=(
                "the draws of different samples are independent",
                "noise inside the model and masks computed from the noisy embeddings belong to the classifier",
                "an embedding ball is not a set of synonyms: a swap is covered only if it lies within the radius",
                "the proof is about real numbers: rounding of embeddings and noise to float32 is not accounted for",
                CHOSEN_BEFORE,
            ),
        )

    def resources(self, victim: Victim) -> Mapping[str, str]:
        """The synonym table of the swaps."""
        table = self._table(victim)
        return {} if table is None else {"synonyms": table.title}

    def certify(
        self, victim: Victim, examples: Sequence[Example], seed: int, protection: Protection
    ) -> Iterator[Certified]:
        """Select the class, estimate its probability, compute the radius; several examples share a batch."""
        reader: Any = self._reader(victim)
        table, images = self._table(victim), reads_pixels(victim)
        for group in groups([self.n0 + self.n] * len(examples), reader.rows_at_once):
            chosen = [examples[place] for place in group]
            rows = reader.encode([example.inputs for example in chosen])
            selection, estimation = two_stages(
                reader, rows, [example.id for example in chosen], seed, self.n0, self.n, "gaussian"
            )
            for example, row, first, second in zip(chosen, rows, selection, estimation, strict=True):
                if first.sum() < self.n0 or second.sum() < self.n:
                    yield make_failed(example, "the model answered NaN for some draws")
                    continue
                votes = int(second[first.argmax()])
                p = lower_bound(votes, self.n, self.alpha)
                reach = radius(p, reader.total_sigma)
                details: dict[str, Any] = {
                    "p_lower": p, "votes": votes, "draws": self.n, "selection": first.tolist()
                }  # fmt: skip
                if images:
                    yield make_certified(example, int(first.argmax()), reach, **details)
                    continue
                details["tokens"] = len(row[0])
                if table is not None and reach >= 0:
                    details |= reader.swaps_inside(example, table, protection, reach)
                if self.paper_radius:
                    details["not a certificate"] = (
                        paper_radius(reader.total_sigma, p, reader.inner_noise) if reach >= 0 else None
                    )
                yield make_certified(example, int(first.argmax()), reach, **details)

    def needs(self, victim: Victim, example: Example, texts: Texts, protection: Protection) -> float | None:
        """L2 distance of the embeddings; None if the number of tokens differs."""
        return self._reader(victim).distance(example.inputs, texts)

    def challenge(self, victim: Victim, challenges: Sequence[Challenge], seed: int) -> list[ChallengeAnswer]:
        """Majority votes of the smoothed classifier on other texts."""
        reader = self._reader(victim)
        rows = reader.encode([challenge.texts for challenge in challenges])
        keys = [derive(seed, "certify", "gaussian", "challenge", challenge.key) for challenge in challenges]
        votes = reader.votes([Ballot(row, key, self.n) for row, key in zip(rows, keys, strict=True)])
        return [
            answer_challenge(own, challenge, self.n, self.alpha)
            for own, challenge in zip(votes, challenges, strict=True)
        ]

    @property
    def own_attack(self) -> str | None:
        """Gradient ascent on the embeddings, if requested."""
        return "embedding_pgd" if self.pgd else None

    def probe(self, victim: Victim, probes: Sequence[Probe], seed: int) -> list[ChallengeAnswer]:
        """Perturb the embeddings by gradient ascent within each radius, and let the smoothed classifier vote there."""
        from isthmus.attacks.gradient.parts.embedding_ascent import EmbeddingAscent

        reader: Any = self._reader(victim)
        ascent = EmbeddingAscent(self.pgd, None, self.pgd_restarts, self.pgd_draws)

        def keys(stage: str) -> list[int]:
            return [derive(seed, "certify", "gaussian", stage, probe.key) for probe in probes]

        rows = reader.attack(
            ascent,
            reader.encode([probe.texts for probe in probes]),
            [probe.prediction for probe in probes],
            [probe.strength for probe in probes],
            keys("ascent"),
        )
        votes = reader.votes([Ballot(row, key, self.n) for row, key in zip(rows, keys("challenge"), strict=True)])
        return [
            replace(answer_challenge(own, probe, self.n, self.alpha), needs=row.length)
            for own, probe, row in zip(votes, probes, rows, strict=True)
        ]

    def _reader(self, victim: Victim) -> NoisyReader | PixelReader:
        from isthmus.certificates._gaussian_noise import NoisyReader
        from isthmus.certificates._pixel_noise import PixelReader

        return PixelReader(victim, self.sigma) if reads_pixels(victim) else NoisyReader(victim, self.sigma)

    def _table(self, victim: Victim) -> SynonymTable | None:
        from isthmus.lexicon.by_name import load_table

        own: SynonymTable | None = getattr(victim, "table", None)
        return own if self.table is None else load_table(self.table)


def reads_pixels(victim: Victim) -> bool:
    """Whether the victim is an image classifier."""
    return isinstance(getattr(getattr(victim, "model", None), "task", None), ImageClassification)


def paper_radius(sigma: float, p: float, inner_noise: Sequence[float] = ()) -> float:
    """The radius printed in the RSMI paper, 1/(2σ) Π (1 + σ_l²) (Φ⁻¹(p_A) - Φ⁻¹(1 - p_A)): not a certificate."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(p) / sigma * math.prod(1 + other**2 for other in inner_noise)
