"""Image classifiers as victims: ours, a torch module, a function on arrays, an ONNX file.

Inputs are mappings with one array each, as `Example.inputs` has them; a model sees them as one array of float32,
[images, channels, height, width] with pixels in [0, 1], or [vectors, width].
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isthmus.arithmetic.machine import fewest_rows
from isthmus.core.errors import UsageError, VictimError
from isthmus.core.types import Example, Floats
from isthmus.data.images import pixels
from isthmus.models.bottleneck import GaussianBottleneck, Inference
from isthmus.models.images import ImageClassifier
from isthmus.models.victims.answer_parsing import AnswerReader, Outputs
from isthmus.models.victims.options import check_flag, check_whole_number

ImageInputs = Mapping[str, Any]
_AT_ONCE = 256


def stack_inputs(inputs: Sequence[ImageInputs]) -> Floats:
    """Stack inputs to one array; they may be nested lists, as in JSON."""
    arrays = [np.asarray(next(iter(each.values()))) for each in inputs]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise VictimError(f"inputs of different shapes in one batch: {', '.join(map(str, sorted(shapes)[:4]))}")
    return pixels([Example("", {"image": array}, 0) for array in arrays])


class ImageVictim:
    """An `ImageClassifier` as a victim.

    On the CPU an image gets the same bits whatever it is batched with: batches too small for that are filled up.
    ``latent`` and ``draws`` are as of a text classifier: mean code or draws of a stochastic bottleneck, averaged.
    """

    precision = "fp32"

    def __init__(
        self, model: ImageClassifier, *, latent: Inference | None = None, draws: int = 1, batch_size: int = _AT_ONCE
    ) -> None:
        self.model = model.eval()
        if latent is not None:
            self._see(latent)
        self.draws, self.batch_size = check_whole_number("draws", draws), check_whole_number("batch_size", batch_size)

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names."""
        return self.model.labels

    @property
    def fields(self) -> tuple[str, ...]:
        """Name of the one field it reads."""
        return self.model.task.fields

    @property
    def stochastic(self) -> bool:
        """Whether the same image may get different scores."""
        return self.model.stochastic

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.model.device.type

    @property
    def attackable(self) -> nn.Module:
        """The model for gradient attacks."""
        return self.model

    def scores(self, inputs: Sequence[ImageInputs], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities, one row per image."""
        if not inputs:
            return np.zeros((0, len(self.labels)), np.float32)
        images = torch.from_numpy(stack_inputs(inputs))
        shape = tuple(images.shape[1:])
        if shape != self.model.task.shape:
            raise UsageError(f"the model reads inputs of shape {self.model.task.shape}, and the data are {shape}")
        own = None if keys is None else torch.from_numpy(keys.view(np.int64).copy())
        parts = [
            self._scores(images[at : at + self.batch_size], None if own is None else own[at : at + self.batch_size])
            for at in range(0, len(images), self.batch_size)
        ]
        return np.concatenate(parts)

    def _scores(self, images: Tensor, keys: Tensor | None) -> Floats:
        from isthmus.arithmetic.randomness import copy_keys

        count, device = len(images), self.model.device
        least = fewest_rows() if device.type == "cpu" else 1
        extra = max(0, least - count)
        rows = torch.cat([torch.arange(count), torch.zeros(extra, dtype=torch.int64)])
        images, drawn = images[rows].to(device), self.draws if self.stochastic else 1
        chosen = None if keys is None else keys[rows].to(device)
        if drawn > 1:
            images = images.repeat_interleave(drawn, dim=0)
            chosen = None if chosen is None else copy_keys(chosen, drawn)
        with torch.no_grad(), self.model.use_keys(chosen if self.stochastic else None):
            logits = self.model(images).logits
        found = logits.double().softmax(dim=-1).view(len(rows), drawn, -1).mean(dim=1)
        return np.asarray(found[:count].float().cpu().numpy())

    @contextlib.contextmanager
    def use_latent(self, latent: Inference) -> Iterator[None]:
        """Inside, the model uses its mean code, or a draw from it."""
        bottleneck = self.model.slots.bottleneck
        before = bottleneck.inference if isinstance(bottleneck, GaussianBottleneck) else "mean"
        self._see(latent)
        try:
            yield
        finally:
            self._see(before)

    def _see(self, latent: Inference) -> None:
        bottleneck = self.model.slots.bottleneck
        if latent not in ("mean", "sample"):
            raise UsageError(f"latent is mean or sample, not {latent!r}")
        if isinstance(bottleneck, GaussianBottleneck):
            bottleneck.inference = latent
        elif latent == "sample":
            raise UsageError("latent=sample: this model has no stochastic bottleneck to sample from")


class ArrayVictim:
    """A torch module, or any function, from an array of images to scores.

    A module gets a tensor and gives logits; gradient attacks go through it. A function gets a numpy array and gives
    what `isthmus.models.victims.answer_parsing` lists; it can be evaluated, and has no gradients.
    """

    device_type = "cpu"
    precision = "fp32"
    fields = ("image",)

    def __init__(
        self,
        function: Callable[..., Any],
        labels: Sequence[str] | None = None,
        *,
        outputs: Outputs = "auto",
        stochastic: bool = False,
        batch_size: int = _AT_ONCE,
        name: str | None = None,
    ) -> None:
        self.function, self.batch_size = function, check_whole_number("batch_size", batch_size)
        self.name = name or f"the victim {getattr(function, '__name__', type(function).__name__)}"
        self._stochastic = check_flag("stochastic", stochastic)
        self._labels = None if labels is None else tuple(labels)
        self._reader = AnswerReader(self.name, labels, "logits" if isinstance(function, nn.Module) else outputs)
        if isinstance(function, nn.Module):
            function.eval()

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, as given."""
        if self._labels is None:
            raise VictimError(f"{self.name} does not say what its classes are called: give --labels")
        return self._labels

    @property
    def stochastic(self) -> bool:
        """Whether the user declared it stochastic."""
        return self._stochastic

    @property
    def attackable(self) -> nn.Module:
        """The module for gradient attacks; a function on arrays has no gradients."""
        if not isinstance(self.function, nn.Module):
            raise UsageError(
                f"gradient attacks need gradients, and {self.name} answers with arrays: give a torch module, or "
                "evaluate it on adversarial images of another model: isthmus evaluate MODEL --on runs/x/attacks/pgd.npz"
            )
        return self.function

    def scores(self, inputs: Sequence[ImageInputs], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; a function does not use `keys`."""
        del keys
        images = stack_inputs(inputs) if inputs else np.zeros((0, 1), np.float32)
        chunks = [images[at : at + self.batch_size] for at in range(0, len(images), self.batch_size)]
        rows = [self._reader.read(self._call(chunk), len(chunk)) for chunk in chunks]
        return np.concatenate(rows) if rows else np.zeros((0, len(self.labels)), np.float32)

    def _call(self, images: Floats) -> Any:
        try:
            if isinstance(self.function, nn.Module):
                device = next((value.device for value in self.function.parameters()), torch.device("cpu"))
                with torch.no_grad():
                    answer = self.function(torch.from_numpy(images).to(device))
                return (answer if isinstance(answer, Tensor) else answer.logits).cpu().numpy()
            return self.function(images)
        except (VictimError, KeyboardInterrupt):
            raise
        except BaseException as error:  # As of functions on texts.
            raise VictimError(f"{self.name} raised {type(error).__name__}: {error}") from error


def onnx_images(file: str | Path, labels: Sequence[str] | None = None, *, outputs: Outputs = "auto") -> ArrayVictim:
    """An ONNX file that takes one array of images, as a victim."""
    from isthmus.models.victims.onnx_file import open_session

    session = open_session(Path(file))
    taken, given = session.get_inputs(), [put.name for put in session.get_outputs()]
    if len(taken) != 1 or "float" not in taken[0].type:
        found = ", ".join(f"{put.name} ({put.type})" for put in taken)
        raise UsageError(f"{file} takes {found}; a classifier of images takes one array of float32")
    output = "logits" if "logits" in given else given[0]
    rows = taken[0].shape[0] if isinstance(taken[0].shape[0], int) else None

    def answer(images: Floats) -> Any:
        if rows is None:
            return session.run([output], {taken[0].name: images})[0]
        padded = np.concatenate([images, np.repeat(images[:1], -len(images) % rows, axis=0)])
        parts = [
            session.run([output], {taken[0].name: padded[at : at + rows]})[0] for at in range(0, len(padded), rows)
        ]
        return np.concatenate(parts)[: len(images)]

    kind: Outputs = "logits" if outputs == "auto" and output == "logits" else outputs
    return ArrayVictim(answer, labels, outputs=kind, name=f"the model {Path(file).name}")
