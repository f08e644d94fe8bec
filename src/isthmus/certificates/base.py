"""The base class of certificates: a method is one file, a frozen dataclass of its hyper-parameters.

    for result in certificate(victim, examples, seed=0):       one `Certified` per example, as they finish
        ...
    certificate.needs(example, result, text)                   how strong it would have to be to cover another text
    certificate.challenge(victim, challenges, seed=0)          what the certified classifier says of such texts
    certificate.probe(victim, probes, seed=0)                  and at the worst point that an attack of its own finds

A certificate is a claim about a classifier and everything within its threat model, and it is void if one text within
its reach is classified otherwise. So each can be asked how far away a given text is, and whether that text refutes it:
whoever has attacked the model can hold the claim against what the attack found.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

from isthmus.attacks.parts.protection import Protection
from isthmus.core.errors import RunError, UsageError
from isthmus.core.types import Example, Texts, Victim

_DECLINES = "it declines by itself where the draws do not show which class it is; remove it"
CertificateOutcome = Literal["certified", "wrong", "abstained", "error"]
_MEMBERS = ("id", "outcome", "label", "prediction", "strength", "reason")


@dataclass(frozen=True, slots=True)
class Statement:
    """The claim of a certificate in words, stored with every result."""

    classifier: str
    """Which classifier the claim is about."""
    threat_model: str
    probability: str
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Certified:
    """The result for one example.

    `certified`: the answer is right, and holds up to `strength` (0: for the text itself). `wrong`: it is another class
    than the label. `abstained`: the draws do not show which class it is.
    """

    id: str
    outcome: CertificateOutcome
    label: int | None
    """None where the data hold no example."""
    prediction: int | None = None
    strength: float = -1.0
    """The largest strength at which it holds: a radius, or a number of words (infinite: all). Negative: none."""
    details: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready record without clock times; an infinite strength is written as ``all``."""
        if self.label is None:
            return {"id": self.id, "outcome": self.outcome, "label": None, "reason": self.reason}
        strength: Any = "all" if math.isinf(self.strength) else self.strength
        return {
            "id": self.id,
            "outcome": self.outcome,
            "label": self.label,
            "prediction": self.prediction,
            "strength": strength if self.strength >= 0 else None,
            **self.details,
            "reason": self.reason,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Certified:
        """Read a record; keys that the base does not know become its details."""
        try:
            details = {key: value for key, value in row.items() if key not in _MEMBERS}
            strength = row.get("strength")
            if not isinstance(row["outcome"], str):
                raise TypeError("its outcome must be a word")
            return cls(
                str(row["id"]),
                row["outcome"],  # type: ignore[arg-type]
                row.get("label"),
                row.get("prediction"),
                -1.0 if strength is None else math.inf if strength == "all" else float(strength),
                details,
                str(row.get("reason") or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"this is not a record of a certificate: {error}") from error

    @property
    def is_right(self) -> bool:
        """Whether the prediction is the label, certified or not."""
        return self.prediction is not None and self.prediction == self.label


@dataclass(frozen=True, slots=True)
class Challenge:
    """A text near an example, checked against the example's certificate."""

    key: str
    """Names it and its randomness."""
    texts: Texts
    prediction: int
    """The class that was certified."""


@dataclass(frozen=True, slots=True)
class Probe(Challenge):
    """An example to be attacked within its certificate, or beyond it."""

    strength: float
    """How far the attack may go."""


@dataclass(frozen=True, slots=True)
class ChallengeAnswer:
    """The prediction of the certified classifier for a challenge."""

    prediction: int
    refutes: bool
    """Whether it is sure that the class is another: within the certificate's reach that is a contradiction."""
    details: Mapping[str, Any] = field(default_factory=dict)
    needs: float | None = None
    """How far an attack of the certificate's own went."""


@dataclass(frozen=True, kw_only=True)
class Certificate(ABC):
    """Base class of all certificates."""

    unit: ClassVar[Literal["radius", "words"]]
    """What its strength counts."""
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    """Names of the tasks whose models it is for."""

    @final
    def __call__(
        self,
        victim: Any,
        examples: Iterable[Example],
        *,
        seed: int = 0,
        protection: Protection | None = None,
    ) -> Iterator[Certified]:
        """Certify every example; results come as they finish and do not depend on the order or on other examples.

        Args:
            victim: A model, or any function from a list of texts to class probabilities.
            examples: What to certify.
            seed: Of every draw, together with the example's id and the number of the draw.
            protection: Words that the attacker cannot touch.
        """
        from isthmus.attacks.base import as_victim

        chosen = list(examples)
        for example in chosen:
            if not isinstance(example.label, int):
                raise UsageError(f"example {example.id!r} has no class label: certificates are for classification")
        subject = as_victim(victim)
        self.check(subject)
        return self.certify(subject, chosen, seed, protection or Protection())

    def check(self, victim: Victim) -> None:
        """Refuse a victim that this certificate does not apply to."""
        task = getattr(getattr(victim, "model", None), "task", None)
        if task is not None and getattr(task, "name", "classification") not in self.tasks:
            if task.name == "images":
                raise UsageError("this certificate is about words, and this model reads images: --certificate gaussian")
            raise UsageError(f"certificates are for classification, and this model's task is {task.name}")
        for asked in (victim, getattr(victim, "base", None)):
            precision = getattr(asked, "precision", "fp32")
            if precision != "fp32":
                raise UsageError(f"certificates are computed in fp32, and this model answers in {precision}")

    @final
    def check_options(self, victim: Victim, options: Mapping[str, Any]) -> None:
        """Refuse options of the victim that do not affect the certified classifier."""
        remedies = {"abstain": _DECLINES, **self.options_without_effect(victim)}
        for name in options:
            if name in remedies:
                raise UsageError(f"-V {name} makes no sense for this certificate: {remedies[name]}")

    def options_without_effect(self, victim: Victim) -> Mapping[str, str]:
        """Options of the victim that do not affect the certified classifier, each with what to do instead."""
        del victim
        return {}

    @abstractmethod
    def statement(self, victim: Victim) -> Statement:
        """The claim about this victim."""

    @abstractmethod
    def certify(
        self, victim: Victim, examples: Sequence[Example], seed: int, protection: Protection
    ) -> Iterator[Certified]:
        """Certify the examples, many of them in one batch."""

    @abstractmethod
    def needs(self, victim: Victim, example: Example, texts: Texts, protection: Protection) -> float | None:
        """The strength that would cover `texts`; None if no certificate of this kind does."""

    @abstractmethod
    def challenge(self, victim: Victim, challenges: Sequence[Challenge], seed: int) -> list[ChallengeAnswer]:
        """The certified classifier's prediction for each text, with fresh random draws."""

    @property
    def own_attack(self) -> str | None:
        """Name of the attack that `probe` runs; None if it runs none."""
        return None

    def probe(self, victim: Victim, probes: Sequence[Probe], seed: int) -> list[ChallengeAnswer]:
        """Attack the certified classifier itself, and predict the result with fresh random draws."""
        raise NotImplementedError(f"{type(self).__name__} has no attack of its own")

    def is_deployed(self, victim: Victim) -> bool:
        """Whether the victim itself predicts with the certified classifier, up to the number of draws."""
        return False

    def resources(self, victim: Victim) -> Mapping[str, str]:
        """Word lists that the certificate uses, by name; recorded with every result."""
        return {}


def make_certified(example: Example, prediction: int, strength: float, **details: Any) -> Certified:
    """Make the result of an example whose class is certified up to `strength` (negative: not certified)."""
    assert isinstance(example.label, int)
    outcome: CertificateOutcome = (
        "abstained" if strength < 0 else "certified" if prediction == example.label else "wrong"
    )
    return Certified(example.id, outcome, example.label, prediction, strength, details)


def make_failed(example: Example, reason: str) -> Certified:
    """Make the result of an example that failed with an error."""
    assert isinstance(example.label, int)
    return Certified(example.id, "error", example.label, reason=reason)
