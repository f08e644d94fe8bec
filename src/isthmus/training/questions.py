"""Questions as training rows, one per window, and exact match and F1 on the development questions.

A window that does not hold the whole answer is trained to point at its first token, as usual. The development metric is
over questions, not windows: the best span of all windows of a question is its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.answer_scores import score
from isthmus.core.types import Autocast, Example, Floats
from isthmus.inference.question_answering import predict_answers, window_logits, windows_of
from isthmus.inference.question_windows import Window
from isthmus.training.encoded import EncodedExamples, Padding

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier


class EncodedWindows(EncodedExamples):
    """Questions and the windows of their contexts; a map-style data set of windows for the Trainer."""

    def __init__(self, model: Classifier, examples: Sequence[Example]) -> None:
        self.questions = tuple(examples)
        self.windows = windows_of(model, self.questions, labelled=True)
        self.fields = model.task.fields
        # On the right whatever the tokenizer prefers: padding on the left would move the answers.
        fill = {"input_ids": model.tokenizer.pad_token_id or 0, "token_type_ids": model.tokenizer.pad_token_type_id}
        self.padding = Padding(fill, on_the_left=False)
        self.examples = tuple(self.questions[window.example] for window in self.windows)
        self.labels = [window.target for window in self.windows]
        self.rows = [window.inputs for window in self.windows]


@dataclass(frozen=True, slots=True)
class AnswerMetrics:
    """Figures of a model on the development questions."""

    f1: float
    exact_match: float
    loss: float

    @property
    def score(self) -> float:
        """The score that selects the best weights."""
        return self.f1

    def row(self) -> dict[str, float]:
        """A row of the log, the selecting score first."""
        return {"dev_f1": self.f1, "dev_exact_match": self.exact_match, "dev_loss": self.loss}


def evaluate_windows(
    model: Classifier,
    dev: EncodedWindows,
    size: int,
    *,
    autocast: Autocast,
    part: int = 0,
    parts: int = 1,
    total: Callable[[Tensor], Tensor] | None = None,
) -> AnswerMetrics:
    """F1, exact match and mean cross-entropy over the questions of one of `parts`; `total` sums over all parts."""
    import torch

    chosen = [number for number, window in enumerate(dev.windows) if window.example % parts == part]
    windows = [dev.windows[number] for number in chosen]
    found = dict(window_logits(model, windows, dev.questions, batch_size=size, autocast=autocast))
    logits = [found[number] for number in range(len(windows))]
    answers = predict_answers(windows, logits, dev.questions, dev.fields, n_best=1)[part::parts]
    scores = [
        score(answer.text, [true.text for true in question.label])  # type: ignore[union-attr]
        for answer, question in zip(answers, dev.questions[part::parts], strict=True)
    ]
    counts = torch.tensor(
        [
            sum(one.f1 for one in scores),
            sum(one.exact_match for one in scores),
            len(scores),
            sum(window_cross_entropy(window, row) for window, row in zip(windows, logits, strict=True)),
            len(windows),
        ],
        dtype=torch.float64,
    )
    f1, exact_match, questions, loss, rows = (counts if total is None else total(counts)).tolist()
    return AnswerMetrics(f1 / questions, exact_match / questions, loss / rows)


def window_cross_entropy(window: Window, logits: Floats) -> float:
    """Mean of the cross-entropies of start and end in one window."""
    values = logits.astype(np.float64)
    largest = values.max(axis=1)
    normaliser = largest + np.log(np.exp(values - largest[:, None]).sum(axis=1))
    return float((normaliser - values[[0, 1], window.target]).mean())
