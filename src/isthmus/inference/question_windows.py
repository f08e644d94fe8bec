"""Cuts a question and its context into windows of tokens, and maps spans of tokens to spans of the context.

    [CLS] question [SEP] context[0 : w] [SEP],   [CLS] question [SEP] context[s : s + w] [SEP],   ...

A pair that a model can read whole is one window. Of a longer one only the context is cut: windows of w tokens, each `s`
tokens (the stride) further on, until the last token is in one. A question is cut only where it would leave its context
less than half of the window. Tokens know which characters of the context they stand for, so answers are cut from the
context itself and never put together from pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError, ModelError, UsageError
from isthmus.core.types import Answer, Bools, Floats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST_ANSWER = 30
"""Tokens of the longest answer that is predicted."""

_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Window:
    """One input row of a question and a part of its context."""

    example: int
    """Which question, by its position in the call."""
    inputs: dict[str, NDArray[Any]]
    """Token ids, masks and segment ids, each [length]."""
    offsets: NDArray[np.int32]  # [length, 2], the characters of the context that a token stands for
    inside: Bools  # [length], True for tokens of the context
    target: tuple[int, int]
    """First and last token of the true answer; (0, 0) where the window does not hold all of it."""

    def __len__(self) -> int:
        return len(self.inside)


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """A candidate answer: characters of the context, and the sum of its two logits."""

    start: int
    end: int
    score: float


def cut_windows(
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[Sequence[Answer]] | None = None,
    *,
    max_tokens: int,
    stride: int,
) -> list[Window]:
    """Cut all questions into windows, in order."""
    windows: list[Window] = []
    for start in range(0, len(questions), _CHUNK):
        part = slice(start, start + _CHUNK)
        for number, whole in enumerate(_tokenise(tokenizer, questions[part], contexts[part]), start=start):
            wanted = most_given(answers[number]) if answers is not None and answers[number] else None
            windows += _windows(whole, number, wanted, max_tokens, stride)
    return windows


def most_given(answers: Sequence[Answer]) -> Answer:
    """The answer that most annotators gave, among equals the first: a model is trained to give one answer."""
    return Counter(answers).most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A question and its context, tokenised without a length limit."""

    columns: dict[str, NDArray[Any]]
    offsets: NDArray[np.int32]
    part: NDArray[np.int8]  # 0 = question, 1 = context, -1 = special


def _tokenise(
    tokenizer: PreTrainedTokenizerBase, questions: Sequence[str], contexts: Sequence[str]
) -> Iterator[_Whole]:
    try:
        encoded = tokenizer(list(questions), list(contexts), return_attention_mask=True, verbose=False)
    except (TypeError, UnicodeError, ValueError) as error:
        raise DataError(f"the tokenizer cannot read one of {len(questions)} questions: {error}") from error
    if not encoded.encodings:
        raise ModelError(
            f"{type(tokenizer).__name__} does not say which characters its tokens stand for, so no answer can be cut "
            "from a context: take the fast version of this tokenizer"
        )
    has_types = "token_type_ids" in encoded
    for row in encoded.encodings:
        columns: dict[str, NDArray[Any]] = {
            "input_ids": np.array(row.ids, np.int32),
            "attention_mask": np.array(row.attention_mask, np.int8),
        }
        if has_types:
            columns["token_type_ids"] = np.array(row.type_ids, np.int8)
        part = np.array([-1 if sequence is None else sequence for sequence in row.sequence_ids], np.int8)
        yield _Whole(columns, np.array(row.offsets, np.int32).reshape(-1, 2), part)


def _windows(whole: _Whole, number: int, answer: Answer | None, max_tokens: int, stride: int) -> Iterator[Window]:
    context, question = np.flatnonzero(whole.part == 1), np.flatnonzero(whole.part == 0)
    specials = len(whole.part) - len(context) - len(question)
    free = max_tokens - specials
    if free < 1:
        raise UsageError(f"a window of {max_tokens} tokens has no room for a question and a context: allow more tokens")
    question = question[: max(free - len(context), free // 2)]
    room = max(1, free - len(question))
    step = min(stride, room)
    target = None if answer is None else _tokens_of(answer, whole.offsets[context])
    around = np.union1d(np.flatnonzero(whole.part == -1), question)
    for begin in range(0, max(1, len(context) - room + step), step):
        chosen = np.union1d(around, context[begin : begin + room])
        inside = whole.part[chosen] == 1
        yield Window(
            number,
            {name: column[chosen] for name, column in whole.columns.items()},
            np.where(inside[:, None], whole.offsets[chosen], 0),
            inside,
            _place_target(target, begin, inside),
        )


def _tokens_of(answer: Answer, offsets: NDArray[np.int32]) -> tuple[int, int] | None:
    """First and last token of the context that the answer overlaps."""
    start = answer.start + len(answer.text) - len(answer.text.lstrip())
    end = start + len(answer.text.strip())
    touched = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None


def _place_target(target: tuple[int, int] | None, begin: int, inside: Bools) -> tuple[int, int]:
    if target is None or target[0] < begin or target[1] >= begin + int(inside.sum()):
        return 0, 0
    places = np.flatnonzero(inside)
    return int(places[target[0] - begin]), int(places[target[1] - begin])


def best_spans(window: Window, logits: Floats, n: int, longest: int = LONGEST_ANSWER) -> list[AnswerSpan]:
    """The `n` best spans of the context in one window, best first: start <= end, at most `longest` tokens.

    Every valid pair is looked at; a span is worth the logit of its start plus that of its end.
    """
    places = np.flatnonzero(window.inside)
    if not len(places):
        return []
    start, end = logits[0, places].astype(np.float64), logits[1, places].astype(np.float64)
    if not (np.isfinite(start).all() and np.isfinite(end).all()):
        raise ModelError("the model's logits are not numbers, so no answer can be found: its weights are damaged")
    longest = min(longest, len(places))
    reach = np.lib.stride_tricks.sliding_window_view(np.pad(end, (0, longest - 1), constant_values=-np.inf), longest)
    # reach[i, k] is the logit of an end k tokens behind start i, -inf beyond the window [places, longest].
    scores = (start[:, None] + reach).ravel()
    n = min(n, len(scores))
    chosen = np.argpartition(-scores, n - 1)[:n]
    # Best first; of equal ones the earlier, so that the order is fixed.
    chosen = chosen[np.lexsort((chosen, -scores[chosen]))]
    spans = []
    for place in chosen[np.isfinite(scores[chosen])].tolist():
        first, length = divmod(place, longest)
        begin, stop = window.offsets[places[first], 0], window.offsets[places[first + length], 1]
        spans.append(AnswerSpan(int(begin), int(stop), float(scores[place])))
    return spans
