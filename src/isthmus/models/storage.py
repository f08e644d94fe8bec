"""Making, writing and reading classifiers.

A classifier's folder holds

    config.json, model.safetensors, tokenizer files    the stock classifier, or, where a slot is filled, its encoder
    isthmus.safetensors                                the head and the slots (only where a slot is filled, or no stock
                                                       class fits)
    isthmus.json                                       fields, labels, length, how to build the slots again, and how
                                                       the model answers if not by a single pass

so a classifier with no slot filled is loaded by ``AutoModelForSequenceClassification`` without isthmus, and a model
that answers questions by ``AutoModelForQuestionAnswering``. Only safetensors and JSON are read, and reading runs no
code that came with the folder.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isthmus.core.errors import ModelError, RunError, UsageError
from isthmus.core.files import read_json, write_json, writing
from isthmus.core.types import Classification, QuestionAnswering, Task
from isthmus.models._hub import quiet, read_config, read_tokenizer, read_weights, seeded
from isthmus.models.backbones import Backbone, EncoderBackbone, SpanBackbone, SpanEncoderBackbone, StockBackbone
from isthmus.models.classifier import Classifier
from isthmus.models.deployment import build_deployment, describe_deployment
from isthmus.models.slots import Slots, build_slot, describe_slot

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

FORMAT = 2
"""Newest form of the description; only question answering needs it, and classifiers are still written in form 1."""
DESCRIPTION = "isthmus.json"
WEIGHTS = "isthmus.safetensors"
WORD_BACKBONES = ("lstm", "cnn")
_UNLIMITED = 512
"""Where neither tokenizer nor positions set a limit (T5)."""
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
    if str(backbone) in WORD_BACKBONES:
        from isthmus.models import words

        if not isinstance(task, Classification):
            raise UsageError(
                f"the backbone {str(backbone)!r} cannot answer questions: it does not look back and forth between "
                "question and context. Take minilm, mpnet or another transformer encoder"
            )
        return words.create(str(backbone), task, seed=seed, max_tokens=max_tokens, texts=texts, options=options or {})
    config = read_config(backbone, _outputs(task))
    tokenizer = read_tokenizer(backbone)
    with seeded(seed, "backbone"):
        body = _encoder(backbone, config, task) if _has_decoder(config) else _stock(backbone, config, task)
    longest = token_limit(tokenizer, config)
    limit = max_tokens or (min(_WINDOW, longest) if isinstance(task, QuestionAnswering) else longest)
    return Classifier(body, tokenizer, task, max_tokens=limit, seed=seed).eval()


def _outputs(task: Task) -> tuple[str, ...]:
    """Names of the head's outputs."""
    return _POSITIONS if isinstance(task, QuestionAnswering) else task.labels


def _has_decoder(config: PretrainedConfig) -> bool:
    """Whether the stock classifier has a decoder, which reads no embeddings; an encoder's folder does not say so."""
    return bool(config.is_encoder_decoder or type(config)().is_encoder_decoder)


def _stock(source: str | Path, config: PretrainedConfig, task: Task, *, complete: bool = False) -> StockBackbone:
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


def _encoder(source: str | Path, config: PretrainedConfig, task: Task) -> Backbone:
    from transformers import AutoModelForTextEncoding

    model, missing = read_weights(AutoModelForTextEncoding, source, config)
    if missing:
        raise ModelError(f"{str(source)!r} does not hold the weights {', '.join(sorted(missing)[:3])}, …")
    return SpanEncoderBackbone(model) if isinstance(task, QuestionAnswering) else EncoderBackbone(model)


def token_limit(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig | None) -> int:
    """The longest input that both the tokenizer and the position embeddings allow."""
    positions = getattr(config, "max_position_embeddings", None) or _UNLIMITED
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"):
        positions -= (config.pad_token_id or 0) + 1  # type: ignore[union-attr]  # positions start after the padding id
    return int(min(tokenizer.model_max_length, positions))


