"""Stock transformers models as classifiers: a folder, a hub name, or a model in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.core.errors import ModelError
from isthmus.core.types import Classification, QuestionAnswering, Task
from isthmus.models.backbones import SpanBackbone, StockBackbone
from isthmus.models.classifier import Classifier
from isthmus.models.pretrained import WINDOW, has_decoder, stock_backbone, token_limit
from isthmus.models.transformers_files import read_config, read_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def load_stock(source: str | Path) -> Classifier:
    """Load a stock sequence classifier or question answerer from a folder or a hub name."""
    config = read_config(source)
    task = _stock_task(config, str(source), (getattr(config, "architectures", None) or ["?"])[0])
    return _of_stock(stock_backbone(source, config, task, complete=True), read_tokenizer(source), task)


def from_transformers(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Classifier:
    """Wrap a stock sequence classifier or question answerer in memory, with its tokenizer."""
    task = _stock_task(model.config, type(model).__name__, type(model).__name__)
    kind = SpanBackbone if isinstance(task, QuestionAnswering) else StockBackbone
    return _of_stock(kind(model), tokenizer, task)


def _of_stock(body: StockBackbone, tokenizer: PreTrainedTokenizerBase, task: Task) -> Classifier:
    limit = token_limit(tokenizer, body.model.config)
    if isinstance(task, QuestionAnswering):
        limit = min(limit, WINDOW)
    return Classifier(body, tokenizer, task, max_tokens=limit).eval()


def _stock_task(config: PretrainedConfig, source: str, architecture: str) -> Task:
    """The task of a stock model, by the name of its class."""
    if "ForQuestionAnswering" in architecture and not has_decoder(config):
        return QuestionAnswering()
    if "ForSequenceClassification" not in architecture:
        raise ModelError(
            f"{source!r} is a {architecture}, not a classifier: train one on it with "
            f"`isthmus train --backbone {source}`"
        )
    outputs = len(config.id2label or {})
    if outputs < 2 or config.problem_type in ("regression", "multi_label_classification"):
        kind = config.problem_type or "regression"
        raise ModelError(
            f"{source!r} does not choose one of several classes ({outputs} outputs, {kind}): "
            "wrap it in a function that returns one probability per class and attack that"
        )
    return Classification(tuple(str(name) for _, name in sorted((config.id2label or {}).items())))
