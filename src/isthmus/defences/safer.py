"""SAFER: train on random synonyms, predict by a vote over random synonyms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from isthmus.core.errors import UsageError
from isthmus.defences.base import Labelled
from isthmus.defences.parts.synonyms import SynonymDraws

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class SAFER(SynonymDraws):
    """SAFER: replace words by random synonyms, in training and at inference (Ye et al., 2020).

        loss = -log p(y | z),  z_i drawn from P(x_i), again in every epoch
        answer(x) = argmax_c of the share of draws z with f(z) = c

    P(w), the perturbation set of w, holds the `most` words nearest to w in its connected component of the graph that
    links words whose vectors have a cosine of at least `similarity`, after the mean and the top principal components of
    the vectors were removed. The table of these sets is saved with the model; attacks that keep to it and the
    certificate `synonym` take it from there (``-P neighbours=RUN``).

    Its price in accuracy at the defaults: 5.4 points (2.0 to 8.8) on Rotten Tomatoes (MiniLM, three seeds, 1,064 test
    texts; docs/results/defaults.md), with a stand-in for the published word vectors.

    References:
        Ye, Gong, Liu: SAFER: A Structure-free Approach for Certified Robustness to Adversarial Word Substitutions.
        ACL 2020, https://aclanthology.org/2020.acl-main.317

    Where we depart:
        The counter-fitted vectors of the paper are used where the user has them and a named stand-in elsewhere. The
        paper draws synonyms batch by batch; here every epoch has its own draw of every text, written to
        `examples/<epoch>.jsonl`. `rate` below 1 leaves some words as they are. The deployed classifier lets `draws`
        draws vote, as the certificate assumes; the paper's tables use thousands.

    Relations:
        The certificate `synonym` proves what this trains for. `random_substitution` trains alike and answers by one
        pass. `advaug` trains on adversarial texts instead of random ones, RSMI masks words and adds noise instead of
        replacing words.

    Example:
        ``isthmus train --data rotten_tomatoes --backbone minilm --defence safer --out runs/safer``
    """

    deploys = "answers"

    draws: int = 15
    """Number of draws of the trained classifier."""
    answer: Literal["vote", "mean"] = "vote"
    """Whether the draws vote or their probabilities are averaged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws < 1:
            raise UsageError(f"the deployed classifier needs at least one draw, not {self.draws}")

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Let the trained classifier predict by several draws."""
        from isthmus.inference.smoothing import SynonymSmoothing

        super().prepare(model, data)
        model.deployment = SynonymSmoothing(self.draws, self.answer, self.synonyms())
