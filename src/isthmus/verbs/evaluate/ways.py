"""The ways in which a stochastic model can predict: by mean code, single draw, or several draws.

    mean      the head reads the mean of the code            (a model with a Gaussian bottleneck)
    sample    one draw of the model's randomness
    average   the mean of the probabilities over k draws, of which `sample` is the first

A deterministic model is seen in one way, `model`. Draws come from keys of (seed, example, number of the draw): they do
not depend on the other examples, on batches, or on how often the work was interrupted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Floats, Texts, Victim
from isthmus.verbs.clean_scores import BatchScores, score_batch

if TYPE_CHECKING:
    from isthmus.models.victims.classifier import ClassifierVictim
    from isthmus.models.victims.images import ImageVictim

Way = Literal["model", "mean", "sample", "average"]


def name_way(way: str, draws: int) -> str:
    """The name of a way for people."""
    return {"model": "", "mean": "mean code", "sample": "one draw", "average": f"average of {draws}"}.get(way, way)


@dataclass(frozen=True)
class WayScores:
    """Scores of some texts by way; NaN if the model did not answer."""

    scores: dict[Way, Floats]
    reasons: dict[int, str] = field(default_factory=dict)


class Ways:
    """The ways in which a victim can predict."""

    def __init__(self, victim: Victim, draws: int, seed: int) -> None:
        if draws < 1:
            raise UsageError(f"--draws is the number of draws to average and must be at least 1, not {draws}")
        self.victim, self.draws, self.seed = victim, draws, seed
        self._switch = _switch(victim)
        self._bottleneck = None if self._switch is None else self._switch.model.slots.bottleneck
        self.names: tuple[Way, ...]
        if self._bottleneck is not None:
            self.names = ("mean", "sample", "average")
            self.headline: Way = "sample" if self._bottleneck.stochastic else "mean"
        elif victim.stochastic:
            self.names, self.headline = ("sample", "average"), "sample"
        else:
            self.names, self.headline = ("model",), "model"

    def see(self, texts: Sequence[Texts], ids: Sequence[str], *, first: bool = False) -> WayScores:
        """Scores in every way. `first`: a model that fails on the first, middle and last text is down: its error."""
        if self.names == ("model",):
            found = score_batch(self.victim, texts, probe=first)
            return WayScores({"model": found.scores}, found.reasons)
        scores: dict[Way, Floats] = {}
        reasons: dict[int, str] = {}
        if self._bottleneck is not None:
            with self._inference("mean"):
                mean = score_batch(self.victim, texts, probe=first)
            scores["mean"], reasons = mean.scores, mean.reasons
        with self._inference("sample"):
            drawn = [self._draw(texts, ids, number, first and number == 0) for number in range(self.draws)]
        scores["sample"] = drawn[0].scores
        scores["average"] = np.asarray(np.stack([each.scores for each in drawn]).mean(axis=0), np.float32)
        for each in drawn:
            reasons = {**each.reasons, **reasons}
        return WayScores(scores, reasons)

    def _draw(self, texts: Sequence[Texts], ids: Sequence[str], number: int, first: bool) -> BatchScores:
        keys: NDArray[np.uint64] = np.array(
            [derive(self.seed, "evaluate", key, number) for key in ids], dtype=np.uint64
        )
        return score_batch(self.victim, texts, keys, probe=first)

    @contextlib.contextmanager
    def _inference(self, latent: Literal["mean", "sample"]) -> Iterator[None]:
        if self._switch is None:
            yield
            return
        with self._switch.use_latent(latent):
            yield


def _switch(victim: Victim) -> ClassifierVictim | ImageVictim | None:
    """The classifier, possibly behind a normaliser, that can use its mean code or draws."""
    from isthmus.models.bottleneck import GaussianBottleneck
    from isthmus.models.victims.classifier import ClassifierVictim
    from isthmus.models.victims.images import ImageVictim

    for each in (victim, getattr(victim, "inner", None)):
        if isinstance(each, ClassifierVictim | ImageVictim) and isinstance(
            each.model.slots.bottleneck, GaussianBottleneck
        ):
            return each
    return None
