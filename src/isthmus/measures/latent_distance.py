"""How far an attack moves a text inside the model, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive, numpy_stream
from isthmus.core.statistics import Interval, bootstrap_mean, bootstrap_ratio
from isthmus.measures.base import Figure, Measure, Measurement, Plot, Series, SourceName, Subject

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.data import Dataset
    from isthmus.models import Classifier

Vectors = NDArray[np.float64]
_PAIRS = 200
_OF = {"sentence": "sentence vector", "tokens": "mean over tokens"}
_DRAWN = {
    "relative": ("Distance between a text and its adversarial one", "‖h − h'‖ / ‖h‖"),
    "cosine": ("Cosine between a text and its adversarial one", "cos(h, h')"),
}


@dataclass(frozen=True)
class LatentDistance(Measure):
    """Distance and cosine between the hidden states of a text and of its adversarial text, for every layer.

        distance(l) = ‖h_l(x) - h_l(x')‖,    relative to ‖h_l(x)‖
        cosine(l)   = h_l(x) · h_l(x') / (‖h_l(x)‖ ‖h_l(x')‖)

    h_0 leaves the embedding block, h_l the l-th encoder block; h is the sentence's vector ([CLS], or the mean over
    tokens where there is none) and, apart from that, the mean over all tokens. x' are the successes of an attack. What
    the numbers mean is told by random other texts in place of x': a distance that comes near theirs says that the model
    takes the adversarial text for another text altogether.

    References:
        Moon, Joty, Zhao, Thakkar and Chi (2023), Randomized Smoothing with Masked Inference for Adversarially Robust
        Text Classifications, https://arxiv.org/abs/2305.06522 (its Figure 2).

    Where we depart:
        The paper draws plain distances, which grow and shrink with the norm of a layer; those drawn here are relative,
        and the plain ones are in the record. Its figure has no interval and nothing to compare with. A randomised
        model draws the same noise for a text and its adversarial text, so that what differs is the text; same_draws =
        false lets each draw its own.

    Relations:
        `anchored_words` shows which words drive a prediction. Each run is measured on the texts that fooled that run;
        give one exported file of adversarial texts (attack = file.jsonl) to measure several runs on the same texts.

    Example:
        ``isthmus measure runs/standard runs/rsmi --measure latent_distance -P attack=textfooler``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("model", "attacks")
    compares: ClassVar[bool] = True

    attack: str | None = None
    """Attack whose successes are compared, or a file of adversarial texts with their originals; none: the first there
    is."""
    same_draws: bool = True
    """Whether a randomised model draws the same noise for both texts of a pair."""

    def measure(self, subject: Subject) -> Measurement:
        """Compare the pairs of every run."""
        found = [self._compare_run(each) for each in (subject, *subject.others)]
        notes = [
            f"{run.name}: {len(run.distance['sentence'])} texts that fooled it under {run.attack}" for run in found
        ]
        if any(run.alone for run in found):
            notes.append("one pair alone has no other text to be compared with: attack more examples")
        return Measurement(
            figures=tuple(figure for run in found for figure in run.figures()),
            plots=tuple(_make_plot(found, of, what) for of in _OF for what in _DRAWN),
            notes=tuple(notes),
            details={"runs": [run.details() for run in found]},
        )

    def _compare_run(self, subject: Subject) -> _Compared:
        given = subject.adversarial(self.attack)
        if given.benign is None:
            raise UsageError(
                f"{given.name} does not say which texts its adversarial texts were made from; `isthmus export` writes "
                "them as original_… columns"
            )
        model, seed = subject.model, subject.asked.seed
        if model.task.name != "classification":
            raise UsageError(f"latent_distance compares texts of a classifier; this model's task is {model.task.name}")
        most = subject.asked.n if subject.asked.n is not None else _PAIRS
        order = numpy_stream(seed, "pairs").permutation(len(given.adversarial))[:most]
        clean, changed = _take_rows(given.benign, order), _take_rows(given.adversarial, order)
        # Each text's neighbour in a random order is some other text.
        others = _take_rows(given.benign, np.roll(order, 1))
        states = {}
        for number, (name, data) in enumerate({"clean": clean, "changed": changed, "other": others}.items()):
            subject.step(f"{subject.name}: hidden states", number, 3)
            states[name] = compute_hidden_states(model, data, seed, "" if self.same_draws else name)
        subject.step(f"{subject.name}: hidden states", 3, 3)
        alone = len(order) < 2
        return _Compared(
            subject.name, given.name, alone, seed,
            *_compare_vectors(states["clean"], states["changed"]),
            *_compare_vectors(states["clean"], states["other"]),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Compared:
    """The distances of one run by kind of vector, [pairs, layers], and the same for random other texts."""

    name: str
    attack: str
    alone: bool
    seed: int
    distance: dict[str, Vectors]
    relative: dict[str, Vectors]
    cosine: dict[str, Vectors]
    other_distance: dict[str, Vectors]
    other_relative: dict[str, Vectors]
    other_cosine: dict[str, Vectors]

    def interval(self, values: Vectors) -> list[Interval]:
        """The mean over pairs, for every layer, with its interval."""
        return [bootstrap_mean(column, self.seed) for column in values.T]

    def figures(self) -> list[Figure]:
        """The figures of the last layer."""
        figures = []
        for of, words in _OF.items():
            for what, values in (("distance", self.distance), ("relative distance", self.relative)):
                last = self.interval(values[of][:, -1:])[0]
                figures.append(Figure.from_interval(f"{what}, last layer, {words}", last, self.name))
            cosine = self.interval(self.cosine[of][:, -1:])[0]
            figures.append(Figure.from_interval(f"cosine, last layer, {words}", cosine, self.name))
            other = self.other_distance[of][:, -1]
            if not self.alone and (other > 0).all():
                share = bootstrap_ratio(self.distance[of][:, -1], other, self.seed)
                name = f"distance as a share of that to another text, {words}"
                figures.append(Figure.from_interval(name, share, self.name, share=True))
        return figures

    def details(self) -> dict[str, Any]:
        """The figures of every layer."""
        kept: dict[str, Any] = {"run": self.name, "attack": self.attack, "pairs": len(self.distance["sentence"])}
        for name in ("distance", "relative", "cosine", "other_distance", "other_relative", "other_cosine"):
            if not (self.alone and name.startswith("other")):
                kept[name] = {
                    of: [[each.estimate, each.low, each.high] for each in self.interval(values)]
                    for of, values in getattr(self, name).items()
                }
        return kept


def compute_hidden_states(model: Classifier, data: Dataset, seed: int, name: str) -> dict[str, Vectors]:
    """The vector of every text at every layer, in two ways: [texts, layers, width of the widest]."""
    import torch

    from isthmus.defences.infobert import starts_with_cls
    from isthmus.measures._features import BATCH
    from isthmus.models.backbones import mean_pool
    from isthmus.training.encoded import EncodedExamples

    encoded = EncodedExamples(model, data.examples, data.fields)
    sentence: list[Any] = [None] * len(data)
    tokens: list[Any] = [None] * len(data)
    with torch.inference_mode():
        for batch, rows in encoded.numbered_batches(BATCH, model.device):
            keys = torch.tensor([derive(seed, "latent", name, row) >> 1 for row in rows], device=model.device)
            with model.use_keys(keys):
                output = model(**batch.inputs, hidden=True)
            if output.hidden is None:
                raise UsageError("this model shows no hidden states, so that there is nothing to compare")
            mask = batch.inputs["attention_mask"]
            mean = _stack_layers([mean_pool(layer.float(), mask) for layer in output.hidden])
            first = _stack_layers([layer[:, 0].float() for layer in output.hidden])
            whole = first if starts_with_cls(model.tokenizer) else mean
            for number, row in enumerate(rows):
                sentence[row], tokens[row] = whole[number].cpu().numpy(), mean[number].cpu().numpy()
    return {"sentence": np.stack(sentence).astype(np.float64), "tokens": np.stack(tokens).astype(np.float64)}


def _stack_layers(layers: Sequence[Tensor]) -> Tensor:
    """Stack vectors [texts, width] of layers to [texts, layers, widest]; zero padding changes no distance."""
    import torch
    from torch.nn.functional import pad

    widest = max(layer.shape[-1] for layer in layers)
    return torch.stack([pad(layer, (0, widest - layer.shape[-1])) for layer in layers], dim=1)


def _compare_vectors(clean: dict[str, Vectors], other: dict[str, Vectors]) -> tuple[dict[str, Vectors], ...]:
    """Distance, relative distance and cosine, [pairs, layers], for each kind of vector."""
    distance, relative, cosine = {}, {}, {}
    for of in _OF:
        a, b = clean[of], other[of]
        lengths = np.maximum(np.linalg.norm(a, axis=-1), 1e-12), np.maximum(np.linalg.norm(b, axis=-1), 1e-12)
        distance[of] = np.linalg.norm(a - b, axis=-1)
        relative[of] = distance[of] / lengths[0]
        cosine[of] = (a * b).sum(axis=-1) / lengths[0] / lengths[1]
    return distance, relative, cosine


def _make_plot(found: Sequence[_Compared], of: str, what: str) -> Plot:
    title, label = _DRAWN[what]
    series = [_make_series(run, run.name, getattr(run, what)[of]) for run in found]
    series += [
        replace(_make_series(run, f"{run.name}: another text", getattr(run, f"other_{what}")[of]), reference=True)
        for run in found
        if not run.alone
    ]
    return Plot(
        name=f"latent_{what}_{of}",
        title=f"{title}, by layer ({_OF[of]})",
        x_label="encoder block (0: embeddings)",
        y_label=label,
        series=tuple(series),
        caption="Bands are 95 % bootstrap intervals of the mean over texts; dashed: random other texts in place of the "
        "adversarial ones.",
    )


def _make_series(run: _Compared, name: str, values: Vectors) -> Series:
    intervals = run.interval(values)
    return Series(
        name,
        tuple(float(layer) for layer in range(values.shape[1])),
        tuple(each.estimate for each in intervals),
        y_bounds=tuple((each.low, each.high) for each in intervals),
    )


def _take_rows(data: Dataset, order: NDArray[np.int64]) -> Dataset:
    return replace(data, examples=tuple(data.examples[row] for row in order.tolist()), rejected=())