def save(model: Classifier, folder: Path) -> None:
    """Write `model` beside `folder` and rename it there, so that the folder is whole or not there."""
    if folder.exists() and any(folder.iterdir()) and not _is_model(folder):
        raise RunError(f"{folder} holds other files, and saving a model would replace them: choose another folder")
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    with writing(folder):
        fresh.mkdir(parents=True)
        try:
            _write(model, fresh)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(fresh, folder)  # noqa: PTH105
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def _write(model: Classifier, folder: Path) -> None:
    from safetensors import SafetensorError

    description: dict[str, Any] = {
        "format": 1,
        "isthmus": _version(),
        "form": model.backbone.form,
        "labels": list(model.labels),
        "fields": list(model.task.fields),
        "max_tokens": model.max_tokens,
        "seed": model.seed,
        "slots": {name: describe_slot(slot) for name, slot in model.slots.filled().items()},
    }
    if isinstance(model.task, QuestionAnswering):
        description |= {"format": FORMAT, "task": model.task.name, "stride": model.task.stride}
    if model.deployment is not None:
        description["deployment"] = describe_deployment(model.deployment)
        model.deployment.write_beside(folder)
    try:
        with quiet():
            model.tokenizer.save_pretrained(folder)
            own = _write_backbone(model, folder, description)
        if own:
            from safetensors.torch import save_file

            save_file(own, folder / WEIGHTS)
    except SafetensorError as error:
        raise RunError(f"cannot write {folder}: {error}; is the disk full?") from error
    write_json(folder / DESCRIPTION, description)
    for file in folder.iterdir():  # The weights come private; a shared folder should follow the user's mask.
        file.chmod((folder / DESCRIPTION).stat().st_mode)


def _write_backbone(model: Classifier, folder: Path, description: dict[str, Any]) -> dict[str, Tensor]:
    """Write what transformers can write, and return the tensors that are left."""
    if isinstance(model.backbone, StockBackbone) and model.is_stock:
        model.backbone.model.save_pretrained(folder)
        return {}
    encoder = model.backbone.encoder()
    if encoder is None:
        description["options"] = model.backbone.options()
    else:
        encoder[0].save_pretrained(folder)
    state = model.state_dict()
    return {name: state[name].detach().cpu().contiguous() for name in _own_names(model)}


def _own_names(model: Classifier) -> list[str]:
    """The tensors that lie in `WEIGHTS`, not in the encoder's file."""
    encoder = model.backbone.encoder()
    elsewhere = ("companions.",) if encoder is None else ("companions.", f"backbone.{encoder[1]}")
    return [name for name in model.state_dict() if not name.startswith(elsewhere)]


