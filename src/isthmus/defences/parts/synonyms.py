"""Training texts with words drawn from sets of synonyms: shared by `safer` and `random_substitution`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from isthmus.core.errors import UsageError
from isthmus.core.seeds import numpy_stream
from isthmus.core.types import Example
from isthmus.defences.base import Defence, Labelled
from isthmus.defences.parts.attacked_examples import MADE_FROM, REPLACED

if TYPE_CHECKING:
    from isthmus.data import Dataset
    from isthmus.lexicon.synonyms import SynonymTable
    from isthmus.models import Classifier


@dataclass(frozen=True)
class SynonymDraws(Defence):
    """The settings of sets of synonyms, and of drawing from them."""

    exclusive = "draws synonyms of the training texts"

    vectors: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file."""
    similarity: float = 0.8
    """Minimum cosine of synonyms."""
    most: int = 100
    """Words in a perturbation set."""
    components: int = 8
    """Principal components removed from the vectors."""
    table: str | None = None
    """A synonym table in place of the vectors: a .json file of words and their synonyms, or a run's folder."""
    one_way: Literal["symmetric", "refuse"] = "symmetric"
    """What to do with one-way links of the table."""
    rate: float = 1.0
    """Probability that a word is drawn again in training; 0 trains on the original texts."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise UsageError(f"rate is a chance between 0 and 1, not {self.rate}")

    def synonyms(self) -> SynonymTable:
        """The table of synonyms."""
        from isthmus.lexicon.by_name import table_file
        from isthmus.lexicon.synonym_graph import table_of_vectors
        from isthmus.lexicon.synonyms import SynonymTable

        if self.table is None:
            return table_of_vectors(
                self.vectors, similarity=self.similarity, most=self.most, components=self.components
            )
        file = table_file(self.table)
        if file is None:
            raise UsageError(f"no synonym table {self.table}: give a .json file, or a run trained with safer")
        return SynonymTable.read(file, most=self.most, one_way=self.one_way)

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Refuse models that do not classify texts."""
        if model.task.name != "classification":
            raise UsageError(
                f"{self.name} draws synonyms of a text's words, which would move the answers of a question's context"
            )

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | None:
        """Every training text with its words drawn from their perturbation sets."""
        if self.rate == 0:
            return None
        from isthmus.inference.synonym_draws import DrawnText

        table = self.synonyms()
        drawn = []
        # A front end of the model stands before the draws, here as in use.
        texts = [_read_fields(example) for example in data]
        read = texts if model.deployment is None else model.deployment.read(texts)
        for place, example in enumerate(data):
            rng = numpy_stream(seed, self.name, epoch, example.id)
            text = DrawnText(read[place], table)
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
        """True, unless no word is drawn; then it equals plain training bit for bit."""
        return self.rate > 0


def _read_fields(example: Example) -> dict[str, str]:
    """The texts of an example without the notes that an attack added."""
    return {name: text for name, text in example.texts.items() if name not in (MADE_FROM, REPLACED)}
