"""What the functions of `isthmus` return: sequences of results that sum themselves up, and show themselves.

results[0]                one result
results.summary()         rates with intervals
results.to_dataframe()    one row per example (needs pandas)
results.to_html()         a table with the changed words marked; a notebook shows it by itself
"""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from isthmus.attacks.result import AttackResult
from isthmus.certificates.base import Certified
from isthmus.core.errors import MissingExtra, UnknownName, UsageError
from isthmus.runs.evaluated import AnsweredQuestion, Evaluated

if TYPE_CHECKING:
    from isthmus.core.statistics import Interval
    from isthmus.runs.folder import RunFolder
    from isthmus.summaries.attack import Summary
    from isthmus.summaries.certificate import CertificateSummary
    from isthmus.summaries.evaluation import EvaluationSummary
    from isthmus.summaries.questions import QuestionSummary
    from isthmus.verbs.evaluate.speed import Speed

One = TypeVar("One")
_SHOWN = 20
"""Examples that a notebook shows."""
_STYLE = (
    "<style>.isthmus{border-collapse:collapse;font-size:13px}.isthmus td,.isthmus th{border-bottom:1px solid #ccc;"
    "padding:4px 8px;text-align:left;vertical-align:top}.isthmus del{background:#fbe3e4;text-decoration:none}"
    ".isthmus ins{background:#dff2e1;text-decoration:none}</style>"
)


