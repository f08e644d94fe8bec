"""Classifies texts whose words are drawn from their perturbation sets.

A classifier that takes token ids reads rows that are spliced from the tokens of their words, each of which is tokenised
once; any other reads the draws written out. Equal draws are read once, unless the classifier itself draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from isthmus.core.errors import VictimError
from isthmus.core.types import Floats, Ints, Keys, Pending, Texts, TokenVictim, Victim
from isthmus.engine.assembly import Assembler
from isthmus.engine.packing import distinct, pack_rows
from isthmus.engine.requests import Edits, Score
from isthmus.engine.rows import join_ranges
from isthmus.inference.synonym_draws import DrawnText, choose_members
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.text.draft import REPLACE, Draft
from isthmus.text.vocabulary import Vocabulary

_MOST_WORDS = 1_000_000
"""Distinct words that are remembered."""
_MOST_CELLS = 1 << 20
"""Words times draws of the texts that are drawn at once."""


class DrawnTextReader(Protocol):
    """Computes the probabilities of drawn texts."""

    def scores(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Floats:
        """Probabilities of every draw, text after text [draws, classes]; `keys` has one per draw of a text."""

    def launch(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Pending:
        """Launch the same computation, without waiting for a GPU."""


def reader_of(base: Victim, table: SynonymTable) -> DrawnTextReader:
    """Choose the fastest reader for a classifier."""
    return ReadsRows(base, table) if isinstance(base, TokenVictim) else ReadsTexts(base, table)


class ReadsTexts:
    """Reads drawn texts by a victim that takes texts."""

    def __init__(self, victim: Victim, table: SynonymTable) -> None:
        self.victim, self.table = victim, table

    def launch(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Pending:
        """Compute at once; there is nothing to wait for."""
        found = self.scores(texts, keys)
        return lambda: found

    def scores(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Floats:
        """Write every draw as a text and score it."""
        read: list[dict[str, str]] = []
        for text, own in zip(texts, keys, strict=True):
            drawn = DrawnText(text, self.table)
            read += [drawn.text(choice) for choice in drawn.choices(own).tolist()]
        if self.victim.stochastic:
            return self.victim.scores(read, np.concatenate(keys))
        number = {values: place for place, values in enumerate(dict.fromkeys(tuple(one.values()) for one in read))}
        distinct_texts = [dict(zip(read[0], values, strict=True)) for values in number]
        return self.victim.scores(distinct_texts)[[number[tuple(one.values())] for one in read]]


class _Sets:
    """The perturbation sets of the words of a vocabulary, as arrays by the number of the word."""

    def __init__(self, table: SynonymTable, vocabulary: Vocabulary) -> None:
        self.table, self.vocabulary = table, vocabulary
        self.sizes = np.full(4096, -1, np.int64)  # members of each word's set; -1: not looked up yet
        self.starts = np.zeros(4096, np.int64)  # where they begin in `members`
        self.members = np.zeros(0, np.int64)

    def look_up(self, words: Ints) -> None:
        """Look up the sets of words that are new."""
        while len(self.sizes) < len(self.vocabulary):
            self.sizes = np.concatenate([self.sizes, np.full(len(self.sizes), -1)])
            self.starts = np.concatenate([self.starts, np.zeros(len(self.starts), np.int64)])
        new = np.unique(words[self.sizes[words] < 0])
        if not len(new):
            return
        found = [self.table.draws(self.vocabulary.strings[word]) for word in new.tolist()]
        sizes = np.fromiter(map(len, found), np.int64, len(found))
        self.sizes[new], self.starts[new] = sizes, len(self.members) + np.cumsum(sizes) - sizes
        own = [self.vocabulary.ids(members) for members in found]
        self.members = np.concatenate([self.members, *own], dtype=np.int64)

    def draw(self, drafts: Sequence[Draft], keys: Sequence[Keys]) -> list[Score]:
        """The draws of every text as edits, one draw for each of its keys."""
        ids = np.concatenate([draft.ids for draft in drafts], dtype=np.int64)
        self.look_up(ids)
        words, draws = (np.fromiter(map(len, each), np.int64, len(drafts)) for each in (drafts, keys))
        places = np.flatnonzero(self.sizes[ids] > 1)  # with a choice, counted over all texts
        text = np.repeat(np.arange(len(drafts)), words)[places]
        ids, place = ids[places], places - (np.cumsum(words) - words)[text]
        counts = np.bincount(text, minlength=len(drafts))
        # A cell for each draw and place: text after text, draw after draw, from left to right.
        of_draw = np.repeat(np.arange(len(drafts)), draws)
        cell = join_ranges((np.cumsum(counts) - counts)[of_draw], counts[of_draw])
        draw = np.repeat(np.arange(len(of_draw)), counts[of_draw])
        choice = choose_members(place[cell], self.sizes[ids[cell]], np.concatenate(keys)[draw])
        word = self.members[self.starts[ids[cell]] + choice]
        changed = np.flatnonzero(word != ids[cell])  # A word that stays is no edit.
        first = np.cumsum(draws) - draws
        owner = of_draw[draw[changed]]
        edits: Edits = np.empty((len(changed), 4), np.int32)
        edits[:, 0], edits[:, 1] = draw[changed] - first[owner], place[cell[changed]]
        edits[:, 2], edits[:, 3] = REPLACE, word[changed]
        ends = np.searchsorted(owner, np.arange(len(drafts)), side="right").tolist()
        return [
            Score(draft, edits[start:end], len(own))
            for draft, own, start, end in zip(drafts, keys, [0, *ends], ends, strict=False)
        ]


class ReadsRows:
    """Reads drawn texts by a victim that takes token ids."""

    def __init__(self, victim: TokenVictim, table: SynonymTable) -> None:
        self.victim, self.table = victim, table
        self._forget()

    def _forget(self) -> None:
        self.vocabulary = Vocabulary()
        self.assembler = Assembler(self.victim.tokenizer, self.vocabulary, self.victim.max_tokens)
        self._sets = _Sets(self.table, self.vocabulary)

    def scores(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Floats:
        """Score every draw as a row of tokens."""
        return self.launch(texts, keys)()

    def launch(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Pending:
        """Launch the scoring; the rows are on their way to the device when this returns."""
        if len(self.vocabulary) > _MOST_WORDS:
            self._forget()
        victim, streams = self.victim, np.concatenate(keys)
        try:
            rows = self.assembler.rows(list(self._draws(texts, keys)))
        except (TypeError, UnicodeError, ValueError) as error:
            self._forget()  # The word that cannot be read, too: the next text would meet it again.
            raise VictimError(f"the tokenizer cannot read one of {len(texts)} texts: {error}") from error
        if victim.stochastic:
            read, own = np.arange(len(rows)), np.arange(len(rows))
        else:  # Equal draws are read once.
            read, own = distinct(self.assembler.row_keys(rows))
        pad, on_gpu = victim.tokenizer.pad_token_id or 0, victim.device_type != "cpu"
        half = getattr(victim, "precision", "fp32") != "fp32"
        own_streams = streams if victim.stochastic else None
        work = pack_rows(rows, read, on_gpu=on_gpu, pad=pad, streams=own_streams, half=half)
        wait, places = victim.launch(work.batches), work.places
        return lambda: np.asarray(wait()[places][own])

    def _draws(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Iterator[Score]:
        """The draws of the texts as edits, as many texts at a time as memory allows."""
        drafts = [Draft.of(text, self.vocabulary) for text in texts]
        start = cells = 0
        for stop, (draft, own) in enumerate(zip(drafts, keys, strict=True)):
            cells += len(draft) * len(own)
            if cells > _MOST_CELLS and stop > start:
                yield from self._sets.draw(drafts[start:stop], keys[start:stop])
                start, cells = stop, len(draft) * len(own)
        if drafts:
            yield from self._sets.draw(drafts[start:], keys[start:])
