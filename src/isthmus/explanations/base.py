"""The base class of explanations: a method is one file, a frozen dataclass of its hyper-parameters.

    for found in method(model, examples, classes="all"):       one `Explanation` per example, in order
        found.weights                                          float64 [classes explained, words]

A weight says how much a word speaks for a class: positive words pull the model towards it, negative ones away. Pieces
of a word are summed; words behind the model's limit weigh nothing, since the model does not read them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np

from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import ABSTAINS, Doubles, Example, Texts, Victim
from isthmus.text.words import Words

Classes = str | int | Sequence[str | int]
"""``predicted``, ``all``, or classes by name or number."""

_EXAMPLES_AT_ONCE = 256
"""Examples explained together: memory does not grow with their number."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The weight of each word of one text for each requested class."""

    id: str
    texts: Texts
    method: str
    labels: tuple[str, ...]
    """Names of all classes."""
    scores: tuple[float, ...]
    """The model's probabilities of the text."""
    classes: tuple[int, ...]
    """The classes explained, one row of weights each."""
    weights: Doubles
    """[classes explained, words] over all fields, in reading order."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the method knows of its own error, one number per class explained."""

    @property
    def words(self) -> list[str]:
        """The words of all fields, in reading order."""
        return [word for text in self.texts.values() for word in Words.of(text)]

    @property
    def prediction(self) -> int:
        """The most likely class."""
        return int(np.argmax(self.scores))

    def towards(self, label: int | str) -> Doubles:
        """The weights for one class [words]."""
        wanted = self.labels.index(label) if isinstance(label, str) else label
        if wanted not in self.classes:
            named = ", ".join(self.labels[each] for each in self.classes)
            raise UnknownName("class explained here", str(label), [self.labels[each] for each in self.classes], named)
        return np.asarray(self.weights[self.classes.index(wanted)])

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "id": self.id,
            "texts": dict(self.texts),
            "method": self.method,
            "prediction": self.labels[self.prediction],
            "scores": dict(zip(self.labels, self.scores, strict=True)),
            "words": self.words,
            "weights": {self.labels[each]: row for each, row in zip(self.classes, self.weights.tolist(), strict=True)},
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read an explanation that `to_json` made."""
        labels = tuple(str(label) for label in value["scores"])
        rows = value["weights"]
        found = cls(
            id=str(value["id"]),
            texts={str(name): str(text) for name, text in value["texts"].items()},
            method=str(value["method"]),
            labels=labels,
            scores=tuple(math.nan if score is None else float(score) for score in value["scores"].values()),
            classes=tuple(labels.index(label) for label in rows),
            weights=np.array([[math.nan if w is None else float(w) for w in row] for row in rows.values()], np.float64),
            details=dict(value.get("details") or {}),
        )
        if not rows or found.weights.shape != (len(rows), len(found.words)):
            raise ValueError(f"{found.id} has weights of shape {found.weights.shape} for {len(found.words)} words")
        return found

    def to_html(self) -> str:
        """The words, coloured by their weights, one paragraph per class explained."""
        from isthmus.explanations.parts.display import html

        return html(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def pieces(self, row: int = 0) -> list[tuple[str, float | None]]:
        """All of the text for one row of weights: words with their weights, and the text between them without.

        Fields are separated by a line break.
        """
        found: list[tuple[str, float | None]] = []
        weights = iter(self.weights[row].tolist())
        for number, text in enumerate(self.texts.values()):
            words = Words.of(text)
            found += [("\n", None)] * bool(number)
            for gap, word in zip(words.gaps, words, strict=False):
                found += [(gap, None), (word, next(weights))]
            found.append((words.gaps[-1], None))
        return [(piece, weight) for piece, weight in found if piece]


@dataclass(frozen=True, kw_only=True)
class Explainer(ABC):
    """Base class of all methods."""

    needs_gradients: ClassVar[bool] = False
    """Whether the model must be at hand; the others see its probabilities alone."""
    draws: ClassVar[bool] = False
    """Whether another seed gives other weights."""

    @property
    def name(self) -> str:
        """The name `isthmus list explanations` shows: the file's name, or the class's for a class of your own."""
        return catalog.name_of(self, "explanations")

    @final
    def __call__(
        self, victim: Any, examples: Iterable[Example], *, classes: Classes = "predicted", seed: int = 0
    ) -> Iterator[Explanation]:
        """Explain every example, in order; an explanation does not depend on the others.

        Args:
            victim: A model, or any function from a list of texts to class probabilities.
            examples: What to explain; labels do not matter.
            classes: ``predicted`` (each text's own), ``all``, or classes by name or number.
            seed: Of every draw, together with the example's id.
        """
        from isthmus.attacks.base import as_victim

        subject = as_victim(victim)
        labels = tuple(label for label in subject.labels if label != ABSTAINS)
        chosen = choose_classes(classes, labels)
        self.check(subject)
        return self._in_parts(subject, examples, chosen, seed)

    def _in_parts(
        self, victim: Victim, examples: Iterable[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        part: list[Example] = []
        for example in examples:
            if not example.texts:
                raise UsageError(f"example {example.id!r} holds no text")
            part.append(example)
            if len(part) == _EXAMPLES_AT_ONCE:
                yield from self.explain(victim, part, classes, seed)
                part = []
        if part:
            yield from self.explain(victim, part, classes, seed)

    def check(self, victim: Victim) -> None:
        """Refuse a victim that this method cannot explain, and name the methods that can."""
        task = getattr(getattr(victim, "model", None), "task", None)
        if task is not None and getattr(task, "name", "classification") != "classification":
            raise UsageError(f"explanations are for classification, and this model's task is {task.name}")
        if not self.needs_gradients:
            return
        why = without_gradients(victim)
        if why:
            raise UsageError(f"{self.name} needs the model's gradient, and {why}: use {', '.join(black_box())}")

    @abstractmethod
    def explain(
        self, victim: Victim, examples: Sequence[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        """Explain examples in shared batches; without `classes`, each text's own prediction."""


def choose_classes(classes: Classes, labels: Sequence[str]) -> tuple[int, ...] | None:
    """Indices of the requested classes; None for each text's own prediction."""
    if isinstance(classes, str) and classes == "predicted":
        return None
    if isinstance(classes, str) and classes == "all":
        return tuple(range(len(labels)))
    given = tuple(classes) if isinstance(classes, Iterable) and not isinstance(classes, str) else (classes,)
    found = []
    for each in given:
        if isinstance(each, str) and each in labels:
            found.append(labels.index(each))
        elif str(each).isdigit() and int(each) < len(labels):
            found.append(int(each))
        else:
            raise UnknownName("class", str(each), [*labels, "predicted", "all"])
    if not found:
        raise UsageError("no class is asked about: give predicted, all, or names of classes")
    return tuple(dict.fromkeys(found))


def without_gradients(victim: Victim) -> str:
    """The reason why a victim has no usable gradient; empty if it has one."""
    from isthmus.models.victims.classifier import ClassifierVictim

    if victim.stochastic:
        return "this model answers at random, so that one pass explains one draw"
    if type(victim) is not ClassifierVictim:
        return f"a {type(victim).__name__} gives none"
    return ""


def black_box() -> list[str]:
    """The methods that need only probabilities."""
    return [entry.name for entry in catalog.entries("explanations") if not entry.load().needs_gradients]


def explain(
    victim: Any,
    texts: str | Texts | Example | Iterable[str | Texts | Example],
    *,
    method: str | Explainer = "integrated_gradients",
    classes: Classes = "predicted",
    seed: int = 0,
    **parameters: Any,
) -> Explanation | list[Explanation]:
    """The weight of each word of a text for a class; for several texts, a list.

    Args:
        victim: A model, or any function from a list of texts to class probabilities.
        texts: One text or several: strings, mappings from fields to texts, or examples.
        method: A name (`isthmus list explanations`), or an instance with parameters of its own.
        classes: ``predicted``, ``all``, or classes by name or number.
        seed: Of every draw.
        parameters: Of the method, where it is given by name.
    """
    from isthmus.attacks.base import as_victim

    explainer = catalog.build("explanations", method, parameters) if isinstance(method, str) else method
    if parameters and not isinstance(method, str):
        raise UsageError("parameters belong to the method: give them where it is made, or name the method instead")
    subject = as_victim(victim)
    alone = isinstance(texts, str | Mapping | Example)
    if isinstance(texts, bytes) or not isinstance(texts, Iterable | Example):
        raise UsageError(f"explain takes a text or several, not {texts!r:.80}")
    given = [texts] if isinstance(texts, str | Mapping | Example) else list(texts)
    fields = tuple(getattr(subject, "fields", None) or ("text",))
    examples = [_make_example(number, each, fields) for number, each in enumerate(given)]
    refuse_wordless(examples)
    found = list(explainer(subject, examples, classes=classes, seed=seed))
    return found[0] if alone else found


def refuse_wordless(examples: Iterable[Example]) -> None:
    """Refuse texts without words."""
    for example in examples:
        if example.texts and not any(len(Words.of(text)) for text in example.texts.values()):
            shown = ", ".join(repr(text[:40]) for text in example.texts.values())
            raise UsageError(f"{example.id} has no words to explain ({shown}): give a text with at least one word")


def _make_example(number: int, given: Any, fields: tuple[str, ...]) -> Example:
    if isinstance(given, Example):
        return given
    if isinstance(given, str):
        if len(fields) != 1:
            raise UsageError(f"this model reads {' and '.join(fields)}: give a mapping with both, not one text")
        given = {fields[0]: given}
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
        raise UsageError(f"text {number} is a {type(given).__name__}: give a string, or a mapping from fields to texts")
    return Example(f"text:{number}", dict(given), 0)
