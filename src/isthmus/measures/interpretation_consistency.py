"""Whether the same words drive predictions before and after an attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive, numpy_stream
from isthmus.core.statistics import Interval, json_number
from isthmus.core.types import Example
from isthmus.measures._consistency_plots import CHANGED, ConsistencyCurve, plot_changes, top_plot
from isthmus.measures._pairs import count_changes, is_aligned, pair_words, replace_at_random, with_random_weights
from isthmus.measures._rankings import faithfulness, overlap, tau_b
from isthmus.measures.base import Figure, Measure, Measurement, SourceName, Subject
from isthmus.measures.faithfulness import NOT_ACROSS_MODELS, mean_interval

if TYPE_CHECKING:
    from isthmus.core.types import Doubles
    from isthmus.explanations.base import Explainer, Explanation

_PAIRS = 200
_TOP = range(1, 11)
_CLASSES_SHOWN = 6
"""With more classes than this their figures are in `details` alone."""
_OUTCOMES = {"succeeded": "the attack succeeded", "failed": "the attack failed"}


@dataclass(frozen=True)
class InterpretationConsistency(Measure):
    """Kendall's tau-b and top-k overlap of word weights before and after an attack.

        τ(x, x')     = mean over classes c of  τ-b(w_c(x), w_c(x'))           over the words, place by place
        top-k(x, x') = mean over classes c of  |top-k(w_c(x)) ∩ top-k(w_c(x'))| / k

    w_c are the weights of an explanation for class c (`isthmus list explanations`), signed unless `absolute`. Words are
    compared by their place, so that a synonym that carries the weight of the word it replaced is consistent; by word,
    a place counts only if its word stayed. Succeeded and failed attacks are apart; a text with as few words as k has no
    top-k, one whose number of words changed has neither.

    What noise alone does is measured beside it: the same number of words replaced at random, an explanation that draws
    against itself with another seed, and two models with random weights on the same texts. Comprehensiveness and
    sufficiency say whether the words that weigh most decide at all. tau and top-5 of every text are in `details`.

    References:
        Chen and Ji (2022), Adversarial Training for Improving Model Robustness? Look at Both Prediction and
        Interpretation, https://arxiv.org/abs/2203.12709
        DeYoung, Jain, Rajani, Lehman, Xiong, Socher and Wallace (2020), ERASER: A Benchmark to Evaluate Rationalized
        NLP Models, https://arxiv.org/abs/1911.03429

    Where we depart:
        The paper names no variant of tau, gives no interval and no control, and released no code for it. Its "on
        corresponding labels" can be read in two ways, and both are given beside the mean: weights for one class, and
        texts of one class.

    Relations:
        `isthmus explain RUN --attack NAME` shows the words of single pairs. `latent_distance` looks at vectors instead,
        `faithfulness` compares explanations of one model.
        Each run is measured on its own attacked texts; give one file of attack rows or adversarial texts (attack =
        file.jsonl) to hold several runs against the same.

    Example:
        ``isthmus measure runs/demo --measure interpretation_consistency -P attack=textfooler``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "attacks")
    compares: ClassVar[bool] = True

    attack: str | None = None
    """Attack whose texts are compared, or a file of them with their originals; none: the first there is."""
    method: str = "integrated_gradients"
    """Name of the explanation method."""
    absolute: bool = False
    """Whether to rank words by the absolute value of their weights."""
    controls: bool = True
    """Whether to measure the effect of noise alone; this costs about as much as the rest."""

    def measure(self, subject: Subject) -> Measurement:
        """Compare the pairs of every run."""
        explainer: Explainer = catalog.build("explanations", self.method)
        found = [_ConsistencyRun(self, explainer, each).measure_all() for each in (subject, *subject.others)]
        notes = [note for run in found for note in run.notes]
        notes.append(f"Comprehensiveness and sufficiency: {NOT_ACROSS_MODELS[0].lower()}{NOT_ACROSS_MODELS[1:]}")
        return Measurement(
            figures=tuple(figure for run in found for figure in run.figures),
            plots=(
                top_plot([curve for run in found for curve in run.top]),
                plot_changes([curve for run in found for curve in run.changed]),
            ),
            notes=tuple(notes),
            details={"runs": [run.details for run in found], "method": self.method, "absolute": self.absolute},
        )


