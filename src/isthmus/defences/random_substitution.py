"""Random substitution: train on texts in which some words are random synonyms."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.defences.parts.synonyms import SynonymDraws


@dataclass(frozen=True)
class RandomSubstitution(SynonymDraws):
    """Random substitution: in every epoch some words are replaced by random synonyms (Wei and Zou, 2019).

        loss = -log p(y | z),     z_i drawn from P(x_i) with chance `rate`, else x_i, again in every epoch

    P(w) are the synonyms of w, w among them, as `safer` has them. The trained model answers by one pass on the text as
    it is. The baseline that a defence against substitution of words has to beat: it costs nothing and knows no attack.

    References:
        Wei and Zou (2019), EDA: Easy Data Augmentation Techniques for Boosting Performance on Text Classification
        Tasks, https://aclanthology.org/D19-1670, whose first operation it is.

    Where we depart:
        Synonyms come from word vectors instead of WordNet, texts are drawn again in every epoch instead of once, and
        they take the place of the originals instead of standing beside them. EDA replaces a tenth of the words, once.

    Relations:
        `safer` draws every word and also answers by draws, which can be certified. `advaug` trains on the worst
        substitutes an attack finds. With rate = 0 it is `standard`.

    Example:
        ``isthmus train --data rotten_tomatoes --defence random_substitution -P rate=0.5``
    """

    rate: float = 0.25
    """Probability that a word is drawn again in training; 0 trains on the original texts."""
