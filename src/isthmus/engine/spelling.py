"""Maps the tokens of a tokenizer to words: which are whole words, and which word each of them is.

A WordPiece tokenizer marks the tokens that continue a word (``##ing``); byte-level BPE and SentencePiece mark those
that start one (``Ġfilm``, ``▁film``).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.types import Bools, Ints
from isthmus.text.vocabulary import DELETE, Vocabulary
from isthmus.text.words import Words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_UNASKED = -1


class Spelling:
    """The words that tokens spell, as ids of a vocabulary; a word is interned when it is first asked for."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary, size: int = 0) -> None:
        self.vocabulary = vocabulary
        pieces = _pieces(tokenizer)
        self.strings, self.starts = _without_marks(tokenizer, pieces)
        special = set(tokenizer.all_special_ids)
        one_word = [index not in special and _is_one_word(string) for index, string in enumerate(self.strings)]
        # A model's table may be larger than its tokenizer: nothing is spelled there.
        missing = max(0, size - len(pieces))
        self.strings += [""] * missing
        self.one_word: Bools = np.array(one_word + [False] * missing, bool)
        self.whole: Bools = self.one_word & np.array(self.starts + [False] * missing, bool)
        self._ids = np.full(len(self.strings), _UNASKED, np.int32)
        self._ids[~self.one_word] = DELETE

    def __len__(self) -> int:
        return len(self.strings)

    def words_of(self, tokens: Ints) -> NDArray[np.int32]:
        """The word that each token spells, marks taken off; DELETE where it is not a word."""
        words = self._ids[tokens]
        if (words == _UNASKED).any():
            for token in np.unique(tokens[words == _UNASKED]).tolist():
                self._ids[token] = self.vocabulary.id(self.strings[token])
            words = self._ids[tokens]
        return words

    @cached_property
    def whole_words(self) -> NDArray[np.int32]:
        """For every token the word it is, or DELETE where it is a piece, a mark or a special token."""
        return np.where(self.whole, self.words_of(np.arange(len(self))), DELETE).astype(np.int32)

    def join(self, tokens: Ints) -> NDArray[np.int32]:
        """The word that each row of tokens spells together, or DELETE where that is not one word."""
        tokens = np.asarray(tokens)
        if tokens.ndim != 2:
            raise ValueError(f"token ids are [words, sub-words], not {list(tokens.shape)}")
        if tokens.shape[1] == 1:
            return self.words_of(tokens[:, 0])
        strings, known = self.strings, self.vocabulary
        spelled = ["".join([strings[token] for token in row]) for row in tokens.tolist()]
        return np.array([known.id(word) if _is_one_word(word) else DELETE for word in spelled], np.int32)


def _is_one_word(string: str) -> bool:
    if string.isascii() and string.isalnum():
        return True
    return Words.of(string).words == (string,)


def _pieces(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    pieces: list[Any] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))  # type: ignore[assignment]
    return [piece if isinstance(piece, str) else "" for piece in pieces]


def _without_marks(tokenizer: PreTrainedTokenizerBase, pieces: list[str]) -> tuple[list[str], list[bool]]:
    """The text of each piece, and whether it starts a word."""
    if any(piece[:1] == "Ġ" for piece in pieces):
        # Byte-level pieces are spelled in stand-ins for bytes; one that holds half a character comes out as U+FFFD.
        decode = tokenizer.backend_tokenizer.decoder.decode if tokenizer.backend_tokenizer.decoder else None
        strings = [(decode([piece]) if decode else piece.replace("Ġ", " ")).strip(" ") for piece in pieces]
        return strings, [piece[:1] == "Ġ" for piece in pieces]
    if any(piece[:1] == "▁" for piece in pieces):
        return [piece.replace("▁", "") for piece in pieces], [piece[:1] == "▁" for piece in pieces]
    return [piece.removeprefix("##") for piece in pieces], [not piece.startswith("##") for piece in pieces]
