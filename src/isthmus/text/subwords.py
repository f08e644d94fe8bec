"""A tokenizer for splicing: sub-words of many texts at once, and where it always cuts.

Neither padding nor truncation nor special tokens come into it. Where a tokenizer cuts is found out by trying, with
neighbours of every kind (`_ANCHORS`) on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core import compiled
from isthmus.text.words import SPACES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TYPOGRAPHY = "¡§«¶·»¿‐‑‒–—―‘’‚‛“”„‟†‡•…‰′″‹›※、。〈〉《》「」『』【】！（），：；？"
_ANCHORS = ("a", "film", "1", "#", "\u4e2d", "zzq.")


class SubWords:
    """The sub-words of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.backend = _backend(tokenizer)
        self.unknown = int(tokenizer.unk_token_id) if isinstance(tokenizer.unk_token_id, int) else None
        self._folds_case = _find_case_folding(self.backend)
        self._pieces = _compile_pieces(self.backend) if self._folds_case is not None else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokenizer's own ids, without special tokens, of whole texts."""
        return self._ids(list(texts))

    def encode_words(self, strings: Sequence[str]) -> list[list[int]]:
        """Sub-words of many short strings; plain words go straight to the WordPiece model, at a fifth of the cost."""
        pieces: list[list[int]] = [[] for _ in strings]
        if self._folds_case is not None:
            lower, tokenise = self._folds_case, self.backend.model.tokenize
            for index, word in enumerate(strings):
                if word.isascii() and word.isalnum():
                    pieces[index] = [token.id for token in tokenise(word.lower() if lower else word)]
        rest = [index for index, piece in enumerate(pieces) if not piece]
        for index, ids in zip(rest, self._ids([strings[index] for index in rest]), strict=True):
            pieces[index] = ids
        return pieces

    def count_words(self, strings: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The result of `encode_words` as arrays: the number of sub-words of each string, and all of them in a row."""
        if self._pieces is None:
            return _flatten_pieces(self.encode_words(strings))
        counts, ids = (
            np.frombuffer(array, np.int64)
            for array in compiled.part.split_words(self._pieces, strings, bool(self._folds_case))
        )
        others = np.flatnonzero(counts < 0)
        if not len(others):
            return counts, ids
        counts[others], rest = _flatten_pieces(self.encode_words([strings[index] for index in others.tolist()]))
        is_plain = np.ones(len(strings), bool)
        is_plain[others] = False
        of_plain = np.repeat(is_plain, counts)
        joined = np.empty(len(of_plain), np.int64)
        joined[of_plain], joined[~of_plain] = ids, rest
        return counts, joined

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def separators(self) -> str:
        """The spaces and marks outside ASCII around which this tokenizer always cuts."""
        marks = _TYPOGRAPHY + "".join(space for space in SPACES if not space.isascii())
        alone = dict(zip([*_ANCHORS, *marks], self.encode([*_ANCHORS, *marks]), strict=True))
        around = [(left, right) for left in _ANCHORS for right in _ANCHORS]
        joined = iter(self.encode([left + mark + right for mark in marks for left, right in around]))
        separators = ""
        for mark in marks:
            rows = [next(joined) for _ in around]
            if all(
                row == alone[left] + alone[mark] + alone[right] for row, (left, right) in zip(rows, around, strict=True)
            ):
                separators += mark
        return separators

    def separating_spaces(self) -> str:
        """The spaces before which this tokenizer always cuts, whatever is on either side."""
        alone = self.encode(_ANCHORS)
        texts = [left + space + right for space in SPACES for left in _ANCHORS for right in _ANCHORS]
        joined = iter(self.encode(texts))
        separating = ""
        for space in SPACES:
            rows = [[next(joined) for _ in _ANCHORS] for _ in _ANCHORS]
            starts_alike = all(row[: len(ids)] == ids for ids, block in zip(alone, rows, strict=True) for row in block)
            tails = [[row[len(ids) :] for row in block] for ids, block in zip(alone, rows, strict=True)]
            if starts_alike and all(tail == tails[0] for tail in tails):
                separating += space
        return separating


def _find_case_folding(backend: Any) -> bool | None:
    """Whether a WordPiece tokenizer lower-cases plain letters.

    None where it is not WordPiece, or does anything else.
    """
    plain = ascii_letters + digits
    if type(backend.model).__name__ != "WordPiece":
        return None
    seen = plain if backend.normalizer is None else backend.normalizer.normalize_str(plain)
    return {plain: False, plain.lower(): True}.get(seen)


def _flatten_pieces(pieces: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
    return counts, np.fromiter(chain.from_iterable(pieces), np.int64, int(counts.sum()))


def _compile_pieces(backend: Any) -> object | None:
    """The pieces of a WordPiece model for the compiled part; None without that part, or without an unknown piece."""
    model = backend.model
    unknown = model.token_to_id(model.unk_token)
    if compiled.part is None or unknown is None:
        return None
    pieces = backend.get_vocab(with_added_tokens=False)
    found: object = compiled.part.piece_table(
        pieces, model.continuing_subword_prefix, unknown, model.max_input_chars_per_word
    )
    return found


def identity(tokenizer: PreTrainedTokenizerBase) -> int:
    """A number that is equal for tokenizers with equal results."""
    description = tokenizer.backend_tokenizer.to_str()
    # What comes first, padding and truncation, is changed by every call that asks for some.
    return hash((description[description.find('"added_tokens"') :], tokenizer.unk_token_id))


def _backend(tokenizer: PreTrainedTokenizerBase) -> Any:
    """A private copy of the fast tokenizer, which neither pads nor truncates."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    return backend
