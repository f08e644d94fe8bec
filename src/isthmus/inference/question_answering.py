"""Answers questions: reads all windows of a context, and returns the best span of any of them.

    score(i, j) = start logit of token i + end logit of token j,     i <= j < i + 30, both in the context

Scores are compared across the windows of a context as they are. Windows of similar length share a batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.errors import DataError, UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Answer, Autocast, Example, Floats, Pending, QuestionAnswering
from isthmus.inference.question_windows import AnswerSpan, Window, best_spans, cut_windows

if TYPE_CHECKING:
    import torch

    from isthmus.models.classifier import Classifier


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the answers that a model considers."""

    text: str
    start: int
    """First character of the context."""
    score: float
    """Sum of the two logits."""
    probability: float
    """Share among the candidates that were kept: their scores' softmax."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's answer to one question."""

    id: str
    text: str
    """The best candidate's; empty where the context holds no token at all."""
    candidates: tuple[Candidate, ...]
    """Best first."""


def answer(
    model: Classifier,
    examples: Iterable[Example],
    *,
    n_best: int = 20,
    batch_size: int = 32,
    seed: int = 0,
    autocast: Autocast = contextlib.nullcontext,
) -> list[Prediction]:
    """The model's answers, one per example, in order; a model with noise draws it from (seed, id, window)."""
    examples = tuple(examples)
    windows = windows_of(model, examples)
    logits = dict(window_logits(model, windows, examples, batch_size=batch_size, seed=seed, autocast=autocast))
    return predict_answers(
        windows, [logits[number] for number in range(len(windows))], examples, model.task.fields, n_best
    )


def windows_of(model: Classifier, examples: Sequence[Example], *, labelled: bool = False) -> list[Window]:
    """The windows of all examples; `labelled` ones hold the span of the answer that most annotators gave."""
    task = model.task
    if not isinstance(task, QuestionAnswering):
        raise UsageError(
            f"this model chooses one of {', '.join(task.labels)}; to answer questions, train one with --task qa"
        )
    questions, contexts = ([_read_text(example, field) for example in examples] for field in task.fields)
    answers = [_require_answers(example) for example in examples] if labelled else None
    return cut_windows(model.tokenizer, questions, contexts, answers, max_tokens=model.max_tokens, stride=task.stride)


def _read_text(example: Example, field: str) -> str:
    text = example.fields.get(field)
    if not isinstance(text, str):
        raise DataError(f"example {example.id} has no text in the field {field!r}")
    return text


def _require_answers(example: Example) -> tuple[Answer, ...]:
    if isinstance(example.label, int) or not example.label:
        raise DataError(f"example {example.id} has no answers to learn from, but the label {example.label!r}")
    return example.label


def window_logits(
    model: Classifier,
    windows: Sequence[Window],
    examples: Sequence[Example],
    *,
    batch_size: int = 32,
    seed: int = 0,
    autocast: Autocast = contextlib.nullcontext,
) -> Iterator[tuple[int, Floats]]:
    """Yield the logits [2, length] of every window, with its number; the shortest windows first."""
    if batch_size < 1:
        raise UsageError(f"batch_size is {batch_size}; it must be at least 1")
    order = sorted(range(len(windows)), key=lambda number: len(windows[number]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    was_training = model.training
    model.eval()
    waiting: tuple[list[int], Pending] | None = None
    try:
        for batch in batches:
            started = batch, _start(model, windows, batch, _make_keys(model, windows, examples, batch, seed), autocast)
            # The next batch is under way on a GPU while the numbers of this one are looked at.
            if waiting is not None:
                yield from _unpack(windows, *waiting)
            waiting = started
        if waiting is not None:
            yield from _unpack(windows, *waiting)
    finally:
        model.train(was_training)


def _start(
    model: Classifier, windows: Sequence[Window], batch: list[int], keys: torch.Tensor | None, autocast: Autocast
) -> Pending:
    import torch

    from isthmus.arithmetic.machine import full_float32
    from isthmus.arithmetic.transfer import pending

    inputs = {name: tensor.to(model.device) for name, tensor in _pad_windows(model, windows, batch).items()}
    with torch.inference_mode(), autocast(), full_float32(), model.use_keys(keys):
        logits: torch.Tensor = model(**inputs).logits
    return pending(logits.float())


def _pad_windows(model: Classifier, windows: Sequence[Window], batch: list[int]) -> dict[str, torch.Tensor]:
    import torch

    fill = {"input_ids": model.tokenizer.pad_token_id or 0, "token_type_ids": model.tokenizer.pad_token_type_id}
    length = max(1, *(len(windows[number]) for number in batch))
    columns = {}
    for name in windows[batch[0]].inputs:
        column = np.full((len(batch), length), fill.get(name, 0), np.int64)
        for row, number in zip(column, batch, strict=True):
            row[: len(windows[number])] = windows[number].inputs[name]
        columns[name] = torch.from_numpy(column)
    return columns


def _make_keys(
    model: Classifier, windows: Sequence[Window], examples: Sequence[Example], batch: list[int], seed: int
) -> torch.Tensor | None:
    """A key per row if the model draws noise, so that an answer does not depend on the rest of the batch."""
    if not model.stochastic:
        return None
    import torch

    names = [(examples[windows[number].example].id, int(windows[number].offsets.max(initial=0))) for number in batch]
    keys = np.array([derive(seed, "answer", *name) for name in names], np.uint64)
    return torch.from_numpy(keys.view(np.int64)).to(model.device)


def _unpack(windows: Sequence[Window], batch: list[int], wait: Pending) -> Iterator[tuple[int, Floats]]:
    logits = wait()
    for row, number in enumerate(batch):
        yield number, logits[row, :, : len(windows[number])].copy()


def predict_answers(
    windows: Sequence[Window],
    logits: Sequence[Floats],
    examples: Sequence[Example],
    fields: Sequence[str],
    n_best: int = 20,
) -> list[Prediction]:
    """Choose the answers from the logits of all windows."""
    if n_best < 1:
        raise UsageError(f"n_best is {n_best}; it must be at least 1")
    spans: list[list[AnswerSpan]] = [[] for _ in examples]
    for window, scores in zip(windows, logits, strict=True):
        spans[window.example] += best_spans(window, scores, n_best)
    return [
        _make_prediction(example, _read_text(example, fields[-1]), found, n_best)
        for example, found in zip(examples, spans, strict=True)
    ]


def _make_prediction(example: Example, context: str, spans: list[AnswerSpan], n_best: int) -> Prediction:
    kept: dict[tuple[int, str], float] = {}
    for span in sorted(spans, key=lambda span: -span.score):
        text = context[span.start : span.end]
        start = span.start + len(text) - len(text.lstrip())
        # A word that lies in two windows is one candidate, worth what the better window says.
        if text.strip() and len(kept) < n_best:
            kept.setdefault((start, text.strip()), span.score)
    if not kept:
        return Prediction(example.id, "", ())
    scores = np.array(list(kept.values()))
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    candidates = tuple(
        Candidate(text, start, score, float(share))
        for ((start, text), score), share in zip(kept.items(), shares, strict=True)
    )
    return Prediction(example.id, candidates[0].text, candidates)
