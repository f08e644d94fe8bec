"""CLARE: replace, insert and merge words as a masked language model would (Li et al., 2021)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.blanks import join_edits, propose_fills, writing
from isthmus.attacks.parts.candidates import Candidates, Rule, find_allowed
from isthmus.attacks.parts.merging import mergeable
from isthmus.attacks.parts.rules import SentenceMeaning
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.speech import TaggerName, tagger_used
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Int32
from isthmus.engine.requests import INSERT, MERGE, REPLACE, Edits, Request
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.draft import Draft, Structure


@dataclass(frozen=True, kw_only=True)
class CLARE(WordAttack):
    """Mask a word, a gap or a pair of words, let a masked language model fill the blank, and keep what hurts most.

        replace(i)  candidates = { w :  p(w | … x_{i-1} [blank] x_{i+1} …) >= 5e-4 }
        insert(i)   candidates = { w :  p(w | … x_{i-1} [blank] x_i …) >= 0 }           (paper: behind x_i)
        merge(i)    candidates = { w :  p(w | … x_{i-1} [blank] x_{i+2} …) >= 5e-3 }

    at most 50 each, whose 15 words around the edit keep a cosine of 0.7 to the original. `textattack` looks at every
    candidate of every place, takes the one with the least p(y), and begins again with the new text until the label
    flips. `paper` looks once: of each place it keeps the best action on the original text, and carries these out one
    after the other, the best first.

    References:
        Li, Zhang, Peng, Chen, Brockett, Sun, Dolan: Contextualized Perturbation for Textual Adversarial Attack. NAACL
        2021.

    Where we depart:
        `textattack` follows TextAttack 0.3.11, with what comes of how it is written. Stop words are left alone by
        replacements only. A word once edited is left alone by replacements and insertions, also the word behind an
        insertion, but not by merges. Nothing is inserted before the first word, nothing merged into the first or the
        last: TextAttack cuts the mask off there. Pieces of words count as words; tokens that are more than a word
        (``[unused3]``) are never put in. It asks Flair for the tags by which words are merged; part_of_speech=nltk is
        NLTK's tagger, the default asks WordNet what the words can be, which is laxer. Before every eighth word
        TextAttack compares a window that lies one word further right (the order of a Python set); we do not. The
        language model reads 128 tokens around the blank, and in a pair only the text of the blank.
        `paper` is the paper's Algorithm 1 with whole words. Replacements leave stop words alone, nothing is inserted
        behind the last word, and an action is left out if one before it changed its words. Rules are asked again
        when an action is carried out. The paper's limit of actions has no number there: by default there is none.
        The models `minilm` stand in for DistilRoBERTa and the Universal Sentence Encoder.

    Relations:
        BAE replaces and inserts word by word in the order of importance; BERT-Attack proposes without a blank.

    Example:
        ``isthmus attack runs/demo --attack clare -P part_of_speech=nltk``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's, or the paper's."""
    most: int = 50
    """Maximum number of candidates for a blank."""
    replace_confidence: float = 5e-4
    """Minimum probability of a word that replaces another."""
    insert_confidence: float = 0.0
    """Minimum probability of an inserted word."""
    merge_confidence: float = 5e-3
    """Minimum probability of a word that replaces two."""
    max_actions: int | None = None
    """Maximum number of actions, in `paper` semantics."""
    part_of_speech: TaggerName = "wordnet"
    """Part-of-speech tagger that says which words may merge: wordnet, spacy, nltk, or none (any two)."""
    similarity: float = 0.7
    """Minimum cosine of the sentences."""
    window: int | None = 15
    """Words around the edit that are compared; None: the whole text."""
    encoder: str = "minilm"
    """Sentence encoder."""
    masked_lm: str = "minilm"
    """Masked language model."""

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UsageError(f"at least one candidate for a blank is needed, not {self.most}")
        if self.max_actions is not None and self.max_actions < 1:
            raise UsageError(f"at least one action is needed, not {self.max_actions}")

    def resources(self) -> Mapping[str, str]:
        """Language model, tagger and encoder."""
        return {
            "masked language model": f"{self.masked_lm} (in place of distilroberta-base)",
            **tagger_used(self.part_of_speech),
            "sentence encoder": f"{self.encoder} (in place of the Universal Sentence Encoder)",
        }

    def rules(self) -> tuple[Rule, ...]:
        """The meaning of the sentence."""
        return (SentenceMeaning(self.similarity, "cosine", self.window),)

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return () if self.semantics == "textattack" else ("premise",)

    def search(self, trial: Trial) -> Search:
        """Apply the best of all actions repeatedly; or all actions once, the best first."""
        if self.semantics == "paper":
            yield from self._once(trial)
        else:
            yield from self._again_and_again(trial)

    def _again_and_again(self, trial: Trial) -> Search:
        edited = np.zeros(len(trial.draft), bool)
        while True:
            edits = yield from self._actions(trial, edited)
            candidates = yield from find_allowed(trial, Candidates(trial.draft, edits))
            if not candidates.count:
                return
            scores = yield candidates.score()
            progress = trial.judge(scores)
            best = int(progress.argmax())
            edited = _after(edited, *candidates.edits_of(best)[0])
            if trial.accept(candidates.draft(best), scores[best], float(progress[best])):
                return

    def _once(self, trial: Trial) -> Search:
        edits = yield from self._actions(trial, np.zeros(len(trial.draft), bool))
        candidates = yield from find_allowed(trial, Candidates(trial.draft, edits))
        if not candidates.count:
            return
        progress = trial.judge((yield candidates.score()))
        for position, span, word in _best_of_each(candidates, progress)[: self.max_actions]:
            place = _place(trial, position, span)
            if place is None:
                continue
            candidates = yield from find_allowed(trial, Candidates(trial.draft, writing(*_make_one(place, word), span)))
            if not candidates.count:
                continue
            scores = yield candidates.score()
            if trial.accept(candidates.draft(0), scores[0], float(trial.judge(scores)[0])):
                return

    def _actions(self, trial: Trial, edited: Bools) -> Generator[Request, Any, Edits]:
        """Every candidate of every place."""
        draft, paper = trial.draft, self.semantics == "paper"
        replace = trial.positions(stop_words())
        replace = replace[~edited[replace]]
        insert, merge = _gaps(draft, edited, behind=paper), self._pairs(draft)
        inside = draft if paper else _from_first_word_to_last(draft)
        if not paper:
            insert, merge = insert[insert > 0], merge[(merge > 0) & (merge < len(draft) - 2)]
        strip = not paper
        replaced = yield from propose_fills(
            draft, replace, most=self.most, min_confidence=self.replace_confidence, strip=strip
        )
        inserted = yield from propose_fills(
            inside, insert, span=INSERT, most=self.most, min_confidence=self.insert_confidence, strip=strip
        )
        merged = yield from propose_fills(
            inside, merge, span=MERGE, most=self.most, min_confidence=self.merge_confidence, strip=strip
        )
        return join_edits(replaced, inserted, merged)

    def _pairs(self, draft: Draft) -> Int32:
        """Words that may be merged with the next one."""
        if len(draft) < 2:
            return np.zeros(0, np.int32)
        fits = mergeable(draft.words, self.part_of_speech) & draft.editable[:-1] & draft.editable[1:]
        fits[[start - 1 for start in draft.structure.starts[1:-1] if 0 < start < len(draft)]] = False
        return np.flatnonzero(fits).astype(np.int32)


def _gaps(draft: Draft, edited: Bools, *, behind: bool) -> Int32:
    """Places before which a word may be put: before a free word, or behind one that has another behind it."""
    free = draft.editable & ~edited
    if not behind:
        return np.flatnonzero(free).astype(np.int32)
    places = np.flatnonzero(free) + 1
    return places[~np.isin(places, draft.structure.starts)].astype(np.int32)


def _after(edited: Bools, position: int, span: int, word: int) -> Bools:
    """Which words were edited, after one more edit."""
    del word
    if span == INSERT:
        edited = np.insert(edited, position, True)
        edited[position + 1] = True
    elif span == MERGE:
        edited = np.delete(edited, position + 1)
        edited[position] = True
    else:
        edited = edited.copy()
        edited[position] = True
    return edited


def _from_first_word_to_last(draft: Draft) -> Draft:
    """The text without what stands before its first word and behind its last."""
    old = draft.structure
    gaps = tuple(("", *own[1:-1], "") if len(own) > 1 else own for own in old.gaps)
    return Draft(Structure(old.vocabulary, old.fields, gaps, old.starts), draft.ids, draft.origin, draft.editable)


def _best_of_each(candidates: Candidates, progress: NDArray[np.float32]) -> list[tuple[int, int, int]]:
    """The best action (position, span, word) of each place, the best of all first."""
    edits = candidates.edits
    owner = edits[:, 1] - (edits[:, 2] == INSERT)
    order = np.lexsort((-progress, owner))
    best = order[np.unique(owner[order], return_index=True)[1]]
    best = best[np.argsort(-progress[best], kind="stable")]
    return list(zip(owner[best].tolist(), edits[best, 2].tolist(), edits[best, 3].tolist(), strict=True))


def _place(trial: Trial, position: int, span: int) -> int | None:
    """The position in the current text of an action found on the original; None if its words are gone."""
    place = trial.place(position)
    if place is None:
        return None
    changed = trial.find_changed(trial.draft)
    if span == INSERT:
        return place + 1
    if changed[place]:
        return None
    if span == REPLACE:
        return place
    next_one = trial.place(position + 1)
    return place if next_one == place + 1 and not changed[next_one] else None


def _make_one(place: int, word: int) -> tuple[Int32, Int32]:
    return np.array([place], np.int32), np.array([word], np.int32)
