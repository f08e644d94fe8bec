"""SAFER: train on random synonyms, answer by random synonyms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from isthmus.core.errors import UsageError
from isthmus.core.seeds import numpy_stream
from isthmus.core.types import Example
from isthmus.defences.base import Defence, Labelled

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.data import Dataset
    from isthmus.lexicon.synonyms import SynonymTable
    from isthmus.models import Classifier


@dataclass(frozen=True)
class SAFER(Defence):
    """SAFER: read every text with its words drawn from sets of synonyms, in training and afterwards (Ye et al., 2020).

        loss = -log p(y | z),  z_i drawn from P(x_i), anew in every epoch
        answer(x) = argmax_c of the share of draws z with f(z) = c

    P(w), the perturbation set of w, holds the `most` words nearest to w in its connected component of the graph that
    links words whose vectors have a cosine of at least `similarity`, after the mean and the top principal components of
    the vectors were removed. The table of these sets is saved with the model; attacks that keep to it and the
    certificate `synonym` take it from there (``-P neighbours=RUN``).

    References:
        Ye, Gong, Liu: SAFER: A Structure-free Approach for Certified Robustness to Adversarial Word Substitutions.
        ACL 2020, https://aclanthology.org/2020.acl-main.317

    Where we depart:
        The counter-fitted vectors of the paper are used where the user has them and a named stand-in elsewhere. The
        paper draws synonyms batch by batch; here every epoch has its own draw of every text, written to
        `examples/<epoch>.jsonl`. `rate` below 1 leaves some words as they are. The deployed classifier lets `draws`
        draws vote, as the certificate assumes; the paper's tables use thousands.

    Relations:
        The certificate `synonym` proves what this trains for. `advaug` trains on adversarial texts instead of random
        ones, RSMI masks words and adds noise instead of replacing words.

    Example:
        ``isthmus train --data rotten_tomatoes --backbone minilm --defence safer --out runs/safer``
    """

    vectors: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file."""
    similarity: float = 0.8
    """Least cosine of synonyms."""
    most: int = 100
    """Words in a perturbation set."""
    components: int = 8
    """Principal components removed from the vectors."""
    table: str | None = None
    """A synonym table in place of the vectors: a .json file of words and their synonyms, or a run's folder."""
    one_way: Literal["symmetric", "refuse"] = "symmetric"
    """What becomes of links of the table that go one way only."""
    rate: float = 1.0
    """Chance that a word is drawn anew while training; 0 trains on the texts as they are."""
    draws: int = 15
    """Draws by which the trained classifier answers."""
    answer: Literal["vote", "mean"] = "vote"
    """Whether the draws vote or their probabilities are averaged."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise UsageError(f"rate is a chance between 0 and 1, not {self.rate}")
        if self.draws < 1:
            raise UsageError(f"the deployed classifier needs at least one draw, not {self.draws}")

    def synonyms(self) -> SynonymTable:
        """The table that training, deployment, attack and certificate share."""
        from isthmus.lexicon.synonym_graph import table_of_vectors
        from isthmus.lexicon.synonyms import SynonymTable, table_file

        if self.table is None:
            return table_of_vectors(
                self.vectors, similarity=self.similarity, most=self.most, components=self.components
            )
        file = table_file(self.table)
        if file is None:
            raise UsageError(f"no synonym table {self.table}: give a .json file, or a run trained with safer")
        return SynonymTable.read(file, most=self.most, one_way=self.one_way)

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Let the trained classifier answer by draws."""
        from isthmus.models.smoothing import SynonymSmoothing

        if model.task.name != "classification":
            raise UsageError(
                "safer draws synonyms of a text's words, which would move the answers of a question's context"
            )
        model.deployment = SynonymSmoothing(self.draws, self.answer, self.synonyms())

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | None:
        """Every text with its words drawn from their perturbation sets."""
        if self.rate == 0:
            return None
        from isthmus.models.synonym_draws import DrawnText

        table = self.synonyms()
        drawn = []
        for example in data:
            rng = numpy_stream(seed, "safer", epoch, example.id)
            text = DrawnText(example.texts, table)
            own = [text.sets[place].index(text.words[place]) for place in text.places]
            sizes = [len(text.sets[place]) for place in text.places]
            choice = [
                int(rng.integers(size)) if rng.random() < self.rate else stay
                for size, stay in zip(sizes, own, strict=True)
            ]
            drawn.append(replace(example, fields={**example.fields, **text.text(choice)}))
        return drawn

    @property
    def replaces_examples(self) -> bool:
        """Unless no word is drawn, when it is plain training to the last bit."""
        return self.rate > 0

    def deploy(self, model: Classifier) -> Classifier | Victim:
        """The classifier that lets draws vote."""
        return model if model.deployment is None else model.deployment.victim(model)
