"""The auxiliary models of an attack: a sentence encoder and a masked language model.

Each is known by name, loaded when the first attack needs it, and shared by all attacks of a command.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isthmus.verbs.observer import Observer

if TYPE_CHECKING:
    from isthmus.attacks.base import WordAttack
    from isthmus.attacks.parts.limits import Limits
    from isthmus.core.types import MaskedLM, SentenceEncoder


@dataclass(frozen=True)
class Names:
    """Names of the auxiliary models of an attack; None if it needs none."""

    encoder: str | None = None
    masked_lm: str | None = None

    def within(self, limits: Limits) -> Limits:
        """The limits with the attack's own models, so that no second one is loaded for them."""
        given = {key: name for key, name in dataclasses.asdict(self).items() if name is not None}
        return dataclasses.replace(limits, **given)


def names_of(attack: WordAttack, limits: Limits, encoder: str | None) -> Names:
    """Names of the models of an attack with its limits; `encoder` measures similarity if neither needs another."""
    own: dict[str, Any] = {key: getattr(attack, key, None) for key in ("encoder", "masked_lm")}
    return Names(
        own["encoder"] or encoder or (limits.encoder if limits.similarity is not None else None),
        own["masked_lm"] or (limits.masked_lm if limits.max_drop is not None else None),
    )


@dataclass
class Companions:
    """Loads auxiliary models by name, on one device."""

    device: str | None
    observer: Observer
    _encoders: dict[str, SentenceEncoder] = field(default_factory=dict)
    _masked_lms: dict[str, MaskedLM] = field(default_factory=dict)

    def of(self, names: Names) -> dict[str, Any]:
        """Load the models of these names, as keyword arguments of an attack."""
        return {
            "encoder": None if names.encoder is None else self.encoder(names.encoder),
            "masked_lm": None if names.masked_lm is None else self.masked_lm(names.masked_lm),
        }

    def encoder(self, name: str) -> SentenceEncoder:
        """The sentence encoder of that name."""
        if name not in self._encoders:
            self.observer.note(f"loading the sentence encoder {name}")
            from isthmus.auxiliary import TransformerSentenceEncoder, load_encoder

            on = self.device
            self._encoders[name] = load_encoder(name) if on is None else TransformerSentenceEncoder(name, device=on)
        return self._encoders[name]

    def masked_lm(self, name: str) -> MaskedLM:
        """The masked language model of that name."""
        if name not in self._masked_lms:
            self.observer.note(f"loading the masked language model {name}")
            from isthmus.auxiliary import TransformerMaskedLM, load_masked_lm

            on = self.device
            self._masked_lms[name] = load_masked_lm(name) if on is None else TransformerMaskedLM(name, device=on)
        return self._masked_lms[name]
