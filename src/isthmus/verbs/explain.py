"""`explain`: the weight of each word of some texts for a class, for one model or two side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from isthmus.core import catalog
from isthmus.core import progress as work
from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.core.types import ABSTAINS, Example
from isthmus.explanations.base import refuse_wordless
from isthmus.models.image_names import is_image_model
from isthmus.runs.explained import Explained, KeptExplanations, Reading, check_kept, keep
from isthmus.runs.folder import AttackFile, RunFolder
from isthmus.text.words import has_words
from isthmus.verbs.observer import Observer
from isthmus.verbs.prepared_model import PreparedModel, PreparedSample
from isthmus.verbs.request import SampleRequest
from isthmus.verbs.sources import ModelSource

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.explanations.base import Explainer, Explanation

ExplainedOutcome = Literal["succeeded", "failed", "all"]

_ATTACKED = 10
"""Attacked texts that are shown unless a number is given."""


@dataclass(frozen=True)
class ExplainRequest(SampleRequest):
    """All options of an ``explain`` command."""

    texts: tuple[str, ...] = ()
    """Texts to explain; of a model that reads pairs two belong together."""
    _: KW_ONLY
    n: int | None = None
    method: str = "integrated_gradients"
    classes: tuple[str, ...] = ("predicted",)
    attack: str | None = None
    """An attack of the run, whose successes are explained beside their originals."""
    outcome: ExplainedOutcome = "succeeded"
    """Which of its texts."""
    against: str | None = None
    """Another model that reads the same texts."""
    keep: bool | None = None
    """Whether the run folder keeps what was found; None: texts of an attack."""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanations:
    """The explanations of a command."""

    explained: tuple[Explained, ...]
    kept: KeptExplanations | None = None
    """Where it lies, if a run folder keeps it."""


def explain(request: ExplainRequest, observer: Observer | None = None) -> Explanations:
    """Explain the texts of a command."""
    chosen = [
        name
        for name, given in (("texts", request.texts), ("--data", request.data), ("--attack", request.attack))
        if given
    ]
    if len(chosen) > 1:
        raise UsageError(f"explain one thing at a time: {' and '.join(chosen)} were given")
    if request.outcome not in get_args(ExplainedOutcome):
        raise UnknownName("outcome", request.outcome, get_args(ExplainedOutcome))
    with _PreparedExplanation(request, observer or Observer()) as ready:
        folder = ready.keeper
        if folder is not None:
            check_kept(folder)  # A damaged file is found out now, not after everything is explained.
        found = tuple(ready.explain())
        kept = None if folder is None else keep(folder, ready.name, ready.settings, found, request.command)
        return Explanations(found, kept)


class _PreparedExplanation(PreparedSample[ExplainRequest]):
    """A prepared explain command."""

    verb = "explain"

    @property
    def method(self) -> Explainer:
        """The method with its parameters."""
        method: Explainer = catalog.build("explanations", self.request.method, self.request.parameters)
        return method

    @property
    def name(self) -> str:
        """The name of the explained texts, in a word."""
        if self.request.attack is not None:
            return self.request.attack
        return "texts" if self.request.texts else self.data.split

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the explanations."""
        request = self.request
        return {
            "method": request.method, "parameters": dict(request.parameters), "classes": request.classes,
            "n": request.n, "seed": request.seed, "texts": request.texts, "outcome": request.outcome,
            "against": None if request.against is None else ModelSource.of(request.against).shown,
            **{name: value for name, value in self._elsewhere.items() if value is not None},
        }  # fmt: skip

    @property
    def _elsewhere(self) -> dict[str, Any]:
        """Settings that do not follow from the run that keeps the explanations: another model, other data."""
        request, own = self.request, self.source.run is not None and self.request.out is None
        return {
            "model": None if own else self.source.shown,
            "data": request.data,
            "split": request.split,
        }

    @property
    def keeper(self) -> RunFolder | None:
        """The run folder that keeps the explanations; None if nothing is kept."""
        wanted = self.request.attack is not None if self.request.keep is None else self.request.keep
        if not wanted:
            return None
        folder = self._folder
        if folder is None:
            raise UsageError(f"{self.request.model} is not a run: name the run that keeps the explanations with --run")
        folder.record()
        return folder

    @property
    def _folder(self) -> RunFolder | None:
        return self.source.run if self.request.out is None else RunFolder(self.request.out)

    def explain(self) -> Iterator[Explained]:
        """Explain every text, in order."""
        if is_image_model(Path(self.source.spec)):
            raise UsageError(f"{self.source.shown} reads images, and explanations are for texts: use a text classifier")
        if self.request.attack is not None:
            return self._explain_attacked()
        if self.request.texts:
            return self._plain(self._make_examples(), {})
        if self.request.data is None and self.source.run is None:
            raise UsageError('nothing to explain: pass a text ("…"), --data FILE, or --attack NAME of a run')
        n = 5 if self.request.n is None else self.request.n
        given = list(self.first(n).align_labels(self.victim.labels))
        sample = [example for example in given if has_words(example)]
        if not sample:
            raise UsageError(f"none of {n} texts of {self.data.split} has a word: there is nothing to explain")
        if wordless := len(given) - len(sample):
            work.note(f"{wordless} of {len(given)} texts of {self.data.split} without a word left out")
        truth = {each.id: self.names[each.label] for each in sample if isinstance(each.label, int)}
        return self._plain(sample, truth)

    def _plain(self, examples: Sequence[Example], truth: Mapping[str, str]) -> Iterator[Explained]:
        found = [self._run(reader, examples) for reader in self.readers]
        for readers in zip(*found, strict=True):
            readings = tuple(Reading(name, each) for name, each in readers)
            yield Explained(readings[0].original.id, readings, truth.get(readings[0].original.id))

    def _run(self, reader: _Reader, examples: Sequence[Example]) -> Iterator[tuple[str, Explanation]]:
        labels = reader.labels
        classes = self.request.classes
        asked: Any = classes[0] if classes in (("predicted",), ("all",)) else [_place(each, labels) for each in classes]
        for found in self.method(reader.victim, examples, classes=asked, seed=self.request.seed):
            yield reader.name, replace(found, labels=labels)

    @cached_property
    def readers(self) -> tuple[_Reader, ...]:
        """The model of the command, and the one to compare with."""
        own = _Reader(self.source.shown, self.subject, tuple(each for each in self.names if each != ABSTAINS))
        if self.request.against is None:
            return (own,)
        asked = replace(self.request, model=self.request.against, labels=None, victim={})
        other = PreparedModel(asked, self.observer)
        victim = other.load_victim(())
        fields, own_fields = (tuple(getattr(each, "fields", None) or ("text",)) for each in (victim, own.victim))
        if fields != own_fields:
            raise UsageError(
                f"{own.name} reads {' and '.join(own_fields)}, {other.source.shown} reads {' and '.join(fields)}: "
                "models are compared on the same texts, so both must read the same fields"
            )
        try:
            self.method.check(victim)
        except UsageError as error:
            raise UsageError(f"{other.source.shown}: {error}") from error
        # A class that people call by another name here is called so for both.
        known = dict(zip(own.victim.labels, own.labels, strict=False))
        names = (known.get(label, label) for label in victim.labels if label != ABSTAINS)
        return own, _Reader(other.source.shown, victim, tuple(names))

    def _make_examples(self) -> list[Example]:
        fields = tuple(getattr(self.subject, "fields", None) or ("text",))
        texts = self.request.texts
        if len(texts) % len(fields):
            raise UsageError(
                f"this model reads {' and '.join(fields)}: give {len(fields)} texts for each example, not {len(texts)}"
            )
        rows = [texts[start : start + len(fields)] for start in range(0, len(texts), len(fields))]
        found = [
            Example(f"text {number}", dict(zip(fields, row, strict=True)), 0)
            for number, row in enumerate(rows, start=1)
        ]
        refuse_wordless(found)
        return found

    @cached_property
    def subject(self) -> Victim:
        """The model; data are opened only if the command needs them."""
        return self.victim if self._has_data else self.load_victim(())

    @property
    def _has_data(self) -> bool:
        return not self.request.texts and self.request.attack is None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Class names for people."""
        if self.request.attack is not None:
            return tuple(self._attack_file.header().get("labels") or self.subject.labels)
        return tuple(self.choose_label_names() if self._has_data else self.subject.labels)

    @cached_property
    def _attack_file(self) -> AttackFile:
        folder = self._folder
        if folder is None:
            raise UsageError(f"{self.request.model} is not a run: name the run that holds the attack with --run")
        files = {file.key: file for file in folder.attack_files()}
        name = str(self.request.attack)
        if name not in files:
            raise UnknownName(f"attack in {folder.path}", name, files)
        return files[name]

    def _explain_attacked(self) -> Iterator[Explained]:
        file, wanted = self._attack_file, self.request.outcome
        outcomes = ("succeeded", "failed") if wanted == "all" else (wanted,)
        # A search that found nothing to change has nothing to show.
        results = [each for each in file.results() if each.outcome in outcomes and each.is_changed]
        if not results:
            found = "no successes" if wanted == "succeeded" else "no texts that it changed with that outcome"
            raise DataError(f"{file.rows_path} has {found}: nothing to explain")
        results = results[: self.request.n or _ATTACKED]
        before = [Example(each.id, dict(each.original), 0) for each in results]
        after = [Example(each.id, dict(each.perturbed), 0) for each in results]
        # One list a reader, of the explanations of both sides of every text.
        sides = [list(zip(self._run(each, before), self._run(each, after), strict=True)) for each in self.readers]
        for place, result in enumerate(results):
            readings = tuple(Reading(name, one, other) for (name, one), (_, other) in (side[place] for side in sides))
            label = result.label
            truth = self.names[label] if isinstance(label, int) and 0 <= label < len(self.names) else None
            yield Explained(readings[0].original.id, readings, truth)


class _Reader(NamedTuple):
    """A model whose predictions are explained."""

    name: str
    victim: Victim
    labels: tuple[str, ...]


def _place(given: str, labels: Sequence[str]) -> int:
    from isthmus.explanations.base import choose_classes

    found = choose_classes([given], labels)
    assert found is not None
    return found[0]
