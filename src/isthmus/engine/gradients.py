"""Answers `Gradient` requests: the gradient of the victim's loss with respect to its word embeddings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import IsthmusError, UsageError, VictimError
from isthmus.core.types import Differentiable, Floats, Keys, TokenBatch, TokenVictim, Victim
from isthmus.engine.requests import Gradient, TokenGradient
from isthmus.engine.spelling import Spelling
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

_MOST_TOKENS = 8192
"""Tokens differentiated at once, so that memory stays bounded."""


class _Encoded(NamedTuple):
    ids: list[int]
    types: list[int] | None
    position_of: NDArray[np.int32]


class GradientService:
    """The victim's gradients, and its embedding table, which is read once."""

    def __init__(self, victim: Victim, vocabulary: Vocabulary, spent: Callable[[float], None]) -> None:
        require_gradients(victim)
        self.spent = spent
        both: Any = victim
        self.victim = both
        self.table: Floats = both.embedding_table()
        spelling = Spelling(both.tokenizer, vocabulary, len(self.table))
        self.words: NDArray[np.int32] = spelling.whole_words[: len(self.table)]

    def start(
        self, requests: Sequence[Gradient], keys: Sequence[Keys] | None = None
    ) -> Callable[[], list[TokenGradient | IsthmusError]]:
        """One answer per request; rows of equal length are differentiated together.

        `keys` name the randomness of each request, for a victim that draws some: one key, from which it makes the
        draws, or where they are `shared` the key of each.
        """
        victim = self.victim
        encoded = [with_positions(victim, request.base) for request in requests]
        answers: list[TokenGradient | IsthmusError] = [VictimError("no gradient")] * len(requests)
        groups: dict[tuple[int, int, bool], list[int]] = {}
        for index, own in enumerate(encoded):
            groups.setdefault((len(own.ids), requests[index].draws, requests[index].shared), []).append(index)
        for (length, _, _), everyone in groups.items():
            most = max(1, _MOST_TOKENS // length)
            for start in range(0, len(everyone), most):
                members = everyone[start : start + most]
                for index, answer in zip(members, self._together(requests, encoded, members, keys), strict=True):
                    answers[index] = answer
        return lambda: answers

    def _together(
        self,
        requests: Sequence[Gradient],
        encoded: Sequence[_Encoded],
        members: list[int],
        keys: Sequence[Keys] | None,
    ) -> list[TokenGradient | IsthmusError]:
        ids = np.array([encoded[index].ids for index in members], np.int64)
        types = None
        if encoded[members[0]].types is not None:
            types = np.array([encoded[index].types for index in members], np.int64)
        labels = np.array([requests[index].label for index in members], np.int64)
        began, first = time.perf_counter(), requests[members[0]]
        try:
            if keys is None:
                values = self.victim.embedding_gradients(TokenBatch(ids, None, types), labels, draws=first.draws)
            elif first.shared:
                values = self._over(TokenBatch(ids, None, types), labels, np.stack([keys[index] for index in members]))
            else:
                own = np.concatenate([keys[index] for index in members])
                values = self.victim.embedding_gradients(TokenBatch(ids, None, types, own), labels, draws=first.draws)
        except IsthmusError as error:
            return [error] * len(members)
        finally:
            self.spent(time.perf_counter() - began)
        finite = np.isfinite(values).all(axis=(1, 2))  # values [rows, tokens, width] -> [rows]
        return [
            TokenGradient(values[row], encoded[index].position_of, ids[row], self.table, self.words)
            if finite[row]
            else VictimError("the gradient of the model is NaN or infinite")
            for row, index in enumerate(members)
        ]

    def _over(self, batch: TokenBatch, labels: NDArray[np.int64], keys: Keys) -> Floats:
        """The mean gradient of every row over the draws that its keys [rows, draws] are scored with."""
        total, draws = np.zeros((), np.float32), keys.shape[1]
        at_once = max(1, _MOST_TOKENS // batch.ids.size)
        for start in range(0, draws, at_once):
            own = keys[:, start : start + at_once]
            rows = np.repeat(np.arange(len(batch.ids)), own.shape[1])  # [rows * draws]: every row once for each draw
            types = None if batch.types is None else batch.types[rows]
            copies = TokenBatch(batch.ids[rows], None, types, own.reshape(-1))
            values = self.victim.embedding_gradients(copies, labels[rows], as_scored=True)
            total = total + values.reshape(*own.shape, *values.shape[1:]).sum(axis=1)
        return np.asarray(total / draws, np.float32)


def require_gradients(victim: Victim) -> None:
    """Refuse a victim without gradients."""
    if not (isinstance(victim, Differentiable) and isinstance(victim, TokenVictim)):
        raise UsageError(
            "this attack needs the victim's gradient, which only a model run in this process gives: attack the model "
            "itself, or choose an attack that sees scores only"
        )


def with_positions(victim: TokenVictim, draft: Draft) -> _Encoded:
    """Token ids and segment ids of a draft, and which word each token belongs to."""
    encoding = victim.tokenizer(
        *draft.texts.values(),
        truncation="longest_first" if len(draft.structure.fields) > 1 else True,
        max_length=victim.max_tokens,
        return_offsets_mapping=True,
    )
    fields = encoding.sequence_ids(0)
    spans = [words.offsets() for words in draft.to_words()]
    position_of = np.full(len(encoding["input_ids"]), -1, np.int32)
    for token, (field, (start, end)) in enumerate(zip(fields, encoding["offset_mapping"], strict=True)):
        if field is None or start == end:
            continue
        # Byte-level tokenizers count the space before a word to its first token.
        for local, (left, right) in enumerate(spans[field]):
            if start < right and end > left:
                position_of[token] = draft.structure.starts[field] + local
                break
    uses_types = "token_type_ids" in victim.tokenizer.model_input_names
    types = list(encoding["token_type_ids"]) if uses_types else None
    return _Encoded(list(encoding["input_ids"]), types, position_of)