def _is_model(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file() or (folder / "config.json").is_file()


def load_model(source: str | Path, *, labels: Sequence[str] | None = None, device: str | None = None) -> Classifier:
    """Read a classifier: a run folder, a folder written by `Classifier.save`, a transformers folder, or a hub name.

    `labels` replaces the class names.
    """
    folder = Path(source)
    if (folder / "model").is_dir() and not _is_model(folder):
        folder = folder / "model"
    if folder.is_dir() and not _is_model(folder):
        raise ModelError(f"the folder {str(source)!r} holds no model: no {DESCRIPTION} and no config.json in it")
    if (folder / DESCRIPTION).is_file():
        model = _load_own(folder)
    else:
        model = _load_stock(folder if folder.is_dir() else str(source))
    if labels is not None:
        model = renamed(model, labels, str(source))
    return model.to(device).eval() if device else model.eval()


def renamed(model: Classifier, labels: Sequence[str], source: str = "given") -> Classifier:
    """The same classifier with other class names."""
    if len(labels) != len(model.labels):
        raise UsageError(
            f"{len(labels)} labels were given ({', '.join(labels)}), but the model {source!r} has "
            f"{len(model.labels)} ({', '.join(model.labels)})"
        )
    if isinstance(model.task, Classification):
        model.task = Classification(tuple(labels), model.task.fields)
    return model


def _load_stock(source: str | Path) -> Classifier:
    config = read_config(source)
    task = _stock_task(config, str(source), (getattr(config, "architectures", None) or ["?"])[0])
    return _of_stock(_stock(source, config, task, complete=True), read_tokenizer(source), task)


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


def _load_own(folder: Path) -> Classifier:
    described = _description(folder)
    task = _described_task(described)
    tokenizer = read_tokenizer(folder)
    form = described["form"]
    built: dict[str, Any] = {name: build_slot(slot) for name, slot in described["slots"].items()}
    with seeded(0, "loading"):
        if form in WORD_BACKBONES:
            from isthmus.models import words

            body: Backbone = words.build(form, len(tokenizer), described["options"])
        else:
            config = read_config(folder, _outputs(task))
            whole = form == "stock" and not built
            body = _encoder(folder, config, task) if form == "encoder" else _stock(folder, config, task, complete=whole)
        model = Classifier(
            body, tokenizer, task, max_tokens=int(described["max_tokens"]), seed=int(described["seed"])
        ).fill(**built)
    if not model.is_stock:
        _load_rest(model, folder)
    if described.get("deployment") is not None:
        model.deployment = build_deployment(described["deployment"]).read_beside(folder)
    return model


def _described_task(described: Mapping[str, Any]) -> Task:
    fields = tuple(described["fields"])
    if described.get("task") == "qa":
        return QuestionAnswering(fields, int(described["stride"]))
    return Classification(tuple(described["labels"]), fields)


def _description(folder: Path) -> dict[str, Any]:
    described = read_json(folder / DESCRIPTION)
    needed = {"format": int, "form": str, "labels": list, "fields": list, "max_tokens": int, "seed": int, "slots": dict}
    if not isinstance(described, dict):
        raise ModelError(f"{folder / DESCRIPTION} is not a description of a model")
    if isinstance(described.get("format"), int) and described["format"] > FORMAT:
        raise ModelError(
            f"{folder} was written by isthmus {described.get('isthmus', '?')}, which is newer than this one "
            f"({_version()}): upgrade isthmus to read it"
        )
    wrong = [name for name, kind in needed.items() if not isinstance(described.get(name), kind)] or _wrong(described)
    if wrong:
        raise ModelError(f"{folder / DESCRIPTION} is damaged: no valid {wrong[0]!r} in it")
    return described


def _version() -> str:
    # Looked up when needed: the package's front page names rooms above this one.
    return str(importlib.import_module(__name__.split(".", 1)[0]).__version__)


def _wrong(described: Mapping[str, Any]) -> list[str]:
    form, answers = described["form"], described.get("task") == "qa"
    named = len(described["labels"]) > 1 and all(isinstance(name, str) for name in described["labels"])
    checks = {
        "task": described.get("task") in (None, "classification", "qa"),
        "stride": not answers or (isinstance(described.get("stride"), int) and described["stride"] > 0),
        "labels": not described["labels"] if answers else named,
        "fields": len(described["fields"]) > 0 and all(isinstance(name, str) for name in described["fields"]),
        "form": form in ("stock", "encoder", *(() if answers else WORD_BACKBONES)),
        "options": form not in WORD_BACKBONES or isinstance(described.get("options"), dict),
        "slots": set(described["slots"]) <= set(Slots.names),
    }
    return [name for name, right in checks.items() if not right]


def _load_rest(model: Classifier, folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        rest = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {folder / WEIGHTS}: {error}") from error
    expected = set(_own_names(model))
    if expected != set(rest):
        odd = ", ".join(sorted(expected ^ set(rest))[:3])
        raise ModelError(f"{folder / WEIGHTS} does not fit the model it lies beside: {odd}")
    try:
        model.load_state_dict(rest, strict=False)
    except RuntimeError as error:
        raise ModelError(f"{folder / WEIGHTS} does not fit the model it lies beside: {error}") from error