@dataclass(frozen=True)
class Results(Sequence[One], Generic[One]):
    """One result per example, in the order of the examples."""

    name: str
    """Of the attack, the set or the certificate."""
    results: tuple[One, ...]
    labels: tuple[str, ...] = ()
    """Class names, in the order in which results number them."""
    folder: RunFolder | None = field(default=None, repr=False)
    """The run in which the rows lie; None where nothing was written."""

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> One: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> One | Self:
        """One result, or those of a slice with everything they can do."""
        if isinstance(index, slice):
            return self._take(self.results[index])
        return self.results[index]

    def _take(self, results: tuple[One, ...]) -> Self:
        """The same for some of the results."""
        return replace(self, results=results)

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The results as JSON-ready records."""

    @abstractmethod
    def figures(self) -> dict[str, str]:
        """The headline figures, with their intervals, as a reader wants them."""

    def to_dataframe(self) -> Any:
        """A pandas frame with one row per example; nested values stay as they are."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra("pandas", "data", "to_dataframe") from error
        return pandas.DataFrame(self.rows())

    def to_html(self, most: int | None = None) -> str:
        """The figures, and a table of the examples with changed words marked; the first `most` of them."""
        lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in self.cells()[:most])
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns())
        figures = " · ".join(f"{html.escape(name)} {html.escape(value)}" for name, value in self.figures().items())
        left = len(self) - most if most is not None and len(self) > most else 0
        more = f"<p>and {left} more</p>" if left else ""
        title = f"<p><b>{html.escape(self.name)}</b> · n = {len(self)} · {figures}</p>"
        return f"{_STYLE}{title}<table class='isthmus'><tr>{head}</tr>{lines}</table>{more}"

    def _repr_html_(self) -> str:
        return self.to_html(_SHOWN)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.figures().items())
        return f"<{type(self).__name__} {self.name}: n = {len(self)}, {figures}>"

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Titles of the table."""

    @abstractmethod
    def cells(self) -> list[tuple[str, ...]]:
        """The table, as HTML that is safe to show."""

    def label(self, number: int | None) -> str:
        """The name of a class."""
        if number is None:
            return "–"
        return self.labels[number] if 0 <= number < len(self.labels) else str(number)


@dataclass(frozen=True, repr=False)
class AttackResults(Results[AttackResult]):
    """What an attack did to every example: a sequence of `AttackResult`.

    Of several attacks it is their union: of each example the result of an attacker who tries all of them, so that
    `summary` says what holds against the worst of them. `attacks` has the results of each.

    >>> from isthmus import attack
    >>> found = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                "deepwordbug", [("a dull plot", 0), ("a fine film", 1)], labels=("bad", "good"))
    >>> found[0].outcome, found[1].outcome
    ('succeeded', 'failed')
    >>> round(found.summary().asr.estimate, 2)
    0.5
    >>> list(found.attacks)
    ['deepwordbug']
    """

    threshold: float | None = None
    """The detection threshold of an evasion, given or chosen."""
    parts: Mapping[str, AttackResults] = field(default_factory=dict, repr=False)
    """The results of each of several attacks; empty for one."""
    embeddings: Mapping[str, AttackResults] = field(default_factory=dict, repr=False)
    """Attacks on the embeddings of texts, which are part of no union: nobody can send an embedding."""
    left_out: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Attacks that ``all`` asked for and that cannot run, with the reason."""

    @classmethod
    def union(
        cls,
        parts: Mapping[str, AttackResults],
        embeddings: Mapping[str, AttackResults] | None = None,
        left_out: Mapping[str, str] | None = None,
    ) -> AttackResults:
        """The union of several attacks on the same examples."""
        from isthmus.summaries.attack import together

        first = next(iter({**parts, **(embeddings or {})}.values()))
        results = tuple(together([part.results for part in parts.values()]))
        name = f"union of {', '.join(parts)}" if len(parts) > 1 else ", ".join(parts)
        return cls(name, results, first.labels, first.folder, first.threshold, parts, embeddings or {}, left_out or {})

    @property
    def attacks(self) -> Mapping[str, AttackResults]:
        """The results of each attack, by name."""
        return self.parts or {self.name: self}

    def _take(self, results: tuple[AttackResult, ...]) -> Self:
        """Of several attacks the same examples of each."""
        chosen = {result.id for result in results}
        parts = {
            name: part._take(tuple(result for result in part if result.id in chosen))
            for name, part in self.parts.items()
        }
        return replace(self, results=results, parts=parts)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as a run keeps them."""
        return [result.to_row() for result in self]

    def summary(self, threshold: float | None = None) -> Summary:
        """Clean and robust accuracy, attack success and what they cost, with intervals."""
        from isthmus.summaries.attack import summarise

        return summarise(self.results, self.threshold if threshold is None else threshold)

    def to_html(self, most: int | None = None) -> str:
        """The figures of each attack and of their union, and a table of the examples with changed words marked."""
        lines = (
            f"<p>{html.escape(name)} · "
            + " · ".join(f"{html.escape(what)} {html.escape(value)}" for what, value in part.figures().items())
            + "</p>"
            for name, part in self.parts.items()
        )
        return "".join([*lines, super().to_html(most)])

    def figures(self) -> dict[str, str]:
        """Accuracy, accuracy under attack, attack success."""
        found = self.summary()
        rates = {"accuracy": found.sacc, "under attack": found.racc, "attack success": found.asr}
        return {name: _percent(rate) for name, rate in rates.items()}

    def columns(self) -> tuple[str, ...]:
        """Outcome, classes, texts."""
        return ("id", "outcome", "label", "before", "after", "queries", "text")

    def cells(self) -> list[tuple[str, ...]]:
        """Every example, with what was taken out and put in."""
        return [
            (
                html.escape(result.id),
                html.escape(result.outcome),
                html.escape(self.label(result.label)),
                html.escape(self.label(result.prediction_before)),
                html.escape(self.label(result.prediction_after)),
                str(result.logical_queries),
                _mark_result(result),
            )
            for result in self
        ]


@dataclass(frozen=True, repr=False)
class EvaluationResults(Results[Evaluated]):
    """What a model answered on one set, or on several one after the other: a sequence of `Evaluated`.

    >>> from isthmus import evaluate
    >>> found = evaluate(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                  [("a dull plot", 0), ("a fine film", 1)], labels=("bad", "good"))
    >>> found.summary().accuracy.estimate
    1.0
    """

    headline: str | None = None
    """The way in which the saved model answers: ``model``, or of a stochastic one ``mean`` or ``sample``."""
    speed: Speed | None = field(default=None, repr=False)
    """Latency and throughput, where they were asked for."""
    cost_per_1000: float | None = None
    """Cost of 1,000 texts, where a price was given."""
    parts: Mapping[str, EvaluationResults] = field(default_factory=dict, repr=False)
    """The results on each of several sets; empty for one."""

    @property
    def sets(self) -> Mapping[str, EvaluationResults]:
        """The results on each set, by name."""
        return self.parts or {self.name: self}

    def _take(self, results: tuple[Evaluated, ...]) -> Self:
        return replace(self, results=results, parts={}, speed=None, cost_per_1000=None)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as a run keeps them; of several sets each with the name of its set."""
        if self.parts:
            return [{"set": name, **row} for name, part in self.parts.items() for row in part.rows()]
        return [result.to_row() for result in self]

    def summary(self, way: str | None = None) -> EvaluationSummary:
        """Accuracy, balanced accuracy and calibration, each with its interval; several sets are pooled.

        `way`: how a stochastic model answers, ``mean``, ``sample`` or ``average``; by default as the saved model does.
        """
        from isthmus.summaries.evaluation import summarise_texts

        ways = next((tuple(result.scores) for result in self if result.scores), ("model",))
        chosen = way or (self.headline if self.headline in ways else ways[0])
        if chosen not in ways:
            raise UnknownName("way in which this model answers", chosen, ways)
        return summarise_texts(self.results, self.labels, ways, chosen)

    def figures(self) -> dict[str, str]:
        """Accuracy."""
        return {"accuracy": _percent(self.summary().accuracy)}

    def columns(self) -> tuple[str, ...]:
        """Outcome, classes, texts."""
        return ("id", "outcome", "label", "answer", "text")

    def cells(self) -> list[tuple[str, ...]]:
        """Every example."""
        return [
            (
                html.escape(result.id),
                html.escape(result.outcome),
                html.escape(self.label(result.label)),
                html.escape(self.label(result.prediction)),
                _escape_texts(result.texts),
            )
            for result in self
        ]


