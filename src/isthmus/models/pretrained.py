"""Classifiers made of what transformers reads: an encoder that gets a new head, or a model that is one already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.arithmetic.randomness import seeded
from isthmus.core.errors import ModelError, UsageError
from isthmus.core.types import Classification, QuestionAnswering, Task
from isthmus.models import words
from isthmus.models._folder_checks import NO_LIMIT
from isthmus.models.backbones import Backbone, EncoderBackbone, SpanBackbone, SpanEncoderBackbone, StockBackbone
from isthmus.models.classifier import Classifier
from isthmus.models.transformers_files import read_config, read_tokenizer, read_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_UNLIMITED = 512
"""Where neither tokenizer nor positions set a limit (T5, XLNet)."""
_WINDOW = 384
"""Tokens that a model reads of a question and its context at once, unless told otherwise."""
_POSITIONS = ("start", "end")
"""What the two outputs of a span head are called in its config.json."""


def create(
    backbone: str | Path,
    task: Task,
    *,
    seed: int = 0,
    max_tokens: int | None = None,
    texts: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Classifier:
    """See `Classifier.create`."""
    if isinstance(task, Classification) and len(task.labels) < 2:
        raise UsageError(f"a classifier needs at least two labels, not {list(task.labels)}")
    if str(backbone) in words.FORMS:
        if not isinstance(task, Classification):
            raise UsageError(
                f"the backbone {str(backbone)!r} cannot answer questions: it does not look back and forth between "
                "question and context. Take minilm, mpnet or another transformer encoder"
            )
        return words.create(str(backbone), task, seed=seed, max_tokens=max_tokens, texts=texts, options=options or {})
    if options:
        raise UsageError(f"{', '.join(options)}: options are for {' and '.join(words.FORMS)}, not for {backbone}")
    _refuse_other_folders(Path(backbone))
    config = read_config(backbone, outputs_of(task))
    tokenizer = read_tokenizer(backbone)
    with seeded(seed, "backbone"):
        build = encoder_backbone if _has_decoder(config) else stock_backbone
        body = build(backbone, config, task)
    longest = token_limit(tokenizer, config)
    limit = max_tokens or (min(_WINDOW, longest) if isinstance(task, QuestionAnswering) else longest)
    return Classifier(body, tokenizer, task, max_tokens=limit, seed=seed).eval()


def _refuse_other_folders(folder: Path) -> None:
    """Say what a folder is that holds no encoder, but something else of ours."""
    if (folder / "config.json").is_file():
        return
    if (folder / "model" / "config.json").is_file():
        raise ModelError(f"{folder} is a run, not an encoder: its encoder lies in {folder / 'model'}")
    if any((place / "isthmus.json").is_file() for place in (folder, folder / "model")):
        raise ModelError(
            f"the model in {folder} reads words of its own training texts and is not an encoder to start from: choose "
            f"a form ({', '.join(words.FORMS)}) or an encoder such as minilm"
        )


def load_stock(source: str | Path) -> Classifier:
    """A stock sequence classifier or question answerer: a transformers folder or a hub name."""
    config = read_config(source)
    task = _stock_task(config, str(source), (getattr(config, "architectures", None) or ["?"])[0])
    return _of_stock(stock_backbone(source, config, task, complete=True), read_tokenizer(source), task)


def from_transformers(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Classifier:
    """A stock sequence classifier or question answerer that is in memory already, and its tokenizer."""
    task = _stock_task(model.config, type(model).__name__, type(model).__name__)
    kind = SpanBackbone if isinstance(task, QuestionAnswering) else StockBackbone
    return _of_stock(kind(model), tokenizer, task)


def _of_stock(body: StockBackbone, tokenizer: PreTrainedTokenizerBase, task: Task) -> Classifier:
    limit = token_limit(tokenizer, body.model.config)
    if isinstance(task, QuestionAnswering):
        limit = min(limit, _WINDOW)
    return Classifier(body, tokenizer, task, max_tokens=limit).eval()


def outputs_of(task: Task) -> tuple[str, ...]:
    """Names of the head's outputs."""
    return _POSITIONS if isinstance(task, QuestionAnswering) else task.labels


def _has_decoder(config: PretrainedConfig) -> bool:
    """Whether the stock classifier has a decoder, which reads no embeddings; an encoder's folder does not say so."""
    return bool(config.is_encoder_decoder or type(config)().is_encoder_decoder)


def stock_backbone(
    source: str | Path, config: PretrainedConfig, task: Task, *, complete: bool = False
) -> StockBackbone:
    """A stock model with its head, which is new where the folder has none; `complete` refuses that."""
    from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification

    answers = isinstance(task, QuestionAnswering)
    auto = AutoModelForQuestionAnswering if answers else AutoModelForSequenceClassification
    model, missing = read_weights(auto, source, config)
    inside = {f"{model.base_model_prefix}.{name}" for name, _ in model.base_model.named_parameters()}
    # A pooler may be absent from an encoder's folder; the rest of the encoder must not be.
    lost = missing if complete else {name for name in missing & inside if ".pooler." not in name}
    if lost:
        raise ModelError(f"{str(source)!r} does not hold the weights {', '.join(sorted(lost)[:3])}, …")
    return SpanBackbone(model) if answers else StockBackbone(model)


def encoder_backbone(source: str | Path, config: PretrainedConfig, task: Task) -> Backbone:
    """An encoder alone, under a head of ours."""
    from transformers import AutoModelForTextEncoding

    model, missing = read_weights(AutoModelForTextEncoding, source, config)
    if missing:
        raise ModelError(f"{str(source)!r} does not hold the weights {', '.join(sorted(missing)[:3])}, …")
    return SpanEncoderBackbone(model) if isinstance(task, QuestionAnswering) else EncoderBackbone(model)


def token_limit(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig | None) -> int:
    """The longest input that both the tokenizer and the position embeddings allow."""
    positions = getattr(config, "max_position_embeddings", None) or _UNLIMITED
    if positions == NO_LIMIT:
        positions = _UNLIMITED
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"):
        positions -= (config.pad_token_id or 0) + 1  # type: ignore[union-attr]  # positions start after the padding id
    return int(min(tokenizer.model_max_length, positions))


def _stock_task(config: PretrainedConfig, source: str, architecture: str) -> Task:
    """What a stock model is for, by the name of its class."""
    if "ForQuestionAnswering" in architecture and not _has_decoder(config):
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
