"""How large a perturbation of the embeddings changes the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Ints, Texts
from isthmus.measures._embedding_curves import RobustnessCurve, Shares, plot_of
from isthmus.measures.base import Measure, Measurement, Option, Subject

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.arithmetic.transfer import Inputs
    from isthmus.attacks.gradient.parts.embedding_ascent import EmbeddingAscent
    from isthmus.attacks.gradient.parts.embedding_ball import Answering
    from isthmus.data import Dataset

_TEXTS = 200
_ROWS = 64
_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
"""Radii by default, as shares of the mean length of a token's embedding."""


@dataclass(frozen=True)
class EmbeddingPGD(Measure):
    """Accuracy under gradient ascent on the embeddings of a text, against the radius of the ball around them.

        accuracy(ε) = share of texts with  f(e + δ) = y,   δ found by  δ <- Π_ε( δ + a ε g / ‖g‖ ),  ‖δ‖₂ ≤ ε
        g = 1/k Σ_j ∂ (f_c - f_y)(e + δ, ω_j) / ∂ δ        k draws ω_j of the noise and the masks of a randomised model

    e is the sequence of word embeddings of all tokens, flattened: ε is the radius of the certificate `gaussian`. The
    gradient goes through the whole defence, and straight through to words that are masked. A success is
    confirmed on draws that the attack never saw: on more than half of them. Random directions of the same length show
    what the gradient is worth.

    References:
        Madry, Makelov, Schmidt, Tsipras and Vladu (2018), Towards Deep Learning Models Resistant to Adversarial
        Attacks, https://arxiv.org/abs/1706.06083; Athalye, Carlini and Wagner (2018), Obfuscated Gradients Give a False
        Sense of Security, https://arxiv.org/abs/1802.00420 (expectation over transformation).

    Where we depart:
        L2 balls and steps of a fixed length; the margin of two logits in place of the cross-entropy, so that restarts
        aim at one class after the other and a linear model is fooled exactly at its distance. The ascent in a ball
        begins where that in the next smaller ball ended.

    Relations:
        It is stronger than any attack on texts of the same length, because embeddings may move anywhere: a model that
        falls here need not fall to words. `hotflip` with draws exchanges words by the same gradient. The certificate
        `gaussian` with pgd = steps holds this attack against the smoothed classifier.

    Example:
        ``isthmus measure runs/standard runs/rsmi --measure embedding_pgd -P radii=0.1,0.2,0.4 -P draws=32``
    """

    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed")
    compares: ClassVar[bool] = True

    radii: tuple[float, ...] | None = None
    """Radii of the balls; by default 1/16 to 2 times the mean length of a token's embedding."""
    steps: int = 10
    """K: number of steps of an ascent."""
    step: float | None = None
    """a: length of a step as a share of the radius; by default 2.5 / K."""
    restarts: int = 2
    """Number of ascents from other points, or towards other classes."""
    draws: int = 8
    """k: draws over which the gradient of a randomised model is averaged."""
    fresh: int = 40
    """Number of fresh draws that confirm a success on a randomised model."""
    tokens: Literal["all", "words"] = "all"
    """Which embeddings may change: all tokens, as in the certificate, or all but special tokens."""

    def __post_init__(self) -> None:
        if self.fresh < 1:
            raise UsageError(f"fresh draws judge a randomised model: at least 1, not {self.fresh}")
        if self.radii is not None and (
            not self.radii or not all(math.isfinite(radius) and radius > 0 for radius in self.radii)
        ):
            raise UsageError(f"radii are positive numbers such as 0.1,0.2,0.4, not {self.radii}")
        self.ascent()

    def ascent(self) -> EmbeddingAscent:
        """The attack; an error if its settings are invalid."""
        from isthmus.attacks.gradient.parts.embedding_ascent import EmbeddingAscent

        return EmbeddingAscent(self.steps, self.step, self.restarts, self.draws, self.tokens)

    def measure(self, subject: Subject) -> Measurement:
        """Attack the texts of every run, by default of its test split."""
        curves: list[RobustnessCurve] = []
        radii: Sequence[float] = sorted(set(self.radii or ()))
        for each in (subject, *subject.others):
            task = each.model.task.name
            if task != "classification":
                raise UsageError(f"embedding_pgd attacks classifiers, and the task of {each.name} is {task}")
            splits = each.split_names(("test",))
            for split in splits:
                data, name = each.sample(split, _TEXTS), each.name if len(splits) == 1 else f"{each.name}, {split}"
                radii = radii or _default_radii(each, data)
                curves.append(self._curve(each, name, data, radii))
        return Measurement(
            figures=tuple(figure for curve in curves for figure in curve.figures()),
            plots=(plot_of(self.name, curves),),
            notes=tuple(note for curve in curves for note in curve.notes()),
            details={"runs": [curve.details() for curve in curves]},
        )

    def _curve(self, subject: Subject, name: str, data: Dataset, radii: Sequence[float]) -> RobustnessCurve:
        from isthmus.arithmetic.batching import batches_of, columns_of
        from isthmus.arithmetic.transfer import any_shape, on_device

        reader, model = _find_reader(subject), subject.model
        if not len(data):
            raise UsageError(f"{name} has no texts to attack")
        labels, texts = data.label_indices(), _read_texts(subject, data)
        keys = np.array([derive(subject.asked.seed, self.name, example.id) for example in data], np.uint64)
        drawn = (self.draws, self.fresh) if reader.stochastic else None
        curve = RobustnessCurve(name, radii, [example.id for example in data], drawn)
        done = 0
        columns = columns_of(texts, model.task.fields)
        for positions, batch in batches_of(model.tokenizer, columns, model.max_tokens, keys, most=_ROWS):
            subject.step(f"{name}: ascent", done, len(data))
            (inputs,) = on_device([batch], model.device)
            with any_shape():
                _BallGroup(self, reader, inputs, labels[positions], curve, positions).attack()
            done += len(positions)
        subject.step(f"{name}: ascent", done, len(data))
        return curve


