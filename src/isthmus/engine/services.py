"""Services: which auxiliary model answers which request; each is loaded on its first request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isthmus.core.errors import UsageError
from isthmus.core.types import Keys, MaskedLM, SentenceEncoder, TokenEncoder, Victim
from isthmus.engine.blanks import Blanks
from isthmus.engine.gradients import GradientService
from isthmus.engine.requests import Fill, Gradient, Likelihood, Similarity
from isthmus.engine.similarity import Similarities, TextSimilarities, TokenSimilarities
from isthmus.text.vocabulary import Vocabulary

KINDS: tuple[type, ...] = (Similarity, Fill, Likelihood, Gradient)
"""The requests that are answered here."""


class Services:
    """Answers requests of every kind but `Score`; `spent` is told the seconds spent in models."""

    def __init__(
        self,
        victim: Victim,
        encoder: SentenceEncoder | None,
        masked_lm: MaskedLM | None,
        vocabulary: Vocabulary,
        spent: Callable[[float], None],
    ) -> None:
        self.victim, self.encoder, self.masked_lm = victim, encoder, masked_lm
        self.spent = spent
        self.renew(vocabulary)

    def renew(self, vocabulary: Vocabulary) -> None:
        """Forget every word."""
        self.vocabulary = vocabulary
        self._similarities: Similarities | None = None
        self._blanks: Blanks | None = None
        self._gradients: GradientService | None = None

    def start(self, kind: type, requests: Sequence[Any], keys: Sequence[Keys] | None = None) -> Callable[[], list[Any]]:
        """Start answering requests of one kind; the result waits for one answer per request.

        `keys` name the randomness of each request, for a victim that draws some.
        """
        if kind is Similarity:
            return self.similarities.start(requests)
        if kind is Fill:
            return self.blanks.fill(requests)
        if kind is Likelihood:
            return self.blanks.likelihood(requests)
        return self.gradients.start(requests, keys)

    @property
    def similarities(self) -> Similarities:
        """Compares sentences."""
        if self.encoder is None:
            raise UsageError("this attack compares sentences: give it a sentence encoder")
        if self._similarities is None:
            if isinstance(self.encoder, TokenEncoder):
                self._similarities = TokenSimilarities(self.encoder, self.vocabulary, self.spent)
            else:
                self._similarities = TextSimilarities(self.encoder, self.spent)
        return self._similarities

    @property
    def blanks(self) -> Blanks:
        """Fills blanks."""
        if self.masked_lm is None:
            raise UsageError("this attack fills blanks: give it a masked language model")
        if self._blanks is None:
            self._blanks = Blanks(self.masked_lm, self.vocabulary, self.spent)
        return self._blanks

    @property
    def gradients(self) -> GradientService:
        """Differentiates the victim."""
        if self._gradients is None:
            self._gradients = GradientService(self.victim, self.vocabulary, self.spent)
        return self._gradients
