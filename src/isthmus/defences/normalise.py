"""Normalise: undo disguised characters before the model reads a text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from isthmus.core.errors import UsageError
from isthmus.defences.base import Defence, Labelled
from isthmus.defences.parts.checks import at_least
from isthmus.lexicon.normaliser import Deletion, Form, NormaliserSteps

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class Normalise(Defence):
    """Normalise: undo Unicode tricks, leet and (optionally) misspelling, in training and at inference.

        loss = -log p(y | n(x))        n(n(x)) = n(x)

    n writes compatibility characters and look-alikes of other scripts as plain letters, takes out invisible characters
    and marks of writing direction, obeys deletion characters, and reads digits and signs as letters where that gives a
    word of the training texts. The model's folder says how it reads, so that every use of it, and every attack, meets
    the whole pipeline.

    References:
        Unicode Standard Annex 15 (normal forms) and Technical Standard 39 (confusables).
        Boucher, Shumailov, Anderson and Papernot (2022), Bad Characters: Imperceptible NLP Attacks,
        https://arxiv.org/abs/2106.09898, which proposes it against its own attack.
        Pruthi, Dhingra and Lipton (2019), Combating Adversarial Misspellings with Robust Word Recognition,
        https://arxiv.org/abs/1905.11268, for correction in front of the model.

    Where we depart:
        There is no single source. Look-alikes are folded in words that are Latin otherwise, and in whole words only
        where the text is Latin, so that Russian or Greek stays what it is. The spelling correction is a look-up (one
        edit, most frequent word of the training texts), not a trained recogniser; it is off by default because it also
        changes rare words that are right. Printable ASCII is changed by leet and spelling alone; numbers, addresses,
        handles and hashtags by neither, words in capitals not by spelling.

    Relations:
        It answers `badchars` and `leet`, partly `deepwordbug` and `textbugger`, and no attack that uses real words: an
        attack that knows of it picks those. With `advaug` (base=normalise) the model also learns from what gets
        through. A gradient attack cannot pass a normaliser and is refused. With every step off it is `standard`.

    Example:
        ``isthmus train --data rotten_tomatoes --defence normalise -P spelling=true --out runs/normalised``
    """

    deploys = "reads"

    form: Form = "NFKC"
    """Unicode normal form: NFKC, NFC, or none."""
    deletion: Deletion = "obey"
    """Whether a deletion character takes back the character before it, is only taken out, or is kept."""
    invisible: bool = True
    """Take out characters without a shape and marks of writing direction."""
    confusables: bool = True
    """Write look-alikes of other scripts as the Latin letters they look like."""
    leet: bool = True
    """Read digits and signs as letters where that gives a known word."""
    spelling: bool = False
    """Replace unknown words by the known word that is one edit away."""
    vocabulary: int = 20_000
    """Maximum number of known words, the most frequent of the training texts."""
    min_count: int = 2
    """Minimum number of occurrences of a known word in the training texts."""

    def __post_init__(self) -> None:
        self._steps  # noqa: B018  # names of forms are checked where they are known
        at_least(self.name, "vocabulary", self.vocabulary, 1)
        at_least(self.name, "min_count", self.min_count, 1)

    @property
    def _steps(self) -> NormaliserSteps:
        return NormaliserSteps(**{step.name: getattr(self, step.name) for step in fields(NormaliserSteps)})

    @property
    def _is_off(self) -> bool:
        off = NormaliserSteps(
            form="none", deletion="keep", invisible=False, confusables=False, leet=False, spelling=False
        )
        return self._steps == off

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Collect the known words, and put the normaliser before the model."""
        from isthmus.data import Dataset
        from isthmus.inference.normalised import Normalised
        from isthmus.lexicon.normaliser import find_known_words

        if self._is_off:
            return
        if model.task.name != "classification" or not isinstance(data, Dataset):
            raise UsageError(
                f"{self.name} changes the texts of a classifier. It cannot be used where answers are positions in the "
                "text, or without texts"
            )
        words: tuple[str, ...] = ()
        if self.leet or self.spelling:
            texts = (text for texts in data.texts() for text in texts.values())
            words = find_known_words(texts, self._steps, most=self.vocabulary, min_count=self.min_count)
        chosen = {step.name: getattr(self, step.name) for step in fields(NormaliserSteps)}
        model.deployment = Normalised(**chosen, words=words)
