"""Encodes examples as the token rows of training: one per text, or one per window of a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.core.types import Example
from isthmus.training.encoded import EncodedExamples

if TYPE_CHECKING:
    from isthmus.models import Classifier


def encode_examples(model: Classifier, examples: Sequence[Example], fields: Sequence[str]) -> EncodedExamples:
    """Encode examples as token rows: one per text, or one per window of a question and its context."""
    if model.answers_questions:
        from isthmus.training.questions import EncodedWindows

        return EncodedWindows(model, examples).in_blocks_on(model.device, model.max_tokens)
    return EncodedExamples(model, examples, fields).in_blocks_on(model.device, model.max_tokens)