@dataclass
class _ConsistencyFigures:
    """The figures of one run."""

    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    top: list[ConsistencyCurve] = field(default_factory=list)
    changed: list[ConsistencyCurve] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class _ConsistencyRun:
    """One run during the measurement."""

    def __init__(self, measure: InterpretationConsistency, explainer: Explainer, subject: Subject) -> None:
        self.measure, self.explainer, self.subject = measure, explainer, subject
        self.seed = subject.asked.seed
        self.found = _ConsistencyFigures()
        given = subject.pairs(measure.attack)
        kept = [pair for pair in given.pairs if is_aligned(pair)]
        most = subject.asked.n if subject.asked.n is not None else _PAIRS
        order = numpy_stream(self.seed, "pairs").permutation(len(kept))[:most]
        self.pairs = [kept[place] for place in order.tolist()]
        if not self.pairs:
            raise UsageError(
                f"{given.name} has no text that kept its number of words, so that no places can be compared: take an "
                "attack that replaces words, such as textfooler or pwws"
            )
        self.found.details = {
            "run": subject.name, "attack": given.name, "pairs": len(self.pairs), "skipped": given.skipped,
            "other number of words": len(given.pairs) - len(kept),
        }  # fmt: skip
        left_out = f", {given.skipped} skipped" if given.skipped else ""
        other = len(given.pairs) - len(kept)
        left_out += f", {other} of another number of words left out" if other else ""
        texts = f"{len(self.pairs)} text{'s' * (len(self.pairs) != 1)}"
        self.found.notes.append(f"{subject.name}: {texts} of {given.name}{left_out}")

    @cached_property
    def victim(self) -> Any:
        """The model as it is deployed."""
        from isthmus.models import wrap

        return wrap(self.subject.model)

    def measure_all(self) -> _ConsistencyFigures:
        """Compute all figures of the run."""
        before = self._explain("originals", [(pair.id, pair.original) for pair in self.pairs])
        after = self._explain("attacked texts", [(pair.id, pair.perturbed) for pair in self.pairs])
        taus = self._taus(before, after)
        self._check(before, after, taus)
        self.found.details["texts"] = {
            "ids": [pair.id for pair in self.pairs],
            "outcomes": [pair.outcome for pair in self.pairs],
            "tau": [json_number(tau, 4) for tau in taus.tolist()],
            "top-5": [
                json_number(self._overlap(one, two, 5, False), 4) for one, two in zip(before, after, strict=True)
            ],
        }
        for outcome, words in _OUTCOMES.items():
            chosen = [place for place, pair in enumerate(self.pairs) if pair.outcome == outcome]
            if chosen:
                self._compare(words, chosen, before, after, taus)
        self._faithful(before)
        errors = [each.details.get("completeness error") for each in before]
        if all(errors):
            self._add("completeness error", np.array([np.mean(error) for error in errors if error]))
        if self.measure.controls:
            self._controls(before)
        return self.found

    def _explain(
        self, title: str, texts: Sequence[tuple[str, Any]], victim: Any = None, seed: int = 0
    ) -> list[Explanation]:
        examples = [Example(key, dict(text), 0) for key, text in texts]
        found: list[Explanation] = []
        try:
            run = self.explainer(victim or self.victim, examples, classes="all", seed=self.seed + seed)
        except UsageError as error:
            raise UsageError(f"{error} (-P method=…)") from error
        for done, each in enumerate(run):
            self.subject.step(f"{self.subject.name}: {title}", done, len(examples))
            found.append(each)
        self.subject.step(f"{self.subject.name}: {title}", len(examples), len(examples))
        return found

    def _weights(self, each: Explanation) -> Doubles:
        return np.abs(each.weights) if self.measure.absolute else each.weights

    def _tau(self, a: Explanation, b: Explanation) -> float:
        return _mean_of_numbers(
            [tau_b(one, other) for one, other in zip(self._weights(a), self._weights(b), strict=True)]
        )

    def _compare(
        self,
        words: str,
        chosen: Sequence[int],
        before: Sequence[Explanation],
        after: Sequence[Explanation],
        taus: Doubles,
    ) -> None:
        own = taus[chosen]
        self._add(f"tau, {words}", own)
        self._compare_classes(words, chosen, before, after, own)
        true = [
            tau_b(self._weights(before[at])[self.pairs[at].label], self._weights(after[at])[self.pairs[at].label])
            for at in chosen
            if self.pairs[at].label < len(before[at].weights)
        ]
        self._add(f"tau for the true class, {words}", np.array(true))
        intervals: dict[str, list[Interval]] = {"place": [], "word": []}
        for k in _TOP:
            for by, found in intervals.items():
                values = [self._overlap(before[at], after[at], k, by == "word") for at in chosen]
                found.append(mean_interval(np.array(values), self.seed))
                if k == 5:
                    name = f"top-5 overlap{' by word' if by == 'word' else ''}, {words}"
                    self._add(name, np.array(values))
        for by, found in intervals.items():
            self.found.top.append(
                ConsistencyCurve(f"{self.subject.name}: {words}, by {by}", tuple(map(float, _TOP)), tuple(found))
            )
        changed = np.array([count_changes(self.pairs[at]) for at in chosen])
        bins = [own[(changed >= low) & (changed <= (high or 10**9))] for low, high, _ in CHANGED]
        curve = tuple(mean_interval(values, self.seed) for values in bins)
        self.found.changed.append(
            ConsistencyCurve(f"{self.subject.name}: {words}", tuple(map(float, range(len(bins)))), curve)
        )

    def _compare_classes(
        self,
        words: str,
        chosen: Sequence[int],
        before: Sequence[Explanation],
        after: Sequence[Explanation],
        taus: Doubles,
    ) -> None:
        """Add the figures by class: for a class's weights in all texts, and for the texts of a true class."""
        labels = before[0].labels
        truth = np.array([self.pairs[at].label for at in chosen])
        tops = np.array([self._overlap(before[at], after[at], 5, False) for at in chosen])
        rows: dict[str, Any] = {}
        for number, label in enumerate(labels):
            both = [(self._weights(before[at])[number], self._weights(after[at])[number]) for at in chosen]
            values = {
                f"tau of weights for {label}": np.array([tau_b(one, other) for one, other in both]),
                f"top-5 overlap of weights for {label}": np.array([overlap(one, other, 5) for one, other in both]),
                f"tau of texts of {label}": taus[truth == number],
                f"top-5 overlap of texts of {label}": tops[truth == number],
            }
            for name, each in values.items():
                interval = mean_interval(each, self.seed)
                rows[name] = [interval.estimate, interval.low, interval.high, int((~np.isnan(each)).sum())]
                if name.startswith("tau") and len(labels) <= _CLASSES_SHOWN:
                    self._add(f"{name}, {words}", each)
        self.found.details.setdefault("by class", {})[words] = rows

    def _check(self, before: Sequence[Explanation], after: Sequence[Explanation], taus: Doubles) -> None:
        """Note how many pairs have no tau and no top-5 and why; refuse if none has a tau."""
        both = list(zip(before, after, strict=True))
        unknown = [not all(np.isfinite(each.weights).all() for each in pair) for pair in both]
        flat = np.isnan(taus) & ~np.array(unknown)
        short = sum(len(one.words) <= 5 for one in before)
        name, method = self.subject.name, self.measure.method
        if np.isnan(taus).all():
            others = ", ".join(each for each in catalog.names("explanations") if each != method)
            raise UsageError(
                f"{name}: the weights of {method} rank no words in any of {len(taus)} pairs. In {sum(unknown)} some "
                f"are not numbers, in {int(flat.sum())} all are equal or there are fewer than two words. Try another "
                f"method (-P method=…: {others}), or look at one text with `isthmus explain`"
            )
        for count, why in (
            (sum(unknown), "whose weights are not all numbers: neither tau nor overlap"),
            (int(flat.sum()), "whose words all weigh the same, or with fewer than two words: no tau"),
            (short, "with no more than 5 words: no top-5 overlap"),
        ):
            if count:
                self.found.notes.append(f"{name}: {count} text{'s' * (count != 1)} {why}")
        seen = {each.prediction for pair in both for each in pair}
        never = [label for number, label in enumerate(before[0].labels) if number not in seen]
        if never:
            self.found.notes.append(
                f"{name}: {', '.join(never)} is predicted for none of these texts: weights for it say what would "
                "speak for it, not what decided"
            )

    def _overlap(self, a: Explanation, b: Explanation, k: int, by_word: bool) -> float:
        same = [one == other for one, other in zip(a.words, b.words, strict=True)] if by_word else None
        pairs = zip(self._weights(a), self._weights(b), strict=True)
        return _mean_of_numbers([overlap(one, other, k, same) for one, other in pairs])

    def _faithful(self, before: Sequence[Explanation]) -> None:
        classes = [each.prediction for each in before]
        weights = [each.towards(each.prediction) for each in before]
        stream = numpy_stream(self.seed, "random order")
        shuffled = [stream.permutation(len(row)).astype(np.float64) for row in weights]
        for name, rows in (("", weights), (" of a random order", shuffled)):
            found = faithfulness(self.victim, [each.texts for each in before], rows, classes)
            for what, values in zip(("comprehensiveness", "sufficiency"), found, strict=True):
                self._add(what + name, values)

    def _controls(self, before: Sequence[Explanation]) -> None:
        """Measure the effect of noise alone on tau."""
        pool = sorted({word for pair in self.pairs for word in pair_words(pair.original)})
        texts = [(pair.id, replace_at_random(pair, pool, self.seed)) for pair in self.pairs]
        others = self._explain("words replaced at random", texts)
        self._add("tau, as many words replaced at random", self._taus(before, others))
        if self.explainer.draws:
            again = self._explain("another seed", [(pair.id, pair.original) for pair in self.pairs], seed=1)
            self._add("tau, the same text and another seed", self._taus(before, again))
        from isthmus.models import wrap

        texts = [(pair.id, dict(pair.original)) for pair in self.pairs]
        one, two = (
            self._explain(
                "random weights", texts, wrap(with_random_weights(self.subject.model, derive(self.seed, "weights", n)))
            )
            for n in range(2)
        )
        self._add("tau, two models with random weights", self._taus(one, two))

    def _taus(self, a: Sequence[Explanation], b: Sequence[Explanation]) -> Doubles:
        return np.array([self._tau(one, other) for one, other in zip(a, b, strict=True)])

    def _add(self, name: str, values: Doubles) -> None:
        interval = mean_interval(values, self.seed)
        if (~np.isnan(values)).sum() == 1:  # How much texts differ cannot be told from one.
            self.found.figures.append(Figure(name, interval.estimate, of=self.subject.name))
        elif not math.isnan(interval.estimate):
            self.found.figures.append(Figure.from_interval(name, interval, self.subject.name))


def _mean_of_numbers(values: Sequence[float]) -> float:
    """The mean of all values but NaN."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
