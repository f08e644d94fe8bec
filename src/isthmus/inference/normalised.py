"""A classifier that normalises its input, and the victim that an attack sees: the whole pipeline.

    p(y | x) = f(normalised(x))

The engine may splice token rows only where a changed word changes the tokens of that word and no others. A normaliser
reads across words (swapped pairs, deletions, the script of the rest of the text), so the victim takes texts and
tokenises each again: slower, and exactly what is deployed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError
from isthmus.core.types import Floats, Texts, Victim
from isthmus.lexicon.normaliser import Normaliser, NormaliserSteps
from isthmus.models.deployment import Deployment

if TYPE_CHECKING:
    from isthmus.lexicon.synonyms import SynonymTable
    from isthmus.models.classifier import Classifier


@dataclass(frozen=True)
class Normalised(NormaliserSteps, Deployment):
    """Reads every text through `isthmus.lexicon.normaliser`; the known words are those of the training texts."""

    kind = "normalise"
    in_one_pass = True

    words: tuple[str, ...] = ()
    """Known words, the most frequent first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in self.words):
            raise UsageError("the known words of a normaliser are a list of strings")
        object.__setattr__(self, "words", tuple(self.words))  # a folder's JSON has lists

    @functools.cached_property
    def normaliser(self) -> Normaliser:
        """The normaliser."""
        return Normaliser(
            NormaliserSteps(**{field.name: getattr(self, field.name) for field in fields(NormaliserSteps)}), self.words
        )

    def read(self, texts: Sequence[Texts]) -> list[dict[str, str]]:
        """The normalised texts."""
        return [{name: self.normaliser(text) for name, text in fields.items()} for fields in texts]

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> NormalisedVictim:
        """The pipeline as a victim; it computes in float32, because a victim of texts is not queried a second time."""
        from isthmus.models.victims.classifier import ClassifierVictim

        of_model = set(inspect.signature(ClassifierVictim).parameters)
        steps = self.change({name: value for name, value in options.items() if name not in of_model})
        assert isinstance(steps, Normalised)
        rest = {name: value for name, value in options.items() if name in of_model}
        return NormalisedVictim(ClassifierVictim(model, "fp32", **rest), steps)


class NormalisedVictim:
    """A `Victim` that normalises before it scores; texts that become equal are scored once."""

    def __init__(self, inner: Victim, steps: Normalised) -> None:
        self.inner, self.steps = inner, steps

    @property
    def graded(self) -> NormalisedVictim | None:
        """The same victim with mean probabilities instead of votes, if the classifier behind it votes; else None."""
        graded = getattr(self.inner, "graded", None)
        return None if graded is None else NormalisedVictim(graded, self.steps)

    @property
    def table(self) -> SynonymTable | None:
        """The synonyms drawn behind the front end; None if none are drawn."""
        found: SynonymTable | None = getattr(self.inner, "table", None)
        return found

    @property
    def base(self) -> NormalisedVictim | None:
        """The front end with the classifier of a single draw behind it; None if nothing is drawn."""
        return None if self.table is None else NormalisedVictim(self.inner.base, self.steps)  # type: ignore[attr-defined]

    @property
    def texts_at_once(self) -> int:
        """The number of texts per call that the classifier behind it prefers."""
        return int(getattr(self.inner, "texts_at_once", 64))

    @property
    def model(self) -> Classifier:
        """The classifier behind the normaliser."""
        model: Classifier = self.inner.model  # type: ignore[attr-defined]
        return model

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names."""
        return self.inner.labels

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the text fields it reads."""
        return tuple(self.inner.fields)  # type: ignore[attr-defined]

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(getattr(self.inner, "device_type", "cpu"))

    @property
    def stochastic(self) -> bool:
        """Whether the classifier behind it is stochastic."""
        return self.inner.stochastic

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities of the normalised texts."""
        read = self.steps.read(texts)
        if self.stochastic:
            return self.inner.scores(read, keys)
        distinct: dict[tuple[str, ...], int] = {}
        rows = [distinct.setdefault(tuple(text.values()), len(distinct)) for text in read]
        first: dict[int, Mapping[str, str]] = dict(zip(reversed(rows), reversed(read), strict=True))
        answers = self.inner.scores([first[row] for row in range(len(distinct))])
        return answers[np.array(rows, dtype=np.int64)] if rows else answers
