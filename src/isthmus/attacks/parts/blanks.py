"""Proposals of a masked language model for a blank, as edits.

A blank stands in place of a word (replace), before it (insert), or in place of it and the next (merge). All blanks of a
text are asked for in one request, and what comes back is turned into edits by array operations.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.engine.requests import DELETE, NO_EDITS, REPLACE, Edits, Fill, Fills, Request
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

_LETTER = re.compile("[a-zA-Z]")


def propose_fills(
    draft: Draft,
    positions: NDArray[np.int32],
    *,
    span: int = REPLACE,
    most: int = 50,
    min_confidence: float = 0.0,
    strip: bool = True,
) -> Generator[Request, Any, Edits]:
    """The words a masked language model proposes at each position, one candidate each, the most likely first.

    Words less likely than `min_confidence`, without a Latin letter, or equal to the word that is there are left out of
    the `most` most likely. With `strip` pieces of words count as words.
    """
    if not len(positions):
        return NO_EDITS
    fills: Fills = yield Fill(draft, positions, most, span, strip=strip)
    words = fills.words
    kept = (fills.probabilities >= min_confidence) & (words != draft.ids[positions][:, None]) & (words != DELETE)
    kept &= has_letter(draft.structure.vocabulary, words)
    rows, columns = np.nonzero(kept)
    return writing(positions[rows], words[rows, columns], span)


def writing(positions: NDArray[np.int32], words: NDArray[np.int32], span: int = REPLACE) -> Edits:
    """Edits: candidate i writes `words[i]` at `positions[i]`."""
    edits = np.empty((len(positions), 4), np.int32)
    edits[:, 0], edits[:, 1], edits[:, 2], edits[:, 3] = np.arange(len(positions)), positions, span, words
    return edits


def join_edits(*parts: Edits) -> Edits:
    """The candidates of several proposals, one after the other."""
    edits = np.concatenate(parts)
    edits[:, 0] = np.arange(len(edits))
    return edits


def has_letter(vocabulary: Vocabulary, words: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which words have a Latin letter; remembered for the whole vocabulary."""
    memory = vocabulary.memory.setdefault(has_letter, {})
    known: NDArray[np.bool_] = memory.get(0, np.zeros(0, bool))
    if len(known) < len(vocabulary):
        new = vocabulary.strings[len(known) :]
        known = np.concatenate([known, np.fromiter((bool(_LETTER.search(word)) for word in new), bool, len(new))])
        memory[0] = known
    return known[words]
