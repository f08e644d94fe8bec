"""How much information about its input a model keeps, and how much of it is about the label."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from isthmus.core.errors import UsageError
from isthmus.core.statistics import bootstrap_mean
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from isthmus.information.features import Features
    from isthmus.information.fitted_estimators import Club, Critics

SPREAD, CLUB, NCE = "spread U", "CLUB of word and token (nats)", "InfoNCE of token and text (nats)"
RATE, RATE_BITS, ENTROPY_RATE = "rate R (nats)", "rate R (bits)", "entropy rate (nats)"
LABEL, LOSS, LABEL_ENTROPY = "label information (nats)", "cross-entropy (nats)", "label entropy (nats)"
AMONG, OTHERS = "mixture bound from below (nats)", "mixture bound from above (nats)"
GAP, WORDS = "CLUB's fit gap (nats)", "word entropy (nats)"


@dataclass(frozen=True)
class Information(Measure):
    """Information between words, tokens, texts, codes and labels, on each split, with intervals.

        U        = ½ E ‖t - t'‖² = tr cov(t)                     over all pairs of tokens t
        CLUB     = E[ log q(t|x) ] - E[ log q(t'|x) ] ≥ I(X;T)   once q, fitted on train, fits
        InfoNCE  = E[ S_ii - log 1/C Σ_j exp S_ij ] ≤ I(T;Z)     the critic fitted on train; at most log C
        R        = E KL(p(z|x) ‖ N(0, I)) ≥ I(X;Z)               of a model with a Gaussian bottleneck
        I(Z;Y)   ≥ H(Y) - cross-entropy

    x is a word's embedding, t the token as it leaves the embedding block, z the text's vector or its latent code.

    References:
        Wang et al. (2021), InfoBERT, https://arxiv.org/abs/2010.02329; Cheng et al. (2020), CLUB: A Contrastive
        Log-ratio Upper Bound of Mutual Information, https://arxiv.org/abs/2006.12013; van den Oord, Li and Vinyals
        (2018), Representation Learning with Contrastive Predictive Coding, https://arxiv.org/abs/1807.03748; Alemi et
        al. (2017), Deep Variational Information Bottleneck, https://arxiv.org/abs/1612.00410

    Where we depart:
        CLUB and InfoNCE are fitted on a sample of the training split and then frozen, so that dev and test are not
        fitted to; the gap between the likelihoods of train and split says how far CLUB can be trusted there. A chunk of
        InfoNCE holds one token of each of C texts. H(Y) is that of the sample's labels. For a stochastic code the
        cross-entropy is a mean over `draws` of it, which is what the bound is about; the training log has the code's
        mean. Intervals are those of drawing other texts; that of InfoNCE also counts fitting its critic again, that of
        CLUB does not. A critic fitted on more texts finds more: compare figures of the same `fit_on` alone.

    Relations:
        `information_plane` draws rate against label information over a training. The mixture bounds enclose I(X;Z) of a
        stochastic code where R only bounds it from above; that from below saturates at log n.

    Example:
        ``isthmus measure runs/vib --measure information --n 512``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data", "log", "snapshots")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed", "every_epoch")

    chunk: int = 64
    """Number of pairs per chunk of InfoNCE (C)."""
    draws: int = 8
    """Number of draws of a stochastic code to average the cross-entropy over."""
    fit_on: int = 2048
    """Number of training texts that CLUB and InfoNCE are fitted on."""
    fits: int = 3
    """Number of critics of InfoNCE, each with other held-out texts; their spread is part of its interval."""
    fit_epochs: int = 40
    """Maximum number of epochs of fitting a network."""
    width: int = 256
    """Width of the network that CLUB fits."""
    fitted: bool = True
    """Whether to estimate CLUB and InfoNCE, which take most of the time."""

    def __post_init__(self) -> None:
        for name, least in (("chunk", 2), ("draws", 1), ("fit_on", 2), ("fits", 1), ("fit_epochs", 1), ("width", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{self.name}: {name} is {getattr(self, name)}; it must be at least {least}")

    def measure(self, subject: Subject) -> Measurement:
        """Measure every split, for the model and, if requested, for every epoch."""
        epochs = subject.epochs() if subject.asked.every_epoch else ()  # Before anything is computed in vain.
        found = self._look(subject, "model")
        plots, notes = from_log(subject), list(found.notes)
        details: dict[str, Any] = dict(found.details)
        if epochs:
            by_epoch = {}
            for epoch in epochs:
                subject.snapshots[epoch](subject.model)
                by_epoch[epoch] = self._look(subject, f"epoch {epoch}").figures
            plots = _over_epochs(by_epoch)
            notes.append(f"The table has the weights that the run ended with; those of {len(epochs)} epochs are drawn.")
            details["epochs"] = {
                str(epoch): [_figure_to_json(each) for each in each_epoch] for epoch, each_epoch in by_epoch.items()
            }
        return Measurement(found.figures, tuple(plots), notes=tuple(notes), details=details)

    def _look(self, subject: Subject, what: str) -> Looked:
        """Measure the current weights of the model."""
        from isthmus.information.fitted_estimators import BELOW_ZERO

        features = dict(_read_features(subject, what))
        fits = self._fit(subject, what) if self.fitted else None
        figures = [figure for split in features for figure in self._of_split(subject, split, features[split], fits)]
        notes = []
        details: dict[str, Any] = {"n": {split: len(found) for split, found in features.items()}}
        if fits is not None:
            details["log_chunk"] = {split: fits.critics.bound(found) for split, found in features.items()}
            details |= {"fits": len(fits.critics.fitted), "fit_on": fits.critics.texts}
            notes += [
                fits.critics.note,
                f"InfoNCE tells {self.chunk} pairs apart: it can show at most log {self.chunk} = "
                f"{math.log(self.chunk):.3g} nats.",
                "CLUB's fit gap: how much less likely a token of the split is than one of train, under the density "
                "fitted on train; where it is large, CLUB is not a bound. No token tells more of its word than the "
                "word's entropy: where CLUB exceeds it, words nearly determine tokens and CLUB says no more.",
            ]
            if any(figure.name == NCE and figure.estimate < 0 for figure in figures):
                notes.append(BELOW_ZERO)
        return Looked(tuple(figures), notes, details)

    def _fit(self, subject: Subject, what: str) -> Fits:
        from isthmus.information.fitted_estimators import Critics, Fitting, fit_club, fit_critics
        from isthmus.measures._features import read_features

        if "train" not in subject.splits:
            raise UsageError(
                "CLUB and InfoNCE are fitted on a train split, which these data lack: leave both out with -P fitted=no"
            )
        train = read_features(subject.model, subject.sample("train", size=self.fit_on), subject.asked.seed)
        fitting, seed = Fitting(self.fit_epochs), subject.asked.seed
        subject.step(f"fitting CLUB, {what}", 0, 1 + self.fits)
        club = fit_club(train.words, train.tokens, train.owner, seed, fitting, self.width)
        critics = []
        for nce in fit_critics(train, seed, fitting, self.chunk, self.fits):
            critics.append(nce)
            subject.step(f"fitting InfoNCE, {what}", 1 + len(critics), 1 + self.fits)
        return Fits(
            club,
            Critics(tuple(critics), len(train)),
            float(train.per_text(club.likelihoods(train.words, train.tokens)).mean()),
        )

    def _of_split(self, subject: Subject, split: str, found: Features, fits: Fits | None) -> Iterator[Figure]:
        import torch

        from isthmus.information.fitted_estimators import bootstrap_spread, label_entropy, nce_interval

        seed = subject.asked.seed

        def mean(name: str, values: Tensor) -> Figure:
            return Figure.from_interval(name, bootstrap_mean(values.double().numpy(), seed, 2000), split)

        yield Figure.from_interval(SPREAD, bootstrap_spread(found, seed), split)
        if fits is not None:
            yield mean(CLUB, found.per_text(fits.club.values(found.words, found.tokens)))
            likelihood = fits.club.likelihoods(found.words, found.tokens)
            yield mean(GAP, found.per_text(fits.likelihood - likelihood))
            yield Figure(WORDS, label_entropy(found.ids), of=split)
            values = fits.critics.values(found, torch.ones_like(found.owner, dtype=torch.bool), seed)
            yield Figure.from_interval(NCE, nce_interval(values.numpy(), fits.critics.bound(found)), split)
        if found.mean is not None and found.deviation is not None:
            yield from _of_code(found, seed, mean)
        if found.logits is not None:
            yield from self._of_labels(subject, found, split, mean)

    def _of_labels(
        self, subject: Subject, found: Features, split: str, mean: Callable[[str, Tensor], Figure]
    ) -> Iterator[Figure]:
        from isthmus.information.fitted_estimators import label_entropy

        likelihood = self._likelihoods(subject, found)
        of_labels = label_entropy(found.labels)
        yield mean(LABEL, likelihood + of_labels)
        yield mean(LOSS, -likelihood)
        yield Figure(LABEL_ENTROPY, of_labels, of=split)

    def _likelihoods(self, subject: Subject, found: Features) -> Tensor:
        """log p(y | z) of every text, averaged over draws if z is random."""
        import torch

        from isthmus.information.fitted_estimators import log_likelihoods

        head = subject.model.head
        assert found.logits is not None
        if found.mean is None or found.deviation is None or head is None:
            return log_likelihoods(found.logits, found.labels)
        stream = code_stream(subject.asked.seed)
        total = torch.zeros(len(found))
        for _ in range(self.draws):
            code = found.mean + found.deviation * torch.randn(found.mean.shape, generator=stream)
            with torch.no_grad():
                logits = head(code.to(subject.model.device)).float().cpu()
            total += log_likelihoods(logits, found.labels)
        return total / self.draws


@dataclass(frozen=True)
class Looked:
    """The figures of one set of weights."""

    figures: tuple[Figure, ...]
    notes: list[str] = field(default_factory=list)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Fits:
    """The fitted networks, and the mean log-likelihood of the training tokens under CLUB's."""

    club: Club
    critics: Critics
    likelihood: float


def code_stream(seed: int) -> torch.Generator:
    """The random stream of the draws of a latent code."""
    import torch

    from isthmus.core.seeds import derive

    return torch.Generator().manual_seed(derive(seed, "code") >> 1)


def _read_features(subject: Subject, what: str) -> Iterator[tuple[str, Features]]:
    from isthmus.measures._features import read_features

    for split in subject.split_names():
        data = subject.sample(split, default=256)
        if not len(data):
            raise UsageError(f"the {split} split of {data.name} is empty")
        step = functools.partial(_report_step, subject, f"reading {split}, {what}", len(data))
        yield split, read_features(subject.model, data, subject.asked.seed, step)


def _report_step(subject: Subject, title: str, total: int, done: int) -> None:
    subject.step(title, done, total)


def _of_code(found: Features, seed: int, mean: Callable[[str, Tensor], Figure]) -> Iterator[Figure]:
    """Rate and mixture bounds of a Gaussian code."""
    import torch

    from isthmus.information.mutual_information import entropy_rate, mixture_information, rate

    assert found.mean is not None
    assert found.deviation is not None
    rates = rate(found.mean, found.deviation)
    yield mean(RATE, rates)
    yield mean(RATE_BITS, rates / math.log(2))
    yield mean(ENTROPY_RATE, entropy_rate(found.deviation))
    if len(found) > 1:
        code = found.mean + found.deviation * torch.randn(found.mean.shape, generator=code_stream(seed))
        yield mean(AMONG, mixture_information(code, found.mean, found.deviation))
        yield mean(OTHERS, mixture_information(code, found.mean, found.deviation, leave_out=True))


LOGGED = {"spread": SPREAD, "rate": RATE, "entropy_rate": ENTROPY_RATE, "label_information": LABEL}


def read_logged(subject: Subject) -> dict[str, list[tuple[int, dict[str, float]]]]:
    """The figures of every epoch in the training log, by split: (epoch, figures)."""
    found: dict[str, list[tuple[int, dict[str, float]]]] = {"train": [], "dev": []}
    for row in subject.facts.log:
        for split, rows in found.items():
            noted = row.get(f"{split}_information")
            if isinstance(noted, Mapping):
                rows.append((round(float(row["epoch"])), {key: float(value) for key, value in noted.items()}))
    return {split: rows for split, rows in found.items() if rows}


def from_log(subject: Subject) -> list[Plot]:
    """Plot each quantity of the training log over epochs."""
    found = read_logged(subject)
    plots = []
    head = subject.facts.settings.get("trains") == "head"
    for key, name in LOGGED.items():
        if head and key == "spread":
            continue  # The encoder stood still.
        series = tuple(
            Series(split, tuple(float(epoch) for epoch, row in rows), tuple(row[key] for _, row in rows))
            for split, rows in found.items()
            if all(key in row for _, row in rows) and len(rows) > 1
        )
        if series:
            caption = "From the training log: a sample of the training split, and the whole of dev, after every epoch."
            plots.append(Plot(key, f"{name} over the training", "epoch", name, series, caption=caption))
    return plots


def _over_epochs(by_epoch: Mapping[int, tuple[Figure, ...]]) -> list[Plot]:
    """Plot each figure over the saved epochs."""
    # The data's own entropies are frozen, and bits are nats.
    still = {RATE_BITS, LABEL_ENTROPY, WORDS}
    names = dict.fromkeys(
        figure.name for figures in by_epoch.values() for figure in figures if figure.name not in still
    )
    plots = []
    for name in names:
        points: dict[str, list[tuple[int, Figure]]] = {}
        for epoch, figures in by_epoch.items():
            for figure in figures:
                if figure.name == name:
                    points.setdefault(figure.of, []).append((epoch, figure))
        series = tuple(
            Series(
                split,
                tuple(float(epoch) for epoch, _ in row),
                tuple(figure.estimate for _, figure in row),
                y_bounds=tuple((figure.low, figure.high) for _, figure in row)  # type: ignore[misc]
                if all(figure.low is not None for _, figure in row)
                else (),
            )
            for split, row in points.items()
        )
        stem = "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())
        caption = "Every epoch whose weights were kept; the bands are 95 % intervals over texts."
        plots.append(Plot(stem, f"{name} over the training", "epoch", name, series, caption=caption))
    return plots


def _figure_to_json(figure: Figure) -> dict[str, Any]:
    return {"name": figure.name, "of": figure.of, "estimate": figure.estimate, "low": figure.low, "high": figure.high}
