"""Training settings: everything but the data, the model and the defence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from isthmus.core.errors import UsageError
from isthmus.models.image_names import is_image_backbone

Precision = Literal["auto", "fp32", "bf16"]
Optimizer = Literal["adamw", "adam"]
Schedule = Literal["linear", "constant", "staircase"]


class Progress(Protocol):
    """Called after every optimiser step; the command line shows a bar, a test counts."""

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        """Called after `step` of about `total` steps; `metrics` are the latest figures."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training run. The defaults suit encoders the size of MiniLM; larger ones need a lower rate.

    >>> from isthmus import TrainingSettings
    >>> TrainingSettings(epochs=5).batch_size
    32
    """

    epochs: int = 3
    """Passes over the training examples; the schedule spans them all."""
    batch_size: int = 32
    """Examples in one forward pass of one process."""
    accumulation: int = 1
    """Forward passes per optimiser step."""
    learning_rate: float = 1e-4
    """Maximum learning rate of the schedule."""
    schedule: Schedule = "linear"
    """``linear`` falls to zero; ``staircase`` multiplies by `decay` every `decay_epochs` epochs; or ``constant``."""
    warmup: float = 0.06
    """Share of the run over which the learning rate rises from zero."""
    decay: float = 0.97
    """Factor of one stair."""
    decay_epochs: int = 2
    """Epochs per stair."""
    optimizer: Optimizer = "adamw"
    """``adamw`` decays weights directly, ``adam`` through the gradient."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the two moment estimates."""
    weight_decay: float = 0.01
    """Not applied to biases and normalisation layers."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm; 0: no clipping."""
    trains: Literal["all", "head"] = "all"
    """Train the whole model, or only what follows the encoder, on vectors that are computed once."""
    max_tokens: int | None = None
    """Longest input the model reads; by default what its encoder can, but 384 of a question and its context."""
    more_words: int = 0
    """``lstm`` and ``cnn``: frequent words of the word vectors that join the vocabulary though no training text has
    them, so that what an attack puts into a text is seldom unknown."""
    stride: int | None = None
    """Question answering: tokens from the start of one window to the start of the next; by default 128."""
    precision: Precision = "auto"
    """``bf16`` computes under autocast and keeps float32 weights; ``auto`` does so where that is faster."""
    group_by_length: bool = True
    """Batch texts of similar length, so that little is spent on padding."""
    patience: int | None = None
    """Stop after this number of evaluations without a better development accuracy (or F1); None: never stop early."""
    evaluation_batch_size: int = 128
    """Examples in one forward pass of an evaluation."""
    evaluate_every: int | None = None
    """Steps between evaluations; the model is also evaluated after each epoch. None: only then."""
    log_every: int = 10
    """Steps per line of ``train.jsonl``."""
    checkpoint_every: int | None = 100
    """Steps between checkpoints; one is written after each epoch in any case. On a GPU those that would take more than
    a twentieth of the time are left out, but for the last."""
    information: int = 256
    """Training examples on which, as on dev, spread, rate and label information are noted after each epoch; 0: none."""
    snapshots: bool = False
    """Keep the trainable weights of every epoch, each as large as the model, to measure any of them afterwards."""
    average_weights: float | None = None
    """Images: decay of a moving average of the weights over steps, such as 0.999, saved beside the model in
    ``averaged``; none: no average."""

    def __post_init__(self) -> None:
        if str(self.precision) == "fp16":
            raise UsageError(
                "precision fp16 is refused: its loss scaler changes the gradients that defences read. Use bf16 or fp32"
            )
        choices: dict[str, tuple[str, ...]] = {
            "precision": ("auto", "fp32", "bf16"),
            "optimizer": ("adamw", "adam"),
            "schedule": ("linear", "constant", "staircase"),
            "trains": ("all", "head"),
        }
        for name, allowed in choices.items():
            self._require(name, getattr(self, name) in allowed, f"one of {', '.join(allowed)}")
        for name in ("epochs", "batch_size", "accumulation", "decay_epochs", "evaluation_batch_size", "log_every"):
            self._require(name, _is_count(getattr(self, name)), "a whole number that is at least 1")
        count = self.information
        self._require("information", count == 0 or _is_count(count), "a whole number that is at least 0")
        self._require("more_words", self.more_words == 0 or _is_count(self.more_words), "a whole number, at least 0")
        self._require("snapshots", isinstance(self.snapshots, bool), "true or false")
        for name in ("patience", "evaluate_every", "checkpoint_every", "max_tokens", "stride"):
            value = getattr(self, name)
            self._require(name, value is None or _is_count(value), "a whole number that is at least 1, or none")
        for name in ("weight_decay", "max_grad_norm"):
            self._require(name, _is_number(getattr(self, name)) and getattr(self, name) >= 0, "at least 0")
        self._require("learning_rate", _is_number(self.learning_rate) and self.learning_rate > 0, "greater than 0")
        self._require("warmup", _is_number(self.warmup) and 0 <= self.warmup < 1, "at least 0 and less than 1")
        self._require("decay", _is_number(self.decay) and 0 < self.decay <= 1, "greater than 0 and at most 1")
        averages = self.average_weights
        valid_average = averages is None or (_is_number(averages) and 0 <= averages < 1)
        self._require("average_weights", valid_average, "at least 0 and less than 1, or none")
        valid_betas = len(self.betas) == 2 and all(_is_number(beta) and 0 <= beta < 1 for beta in self.betas)
        self._require("betas", valid_betas, "two numbers that are at least 0 and less than 1")

    def _require(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise UsageError(f"training setting {name} is {getattr(self, name)!r}; it must be {wanted}")

    def rate(self, epochs_done: float) -> float:
        """The step size after `epochs_done` epochs, which may be a fraction.

        It depends on the share of epochs, not of steps, so that the schedule spans the whole run even where the number
        of examples changes between epochs.
        """
        done = min(max(epochs_done / self.epochs, 0.0), 1.0)
        rise = done / self.warmup if done < self.warmup else 1.0
        if self.schedule == "linear":
            factor = min(rise, (1 - done) / (1 - self.warmup))
        elif self.schedule == "staircase":
            factor = rise * self.decay ** (int(epochs_done) // self.decay_epochs)
        else:
            factor = rise
        return self.learning_rate * factor


_IMAGES: dict[str, Any] = {
    "epochs": 20,
    "batch_size": 100,
    "schedule": "staircase",
    "warmup": 0.0,
    "optimizer": "adam",
    "betas": (0.5, 0.999),
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
    "precision": "fp32",
    "evaluation_batch_size": 1000,
    "checkpoint_every": None,
    "log_every": 100,
}


def settings_for(task: str, backbone: object = None, **given: Any) -> TrainingSettings:
    """Make settings, with defaults where nothing is `given`.

    For question answering those of the InfoBERT paper: two epochs, batches of 32, a largest step of 3e-5 that falls
    from the start, windows of 384 tokens, a stride of 128. Word-level networks, which begin with fresh weights, take
    ten times the step of an encoder. For images those of VIB's reference code (whose 200 epochs are 20 here), with ten
    times its step for other networks than its own.
    """
    usual: dict[str, Any] = {"epochs": 2, "learning_rate": 3e-5, "warmup": 0.0} if task == "qa" else {}
    if task == "images" or is_image_backbone(backbone):
        usual = {**_IMAGES, "learning_rate": 1e-4 if backbone == "vib_mlp" else 1e-3}
    if backbone in ("lstm", "cnn"):
        usual["learning_rate"] = 1e-3
    return TrainingSettings(**{**usual, **given})


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_due(step: int, every: int | None) -> bool:
    """Whether something that happens after every `every` steps (None: never) happens after this one."""
    return every is not None and step % every == 0
