"""Bounds on a stochastic code's information about input and label, for clean and attacked inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from isthmus.core.errors import UsageError
from isthmus.core.statistics import bootstrap_mean, wilson
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject
from isthmus.measures.information import AMONG, LABEL, OTHERS, RATE, RATE_BITS, code_stream

if TYPE_CHECKING:
    from torch import Tensor, nn

    from isthmus.measures._codes import Codes, InputAttack

PAIRWISE_LOW, PAIRWISE_HIGH = "pairwise bound from below (nats)", "pairwise bound from above (nats)"
LABEL_BITS, CEILING, ACCURACY = "label information (bits)", "ln of the batch (nats)", "accuracy"


@dataclass(frozen=True)
class InformationBounds(Measure):
    """Bounds on I(X;T) and I(Y;T) of a Gaussian code, for clean inputs and for inputs moved by a gradient attack.

        R                = E KL(p(t|x) ‖ N(0, I)) = I(X;T) + KL(p(t) ‖ N(0, I)) ≥ I(X;T)
        mixture below    = E[ ln p(t_i|x_i) - ln 1/B Σ_j p(t_i|x_j) ] ≤ min(I(X;T), ln B)    j = i among them
        mixture above    = the same without j = i                      ≥ I(X;T)
        pairwise         = -E ln 1/B Σ_j exp(-D(p_i, p_j))     D: Bhattacharyya distance below, KL above
        I(Y;T)           ≥ H(Y) - E[-ln q(y|t)]

    T is the code and T' the code of an attacked input X': its rate is the I(X';T') of the IB-robustness paper.

    References:
        Alemi, Fischer, Dillon and Murphy (2017), Deep Variational Information Bottleneck,
        https://arxiv.org/abs/1612.00410; Kolchinsky and Tracey (2017), Estimating Mixture Entropy with Pairwise
        Distances, https://arxiv.org/abs/1706.02419; Poole et al. (2019), On Variational Bounds of Mutual Information,
        https://arxiv.org/abs/1905.06922; Improving Adversarial Robustness: An Information-Theoretic Perspective (2019).

    Where we depart:
        The IB-robustness paper says neither which estimate its I(X;T) is nor its unit; the rate is the natural reading.
        We show all of them, in nats, rate and label information in bits too.

    Relations:
        Biases: the rate is too high by KL(p(t) ‖ N(0, I)). The mixture with j = i and both pairwise bounds never exceed
        ln B and saturate there: then only the rate and the mixture without j = i say more. The mixtures draw one code
        per input, the pairwise bounds none. `information` fits networks for what has no density; `feature_entropy` is
        for features without noise.

    Example:
        ``isthmus measure runs/vib --measure information_bounds -P attack=fgsm -P epsilon=0.3 --n 1000``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data", "snapshots", "attacks")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed", "every_epoch")

    attack: str = ""
    """An attack by gradients (fgsm, pgd, …) whose inputs are measured beside the clean ones; of texts also an attack on
    words that was made on the run, or a file of adversarial texts; empty: none."""
    epsilon: float | None = None
    """Radius of the attack: in pixels (0.3 by default), or in lengths of a mean token's embedding (0.25, in L2)."""
    steps: int | None = None
    """Number of steps, if it takes several; by default the attack's own."""
    batch: int = 256
    """B: number of inputs of a mixture; figures are means over all batches of this size."""
    draws: int = 12
    """Number of draws of the code to average ln q(y|t) over."""

    def __post_init__(self) -> None:
        for name, least in (("batch", 2), ("draws", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{self.name}: {name} is {getattr(self, name)}; it must be at least {least}")

    def measure(self, subject: Subject) -> Measurement:
        """Measure every split, clean and attacked; with every epoch, plot curves over the training."""
        from isthmus.measures._codes import InputAttack

        epochs = subject.epochs() if subject.asked.every_epoch else ()
        by_gradient = self.attack and is_gradient_attack(self.attack)
        attack = InputAttack(self.attack, self.epsilon, self.steps) if by_gradient else None
        figures = tuple(self._figures(subject, attack, "model"))
        plots: list[Plot] = []
        if epochs:
            rows = []
            for epoch in epochs:
                subject.snapshots[epoch](subject.model)
                rows.append((epoch, tuple(self._figures(subject, attack, f"epoch {epoch}"))))
            plots = [_curves(name, rows) for name in (RATE, LABEL, ACCURACY)]
        note = (
            f"Mixtures of {self.batch} inputs: those that hold the input itself and the pairwise bounds are at most "
            f"ln {self.batch} = {math.log(self.batch):.3g} nats, whatever I(X;T) is. Intervals are those of drawing "
            "other inputs; a bound's distance from the truth is not in them."
        )
        return Measurement(figures, tuple(plots), notes=(note,))

    def _figures(self, subject: Subject, attack: InputAttack | None, what: str) -> Iterator[Figure]:
        from isthmus.measures._codes import read_codes

        for split in subject.split_names(("train", "test")):
            data = subject.sample(split, default=1000)
            for each in (None, attack) if attack is not None else (None,):
                name = split if each is None else f"{split}, {each.title}"
                step = functools.partial(report_step, subject, f"reading {name}, {what}", len(data))
                codes = read_codes(subject.model, data, subject.asked.seed, each, step)
                yield from bounds_of(codes, subject.model.head, name, subject.asked.seed, self.batch, self.draws)
        if self.attack and attack is None:
            yield from self._of_words(subject)

    def _of_words(self, subject: Subject) -> Iterator[Figure]:
        """Texts that a word attack made, and their originals."""
        from isthmus.measures._codes import read_codes

        found = subject.adversarial(self.attack)
        for name, data in ((f"{found.name}, originals", found.benign), (found.name, found.adversarial)):
            if data is not None:
                codes = read_codes(subject.model, data, subject.asked.seed)
                yield from bounds_of(codes, subject.model.head, name, subject.asked.seed, self.batch, self.draws)


def is_gradient_attack(name: str) -> bool:
    """Whether an attack is a gradient attack on pixels or embeddings, not an attack on words."""
    from isthmus.core import catalog

    return any(entry.name == name and entry.kind == "gradient" for entry in catalog.entries("attacks"))


def report_step(subject: Subject, title: str, total: int, done: int) -> None:
    """Report the progress of a pass over the data."""
    subject.step(title, done, total)


def bounds_of(
    codes: Codes, head: nn.Module | None, name: str, seed: int = 0, batch: int = 256, draws: int = 12
) -> Iterator[Figure]:
    """All bounds of one set of codes, in nats; rate and label information also in bits."""
    import torch

    from isthmus.information.fitted_estimators import label_entropy
    from isthmus.information.mutual_information import rate

    mean, deviation = codes.gaussian

    def figure(title: str, values: Tensor) -> Figure:
        return Figure.from_interval(title, bootstrap_mean(values.double().numpy(), seed, 2000), name)

    rates = rate(mean, deviation)
    yield figure(RATE, rates)
    yield figure(RATE_BITS, rates / math.log(2))
    code = mean + deviation * torch.randn(mean.shape, generator=code_stream(seed))
    # A last batch of one input would be its own mixture.
    parts = [part for part in torch.split(torch.arange(len(codes)), batch) if len(part) > 1]
    if parts:
        columns = zip(*(_of_batch(code[part], mean[part], deviation[part]) for part in parts), strict=True)
        among, others, low, high = (torch.cat(column) for column in columns)
        for title, values in ((AMONG, among), (PAIRWISE_LOW, low), (PAIRWISE_HIGH, high), (OTHERS, others)):
            yield figure(title, values)
        yield Figure(CEILING, math.log(len(parts[0])), of=name)
    labels = label_entropy(codes.labels)
    told = labels + label_likelihoods(codes, head, seed, draws)
    yield figure(LABEL, told)
    yield figure(LABEL_BITS, told / math.log(2))
    right = wilson(int(codes.correct.sum()), len(codes))
    yield Figure.from_interval(ACCURACY, right, name, share=True)


def _of_batch(code: Tensor, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both mixture and both pairwise bounds of every row of a batch."""
    from isthmus.information.mutual_information import mixture_information, pairwise_bounds

    among = mixture_information(code, mean, deviation)
    others = mixture_information(code, mean, deviation, leave_out=True)
    return among, others, *pairwise_bounds(mean, deviation)


def label_likelihoods(codes: Codes, head: nn.Module | None, seed: int, draws: int) -> Tensor:
    """ln q(y|t) of every input, averaged over draws of its code."""
    import torch

    from isthmus.information.fitted_estimators import log_likelihoods

    mean, deviation = codes.gaussian
    assert head is not None
    stream, total = code_stream(seed), torch.zeros(len(codes))
    place = next(head.parameters()).device
    for _ in range(draws):
        code = mean + deviation * torch.randn(mean.shape, generator=stream)
        with torch.no_grad():
            total += log_likelihoods(head(code.to(place)).float().cpu(), codes.labels)
    return total / draws


def _curves(name: str, rows: list[tuple[int, tuple[Figure, ...]]]) -> Plot:
    """Plot one figure over the epochs, one line per column."""
    columns = dict.fromkeys(figure.of for _, figures in rows for figure in figures)
    series = []
    for column in columns:
        found = [(epoch, f) for epoch, figures in rows for f in figures if f.name == name and f.of == column]
        bounds = tuple((f.low, f.high) for _, f in found if f.low is not None and f.high is not None)
        x, y = tuple(float(epoch) for epoch, _ in found), tuple(f.estimate for _, f in found)
        series.append(Series(column, x, y, y_bounds=bounds if len(bounds) == len(found) else ()))
    stem = name.split(" (")[0].replace(" ", "-").lower()
    percent = "y" if name == ACCURACY else ""
    caption = "Every epoch whose weights were kept; the bands are 95 % intervals over inputs."
    return Plot(stem, f"{name} over the training", "epoch", name, tuple(series), percent=percent, caption=caption)
