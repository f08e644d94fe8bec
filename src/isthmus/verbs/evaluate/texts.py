"""Evaluates a classifier on labelled texts: scores of every text in every way, and of its original."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError, UsageError, VictimTimeout
from isthmus.core.seeds import derive
from isthmus.runs.evaluated import Evaluated, OriginalText, ScoresByWay
from isthmus.runs.journal import Journal
from isthmus.summaries.evaluation import EvaluationSummary, summarise_texts
from isthmus.verbs.evaluate.one_set import Answered, Asking, Evaluation
from isthmus.verbs.evaluate.ways import Ways, WayScores
from isthmus.verbs.label_check import check_labels, judge, suspicion
from isthmus.verbs.model_loading import choose_label_names, names_in_data, numbering, suit_fields

if TYPE_CHECKING:
    from isthmus.core.types import Example, Texts, Victim
    from isthmus.data import Dataset

_AT_ONCE = {"cpu": 256, "cuda": 4096}
"""Texts between two writes: on a GPU many of each length must come together to fill a batch."""


@dataclass(eq=False)
class TextEvaluation(Evaluation):
    """The rows of one set of texts."""

    def check_fit(self) -> None:
        """Check that labels match, and that the set has as many text fields as the model reads."""
        self._suit_fields()
        reads, has = getattr(self.ready.victim, "fields", None), self.part.data.fields
        if reads is not None and len(reads) != len(has):
            raise UsageError(
                f"{self.part.source} has {len(has)} text fields ({', '.join(has)}), the model reads {len(reads)} "
                f"({', '.join(reads)}): name the columns with --text or --pair"
            )
        _ = self.aligned, self.ready.ways

    def begin(self) -> None:
        """Stop if the model's labels cannot match those of the set, as far as unattacked texts tell."""
        clean, ready = self.part.clean(), self.ready
        self._suit_fields()
        if clean is None or not ready.request.label_check or self._names_agree():
            return
        try:
            check_labels(ready.victim, clean.align_labels(ready.victim.labels), ready.request.seed, self.names)
        except VictimTimeout as error:
            ready.observer.note(f"labels not checked: {error}")

    def of_model(self) -> dict[str, Any]:
        """Class names and ways, for the header."""
        ways = self.ready.ways
        return {
            "labels": choose_label_names(self.ready.victim.labels, self.names),
            "ways": list(ways.names),
            "headline": ways.headline,
            "draws": ways.draws,
        }

    def batches(self, missing: set[str], journal: Journal) -> Iterator[Sequence[Answered]]:
        """Score the missing texts, some at a time."""
        self._suit_fields()  # The set before may have been one of single texts.
        examples = [example for example in self.aligned if example.id in missing]
        size = choose_batch_size(self.ready.victim)
        for at in range(0, len(examples), size):
            first = not any(row.get("scores") for row in journal.rows.values())
            yield list(make_results(self.ready.ways, examples[at : at + size], self.part.originals, first=first))

    def figures(self, header: Mapping[str, Any], results: Sequence[Answered]) -> EvaluationSummary:
        """Compute accuracy, calibration and related figures."""
        return summarise_texts(_only_texts(results), header["labels"], header["ways"], header["headline"])

    def asking(self, answered: Sequence[str]) -> Asking:
        """Query the victim as it is deployed, with new draws for every text."""
        self._suit_fields()
        by_id = {example.id: example for example in self.part.data}
        return make_asking(self.ready.victim, [by_id[key] for key in answered], self.ready.request.seed)

    def remarks(self, results: Sequence[Answered]) -> dict[str, Any]:
        """A warning if the label map looks mixed up."""
        return {"suspicion": self._suspicion(_only_texts(results))}

    @cached_property
    def aligned(self) -> Dataset:
        """The set with labels in the model's order."""
        labels = self.ready.victim.labels
        try:
            return self.part.data.align_labels(labels)
        except DataError as error:
            raise DataError(
                f"{self.part.source} has the labels {', '.join(self.part.data.labels[:12])}, the model "
                f"{', '.join(labels[:12])}: pass --labels: dataset label names, in the model's class order"
            ) from error

    @cached_property
    def names(self) -> list[str]:
        """The set's name for each of the model's classes."""
        return names_in_data(self.part.data, self.ready.victim.labels, numbering(self.part.data, self.aligned))

    def _suit_fields(self) -> None:
        suit_fields(self.ready.victim, self.ready.source, self.part.data.fields)

    def _names_agree(self) -> bool:
        """Whether labels were matched by the names a run was trained with; then low accuracy is just a bad model."""
        run = self.ready.source.run
        if run is None or run.record().training is None or self.ready.request.labels is not None:
            return False
        known = {label.casefold() for label in self.ready.victim.labels}
        return known.issuperset(label.casefold() for label in self.part.data.labels)

    def _suspicion(self, results: Sequence[Evaluated]) -> str | None:
        """A warning if texts of unknown origin are classified as if the classes were in another order.

        An adversarial set may well be answered worse than by chance, so nothing is stopped for it.
        """
        answered = [(result.label, result.scores) for result in results if result.scores]
        if self.part.clean() is not None or not answered or not self.ready.request.label_check or self._names_agree():
            return None
        labels = self.ready.victim.labels
        scores = np.array([each[self.ready.ways.headline] for _, each in answered], np.float32)
        check = judge(scores, np.array([label for label, _ in answered], np.int64), len(labels))
        if not check.is_suspicious or check.renaming is None:
            return None
        return suspicion(check, labels, self.names)


