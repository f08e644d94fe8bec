"""HardLabel: fool a victim that returns only a label (Maheshwary et al., 2021)."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.candidates import Candidates, Rule, find_allowed
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.speech import TaggerName, contextual_rules, tagger_used, word_tagger
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Floats
from isthmus.engine.requests import REPLACE, Edits, Request, Similarity
from isthmus.lexicon.stopwords import stop_words

WordRows = NDArray[np.int32]
"""Texts as word ids [texts, words]; all have the words of the original but for replacements."""
SynonymChoices = Mapping[int, NDArray[np.int32]]
"""Neighbours of the word at each position that has some."""

_MOST_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class HardLabel(WordAttack):
    """Find any text that changes the label, then make it as similar to the original as possible.

        start      replace the first 1, 2, … words of a random order by random neighbours until the label flips
        reduce     put original words back, the one that restores most similarity first, while the label stays flipped
        optimise   max over texts t with f(t) != y of  cos(u(t), u(x)):  a child takes each word from either of two
                   parents, drawn with probability softmax(cos); then one replaced word of it becomes the original
                   again, or else the most similar neighbour under which the label stays flipped

    Nothing of the scores is used but whether the goal is reached.

    References:
        Maheshwary, Maheshwary, Pudi: Generating Natural Language Attacks in a Hard Label Black Box Setting. AAAI 2021.

    Where we depart:
        After the growing start the authors try 2,500 texts with every word replaced; we try `tries`. They end when one
        replaced word is left, we still look for a better neighbour. They ask the victim about every neighbour, we ask
        about those that raise the similarity, the most similar first, and never twice about one text. Both queries and
        comparisons are limited; the search then ends with the best text so far. They keep the
        text with the fewest replaced words, we the most similar one, as the paper has it. Similarity is the cosine of
        the whole texts instead of a window around the word. Parts of speech come from WordNet by default.

    Relations:
        Every other attack follows the victim's scores and gets nowhere against one that gives only labels; against one
        that gives scores, TextFooler asks less. Genetic and PSO search with populations too.

    Example:
        ``isthmus attack runs/demo --attack hardlabel -P tries=1000``
    """

    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    most: int = 50
    """Maximum number of neighbours per word."""
    min_cosine: float = 0.5
    """Minimum cosine of two words' vectors."""
    part_of_speech: TaggerName = "wordnet"
    """Part-of-speech tagger that says which words may replace each other: wordnet, spacy, nltk, or none."""
    encoder: str = "minilm"
    """Sentence encoder."""
    tries: int = 250
    """Number of texts with every word replaced, tried if the growing start finds nothing."""
    population: int = 30
    """Number of texts in a generation."""
    generations: int = 100
    """Maximum number of generations."""
    patience: int = 15
    """Generations without a better text after which the search ends."""
    max_queries: int = 2000
    """Maximum queries of a text, after which the best text found so far is the result."""
    max_comparisons: int = 1000
    """Maximum texts that the sentence encoder compares with the original; most of the cost on a CPU."""

    def __post_init__(self) -> None:
        if self.population < 2:
            raise UsageError(f"a population holds at least 2 texts, not {self.population}")
        if self.tries < 0 or self.generations < 0 or self.patience < 1:
            raise UsageError("tries and generations can't be negative, and patience is at least 1")
        for name in ("max_queries", "max_comparisons"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    def resources(self) -> Mapping[str, str]:
        """Vectors, tagger and encoder."""
        return {
            "word vectors": self.near.neighbours.name,
            **tagger_used(self.part_of_speech),
            "sentence encoder": f"{self.encoder} (in place of the Universal Sentence Encoder)",
        }

    def rules(self) -> tuple[Rule, ...]:
        """The part of speech where it takes context."""
        return contextual_rules(self.part_of_speech)

    @cached_property
    def near(self) -> NearWords:
        """The neighbours that may be inserted."""
        return NearWords(self.neighbours, self.most, self.min_cosine, tagger=word_tagger(self.part_of_speech))

    def search(self, trial: Trial) -> Search:
        """Start, reduce, optimise."""
        choices = self._choices(trial)
        if not choices:
            return
        texts = _Texts(trial, self.max_queries, self.max_comparisons)
        with contextlib.suppress(_Spent):
            row = yield from self._start(texts, choices)
            if row is None:
                return
            texts.accept(row)
            row = yield from _reduce_changes(texts, row)
            yield from self._optimise(texts, row, choices)

    def _choices(self, trial: Trial) -> SynonymChoices:
        original, strings = trial.original, trial.vocabulary.strings
        self.near.prefetch(original)
        words = {position: int(original.ids[position]) for position in trial.positions(stop_words()).tolist()}
        found = {position: self.near.words(trial, word) for position, word in words.items() if len(strings[word]) > 2}
        return {position: near for position, near in found.items() if len(near)}

    # ------------------------------------------------------------------ any text that flips the label

    def _start(self, texts: _Texts, choices: SynonymChoices) -> Generator[Request, Any, WordRows | None]:
        rows = self._random_rows(texts, choices)
        size = 1
        while chunk := list(islice(rows, size)):
            flipped = yield from texts.find_flipped(np.stack(chunk))
            if flipped.any():
                return chunk[int(flipped.argmax())]
            size = min(2 * size, _MOST_AT_ONCE)
        return None

    def _random_rows(self, texts: _Texts, choices: SynonymChoices) -> Iterator[WordRows]:
        order, rng = list(choices), texts.trial.rng
        rng.shuffle(order)
        for count in chain(range(1, len(order) + 1), [len(order)] * self.tries):
            row = texts.original.copy()
            for position in order[:count]:
                row[position] = choices[position][int(rng.random() * len(choices[position]))]
            yield row

    # ------------------------------------------------------------------ the population

    def _optimise(self, texts: _Texts, start: WordRows, choices: SynonymChoices) -> Search:
        rng = np.random.default_rng(texts.trial.rng.getrandbits(63))
        best, idle = start, 0
        changed = np.flatnonzero(start != texts.original)
        people = yield from _mutate(texts, np.repeat(start[None], len(changed), axis=0), changed, choices)
        for _ in range(self.generations):
            people = _distinct_rows(np.concatenate([best[None], people]))
            similarity = yield from texts.similarity(people)
            leader = people[int(similarity.argmax())]
            idle = idle + 1 if (leader == best).all() else 0
            if idle >= self.patience:
                return
            if not idle:
                best = leader
                texts.accept(best)
            weight = np.exp(similarity - similarity.max())
            parents = rng.choice(len(people), (2, self.population - 1), p=weight / weight.sum())
            coins = rng.random((self.population - 1, len(best))) < 0.5
            children = _distinct_rows(np.where(coins, people[parents[0]], people[parents[1]]))
            flipped = yield from texts.find_flipped(children)
            children = children[flipped]
            at = np.array([rng.choice(np.flatnonzero(child != texts.original)) for child in children], np.int64)
            people = yield from _mutate(texts, children, at, choices)


def _reduce_changes(texts: _Texts, row: WordRows) -> Generator[Request, Any, WordRows]:
    """Original words back in, most similar first, for as long as some can go back."""
    while True:
        changed = np.flatnonzero(row != texts.original)
        backs = _with(np.repeat(row[None], len(changed), axis=0), changed, texts.original[changed])
        flipped = yield from texts.find_flipped(backs)
        if not flipped.any():
            return row
        similarity = yield from texts.similarity(backs[flipped])
        for position in changed[flipped][np.argsort(-similarity, kind="stable")].tolist():
            back = _with(row[None], np.array([position]), texts.original[[position]])
            if not (yield from texts.find_flipped(back))[0]:
                break
            row = back[0]
        texts.accept(row)


def _mutate(
    texts: _Texts, rows: WordRows, at: NDArray[np.int64], choices: SynonymChoices
) -> Generator[Request, Any, WordRows]:
    """Each row with the original word at its position, or else with a neighbour that is more similar."""
    if not len(rows):
        return rows
    backs = _with(rows, at, texts.original[at])
    restored = yield from texts.find_flipped(backs)
    rows = np.where(restored[:, None], backs, rows)
    pending = np.flatnonzero(~restored)
    options = [_with(np.repeat(rows[[row]], len(choices[int(at[row])]), axis=0), at[row], choices[int(at[row])])
               for row in pending]  # fmt: skip
    if not options:
        return rows
    own = yield from texts.similarity(rows[pending])
    similarity = yield from texts.similarity(np.concatenate(options))
    waiting: dict[int, WordRows] = {}
    for row, mine, option in zip(pending.tolist(), own, options, strict=True):
        theirs, similarity = similarity[: len(option)], similarity[len(option) :]
        order = np.argsort(-theirs, kind="stable")
        waiting[row] = option[order[theirs[order] > mine]]
    size = 1
    while waiting := {row: left for row, left in waiting.items() if len(left)}:
        asked = np.concatenate([left[:size] for left in waiting.values()])
        flipped = yield from texts.find_flipped(asked)
        first = 0
        for row, left in list(waiting.items()):
            own_flips = flipped[first : first + len(left[:size])]
            first += len(own_flips)
            waiting[row] = left[size:]
            if own_flips.any():
                rows[row] = left[int(own_flips.argmax())]
                del waiting[row]
        size = min(2 * size, _MOST_AT_ONCE)
    return rows


def _with(rows: WordRows, at: NDArray[np.int64] | int, words: WordRows) -> WordRows:
    """The rows, each with its word at its position."""
    changed = rows.copy()
    changed[np.arange(len(rows)), at] = words
    return changed


def _distinct_rows(rows: WordRows) -> WordRows:
    """Each row once, in the order in which they came: the words' numbers depend on what else is attacked."""
    return rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]


