"""PSO: particle swarm over words with the same sememes (Zang et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.members import Substitutes, most_per_word
from isthmus.attacks.parts.neighbours import in_case_of
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.swarm import Flight, Swarm
from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Int32
from isthmus.lexicon.sememes import load_sememes
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.words import Words


@dataclass(frozen=True, kw_only=True)
class PSO(WordAttack):
    """Move texts word by word towards the best ones found, with mutation, each word replaced at most once.

        v_d    <- w v_d + (1 - w) (I(x_d, own best_d) + I(x_d, best of all_d)),   I = -v_max if equal, +v_max if not
        turn    to its own best with a probability that falls from .8 to .2, to the best of all with one that rises;
                every word then becomes the best's with probability
                    1 - sigmoid(v_d)  (textattack),   sigmoid(v_d)  (paper)
        mutate  with probability 1 - 2 (words changed / words): one of the words' best swaps, p ∝ what it gains

    w, the inertia, falls from .8 to .2. A word may become any that has the same sememes in one of its senses.

    References:
        Zang, Qi, Yang, Liu, Zhang, Liu, Sun: Word-level Textual Adversarial Attacking as Combinatorial Optimization.
        ACL 2020.

    Where we depart:
        Substitutes are of any part of speech: the table has none, where the authors' has. The authors lemmatise; words
        are looked up as they stand, as TextAttack does. Without HowNet a WordNet substitute for sememes is used, and
        named in the results.
        TextAttack's turn starts at the best and takes over the particle's words with probability sigmoid(v), which is
        the reverse of the authors' code; `textattack` follows it. I has the signs of that code, not the paper's.
        In `paper` any particle that reaches the goal ends the search, in `textattack` only the one with the best score;
        with two classes that is the same. Queries are counted as TextAttack does, repeated texts included.

    Relations:
        Genetic and IGA breed texts instead, with neighbours by word vectors. Greedy searches (PWWS, TextFooler) need
        far fewer queries.

    Example:
        ``isthmus attack runs/demo --attack pso -P sememes=hownet_en.json.gz``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's, or the authors'."""
    particles: int = 60
    """Number of particles; each is a text."""
    iterations: int = 20
    """Number of moves of the swarm."""
    max_velocity: float = 3.0
    """Largest velocity; sigmoid(3) = .95 is the largest probability that a word moves."""
    sememes: str = "wordnet"
    """Table of sememes, JSON {word: [[sememe, ...], ...]} (.gz); or wordnet, a substitute for it."""

    def __post_init__(self) -> None:
        self._flight()

    def resources(self) -> Mapping[str, str]:
        """The source of substitutes."""
        return {"sememes": load_sememes(self.sememes).name}

    def search(self, trial: Trial) -> Search:
        """Look up the substitutes of every word, and run the swarm."""
        most = most_per_word(trial)
        original = trial.original
        found = {at: self.swaps(trial, int(original.ids[at]))[:most] for at in trial.positions(stop_words()).tolist()}
        substitutes = Substitutes(original.ids, found)
        if len(substitutes):
            yield from Swarm(trial, self._flight(), substitutes).search()

    def swaps(self, trial: Trial, word: int) -> Int32:
        """Substitutes of a word, in its own case, both as vocabulary ids."""
        known = trial.vocabulary.memory.setdefault(("sememes", self.sememes), {})
        found: Int32 | None = known.get(word)
        if found is None:
            string = trial.vocabulary.strings[word]
            words = (in_case_of(string, new) for new in load_sememes(self.sememes).substitutes(string.lower()))
            one = [new for new in dict.fromkeys(words) if new != string and Words.of(new).words == (new,)]
            found = known[word] = trial.vocabulary.ids(one)
        return found

    def _flight(self) -> Flight:
        paper = self.semantics == "paper"
        return Flight(
            particles=self.particles,
            iterations=self.iterations,
            max_velocity=self.max_velocity,
            towards=paper,
            anyone=paper,
        )
