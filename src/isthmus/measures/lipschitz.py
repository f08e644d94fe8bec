"""Lipschitz constants of a classifier."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from isthmus.core.errors import UsageError
from isthmus.core.statistics import bootstrap_mean
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject
from isthmus.measures.information_bounds import report_step

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.data import Dataset
    from isthmus.measures._constants import ModelConstants
    from isthmus.measures._network_stretch import EncoderConstants

PRODUCT, BOUND, LOGITS = "encoder, product of norms", "encoder, sound bound", "logits, sound bound"
MEAN, DEVIATION, LEAST = "means L_μ, sound bound", "deviations L_σ, sound bound", "smallest deviation"
SOUND, PRINTED = "density, log10 of the sound bound", "density, log10 of what Theorem 3 prints"
LOCAL, LARGEST = "Jacobian of the logits, mean norm", "Jacobian of the logits, largest norm"


@dataclass(frozen=True)
class Lipschitz(Measure):
    """Lipschitz constants of a classifier: products of layer norms, local Jacobians, and its code's density.

        product    ‖f(x) - f(x')‖₂ ≤ Π_l ‖W_l‖₂ ‖x - x'‖₂           from the pixels; of texts from the encoder's vector
        local      ‖∂ logits / ∂ x‖₂ at the inputs of a split        of texts by their word embeddings
        density    |p(t|x) - p(t|x')| ≤ L ‖x - x'‖₂                   p(t|x) = N(μ(x), diag σ(x)²), t in K dimensions
          sound    L = K (2π)^(-K/2) s^-(K+1) (L_σ + e^(-½) L_μ)
          printed  L = K (2π)^(-(K-1)/2) s^-2 (2 L_σ e^(-3/2) + L_μ e^(-½))

    s is the smallest deviation. The product is never below the largest local norm.

    References:
        Szegedy et al. (2014), Intriguing Properties of Neural Networks, https://arxiv.org/abs/1312.6199; Improving
        Adversarial Robustness: An Information-Theoretic Perspective (2019), Theorem 3.

    Where we depart:
        Convolutions count as operators, by power iteration; the sound bound takes the largest norm over frequencies.
        Theorem 3 as printed loses a factor s^-(K-1) and is not a bound for s < 1 and K > 1: it stands beside the sound
        form.

    Relations:
        Biases: power iteration converges from below; the sound bound is above the truth, for deep networks by orders of
        magnitude; local norms are those of a sample, and their largest is below that of all inputs. A transformer has
        no constant that we know, so that of texts only what follows the encoder has a product. `vulnerability` draws
        the product over a training.

    Example:
        ``isthmus measure runs/vib --measure lipschitz --n 64``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "data", "snapshots")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed", "every_epoch")

    local: bool = True
    """Whether to compute Jacobians, which need one backward pass per class."""

    def measure(self, subject: Subject) -> Measurement:
        """Measure the model, and every epoch if requested."""
        from isthmus.measures._constants import model_constants

        epochs = subject.epochs() if subject.asked.every_epoch else ()
        constants, notes = _if_any(subject)
        figures: list[Figure] = []
        if constants is not None:
            notes += _notes(constants)
            least = _least(subject, constants.code)
            figures += _make_figures(constants, least)
        splits = subject.split_names(("train", "test")) if self.local else ()
        for split in splits:
            figures += self._local(subject, split)
        plots = []
        if epochs and constants is not None:
            products = []
            for number, epoch in enumerate(epochs):
                subject.snapshots[epoch](subject.model)
                products.append(model_constants(subject.model).estimate)
                subject.step("measuring epochs", number + 1, len(epochs))
            series = Series("encoder", tuple(map(float, epochs)), tuple(products))
            plots = [Plot("product", f"{PRODUCT} over the training", "epoch", PRODUCT, (series,), log="y")]
        layers = (
            []
            if constants is None
            else [[each.name, each.kind, each.estimate, each.bound] for each in constants.layers]
        )
        return Measurement(tuple(figures), tuple(plots), notes=tuple(notes), details={"layers": layers})

    def _local(self, subject: Subject, split: str) -> Iterator[Figure]:
        data = subject.sample(split, default=64)
        step = functools.partial(report_step, subject, f"Jacobians of {split}", len(data))
        norms = local_norms(subject.model, data, step).numpy()
        yield Figure.from_interval(LOCAL, bootstrap_mean(norms, subject.asked.seed, 2000), split)
        yield Figure(LARGEST, float(norms.max()), of=split)


def local_norms(model: Any, data: Dataset, step: Any = lambda _: None) -> Tensor:
    """Spectral norm of the logits' Jacobian at every input, at the mean of the code if there is one."""
    import torch

    from isthmus.measures._codes import read_batches
    from isthmus.measures._network_stretch import jacobian_norms
    from isthmus.models.bottleneck import GaussianLatent

    rows, norms = [], []
    for batch in read_batches(model, data):

        def logits(inputs: Tensor, batch: Any = batch) -> Tensor:
            output = batch.forward(inputs)
            found: Tensor = (
                model.head(output.latent.mean) if isinstance(output.latent, GaussianLatent) else output.logits
            )
            return found

        with model.use_keys(batch.keys):
            norms.append(jacobian_norms(logits, batch.inputs).cpu())
        rows.append(batch.rows)
        step(sum(len(each) for each in rows))
    return torch.cat(norms)[torch.argsort(torch.cat(rows))]


def _if_any(subject: Subject) -> tuple[ModelConstants | None, list[str]]:
    """The constants, or the reason why there are none."""
    from isthmus.measures._constants import model_constants

    try:
        return model_constants(subject.model), []
    except UsageError as error:
        return None, [f"No product: {error}."]


def _make_figures(constants: ModelConstants, least: tuple[float, bool] | None) -> Iterator[Figure]:
    from isthmus.measures._network_stretch import log_density_constant, log_printed_density_constant

    column = f"from the {constants.start}"
    yield Figure(PRODUCT, constants.estimate, of=column)
    yield Figure(BOUND, constants.bound, of=column)
    if constants.logits is not None:
        yield Figure(LOGITS, constants.logits, of=column)
    code = constants.code
    if code is None or least is None:
        return
    yield Figure(MEAN, code.mean, of=column)
    yield Figure(DEVIATION, code.deviation, of=column)
    yield Figure(LEAST, least[0], of=column)
    for name, constant in ((SOUND, log_density_constant), (PRINTED, log_printed_density_constant)):
        yield Figure(name, constant(code.latent, least[0], code.mean, code.deviation) / math.log(10), of=column)


def _least(subject: Subject, code: EncoderConstants | None) -> tuple[float, bool] | None:
    """The smallest deviation, and whether it holds for all inputs; from a sample if the network has no bound."""
    if code is None:
        return None
    if code.least is not None:
        return code.least, True
    from isthmus.measures._codes import read_codes

    data = subject.sample(subject.split_names(("test",))[0], default=1000)
    return float(read_codes(subject.model, data, subject.asked.seed).gaussian[1].min()), False


def _notes(constants: ModelConstants) -> list[str]:
    notes = []
    if constants.start == "vector":
        notes.append(
            "Products begin at the vector that the encoder hands on: a transformer has no Lipschitz constant that we "
            "know."
        )
    if constants.code is not None:
        notes.append("The printed density constant is not a bound where the smallest deviation is below 1.")
        if constants.code.least is None:
            notes.append(
                "The smallest deviation is that of a sample: this bottleneck has none for all inputs, and so no "
                "density bound that holds everywhere (train with last_relu)."
            )
    return notes
