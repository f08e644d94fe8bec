"""Whatever can be attacked, behind the `Victim` protocol."""

from isthmus.models.victims.classifier import ClassifierVictim

__all__ = ["ClassifierVictim"]
