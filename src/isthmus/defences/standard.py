"""Plain fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.defences.base import Defence


@dataclass(frozen=True)
class Standard(Defence):
    """Plain fine-tuning: the baseline of every defence.

        loss = -log p(y | x)

    References:
        Devlin, Chang, Lee and Toutanova (2019), BERT: Pre-training of Deep Bidirectional Transformers for Language
        Understanding, https://aclanthology.org/N19-1423

    Where we depart:
        Nowhere; batch size, learning rate and schedule are settings of the training, not of the defence.

    Relations:
        Every other defence with its strength at zero gives the same weights to the last bit.

    Example:
        ``train(load_data("rotten_tomatoes"), backbone="minilm", defence=defences.Standard())``
    """

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True