def make_results(
    ways: Ways, examples: Sequence[Example], originals: Mapping[str, Texts], *, first: bool = False
) -> Iterator[Evaluated]:
    """Yield the results of examples, whose labels are in the model's order; `first` as in `Ways.see`."""
    seen = ways.see([example.inputs for example in examples], [example.id for example in examples], first=first)
    paired = [example for example in examples if example.id in originals]
    texts, keys = [originals[each.id] for each in paired], [f"{each.id}:original" for each in paired]
    before = ways.see(texts, keys) if paired else WayScores({})
    place_of = {each.id: place for place, each in enumerate(paired)}
    for place, example in enumerate(examples):
        assert isinstance(example.label, int)
        scores, reason = _scores_at(seen, place)
        original = None
        if example.id in place_of:
            original = OriginalText(originals[example.id], *_scores_at(before, place_of[example.id]))
        outcome, prediction = "error", None
        if scores:
            prediction = int(np.argmax(scores[ways.headline]))
            outcome = "right" if prediction == example.label else "wrong"
        yield Evaluated(example.id, outcome, example.label, example.texts, scores, reason, prediction, original)


def make_asking(victim: Victim, examples: Sequence[Example], seed: int) -> Asking:
    """The queries that time a victim on some examples."""
    texts = [example.inputs for example in examples]
    keys: NDArray[np.uint64] = np.array([derive(seed, "latency", each.id) for each in examples], dtype=np.uint64)

    def ask(places: Sequence[int]) -> object:
        own = [texts[place] for place in places]
        return victim.scores(own, keys[list(places)]) if victim.stochastic else victim.scores(own)

    return Asking(ask, hasattr(victim, "model"), getattr(victim, "device_type", "cpu"), victim)


def choose_batch_size(victim: Victim) -> int:
    """Number of texts that are scored between two writes."""
    return _AT_ONCE.get(getattr(victim, "device_type", "cpu"), _AT_ONCE["cpu"])


def _scores_at(seen: WayScores, place: int) -> tuple[ScoresByWay | None, str | None]:
    """Scores of one text in every way, to seven digits; None, with the reason, if the model did not answer."""
    if place in seen.reasons:
        return None, seen.reasons[place]
    return {way: tuple(float(f"{p:.7g}") for p in scores[place]) for way, scores in seen.scores.items()}, None


def _only_texts(results: Sequence[Answered]) -> list[Evaluated]:
    return [result for result in results if isinstance(result, Evaluated)]
