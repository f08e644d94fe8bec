"""Whether the words that an explanation ranks first drive the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.seeds import numpy_stream
from isthmus.core.statistics import Interval, bootstrap_mean
from isthmus.measures._rankings import SHARES, erase
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, Subject
from isthmus.text.words import has_words

if TYPE_CHECKING:
    from isthmus.core.types import Doubles, Victim
    from isthmus.explanations.base import Explainer, Explanation

RANDOM = "random order"
_TEXTS = 100
_KINDS = {
    "comprehensiveness": "the heaviest words left out",
    "sufficiency": "the heaviest words alone",
}
NOT_ACROSS_MODELS = (
    "Texts with words left out are unlike what a model was trained on, and how unlike differs from model to model: "
    "compare explanations of one model by these figures, never two models."
)


@dataclass(frozen=True)
class Faithfulness(Measure):
    """Comprehensiveness and sufficiency of each explanation (DeYoung et al., 2020).

        comprehensiveness = mean over shares q of  p(c | x) - p(c | x without its first q words)     higher is better
        sufficiency       = mean over shares q of  p(c | x) - p(c | the first q words alone)         lower is better

    c is the class that the model predicts for x, words are ranked by their weight for it, and q is 1, 5, 10, 20 and
    50 % of the words, at least one (AOPC). A random order of the words is measured beside the explanations: one that
    does no better says nothing about the model.

    References:
        DeYoung, Jain, Rajani, Lehman, Xiong, Socher and Wallace (2020), ERASER: A Benchmark to Evaluate Rationalized
        NLP Models, https://arxiv.org/abs/1911.03429

    Where we depart:
        ERASER masks tokens; we leave whole words out of the text. Intervals and the random order are ours.

    Relations:
        `interpretation_consistency` asks whether the words stay the same under an attack. Figures of two models do not
        compare: each is disturbed in its own way by a text with words missing.

    Example:
        ``isthmus measure runs/demo --measure faithfulness -P methods=integrated_gradients,lime``
    """

    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed")

    methods: tuple[str, ...] = ()
    """Explanations to measure; by default every one that works for the model."""

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in catalog.names("explanations"):
                raise UnknownName("explanation", name, catalog.names("explanations"))

    def measure(self, subject: Subject) -> Measurement:
        """Measure every method on the same texts."""
        from isthmus.models import wrap

        victim = wrap(subject.model)
        explainers, left_out = self._explainers(victim)
        split = subject.split_names(("test", "dev"))[0]
        data = subject.sample(split, _TEXTS)
        examples = [example for example in data if has_words(example)]
        if not examples:
            raise UsageError(f"none of {len(data)} texts of {split} has a word: there is nothing to leave out")
        found: list[_Faithful] = []
        order: list[Explanation] = []
        for number, explainer in enumerate(explainers):
            subject.step(f"{subject.name}: {explainer.name}", number, len(explainers))
            order = list(explainer(victim, examples, seed=subject.asked.seed))
            found.append(_measure(explainer.name, victim, order, [each.weights[0] for each in order]))
        subject.step(f"{subject.name}: {RANDOM}", len(explainers), len(explainers))
        stream = numpy_stream(subject.asked.seed, RANDOM)
        shuffled = [stream.permutation(each.weights.shape[1]).astype(np.float64) for each in order]
        found.append(_measure(RANDOM, victim, order, shuffled))
        if all(each.undefined == len(examples) for each in found[:-1]):
            raise UsageError(
                f"{subject.name}: the weights of all explanations are NaN: look at one text with isthmus explain"
            )
        notes = [f"{len(examples)} texts of {split}, each for the class that the model predicts"]
        if len(examples) < len(data):
            notes.append(f"{len(data) - len(examples)} texts without a word left out")
        notes += left_out
        notes += [
            f"{each.name}: {each.undefined} texts with weights that are not numbers left out"
            for each in found
            if each.undefined
        ]
        seed = subject.asked.seed
        return Measurement(
            figures=tuple(each.figure(kind, seed) for kind in _KINDS for each in found),
            plots=tuple(_make_plot(kind, found, seed) for kind in _KINDS),
            notes=(*notes, NOT_ACROSS_MODELS),
            details={"split": split, "texts": len(examples), "shares": list(SHARES)},
        )

    def _explainers(self, victim: Victim) -> tuple[list[Explainer], list[str]]:
        """The requested methods, or those that work here, with the reason why others do not."""
        names = self.methods or tuple(catalog.names("explanations"))
        made: list[Any] = [catalog.build("explanations", name) for name in names]
        left_out: list[str] = []
        kept: list[Explainer] = []
        for explainer in made:
            try:
                explainer.check(victim)
            except UsageError as error:
                if self.methods:
                    raise UsageError(f"{error} (-P methods=…)") from error
                left_out.append(f"left out: {error}")
                continue
            kept.append(explainer)
        if not kept:
            raise UsageError(f"no explanation works for this model: {left_out[0]}")
        return kept, left_out


@dataclass(frozen=True, eq=False)
class _Faithful:
    """The results of one method: the drop for each text, [texts, SHARES]."""

    name: str
    losses: dict[str, Doubles]

    @property
    def undefined(self) -> int:
        """Number of texts without a figure."""
        return int(np.isnan(self.losses["sufficiency"]).any(axis=1).sum())

    def figure(self, kind: str, seed: int) -> Figure:
        """The mean over texts and shares."""
        values = self.losses[kind].mean(axis=1)
        name, interval = f"{kind}, {self.name}", mean_interval(values, seed)
        if (~np.isnan(values)).sum() == 1:  # How much texts differ cannot be told from one.
            return Figure(name, interval.estimate)
        return Figure.from_interval(name, interval)


def _measure(name: str, victim: Victim, explained: Sequence[Explanation], weights: Sequence[Doubles]) -> _Faithful:
    classes = [each.prediction for each in explained]
    found = erase(victim, [each.texts for each in explained], weights, classes)
    return _Faithful(name, dict(zip(_KINDS, found, strict=True)))


def mean_interval(values: Doubles, seed: int) -> Interval:
    """The mean of all values but NaN, with a bootstrap interval."""
    known = values[~np.isnan(values)]
    return bootstrap_mean(known, seed) if len(known) else Interval(math.nan, math.nan, math.nan, 0.95)


def _make_plot(kind: str, found: Sequence[_Faithful], seed: int) -> Plot:
    def series(each: _Faithful) -> Series:
        means = [mean_interval(each.losses[kind][:, place], seed) for place in range(len(SHARES))]
        return Series(
            each.name,
            SHARES,
            tuple(mean.estimate for mean in means),
            y_bounds=tuple((mean.low, mean.high) for mean in means),
            reference=each.name == RANDOM,
        )

    return Plot(
        name=kind,
        title=f"{kind.capitalize()}: {_KINDS[kind]}",
        x_label="share of the words",
        y_label="loss of probability",
        series=tuple(series(each) for each in found),
        percent="xy",
        caption="Bands are 95 % bootstrap intervals over texts. " + NOT_ACROSS_MODELS,
    )