class _Spent(Exception):
    """The limit of queries or comparisons was reached."""


class _Texts:
    """The results of all texts so far, so that none is queried twice."""

    def __init__(self, trial: Trial, max_queries: int, max_comparisons: int) -> None:
        self.trial = trial
        self._queries_left, self._comparisons_left = max_queries, max_comparisons
        self.original = trial.original.ids
        self._scores: dict[bytes, Floats | None] = {self.original.tobytes(): None}  # None: the goal is not reached
        self._similarity: dict[bytes, float] = {}

    def accept(self, row: WordRows) -> None:
        """Move the trial to a text that reaches the goal."""
        scores = self._scores[row.tobytes()]
        assert scores is not None
        trial = self.trial
        trial.accept(self._candidates(row[None]).draft(0), scores, float(trial.judge(scores)))

    def find_flipped(self, rows: WordRows) -> Generator[Request, Any, Bools]:
        """Which texts satisfy the rules and reach the goal."""
        trial, known = self.trial, self._scores
        unknown = {key: row for row in rows if (key := row.tobytes()) not in known}
        if unknown:
            candidates = yield from find_allowed(trial, self._candidates(np.stack(list(unknown.values()))))
            known.update(dict.fromkeys(unknown))
            if candidates.count:
                self._queries_left -= candidates.count
                if self._queries_left < 0:
                    raise _Spent
                scores = yield candidates.score()
                reached = trial.goal.is_reached(scores, trial.label)
                for row, score, goal in zip(self._rows(candidates), scores, reached, strict=True):
                    known[row.tobytes()] = score if goal else None
        return np.array([known[row.tobytes()] is not None for row in rows], bool)

    def similarity(self, rows: WordRows) -> Generator[Request, Any, Floats]:
        """Cosine to the original: the mean over the fields, of which an untouched one counts 1."""
        known = self._similarity
        unknown = {key: row for row in rows if (key := row.tobytes()) not in known}
        if unknown:
            self._comparisons_left -= len(unknown)
            if self._comparisons_left < 0:
                raise _Spent
            found = yield from self._ask_similarities(np.stack(list(unknown.values())))
            known.update(zip(unknown, found.tolist(), strict=True))
        return np.array([known[row.tobytes()] for row in rows], np.float32)

    def _ask_similarities(self, rows: WordRows) -> Generator[Request, Any, Floats]:
        original, starts = self.trial.original, self.trial.original.structure.starts
        total = np.full(len(rows), len(starts) - 1, np.float32)
        for first, last in pairwise(starts):
            own = np.broadcast_to(self.original, rows.shape).copy()
            own[:, first:last] = rows[:, first:last]
            touched = (own != self.original).any(axis=1)
            if touched.any():
                candidates = self._candidates(own[touched])
                cosines = yield Similarity(original, candidates.edits, candidates.count)
                total[touched] += cosines - 1
        return np.asarray(total / (len(starts) - 1), np.float32)

    def _candidates(self, rows: WordRows) -> Candidates:
        index, position = np.nonzero(rows != self.original)
        edits: Edits = np.empty((len(index), 4), np.int32)
        edits[:, 0], edits[:, 1], edits[:, 2], edits[:, 3] = index, position, REPLACE, rows[index, position]
        return Candidates(self.trial.original, edits, len(rows))

    def _rows(self, candidates: Candidates) -> WordRows:
        rows = np.repeat(self.original[None], candidates.count, axis=0)
        rows[candidates.edits[:, 0], candidates.edits[:, 1]] = candidates.edits[:, 3]
        return rows
