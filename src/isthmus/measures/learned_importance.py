"""Learned importance of each word in a model with word masks, and its correlations."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.synonyms import Synonyms
from isthmus.core.errors import AssetError, ModelError, UsageError
from isthmus.core.seeds import numpy_stream
from isthmus.core.statistics import Interval, bootstrap_mean, bootstrap_pearson
from isthmus.core.types import Doubles
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject
from isthmus.text.words import Words

if TYPE_CHECKING:
    from isthmus.data import Dataset
    from isthmus.models import Classifier

_LISTED, _DRAWN, _NAMED = 5_000, 1_000, 12
"""Words that are kept, that a plot shows, and that it names."""
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Widths of the groups in which differences of importance are counted; the first of which ten hold most of them."""


@dataclass(frozen=True)
class LearnedImportance(Measure):
    """The importance of each word learned by `flat`, with its frequency and how often attacks replace it.

        φ(w) = maximum over the sub-words of w of their importance,     0 < φ < 1
        r    = Pearson's correlation over words of φ, frequency, and how often attacks replaced the word
        d    = |φ(w) - φ(s)|     for w among `words` random words and s among its `synonyms_each` first synonyms

    Frequencies are those of the training data, replacements those of all attacks in the run folder (figure 4 of the
    paper). A model that takes a word and its synonyms to be equally important gives an attack less to gain: d is small
    beside that of random pairs of words (figure 5).

    References:
        Chen and Ji (2022), Adversarial Training for Improving Model Robustness? Look at Both Prediction and
        Interpretation, https://arxiv.org/abs/2203.12709

    Where we depart:
        Correlations have bootstrap intervals over words, and stand with counts and with logarithms of counts: a few
        very frequent words decide the first. Random pairs stand beside synonyms.

    Relations:
        `isthmus show-words RUN` lists the words. `flat` trains such models; its γ is what makes d small.

    Example:
        ``isthmus measure runs/flat --measure learned_importance -P synonyms=wordnet``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data", "attacks")
    takes: ClassVar[tuple[Option, ...]] = ("seed",)
    compares: ClassVar[bool] = True

    synonyms: str = "counterfitted"
    """Where synonyms come from: wordnet, counterfitted, glove, a file of word vectors or of synonyms."""
    words: int = 1_000
    """Number of random words of the training data whose synonyms are compared; 0: none."""
    synonyms_each: int = 10
    """Number of synonyms of each word."""

    def __post_init__(self) -> None:
        if self.words < 0 or self.synonyms_each < 1:
            raise UsageError(
                f"{self.name}: words is at least 0 and synonyms_each at least 1, not {self.words} and "
                f"{self.synonyms_each}"
            )

    def measure(self, subject: Subject) -> Measurement:
        """Measure every run."""
        found = [_ImportanceRun(self, each) for each in (subject, *subject.others)]
        plots = [plot for run in found for plot in run.scatters(len(found) > 1)]
        if any(run.differences for run in found):
            plots.append(_histogram(found))
        return Measurement(
            figures=tuple(figure for run in found for figure in run.figures),
            plots=tuple(plots),
            notes=tuple(note for run in found for note in run.notes),
            details={"columns": list(COLUMNS), "runs": [run.details() for run in found]},
        )


COLUMNS = ("word", "importance", "frequency", "replaced")
"""What `details` says of every word."""


class _ImportanceRun:
    """One run during the measurement."""

    def __init__(self, measure: LearnedImportance, subject: Subject) -> None:
        self.measure, self.subject, self.seed = measure, subject, subject.asked.seed
        self.notes: list[str] = []
        self.figures: list[Figure] = []
        self.differences: dict[str, Doubles] = {}
        model = self._model()
        subject.step(f"{subject.name}: counting words", 0, 3)
        fold = _folds_case(model)
        counts = _count(subject.splits.train, fold)
        words = sorted(counts, key=lambda word: (-counts[word], word))
        values, unknown = _importance_of_words(model, words)
        known = np.flatnonzero(~np.isnan(values) & ~unknown)
        if not len(known):
            raise UsageError(f"{subject.name}: its vocabulary holds no word of the training data: nothing to list")
        self.words = [words[place] for place in known.tolist()]
        self.importance = values[known]
        self.frequency = np.array([counts[word] for word in self.words], np.float64)
        replaced: Counter[str] = Counter()
        for word, count in subject.substitutions().items():
            replaced[fold(word)] += count
        self.replaced = np.array([replaced[word] for word in self.words], np.float64)
        left_out = f", {int(unknown.sum()):,} unknown to the model left out" if unknown.any() else ""
        self.notes.append(f"{subject.name}: {len(self.words):,} words of the training data{left_out}")
        subject.step(f"{subject.name}: correlations", 1, 3)
        self._correlate(replaced)
        subject.step(f"{subject.name}: synonyms", 2, 3)
        if measure.words:
            self._compare_synonyms(model, fold)
        subject.step(f"{subject.name}: synonyms", 3, 3)

    def _model(self) -> Classifier:
        from isthmus.models import word_importance

        model = self.subject.model
        try:
            word_importance(model)
        except ModelError as error:
            raise UsageError(f"{self.subject.name}: {error}") from error
        return model

    def _correlate(self, replaced: Mapping[str, int]) -> None:
        counted = {"importance": self.importance, "frequency": self.frequency, "replacements": self.replaced}
        self._add("mean importance", bootstrap_mean(self.importance, self.seed, draws=1_000))
        if not self.replaced.any():
            del counted["replacements"]
            self.notes.append(
                f"{self.subject.name}: no word that attacks replaced occurs in the training data"
                if replaced
                else f"{self.subject.name}: no attack of the run replaced a word; isthmus attack RUN --attack "
                "textfooler gives replacements to compare with"
            )
        names = list(counted)
        for number, one in enumerate(names):
            for two in names[number + 1 :]:
                self._add(f"correlation of {one} and {two}", bootstrap_pearson(counted[one], counted[two], self.seed))
                first = counted[one] if one == "importance" else np.log1p(counted[one])
                of_logs = bootstrap_pearson(first, np.log1p(counted[two]), self.seed)
                self._add(f"correlation of {one} and {two} (logarithms of counts)", of_logs)

    def _compare_synonyms(self, model: Classifier, fold: Callable[[str], str]) -> None:
        """|φ(w) - φ(s)| of words and their synonyms, and of random pairs of words."""
        source, name = self.measure.synonyms, self.subject.name
        try:
            synonyms = load_synonyms(source, self.measure.synonyms_each)
        except AssetError as error:
            self.notes.append(f"synonyms are not compared: {error}")
            return
        stream = numpy_stream(self.seed, "words with synonyms")
        pairs: list[tuple[int, str]] = []
        looked_at = 0
        for place in stream.permutation(len(self.words)).tolist():
            if looked_at == self.measure.words:
                break
            own = dict.fromkeys(fold(each) for each in synonyms(self.words[place]))
            others = [each for each in own if each != self.words[place]][: self.measure.synonyms_each]
            looked_at += bool(others)
            pairs += [(place, each) for each in others]
        values, unknown = _importance_of_words(model, [each for _, each in pairs])
        usable = ~np.isnan(values) & ~unknown
        if not usable.any():
            found = f"the model knows none of {len(pairs)}" if pairs else "no word of the training data has any"
            self.notes.append(f"{name}: synonyms ({source}) are not compared: {found}")
            return
        places = np.array([place for place, _ in pairs])[usable]
        own_values = self.importance[places]
        random = self.importance[stream.integers(len(self.words), size=len(places))]
        for kind, other in (("synonyms", values[usable]), ("random words", random)):
            self.differences[kind] = np.abs(own_values - other)
            means = _by_word(places, self.differences[kind])
            self._add(f"difference of importance between {kind}", bootstrap_mean(means, self.seed))
        spread = float(self.differences["synonyms"].var())
        self.figures.append(Figure("variance of the difference between synonyms", spread, of=name))
        self.notes.append(
            f"{name}: {len(places):,} pairs of {len(set(places.tolist())):,} words and their synonyms ({source}), "
            f"{int((~usable).sum()):,} synonyms unknown to the model left out; intervals are over words"
        )

    def _add(self, name: str, interval: Interval) -> None:
        if not math.isnan(interval.estimate):
            self.figures.append(Figure.from_interval(name, interval, self.subject.name))

    def details(self) -> dict[str, Any]:
        """The most frequent words, and every word that attacks replaced."""
        rows = list(zip(self.words, self.importance, self.frequency, self.replaced, strict=True))
        kept = [row for at, row in enumerate(rows) if at < _LISTED or row[3]]
        return {
            "run": self.subject.name,
            "words": len(rows),
            "rows": [[word, round(float(phi), 6), int(often), int(gone)] for word, phi, often, gone in kept],
        }

    def scatters(self, named: bool) -> list[Plot]:
        """Plot importance against frequency and against replacements."""
        across = {"frequency": (self.frequency, "times in the training data (log₁₀ of 1 + count)")}
        if self.replaced.any():
            across["replacements"] = (self.replaced, "times replaced by attacks (log₁₀ of 1 + count)")
        return [self._scatter(name, values, label, named) for name, (values, label) in across.items()]

    def _scatter(self, name: str, values: Doubles, label: str, named: bool) -> Plot:
        order = np.argsort(-values, kind="stable")[:_DRAWN]
        far = np.argsort(-np.abs(self.importance[order] - np.median(self.importance)), kind="stable")[:_NAMED]
        shown = set(order[far].tolist())
        series = Series(
            self.subject.name,
            tuple(np.log10(1 + values[order]).tolist()),
            tuple(self.importance[order].tolist()),
            labels=tuple(self.words[at] if at in shown else "" for at in order.tolist()),
        )
        return Plot(
            name=f"importance_by_{name}" + (f"_{self.subject.name}" if named else ""),
            title=f"Learned importance and {name} of words" + (f": {self.subject.name}" if named else ""),
            x_label=label,
            y_label="importance φ",
            series=(series,),
            kind="scatter",
            caption=f"The {len(order):,} words with the largest counts; those furthest from the median are named.",
        )


def load_synonyms(source: str, most: int = 10) -> Synonyms:
    """A function that returns the first synonyms of a word."""
    if source == "wordnet":
        from isthmus.lexicon.wordnet import load_wordnet

        wordnet = load_wordnet()
        return lambda word: [each for each in wordnet.synonyms(word) if " " not in each and "_" not in each]
    from isthmus.lexicon.by_name import load_neighbours

    neighbours = load_neighbours(source)
    return lambda word: neighbours.nearest(word, most + 1).words


def _folds_case(model: Classifier) -> Callable[[str], str]:
    """The normal form of words: a lower-case tokenizer makes Film and film one word."""
    from isthmus.models.importance import pieces_of

    small, large = pieces_of(model, ["film", "Film"])
    return str.lower if small == large else str


def _count(data: Dataset, fold: Callable[[str], str]) -> Counter[str]:
    return Counter(fold(word) for example in data for text in example.texts.values() for word in Words.of(text))


def _importance_of_words(model: Classifier, words: Sequence[str]) -> tuple[Doubles, NDArray[np.bool_]]:
    """φ of every word, and whether the model reads it as the unknown word."""
    from isthmus.models import importance_of
    from isthmus.models.importance import pieces_of

    unknown = model.tokenizer.unk_token_id
    values = np.asarray(importance_of(model, words), np.float64)
    return values, np.array([unknown in own for own in pieces_of(model, words)], np.bool_)


def _by_word(places: NDArray[np.int64], values: Doubles) -> Doubles:
    """The mean of every word over its synonyms."""
    _, which, counts = np.unique(places, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(which, values) / counts)


def _histogram(found: Sequence[_ImportanceRun]) -> Plot:
    every = np.concatenate([values for run in found for values in run.differences.values()])
    step = next((step for step in _STEPS if 10 * step >= np.quantile(every, 0.95)), _STEPS[-1])
    edges = [round(step * number, 4) for number in range(11)]
    series = []
    for run in found:
        for name, values in run.differences.items():
            counts = np.histogram(np.minimum(values, edges[-1]), bins=[*edges, edges[-1] + step])[0]
            shares = (counts / len(values)).tolist()
            series.append(Series(f"{run.subject.name}: {name}", tuple(map(float, range(len(shares)))), tuple(shares)))
    ticks = [f"{low:g}–{high:g}" for low, high in itertools.pairwise(edges)]
    return Plot(
        name="importance_of_synonyms",
        title="How differently a word and its synonym are weighed",
        x_label="|φ(w) - φ(s)|",
        y_label="pairs",
        series=tuple(series),
        kind="bars",
        ticks=(*ticks, f"{edges[-1]:g} and more"),
        percent="y",
    )
