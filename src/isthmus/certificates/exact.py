"""An exact certificate: every text of the space is classified, or bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from isthmus.attacks.parts.protection import Protection
from isthmus.certificates._substitutions import SubstitutionSpace
from isthmus.certificates._votes import groups
from isthmus.certificates.base import (
    Certificate,
    Certified,
    Challenge,
    ChallengeAnswer,
    Statement,
    make_certified,
    make_failed,
)
from isthmus.certificates.synonym import table_of
from isthmus.core.errors import UsageError
from isthmus.core.types import Example, Texts, Victim

_TEXTS_AT_ONCE = 8_192
_EXAMPLES_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Exact(Certificate):
    """Classify every text that synonym substitution can make, or compute bounds for all of them at once.

        enumeration   f(x') = f(x) for every x' with up to r words substituted, r as large as `limit` texts allow
        intervals     min over the whole space of (logit_A - logit_c) > 0, bounded layer by layer (`cnn`, `lstm`)

    The intervals are tried first where the network has them: one pass covers a space of any size. What they leave open
    is enumerated shell by shell: all texts with one word substituted, then with two, until one is answered otherwise,
    the space is exhausted, or the next shell would exceed the limit.

    References:
        Jia, Raghunathan, Göksel, Liang: Certified Robustness to Adversarial Word Substitutions. EMNLP 2019.
        Huang et al.: Achieving Verified Robustness to Symbol Substitutions via Interval Bound Propagation. EMNLP 2019.

    Where we depart:
        Bounds start behind the first linear map and are taken over the synonyms themselves, which is tighter than the
        box around their embeddings. There is no language-model constraint on the substitutions.

    Relations:
        `synonym` answers for any model and any number of words, with a probability and about a smoothed classifier;
        this answers about the model itself.

    Example:
        ``isthmus certify runs/cnn --certificate exact -P limit=20000 --n 200``
    """

    unit: ClassVar[Literal["radius", "words"]] = "words"

    table: str | None = None
    """Synonym table: safer, glove, a .json file or a run folder; by default the model's own, else safer."""
    limit: int = 5000
    """Maximum number of texts to classify per example."""
    intervals: bool = True
    """Bound a `cnn` or `lstm` over the whole space before enumerating it."""

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(
                f"limit is the number of texts that may be read for one example: at least 1, not {self.limit}"
            )

    def check(self, victim: Victim) -> None:
        """Refuse a victim that answers at random: it has no exact prediction."""
        super().check(victim)
        if victim.stochastic:
            raise UsageError(
                "exact reads each text once, and this model answers at random: use --certificate synonym or gaussian, "
                "or certify the model with the same draws for every text by -V fixed=true"
            )

    def statement(self, victim: Victim) -> Statement:
        """The claim about this victim."""
        return Statement(
            classifier="this model itself",
            threat_model="any substitution of up to a given number of words by synonyms of the table; nothing "
            f"inserted, deleted or misspelt ({table_of(victim, self.table).title})",
            probability="certain: nothing is drawn",
            assumptions=(
                "the model answers a text the same way whenever it is asked",
                "interval bounds allow, at every layer, for what the model's float32 sums can lose in whatever order "
                "they are added; TF32 and bfloat16 are off",
                "the attacker keeps to the table: another list of synonyms is another threat",
            ),
        )

    def resources(self, victim: Victim) -> Mapping[str, str]:
        """The synonym table."""
        return {"synonyms": table_of(victim, self.table).title}

    def is_deployed(self, victim: Victim) -> bool:
        """True: the certified classifier is the victim itself."""
        return True

    def certify(
        self, victim: Victim, examples: Sequence[Example], seed: int, protection: Protection
    ) -> Iterator[Certified]:
        """Compute bounds, then enumerate; the texts of many examples with the same number of changes share batches."""
        table = table_of(victim, self.table)
        for group in groups([1] * len(examples), _EXAMPLES_AT_ONCE):
            open_ = [
                _Open(example, SubstitutionSpace.of(example.texts, table, protection))
                for example in map(examples.__getitem__, group)
            ]
            self._first_look(victim, open_)
            count = 1
            while any(work.result is None for work in open_):
                self._shell(victim, [work for work in open_ if work.result is None], count)
                count += 1
            yield from (work.result for work in open_ if work.result is not None)

    def _first_look(self, victim: Victim, works: Sequence[_Open]) -> None:
        """Compute the clean predictions, and the bounds if the model has any."""
        from isthmus.certificates._intervals import bound_margin, is_bounded

        scores = victim.scores([work.example.texts for work in works])
        for work, own in zip(works, scores, strict=True):
            if not np.isfinite(own).all():
                work.result = make_failed(work.example, "the model answered NaN")
                continue
            work.prediction = int(own.argmax())
            if work.prediction != work.example.label:
                work.close(0.0, "none")
            elif not work.space.positions:
                work.close(math.inf, "none")
            elif self.intervals and is_bounded(victim):
                work.margin = bound_margin(victim.model, work.space, work.prediction)  # type: ignore[attr-defined]
                if work.margin is not None and work.margin > 0:
                    work.close(math.inf, "intervals")

    def _shell(self, victim: Victim, works: Sequence[_Open], count: int) -> None:
        """Classify all texts with `count` words substituted, for the examples whose budget allows it."""
        reading: list[tuple[_Open, list[dict[str, str]]]] = []
        for work in works:
            if count > len(work.space.positions):
                work.close(math.inf, "enumeration")
            elif work.read + work.space.shell(count) > self.limit:
                work.close(count - 1.0, "enumeration" if count > 1 else "none")
            else:
                reading.append((work, list(work.space.texts(count))))
        for group in groups([len(texts) for _, texts in reading], _TEXTS_AT_ONCE):
            chosen = [reading[place] for place in group]
            scores = victim.scores([text for _, texts in chosen for text in texts])
            start = 0
            for work, texts in chosen:
                own = scores[start : start + len(texts)]
                start += len(texts)
                work.read += len(texts)
                if not np.isfinite(own).all():
                    work.result = make_failed(work.example, "the model answered NaN for a substitution")
                    continue
                other = np.flatnonzero(own.argmax(axis=1) != work.prediction)
                if len(other):
                    work.close(count - 1.0, "enumeration", texts[int(other[0])])

    def needs(self, victim: Victim, example: Example, texts: Texts, protection: Protection) -> float | None:
        """Number of words substituted."""
        return SubstitutionSpace.of(example.texts, table_of(victim, self.table), protection).distance(texts)

    def challenge(self, victim: Victim, challenges: Sequence[Challenge], seed: int) -> list[ChallengeAnswer]:
        """The victim's own predictions."""
        scores = victim.scores([challenge.texts for challenge in challenges])
        return [
            ChallengeAnswer(int(own.argmax()), int(own.argmax()) != challenge.prediction)
            if np.isfinite(own).all()
            else ChallengeAnswer(challenge.prediction, False, {"unanswered": True})
            for own, challenge in zip(scores, challenges, strict=True)
        ]


@dataclass(slots=True)
class _Open:
    """An example that is not finished yet."""

    example: Example
    space: SubstitutionSpace
    prediction: int = -1
    read: int = 0
    margin: float | None = None
    result: Certified | None = None

    def close(self, strength: float, method: str, counterexample: Mapping[str, str] | None = None) -> None:
        """Finish the example: make its result."""
        details: dict[str, Any] = {
            "method": method,
            **self.space.sizes(),
            "space": self.space.size if self.space.size < 2**53 else None,
            "texts_read": self.read,
            "margin": self.margin,
            "counterexample": None if counterexample is None else dict(counterexample),
        }
        self.result = make_certified(self.example, self.prediction, strength, **details)
