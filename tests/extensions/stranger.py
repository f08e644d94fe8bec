"""Methods of a stranger."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from isthmus.attacks import GradientAttack
from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.searches import by_importance, greedy
from isthmus.certificates.base import Certificate, ChallengeAnswer, Statement, make_certified
from isthmus.defences import LabelSmoothing
from isthmus.engine.requests import replacing
from isthmus.explanations.base import Explainer, Explanation
from isthmus.measures.base import Figure, Measure, Measurement


@dataclass(frozen=True, kw_only=True)
class Shout(WordAttack):
    """Write important words loudly.

    More of it.
    """

    ending: str = "!"
    """What is written behind a word."""

    def search(self, trial):
        order = yield from by_importance(trial, trial.positions())
        yield from greedy(trial, order, self.louder)

    def louder(self, trial, position):
        return replacing(position, trial.vocabulary.ids([trial.draft.word(position) + self.ending]))


@dataclass(frozen=True)
class Soft(LabelSmoothing):
    """Smooth labels twice as much."""

    epsilon: float = 0.2
    """Share of doubt."""


@dataclass(frozen=True, kw_only=True)
class Pixels(GradientAttack):
    """Move pixels."""


@dataclass(frozen=True, kw_only=True)
class Never(Certificate):
    """Certify nothing at all, and say so."""

    unit: ClassVar[Literal["radius", "words"]] = "words"

    def statement(self, victim):
        return Statement(classifier="this model", threat_model="none", probability="always", assumptions=())

    def certify(self, victim, examples, seed, protection):
        for example, row in zip(examples, victim.scores([each.texts for each in examples]), strict=True):
            yield make_certified(example, int(row.argmax()), 0.0)

    def needs(self, victim, example, texts, protection):
        return None

    def challenge(self, victim, challenges, seed):
        return [ChallengeAnswer(each.prediction, refutes=False) for each in challenges]


@dataclass(frozen=True)
class Length(Measure):
    """Mean number of words of the texts."""

    def measure(self, subject):
        texts = [text for each in subject.sample(subject.split_names()[0]) for text in each.texts.values()]
        mean = sum(len(text.split()) for text in texts) / len(texts)
        return Measurement((Figure("words", mean, of=subject.name),))


@dataclass(frozen=True, kw_only=True)
class Letters(Explainer):
    """Weigh every word by its letters, whatever the model says."""

    each: float = 1.0
    """Weight of a letter."""

    def explain(self, victim, examples, classes, seed):
        for example, row in zip(examples, victim.scores([one.texts for one in examples]), strict=True):
            chosen = classes or (int(row.argmax()),)
            letters = [self.each * len(word) for text in example.texts.values() for word in text.split()]
            yield Explanation(
                id=example.id,
                texts=example.texts,
                method=self.name,
                labels=victim.labels,
                scores=tuple(map(float, row)),
                classes=chosen,
                weights=np.array([letters] * len(chosen)),
            )


def reviews():
    good, bad = ["good", "great", "lovely", "fine"], ["bad", "awful", "dull", "poor"]
    return [
        (f"a {(good if n % 2 else bad)[n // 2 % 4]} film number {n}", "positive" if n % 2 else "negative")
        for n in range(40)
    ]


def classify(texts):
    good, bad = {"good", "great", "lovely", "fine"}, {"bad", "awful", "dull", "poor"}
    values = [sum(w in good for w in t.split()) - sum(w in bad for w in t.split()) + 0.25 for t in texts]
    return [[1 - p, p] for p in (1 / (1 + 2.718281828**-v) for v in values)]
