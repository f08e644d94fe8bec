"""`explain`: how much each word of some texts speaks for a class. Nothing is kept: texts are explained and shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.core import catalog
from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.core.types import Example
from isthmus.runs.folder import AttackFile, RunFolder
from isthmus.runs.observer import Observer, Silent
from isthmus.runs.prepared import PreparedSample
from isthmus.runs.request import SampleRequest

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.explanations.base import Explainer, Explanation

_ATTACKED = 10
"""Attacked texts that are shown unless a number is given."""


@dataclass(frozen=True)
class ExplainRequest(SampleRequest):
    """Everything an ``explain`` command says."""

    texts: tuple[str, ...] = ()
    """Texts to explain; of a model that reads pairs two belong together."""
    _: KW_ONLY
    n: int | None = None
    method: str = "integrated_gradients"
    classes: tuple[str, ...] = ("predicted",)
    attack: str | None = None
    """An attack of the run, whose successes are explained beside their originals."""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explained:
    """One text, or a text and what an attack made of it."""

    title: str
    explanation: Explanation
    attacked: Explanation | None = None


def explain(request: ExplainRequest, observer: Observer | None = None) -> list[Explained]:
    """Explain the texts of a command."""
    chosen = [
        name
        for name, given in (("texts", request.texts), ("--data", request.data), ("--attack", request.attack))
        if given
    ]
    if len(chosen) > 1:
        raise UsageError(f"explain one thing at a time: {' and '.join(chosen)} were given")
    with _PreparedExplanation(request, observer or Silent()) as ready:
        return list(ready.explained())


class _PreparedExplanation(PreparedSample[ExplainRequest]):
    """One command."""

    verb = "explain"

    @property
    def method(self) -> Explainer:
        """The method with its parameters."""
        method: Explainer = catalog.build("explanations", self.request.method, self.request.parameters)
        return method

    def explained(self) -> Iterator[Explained]:
        """Every text in order."""
        method = self.method
        if self.request.attack is not None:
            return self._attacked(method)
        if self.request.texts:
            return self._plain(method, self._given())
        if self.request.data is None and self.source.run is None:
            raise UsageError('nothing to explain: give a text ("…"), --data FILE, or --attack NAME of a run')
        n = 5 if self.request.n is None else self.request.n
        sample = self.first(n).aligned(self.victim.labels)
        return self._plain(method, list(sample))

    def _plain(self, method: Explainer, examples: Sequence[Example]) -> Iterator[Explained]:
        for found in self._run(method, examples):
            yield Explained(found.id, found)

    def _run(self, method: Explainer, examples: Sequence[Example]) -> Iterator[Explanation]:
        labels = self.names
        classes = self.request.classes
        asked: Any = classes[0] if classes in (("predicted",), ("all",)) else [_place(each, labels) for each in classes]
        for found in method(self.subject, examples, classes=asked, seed=self.request.seed):
            yield replace(found, labels=labels)

    def _given(self) -> list[Example]:
        fields = tuple(getattr(self.subject, "fields", None) or ("text",))
        texts = self.request.texts
        if len(texts) % len(fields):
            raise UsageError(
                f"this model reads {' and '.join(fields)}: give {len(fields)} texts for each example, not {len(texts)}"
            )
        rows = [texts[start : start + len(fields)] for start in range(0, len(texts), len(fields))]
        return [
            Example(f"text {number}", dict(zip(fields, row, strict=True)), 0)
            for number, row in enumerate(rows, start=1)
        ]

    @cached_property
    def subject(self) -> Victim:
        """The model; data are opened only where the command is about them."""
        return self.victim if self._has_data else self.load_victim(())

    @property
    def _has_data(self) -> bool:
        return not self.request.texts and self.request.attack is None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Class names for people."""
        if self.request.attack is not None:
            return tuple(self._attack_file.header().get("labels") or self.subject.labels)
        return tuple(self.shown_labels() if self._has_data else self.subject.labels)

    @cached_property
    def _attack_file(self) -> AttackFile:
        folder = self.source.run if self.request.out is None else RunFolder(self.request.out)
        if folder is None:
            raise UsageError(f"{self.request.model} is no run: name the run that holds the attack by --run")
        files = {file.key: file for file in folder.attack_files()}
        name = str(self.request.attack)
        if name not in files:
            raise UnknownName(f"attack in {folder.path}", name, files)
        return files[name]

    def _attacked(self, method: Explainer) -> Iterator[Explained]:
        file = self._attack_file
        rows = [row for row in file.rows() if row["outcome"] == "succeeded" and row.get("perturbed")]
        if not rows:
            raise DataError(f"{file.rows_path} has no successes: nothing to explain")
        rows = rows[: self.request.n or _ATTACKED]
        before = [Example(str(row["id"]), dict(row["original"]), 0) for row in rows]
        after = [Example(str(row["id"]), dict(row["perturbed"]), 0) for row in rows]
        for one, other in zip(self._run(method, before), self._run(method, after), strict=True):
            yield Explained(one.id, one, other)


def _place(given: str, labels: Sequence[str]) -> int:
    from isthmus.explanations.base import chosen_classes

    found = chosen_classes([given], labels)
    assert found is not None
    return found[0]