class _BallGroup:
    """Texts of one length, attacked together in one ball after another."""

    def __init__(
        self,
        settings: EmbeddingPGD,
        reader: Answering,
        inputs: Inputs,
        labels: Ints,
        curve: RobustnessCurve,
        positions: Ints,
    ) -> None:
        import torch

        from isthmus.attacks.gradient.parts.embedding_ball import movable, random_directions

        self.settings, self.reader, self.inputs, self.labels = settings, reader, inputs, labels
        self.curve, self.positions = curve, positions
        self.draws = settings.fresh if reader.stochastic else 1
        self.target = torch.from_numpy(labels).to(inputs.ids.device)
        assert inputs.keys is not None
        with torch.no_grad():
            shape, free = reader.model.embed(inputs.ids).shape, movable(reader.model, inputs.ids, settings.tokens)
            self.directions = random_directions(inputs.keys, shape, 0, free)[: inputs.rows]

    def attack(self) -> None:
        """Attack these texts and fill in their part of the curve."""
        import torch

        ascent = self.settings.ascent()
        every = np.arange(len(self.labels))
        self.curve.right[self.positions, 0] = self._right(every, None, "clean", 0)
        offsets = torch.zeros_like(self.directions)
        for number, radius in enumerate(self.curve.radii, start=1):
            left = every[self.curve.right[self.positions, number - 1] > 0]
            if len(left):
                inputs, at = self._rows(left, "attack", number), torch.from_numpy(left).to(offsets.device)
                ball = torch.full((len(left),), radius, dtype=torch.float64, device=offsets.device)
                found = ascent(self.reader, inputs, self.target[at], ball, offsets[at])
                offsets[at] = found.offset
                self.curve.right[self.positions[left], number] = self._right(left, found.offset, "attacked", number)
                self.curve.blind[self.positions[left]] |= found.blind.cpu().numpy()
            left = every[self.curve.right[self.positions, 0] > 0]
            if len(left):
                moved = radius * self.directions[torch.from_numpy(left).to(offsets.device)]
                self.curve.random[self.positions[left], number] = self._right(left, moved, "random", number)

    def _rows(self, rows: Ints, purpose: str, number: int) -> Inputs:
        """Select some of the texts, with keys for another purpose."""
        import torch

        from isthmus.arithmetic.randomness import branch
        from isthmus.arithmetic.transfer import pick_rows

        chosen = pick_rows(self.inputs, torch.from_numpy(rows).to(self.inputs.ids.device))
        assert chosen.keys is not None
        return chosen._replace(keys=branch(chosen.keys, purpose, number))

    def _right(self, rows: Ints, offset: Tensor | None, purpose: str, number: int) -> Shares:
        """Share of fresh draws that predict the label."""
        from isthmus.attacks.gradient.parts.embedding_ball import predict_moved

        given = predict_moved(self.reader, self._rows(rows, purpose, number), offset, self.draws)
        found: Shares = (given == self.labels[rows][:, None]).mean(axis=1)
        return found


def _find_reader(subject: Subject) -> Answering:
    """The classifier as it is deployed, if it has gradients of its embeddings."""
    from isthmus.models.victims import wrap

    victim: Any = wrap(subject.model, device=str(subject.model.device))
    victim = getattr(victim, "inner", victim)  # A front end that changes the text has done so before there are tokens.
    if not hasattr(victim, "margin_gradient"):
        raise UsageError(
            f"{subject.name} answers by a vote over texts of random synonyms, each an embedding sequence of its own: "
            "there is no ball to attack. isthmus attack and certify --certificate synonym are made for it"
        )
    found: Answering = victim
    return found


def _read_texts(subject: Subject, data: Dataset) -> Sequence[Texts]:
    """The texts as model inputs."""
    deployment = subject.model.deployment
    return data.texts() if deployment is None else deployment.read(data.texts())


def _default_radii(subject: Subject, data: Dataset) -> tuple[float, ...]:
    """Default radii: shares of the mean length of a token's embedding, to two digits."""
    import torch

    inputs = subject.model.encode(data.texts())
    words = inputs["input_ids"][inputs["attention_mask"].bool()].to(subject.model.device)
    with torch.no_grad():
        length = float(subject.model.embed(words).float().norm(dim=-1).mean())
    return tuple(float(f"{share * length:.2g}") for share in _SHARES)
