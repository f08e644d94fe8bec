"""Embedding sequences of texts and balls around them, read through everything that a classifier does with a text.

e is the flattened sequence of word embeddings of all tokens, before positions and normalisation; a text is never padded
here. The norm is L2, so that a radius is the quantity that the Gaussian certificate calls its radius. The ascent in
such a ball is `isthmus.attacks.gradient.parts.embedding_ascent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.randomness import branch, copy_keys, draw_normal
from isthmus.arithmetic.transfer import Inputs, pick_rows
from isthmus.core.seeds import derive
from isthmus.core.types import Floats, Ints

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier
    from isthmus.models.masking import MaskGradient

Tokens = Literal["all", "words"]
STREAM = derive(0, "point of a ball")
_TOKENS_AT_ONCE = {"cpu": 1 << 13, "cuda": 1 << 16}


class BallReader(Protocol):
    """A classifier that reads embedding sequences; it may be randomised."""

    @property
    def model(self) -> Classifier:
        """The model that it reads with."""

    @property
    def stochastic(self) -> bool:
        """Whether the same row may get different scores."""

    def margin_gradient(self, inputs: Inputs, target: Tensor, rival: Tensor) -> MaskGradient:
        """Gradient of f_rival - f_target with respect to ``inputs.embeddings``, for the draw of each row's key."""


class Answering(BallReader, Protocol):
    """A reader that also returns the final prediction of its whole procedure."""

    def scores_at(self, inputs: Inputs) -> Floats:
        """Class probabilities of rows whose embeddings are given, for the draw of each row's key."""


def movable(model: Classifier, ids: Tensor, tokens: Tokens) -> Tensor:
    """True where embeddings may be moved [rows, length, 1]."""
    special = model.special_mask(ids)
    return (torch.ones_like(special) if tokens == "all" else ~special).unsqueeze(-1)


def random_directions(keys: Tensor, shape: Sequence[int], stream: int, free: Tensor) -> Tensor:
    """A uniform random direction for every row, among the coordinates that may change."""
    return unit_directions(draw_normal(keys, shape, STREAM + stream) * free)


def predict_moved(reader: Answering, inputs: Inputs, offset: Tensor | None, draws: int) -> Ints:
    """The prediction for every row moved by `offset`, once per draw [rows, draws]; -1: not finite."""
    assert inputs.keys is not None
    with torch.no_grad():
        at = pick_rows(inputs, torch.arange(inputs.rows, device=inputs.ids.device))
        embeddings = reader.model.embed(at.ids).float()
        at = at._replace(embeddings=embeddings if offset is None else embeddings + offset)
        assert at.keys is not None
        keys = copy_keys(branch(at.keys, "judged"), draws).view(-1, draws)  # [rows, draws]
        found = []
        for start, copies in portions(draws, at.ids):
            scores = reader.scores_at(copies_of(at, keys[:, start : start + copies]))
            whole = np.isfinite(scores).all(axis=1)
            chosen = np.where(whole, np.nan_to_num(scores).argmax(axis=1), -1)
            found.append(chosen.reshape(-1, copies))  # [rows, copies]
    return np.concatenate(found, axis=1)


def portions(draws: int, ids: Tensor) -> Iterator[tuple[int, int]]:
    """Yield first number and count of the draws that go through a model together."""
    most = _TOKENS_AT_ONCE.get(ids.device.type, _TOKENS_AT_ONCE["cpu"])
    at_once = max(1, most // max(1, ids.numel()))
    for start in range(0, draws, at_once):
        yield start, min(at_once, draws - start)


def copies_of(inputs: Inputs, keys: Tensor) -> Inputs:
    """Repeat each row for each of its keys [rows, copies], filled up to the number of rows that keeps the bits."""
    rows = torch.arange(keys.numel(), device=keys.device)
    least = fewest_rows() if keys.device.type == "cpu" else 1
    found = pick_rows(inputs, rows // keys.shape[1], least)
    own = keys.reshape(-1)
    return found._replace(keys=torch.cat([own, own[-1:].expand(len(found.ids) - len(own))]))


def unit_directions(values: Tensor) -> Tensor:
    """Scale each row to length 1; a row of zeros or NaN becomes zeros."""
    values = values.nan_to_num(0.0, 0.0, 0.0)
    flat = values.flatten(1)
    # The largest number first: squares of small ones would vanish.
    values = values / flat.abs().amax(dim=1).clamp_min(1e-38).view(-1, 1, 1)
    length: Tensor = values.flatten(1).norm(dim=1)
    return values / length.clamp_min(1e-38).view(-1, 1, 1)
