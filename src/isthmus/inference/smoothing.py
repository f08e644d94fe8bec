"""A classifier that reads random synonyms: SAFER's smoothing as a deployment.

    vote   g_c(x) = share of the draws z with f(z) = c           what the certificate `synonym` is about
    mean   g_c(x) = mean over the draws z of p(c | z)
    z_i drawn from P(x_i), independently for every word and draw

Every row draws from its own key, so that an answer depends neither on the other rows nor on how they are batched.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import ModelError, UsageError
from isthmus.core.types import Floats, Pending, Texts, Victim
from isthmus.inference.synonym_draws import draw_keys_of
from isthmus.lexicon.synonyms import FILE, SynonymTable
from isthmus.models.deployment import BESIDE, Deployment

if TYPE_CHECKING:
    from isthmus.inference.synonym_reading import DrawnTextReader
    from isthmus.models.classifier import Classifier

Voice = Literal["vote", "mean"]
_DRAWS_AT_ONCE = 16_384
"""Draws that are read at once: enough to fill a GPU in a few launches."""
_PARTS = 4
"""In which texts are read on a GPU, so that it and the host work at the same time."""


@dataclass(frozen=True)
class SynonymSmoothing(Deployment):
    """Predicts by several draws of the text's words from their perturbation sets."""

    kind: ClassVar[str] = "synonyms"

    draws: int = 15
    answer: Voice = "vote"
    table: SynonymTable | None = field(default=None, repr=False, metadata=BESIDE)

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise UsageError(f"at least one draw is needed, not {self.draws}")
        if self.answer not in ("vote", "mean"):
            raise UsageError(f"the draws are put together by 'vote' or by 'mean', not {self.answer!r}")

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> Victim:
        """The smoothed classifier as a victim; with `fixed`, every query gets the same draws."""
        from isthmus.models.victims.classifier import ClassifierVictim
        from isthmus.models.victims.options import check_flag

        fixed = check_flag("fixed", options.pop("fixed", False))
        own = self.change(options)
        assert isinstance(own, SynonymSmoothing)
        if own.table is None:
            raise ModelError("this model is smoothed by synonyms and has no synonym table")
        return SmoothedVictim(ClassifierVictim(model, precision), own.table, own.draws, own.answer, fixed=fixed)

    def write_beside(self, folder: Path) -> None:
        """Write the synonym table."""
        if self.table is not None:
            self.table.write(folder / FILE)

    def read_beside(self, folder: Path) -> SynonymSmoothing:
        """Read the synonym table."""
        return dataclasses.replace(self, table=SynonymTable.read(folder / FILE))


class SmoothedVictim:
    """A `Victim` that reads every text with its words drawn from their perturbation sets."""

    def __init__(
        self, base: Victim, table: SynonymTable, draws: int = 15, answer: Voice = "vote", *, fixed: bool = False
    ) -> None:
        self.base, self.table, self.draws, self.answer, self.fixed = base, table, draws, answer, fixed

    @property
    def graded(self) -> SmoothedVictim | None:
        """The same victim with mean probabilities instead of votes; None if it does not vote."""
        if self.answer != "vote":
            return None
        other = copy.copy(self)
        other.answer = "mean"
        return other

    @property
    def texts_at_once(self) -> int:
        """A large number of texts per call: their draws differ in length, and each length is a batch of its own."""
        return max(64, _DRAWS_AT_ONCE // self.draws)

    @property
    def stochastic(self) -> bool:
        """Whether the same text may get different scores."""
        return not self.fixed

    @property
    def model(self) -> Any:
        """The classifier that reads the draws."""
        return self.base.model  # type: ignore[attr-defined]

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names."""
        return self.base.labels

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the text fields it reads."""
        return tuple(self.base.fields)  # type: ignore[attr-defined]

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return getattr(self.base, "device_type", "cpu")

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Shares of the votes, or mean probabilities; without keys, a text's draws depend on the text itself."""
        if self.fixed:
            keys = np.zeros(len(texts), np.uint64)
        elif keys is None:
            keys = np.array([_key_of(text) for text in texts], np.uint64)
        answers = np.zeros((len(texts), len(self.labels)), np.float32)
        step = max(1, _DRAWS_AT_ONCE // self.draws)
        if self.device_type == "cuda":  # While it reads some draws, the next ones are spliced.
            step = max(64, -(-min(step, len(texts)) // _PARTS))
        before: tuple[slice, Pending] | None = None
        for start in range(0, len(texts), step):
            part = slice(start, min(start + step, len(texts)))
            here = part, self._reader.launch(texts[part], draw_keys_of(keys[part], self.draws))
            if before is not None:
                answers[before[0]] = self._answers(before[1]())
            before = here
        if before is not None:
            answers[before[0]] = self._answers(before[1]())
        return answers

    def _answers(self, scores: Floats) -> Floats:
        scores = scores.reshape(-1, self.draws, scores.shape[-1])
        whole = np.isfinite(scores).all(axis=2, keepdims=True)
        if self.answer == "vote":
            votes = np.eye(len(self.labels), dtype=np.float32)[np.nan_to_num(scores).argmax(axis=2)]
            scores = np.where(whole, votes, np.float32(np.nan))
        return np.asarray(scores.mean(axis=1, dtype=np.float64), np.float32)

    @functools.cached_property
    def _reader(self) -> DrawnTextReader:
        from isthmus.inference.synonym_reading import reader_of

        return reader_of(self.base, self.table)


def _key_of(text: Texts) -> int:
    packed = "\x1f".join(text.values()).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
