"""Classifies texts whose words are drawn from their perturbation sets.

A classifier that takes token ids reads rows that are spliced from the tokens of their words, each of which is tokenised
once; any other reads the draws written out. Equal draws are read once, unless the classifier itself draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from isthmus.core.errors import VictimError
from isthmus.core.types import Floats, Ints, Keys, Pending, Texts, TokenVictim, Victim
from isthmus.engine.assembly import Assembler
from isthmus.engine.packing import distinct, pack_rows
from isthmus.engine.requests import Edits, Score
from isthmus.inference.synonym_draws import DrawnText, choose_members
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.text.draft import REPLACE, Draft
from isthmus.text.vocabulary import Vocabulary

_MOST_WORDS = 1_000_000
"""Distinct words that are remembered."""


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


class _Sets(NamedTuple):
    """The words of a text that have a choice, and the ids of their sets."""

    places: Ints  # [places]
    sizes: Ints  # [places]
    words: Ints  # the sets one after the other
    starts: Ints  # [places] where each begins


class ReadsRows:
    """Reads drawn texts by a victim that takes token ids."""

    def __init__(self, victim: TokenVictim, table: SynonymTable) -> None:
        self.victim, self.table = victim, table
        self._forget()

    def _forget(self) -> None:
        self.vocabulary = Vocabulary()
        self.assembler = Assembler(self.victim.tokenizer, self.vocabulary, self.victim.max_tokens)
        self._sets: dict[int, Ints | None] = {}

    def scores(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Floats:
        """Score every draw as a row of tokens."""
        return self.launch(texts, keys)()

    def launch(self, texts: Sequence[Texts], keys: Sequence[Keys]) -> Pending:
        """Launch the scoring; the rows are on their way to the device when this returns."""
        if len(self.vocabulary) > _MOST_WORDS:
            self._forget()
        victim, streams = self.victim, np.concatenate(keys)
        try:
            rows = self.assembler.rows([self._draw(text, own) for text, own in zip(texts, keys, strict=True)])
        except (TypeError, UnicodeError, ValueError) as error:
            raise VictimError(f"the tokenizer cannot read one of {len(texts)} texts: {error}") from error
        if victim.stochastic:
            read, own = np.arange(len(rows)), np.arange(len(rows))
        else:  # Equal draws are read once.
            read, own = distinct(self.assembler.row_keys(rows))
        pad, on_gpu = victim.tokenizer.pad_token_id or 0, victim.device_type != "cpu"
        work = pack_rows(rows, read, on_gpu=on_gpu, pad=pad, streams=streams if victim.stochastic else None)
        wait, places = victim.launch(work.batches), work.places
        return lambda: np.asarray(wait()[places][own])

    def _draw(self, text: Texts, keys: Keys) -> Score:
        """The draws of one text, as edits."""
        draft = Draft.of(text, self.vocabulary)
        sets = self._sets_of(draft)
        if not len(sets.places):
            return Score(draft, count=len(keys))
        # The sets lie one after the other in `words`; from each place one member for every draw [draws, places].
        words = sets.words[sets.starts + choose_members(sets.places, sets.sizes, keys)]
        draw, place = np.nonzero(words != draft.ids[sets.places])  # a word that stays is no edit
        edits: Edits = np.empty((len(draw), 4), np.int32)
        edits[:, 0], edits[:, 1], edits[:, 2], edits[:, 3] = draw, sets.places[place], REPLACE, words[draw, place]
        return Score(draft, edits, len(keys))

    def _sets_of(self, draft: Draft) -> _Sets:
        known, own = self._sets, list[tuple[int, Ints]]()
        for place, word in enumerate(draft.ids.tolist()):
            if word not in known:
                members = self.table.draws(self.vocabulary.strings[word])
                known[word] = self.vocabulary.ids(members).astype(np.int64) if len(members) > 1 else None
            members_ids = known[word]
            if members_ids is not None:
                own.append((place, members_ids))
        places = np.array([place for place, _ in own], np.int64)
        sizes = np.array([len(members) for _, members in own], np.int64)
        words = np.concatenate([members for _, members in own]) if own else np.zeros(0, np.int64)
        return _Sets(places, sizes, words, np.cumsum(sizes) - sizes)  # the last: where each set begins
