"""Information between the sentence and its anchored and other words, on clean and adversarial texts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.statistics import Interval
from isthmus.measures.anchored_words import band
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from isthmus.data import Dataset
    from isthmus.information.fitted_estimators import Critics

ROBUST, NON_ROBUST = "anchored words I_R (nats)", "other words I_N (nats)"
BENIGN, ADVERSARIAL = "benign", "adversarial"

Values = dict[tuple[str, str], "NDArray[np.float64]"]
"""(name, data) -> InfoNCE of every text under every critic [fits, texts]; NaN where it had no turn."""


@dataclass(frozen=True)
class AnchoredInformation(Measure):
    """InfoNCE of the anchored words with the sentence, and of the others, on benign and adversarial texts.

        I_R = InfoNCE(t_k ; z)   over the anchored tokens t_k          I_N the same over all other tokens
        with --against RUN2:     ΔI = I(this run) - I(RUN2), text by text

    It is InfoBERT's Figure 1: trained on adversarial texts as well, a model should take more from its anchored words,
    on adversarial texts above all.

    References:
        Wang, Wang, Cheng, Gan, Jia, Li and Liu (2021), InfoBERT, https://arxiv.org/abs/2010.02329

    Where we depart:
        The others are the true complement of the anchored tokens; the released code compares a number with a list of
        lists and so takes all tokens. The critic is not the one of the training but is fitted on the training texts
        of each run, on all their tokens, so that models without one can be compared and neither kind is favoured.
        Several critics are fitted to each run, and their spread is part of every interval. A chunk holds one token of
        each of C texts.

    Relations:
        `anchored_words` shows which words these are. `information` has InfoNCE over all tokens.

    Example:
        ``isthmus measure runs/augmented --measure anchored_information -P on=textfooler --against runs/plain``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data", "attacks")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed", "against")

    on: str | None = None
    """Adversarial texts: an attack of the run, or an exported file; none takes the first attack."""
    lowest: float | None = None
    """Share of tokens below the anchored ones (c_l); none takes the run's own, or 0.5."""
    highest: float | None = None
    """Share of tokens up to the last anchored one (c_h); none takes the run's own, or 0.9."""
    chunk: int = 32
    """Number of pairs per chunk of InfoNCE (C)."""
    rounds: int = 16
    """Number of random tokens per text to average over."""
    fit_on: int = 2048
    """Number of training texts that a critic is fitted on."""
    fits: int = 3
    """Number of critics, each with other held-out texts."""
    fit_epochs: int = 40
    """Maximum number of epochs of fitting a critic."""

    def __post_init__(self) -> None:
        for name, least in (("chunk", 2), ("rounds", 1), ("fit_on", 2), ("fits", 1), ("fit_epochs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{self.name}: {name} is {getattr(self, name)}; it must be at least {least}")

    def measure(self, subject: Subject) -> Measurement:
        """Measure both kinds of words on both kinds of texts, and the difference from another run."""
        from isthmus.information.fitted_estimators import BELOW_ZERO

        if len(subject.others) > 1:
            raise UsageError(f"{self.name} compares with one run: give a single --against")
        texts = dict(self._texts(subject))
        chunk = min(self.chunk, *(len(data) for data in texts.values()))
        if chunk < 2:
            raise UsageError(f"{self.name} needs at least two texts to tell apart: attack more of them with --n")
        lowest, highest = band(self, subject)
        critics = self._critics(subject, chunk)
        here = self._values(subject, critics, texts, lowest, highest)
        figures = [Figure.from_interval(name, _mean_with_interval(values), of) for (name, of), values in here.items()]
        notes = [
            critics.note,
            f"InfoNCE tells {chunk} pairs apart, so it can show at most log {chunk} = {math.log(chunk):.3g} nats.",
        ]
        if any(figure.estimate < 0 for figure in figures):
            notes.append(BELOW_ZERO)
        shown, title = here, f"Information with the sentence, {subject.name}"
        for other in subject.others:
            there = self._values(other, self._critics(other, chunk), texts, lowest, highest)
            shown = {key: here[key] - there[key] for key in here}
            title = f"{subject.name} less {other.name}"
            figures += [
                Figure.from_interval(f"{name}, {other.name}", _mean_with_interval(there[name, of]), of)
                for name, of in there
            ]
            figures += [
                Figure.from_interval(f"difference in {name}", _mean_with_interval(shown[name, of]), of)
                for name, of in shown
            ]
        details = {
            "n": {of: len(data) for of, data in texts.items()}, "chunk": chunk, "lowest": lowest, "highest": highest,
            "fits": self.fits, "fit_on": critics.texts,
        }  # fmt: skip
        return Measurement(tuple(figures), (_make_plot(self.name, title, shown),), notes=tuple(notes), details=details)

    def _texts(self, subject: Subject) -> Iterator[tuple[str, Dataset]]:
        """Benign and adversarial texts; the benign texts are the originals if these are known."""
        found = subject.adversarial(self.on)
        n = subject.asked.n
        benign = found.benign
        if benign is None:
            split = subject.asked.splits[0] if subject.asked.splits else subject.splits.evaluation().split
            benign = replace(subject.sample(split, default=len(found.adversarial)), rejected=())
        yield BENIGN, benign[:n]
        yield ADVERSARIAL, found.adversarial[:n]

    def _values(
        self, subject: Subject, critics: Critics, texts: dict[str, Dataset], lowest: float, highest: float
    ) -> Values:
        """InfoNCE of every text under one model."""
        import torch

        from isthmus.measures._features import gradients_of, read_features
        from isthmus.measures.anchored_words import ANCHORED, token_kinds

        seed = subject.asked.seed
        found: Values = {}
        for number, (of, data) in enumerate(texts.items()):
            data = data.align_labels(subject.model.labels)
            features = read_features(subject.model, data, seed)
            kinds = [token_kinds(each.norms, lowest, highest)[0] for each in gradients_of(subject.model, data, seed)]
            anchored = torch.tensor([kind == ANCHORED for text in kinds for kind in text])
            for name, chosen in ((ROBUST, anchored), (NON_ROBUST, ~anchored)):
                found[name, of] = critics.values(features, chosen, seed, self.rounds).numpy()
            subject.step(f"reading {subject.name}", number + 1, len(texts))
        return found

    def _critics(self, subject: Subject, chunk: int) -> Critics:
        from isthmus.information.fitted_estimators import Critics, Fitting, fit_critics
        from isthmus.measures._features import read_features

        if "train" not in subject.splits:
            raise UsageError(f"the critic is fitted on a train split, which the data of {subject.name} lack")
        title, critics = f"fitting the critics of {subject.name}", []
        subject.step(title, 0, self.fits)
        train = read_features(subject.model, subject.sample("train", size=self.fit_on), subject.asked.seed)
        for nce in fit_critics(train, subject.asked.seed, Fitting(self.fit_epochs), chunk, self.fits):
            critics.append(nce)
            subject.step(title, len(critics), self.fits)
        return Critics(tuple(critics), len(train))


def _mean_with_interval(values: NDArray[np.float64]) -> Interval:
    from isthmus.information.fitted_estimators import nce_interval

    return nce_interval(values)


def _make_plot(name: str, title: str, values: Values) -> Plot:
    kinds = dict.fromkeys(of for _, of in values)
    series = []
    for what in (ROBUST, NON_ROBUST):
        found = [_mean_with_interval(values[what, of]) for of in kinds]
        series.append(
            Series(
                what.removesuffix(" (nats)"),
                tuple(float(place) for place in range(len(kinds))),
                tuple(each.estimate for each in found),
                y_bounds=tuple((each.low, each.high) for each in found),
            )
        )
    return Plot(
        name, title, "", "InfoNCE (nats)", tuple(series), kind="bars", ticks=tuple(kinds),
        caption="Lines are 95 % intervals over texts and fits.",
    )  # fmt: skip
