"""One set of an evaluation, for any task: examples without a row are scored, the others are read.

Subclasses say how examples become rows and rows become figures. Rows are written as they come; the same command again
continues after the rows that are there and ends with the same file.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from isthmus.core.errors import VictimError
from isthmus.core.seeds import numpy_stream
from isthmus.runs.evaluated import AnsweredQuestion, Evaluated
from isthmus.runs.folder import AttackFile
from isthmus.runs.journal import Journal
from isthmus.verbs.evaluate.prepared_evaluation import PreparedEvaluation
from isthmus.verbs.evaluate.sets import EvaluationSet
from isthmus.verbs.evaluate.speed import TEXTS, AskModel, measure
from isthmus.verbs.prepared_model import ids
from isthmus.verbs.rows_file import RowsDone, RowsJob

if TYPE_CHECKING:
    from isthmus.data import Dataset, Rejected
    from isthmus.summaries.evaluation import EvaluationSummary
    from isthmus.summaries.questions import QuestionSummary


Answered: TypeAlias = Evaluated | AnsweredQuestion
"""What a row of an evaluation is read back as."""


@dataclass(frozen=True)
class Asking:
    """The queries that time a model."""

    ask: AskModel
    is_here: bool
    """Whether it runs in this process, so that asking costs nothing but time."""
    device: str = "cpu"
    model: Any = None
    """What counts its passes."""


@dataclass(eq=False)
class Evaluation(RowsJob[Answered]):
    """The rows of one set of the command."""

    ready: PreparedEvaluation
    part: EvaluationSet

    @abstractmethod
    def check_fit(self) -> None:
        """Load the model, and refuse a set that it cannot read."""

    @abstractmethod
    def of_model(self) -> dict[str, Any]:
        """Describe the model for the header."""

    @abstractmethod
    def batches(self, missing: set[str], journal: Journal) -> Iterator[Sequence[Answered]]:
        """Yield results of the examples in `missing`, some at a time."""

    @abstractmethod
    def figures(self, header: Mapping[str, Any], results: Sequence[Answered]) -> EvaluationSummary | QuestionSummary:
        """Compute the figures of results."""

    @abstractmethod
    def asking(self, answered: Sequence[str]) -> Asking:
        """The queries for the examples of these ids."""

    def remarks(self, results: Sequence[Answered]) -> dict[str, Any]:
        """Further entries of the header once all results are there."""
        del results
        return {}

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that decide the rows."""
        return self.ready.settings(self.part)

    def choose_file(self) -> AttackFile:
        """Choose the file of this set and these settings."""
        return self.ready.folder.evaluation_file(self.part.name, self.settings)

    @property
    def unusable(self) -> Sequence[Rejected]:
        """Rows of the set without a usable text or label."""
        return self.part.data.rejected

    @property
    def device_type(self) -> str | None:
        """The device of the model."""
        return self.ready.device_type

    @cached_property
    def asked(self) -> list[str]:
        """Ids of the requested examples, in the order of the set."""
        data, n = self.part.data, self.ready.request.n
        chosen = set(ids(data if n is None else data.sample(n, self.ready.request.seed)))
        return [key for key in ids(data) if key in chosen]

    def check(self) -> None:
        """Check, if examples are missing, that set and model fit before any set is started."""
        there = {str(row.get("id")) for row in self.choose_file().rows()}
        if self.ready.request.retry_errors or not there.issuperset(self.asked):
            self.check_fit()

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Describe set, model and price."""
        given = self.ready.request.price_per_hour
        return {
            "evaluation": self.part.name,
            "task": self.ready.task,
            "set": self.part.to_json(),
            **self.of_model(),
            "price_per_hour": known.get("price_per_hour") if given is None else given,
            "speed": known.get("speed"),
        }

    def read(self, row: Mapping[str, Any]) -> Answered:
        """Read the result of a row."""
        return Evaluated.from_row(row)

    def reject(self, bad: Rejected) -> Answered:
        """Make the error of an unusable row."""
        return Evaluated(bad.id, "error", reason=bad.reason)

    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[Answered, None, None]:
        """Score the missing examples, some at a time."""
        del file, effort
        for results in self.batches(missing, journal):
            yield from results

    def order(self, header: Mapping[str, Any]) -> Sequence[str]:
        """Ids in the order of the set."""
        del header
        return ids(self.part.data)

    def conclude(self, file: AttackFile, header: Mapping[str, Any], results: Sequence[Answered]) -> dict[str, Any]:
        """Compute remarks, figures and speed."""
        del file
        found = self.remarks(results)
        found["summary"] = self.figures({**header, **found}, results).to_json()
        found["speed"] = self._speed(results) or header.get("speed")
        return found

    def revise(self, header: dict[str, Any], results: Sequence[Answered]) -> bool:
        """Update the price, and the times if requested; True if nothing else is to be done."""
        if not super().revise(header, results):
            return False
        request = self.ready.request
        if request.price_per_hour is not None:
            header["price_per_hour"] = request.price_per_hour
        if request.latency:
            header["speed"] = self._speed(results) or header.get("speed")
        return True

    def evaluate(self) -> RowsDone[Answered]:
        """Return the requested results; if the file holds more, with figures of their own."""
        done = self.run()
        if len(done.results) == done.total:
            return done
        summary = self.figures(done.header, done.results).to_json()
        return dataclasses.replace(done, header={**done.header, "summary": summary})

    def _speed(self, results: Sequence[Answered]) -> dict[str, Any] | None:
        """The speed of the model; None if it is not requested or cannot be measured."""
        answered = [result.id for result in results if result.outcome != "error"]
        asked = self.ready.request.latency
        if not answered or asked == 0:
            return None
        # A set may begin with all of one class, or with the short ones.
        numpy_stream(self.ready.request.seed, "latency").shuffle(answered)
        how = self.asking(answered)
        if asked is None and not how.is_here:
            return None
        self.ready.observer.note("timing single examples and full batches")
        try:
            found = measure(how.ask, len(answered), single=asked or TEXTS, device=how.device, model=how.model)
        except VictimError as error:
            self.ready.observer.note(f"not timed: {error}")
            return None
        return found.to_json()


def restrict_data(data: Dataset, results: Sequence[Answered]) -> Dataset:
    """The examples of `data` with a result, in their order."""
    there = {result.id for result in results}
    return dataclasses.replace(
        data,
        examples=tuple(example for example in data if example.id in there),
        rejected=tuple(bad for bad in data.rejected if bad.id in there),
    )
