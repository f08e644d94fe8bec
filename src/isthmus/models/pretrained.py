"""Finds backbone and tokenizer of a new classifier: from transformers, or our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.arithmetic.randomness import seed_initialisation
from isthmus.core.errors import ModelError, UsageError
from isthmus.core.types import Classification, QuestionAnswering, Task
from isthmus.models import words
from isthmus.models._folder_checks import NO_LIMIT
from isthmus.models.backbones import Backbone, EncoderBackbone, Parts, SpanBackbone, SpanEncoderBackbone, StockBackbone
from isthmus.models.transformers_files import read_config, read_tokenizer, read_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_UNLIMITED = 512
"""Where neither tokenizer nor positions set a limit (T5, XLNet)."""
WINDOW = 384
"""Tokens that a model reads of a question and its context at once, unless told otherwise."""
_POSITIONS = ("start", "end")
"""What the two outputs of a span head are called in its config.json."""


def find_parts(
    backbone: str | Path,
    task: Task,
    *,
    seed: int = 0,
    max_tokens: int | None = None,
    texts: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Parts:
    """Find the parts that `Classifier.create` assembles."""
    if isinstance(task, Classification) and len(task.labels) < 2:
        raise UsageError(f"a classifier needs at least two labels, not {list(task.labels)}")
    if str(backbone) in words.FORMS:
        if not isinstance(task, Classification):
            raise UsageError(
                f"the backbone {str(backbone)!r} cannot answer questions: it does not look back and forth between "
                "question and context. Take minilm, mpnet or another transformer encoder"
            )
        return words.find_parts(str(backbone), seed=seed, max_tokens=max_tokens, texts=texts, options=options or {})
    if options:
        raise UsageError(f"{', '.join(options)}: options are for {' and '.join(words.FORMS)}, not for {backbone}")
    _refuse_other_folders(Path(backbone))
    config = read_config(backbone, outputs_of(task))
    tokenizer = read_tokenizer(backbone)
    with seed_initialisation(seed, "backbone"):
        build = encoder_backbone if has_decoder(config) else stock_backbone
        body = build(backbone, config, task)
    longest = token_limit(tokenizer, config)
    limit = max_tokens or (min(WINDOW, longest) if isinstance(task, QuestionAnswering) else longest)
    return Parts(body, tokenizer, limit)


def _refuse_other_folders(folder: Path) -> None:
    """Refuse a folder that holds something else of isthmus, and say what."""
    if (folder / "config.json").is_file():
        return
    if (folder / "model" / "config.json").is_file():
        raise ModelError(f"{folder} is a run, not an encoder: its encoder lies in {folder / 'model'}")
    if any((place / "isthmus.json").is_file() for place in (folder, folder / "model")):
        raise ModelError(
            f"the model in {folder} reads words of its own training texts and is not an encoder to start from: choose "
            f"a form ({', '.join(words.FORMS)}) or an encoder such as minilm"
        )


def outputs_of(task: Task) -> tuple[str, ...]:
    """Names of the head's outputs."""
    return _POSITIONS if isinstance(task, QuestionAnswering) else task.labels


def has_decoder(config: PretrainedConfig) -> bool:
    """Whether the stock classifier has a decoder, which reads no embeddings; an encoder's folder does not tell."""
    return bool(config.is_encoder_decoder or type(config)().is_encoder_decoder)


def stock_backbone(
    source: str | Path, config: PretrainedConfig, task: Task, *, complete: bool = False
) -> StockBackbone:
    """Load a stock model with its head, which is new if the folder has none; `complete` refuses that."""
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
    """Load an encoder without a head; we add ours."""
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