@dataclass(frozen=True, repr=False)
class QuestionResults(Results["AnsweredQuestion | Evaluated"]):
    """What a model answered to questions: a sequence of `AnsweredQuestion`; a row without a question is `Evaluated`.

    >>> from isthmus.results import QuestionResults
    >>> from isthmus.runs.evaluated import AnsweredQuestion
    >>> right = AnsweredQuestion("q1", "right", "Who?", "Ada", ["Ada"], True, 1.0)
    >>> QuestionResults("squad-dev", (right,)).predictions
    {'q1': 'Ada'}
    """

    computed: QuestionSummary | None = field(default=None, repr=False)
    """The figures of the whole set. They need the contexts, which the rows do not have: questions about one context are
    no independent draws."""
    speed: Speed | None = field(default=None, repr=False)
    """Latency and throughput, where they were asked for."""
    cost_per_1000: float | None = None
    """Cost of 1,000 texts, where a price was given."""
    parts: Mapping[str, QuestionResults] = field(default_factory=dict, repr=False)
    """The results on each of several sets; empty for one."""

    @property
    def sets(self) -> Mapping[str, QuestionResults]:
        """The results on each set, by name."""
        return self.parts or {self.name: self}

    @property
    def predictions(self) -> dict[str, str]:
        """Answers in the format of SQuAD's official script: id -> text."""
        return {each.id: each.prediction for each in self if isinstance(each, AnsweredQuestion)}

    def _take(self, results: tuple[AnsweredQuestion | Evaluated, ...]) -> Self:
        return replace(self, results=results, parts={}, computed=None, speed=None, cost_per_1000=None)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as a run keeps them; of several sets each with the name of its set."""
        if self.parts:
            return [{"set": name, **row} for name, part in self.parts.items() for row in part.rows()]
        return [result.to_row() for result in self]

    def summary(self) -> QuestionSummary:
        """Exact match and F1 with their intervals; of adversarial questions also of the originals and the worst."""
        if self.computed is None:
            raise UsageError(
                "there are no figures of several sets at once: ask each of `sets`" if self.parts
                else "there are no figures of a part of a set: evaluate with n=…, or summarise the whole"
            )  # fmt: skip
        return self.computed

    def figures(self) -> dict[str, str]:
        """Exact match and F1."""
        overall = None if self.computed is None else self.computed.overall
        if overall is None:
            return {}
        return {"exact match": _percent(overall.exact_match), "F1": _percent(overall.f1)}

    def columns(self) -> tuple[str, ...]:
        """Outcome, question, answers."""
        return ("id", "outcome", "question", "answer", "true answers", "F1")

    def cells(self) -> list[tuple[str, ...]]:
        """Every question."""
        found = []
        for each in self:
            if isinstance(each, AnsweredQuestion):
                words = (each.question, each.prediction, " / ".join(each.answers), f"{each.f1:.2f}")
            else:
                words = (" ".join(each.texts.values()), "–", "–", "–")
            found.append((html.escape(each.id), html.escape(each.outcome), *map(_escape, words)))
        return found


@dataclass(frozen=True, repr=False)
class CertificateResults(Results[Certified]):
    """What was proven of every example: a sequence of `Certified`.

    >>> from isthmus import certify
    >>> found = certify(lambda texts: [[0.1, 0.9] for _ in texts], "synonym", [("a fine film", 1)],
    ...                 labels=("bad", "good"), table=table, n0=5, n=20)
    >>> found[0].outcome, found.summary().n
    ('certified', 1)
    """

    unit: str = "words"
    """What the strength of a certificate counts."""

    def rows(self) -> list[dict[str, Any]]:
        """The rows as a run keeps them."""
        return [result.to_row() for result in self]

    def summary(self) -> CertificateSummary:
        """Clean accuracy, and certified accuracy at every strength, with intervals."""
        from isthmus.summaries.certificate import summarise_certificate

        return summarise_certificate(self.results, self.unit)

    def figures(self) -> dict[str, str]:
        """Accuracy, and the share that is certified at all."""
        from isthmus.summaries.certificate import accuracy_at

        return {"accuracy": _percent(self.summary().clean), "certified": _percent(accuracy_at(self.results, 0.0))}

    def columns(self) -> tuple[str, ...]:
        """Outcome, classes, strength."""
        return ("id", "outcome", "label", "answer", self.unit)

    def cells(self) -> list[tuple[str, ...]]:
        """Every example."""
        return [
            (
                html.escape(result.id),
                html.escape(result.outcome),
                html.escape(self.label(result.label)),
                html.escape(self.label(result.prediction)),
                f"{result.strength:.4g}" if result.strength >= 0 else "–",
            )
            for result in self
        ]


def _percent(interval: Interval) -> str:
    if interval.estimate != interval.estimate:
        return "–"
    return f"{100 * interval.estimate:.1f} % ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def _escape(text: str) -> str:
    from isthmus.core.visible import visible

    return html.escape(visible(text))


def _escape_texts(texts: Mapping[str, str]) -> str:
    from isthmus.core.visible import visible

    return "<br>".join(html.escape(visible(text)) for text in texts.values())


def _mark_result(result: AttackResult) -> str:
    """Both texts, with what was taken out and what was put in."""
    from isthmus.report.marks import mark

    lines = []
    for found in mark(result):
        for pieces, tag in ((found.before, "del"), (found.after, "ins")):
            if tag == "ins" and not found.is_changed:
                continue
            text = "".join(
                f"<{tag}>{html.escape(piece.text)}</{tag}>" if piece.changed else html.escape(piece.text)
                for piece in pieces
            )
            lines.append(text)
    return "<br>".join(lines)
