"""Reads transformers folders and hub names: silently, in float32, from safetensors, without running their code."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import IsthmusError, ModelError
from isthmus.models._folder_checks import (
    check_config,
    check_tokenizer_files,
    check_vocabulary,
    find_damaged_weights,
    label_names,
)
from isthmus.models._weights import ADAPTER, SAFE, SAFE_INDEX, check_index, check_name_in, check_weights, is_adapter

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ASSET_BACKBONES = ("minilm", "mpnet")
"""Encoders that come as assets of isthmus, so that they work where no hub can be reached."""

_ATTENTION = (None, "eager", "sdpa")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers shows no progress bars and reports; its verbosity is restored afterwards."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextlib.contextmanager
def reading(source: str | Path) -> Iterator[None]:
    """Inside, whatever transformers raises about `source` becomes one `ModelError`."""
    try:
        with quiet():
            yield
    except IsthmusError:
        raise
    except Exception as error:  # What is wrong with a folder shows wherever transformers happens to stumble over it.
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            raise
        raise ModelError(_complaint(str(source), error)) from error


def _complaint(source: str, error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    folder = Path(locate(source))
    if folder.is_dir():
        return find_damaged_weights(folder) or (
            f"cannot read a model from the folder {source!r}: {first} "
            "(needed: config.json, the tokenizer's files, and weights as safetensors)"
        )
    near = difflib.get_close_matches(source, [*ASSET_BACKBONES, "lstm", "cnn"], n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    if not hub_answers():
        return f"no folder {source!r} here, and the Hugging Face hub cannot be reached{hint}"
    return f"no folder {source!r} here, and the Hugging Face hub does not have it as it must be: {first}{hint}"


@functools.cache
def hub_answers() -> bool:
    """Whether the hub can be reached; asked once, since its library tries for half a minute before it fails."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    address = urllib.parse.urlsplit(constants.ENDPOINT)
    if urllib.request.getproxies().get(address.scheme):
        return True
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True


def _access(source: str | Path) -> dict[str, Any]:
    """Options for transformers to load `source`: without foreign code, and without the hub if it is not needed."""
    place = locate(source)
    local = Path(place).is_dir() or not hub_answers()
    return {"pretrained_model_name_or_path": place, "trust_remote_code": False, "local_files_only": local}


def locate(source: str | Path) -> str:
    """The folder of an asset backbone, a local folder, or the unchanged hub name."""
    if str(source) in ASSET_BACKBONES and not Path(source).is_dir():
        from isthmus import assets

        return str(assets.path(str(source)))
    return str(source)


def read_config(source: str | Path, labels: Sequence[str] | None = None) -> PretrainedConfig:
    """Read the configuration, with class names if given; one that would fetch foreign kernels is refused."""
    from transformers import AutoConfig

    folder = Path(locate(source))
    if folder.is_dir():
        check_config(folder)
        if labels is None and (folder / "config.json").is_file():
            label_names(folder / "config.json")
    with reading(source):
        config: PretrainedConfig = AutoConfig.from_pretrained(**_access(source))
    attention = getattr(config, "_attn_implementation_internal", None)
    if isinstance(attention, dict) or attention not in _ATTENTION:
        raise ModelError(
            f"the configuration of {str(source)!r} asks for the attention kernel {attention!r}, which would run code "
            f"from elsewhere; remove the entry from its config.json"
        )
    if labels is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: index for index, name in enumerate(labels)}
    return config


def read_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Read the tokenizer of a folder or hub name."""
    from transformers import AutoTokenizer

    folder = Path(locate(source))
    if folder.is_dir() and not any(folder.glob("tokenizer*")) and not any(folder.glob("*vocab*")):
        raise ModelError(
            f"the model folder {str(source)!r} has no tokenizer. Save it beside the weights: "
            "AutoTokenizer.from_pretrained(<the model it came from>).save_pretrained(<this folder>)"
        )
    if folder.is_dir():
        check_tokenizer_files(folder)
    with reading(source):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**_access(source))
        fewest = tokenizer.num_special_tokens_to_add() + 1
        check_vocabulary(tokenizer, str(source), folder)
    if tokenizer.model_max_length < fewest:
        raise ModelError(
            f"model_max_length of the tokenizer in {str(source)!r} is {tokenizer.model_max_length}: with its special "
            f"tokens a text of one word has {fewest}"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _check_hub_files(source: str | Path) -> None:
    """Refuse a hub model whose weights are not its own safetensors; folders are checked before."""
    from transformers.utils.hub import cached_file

    access = _access(source)
    place = access["pretrained_model_name_or_path"]
    if Path(place).is_dir():
        return

    def found(name: str) -> Path | None:
        file = cached_file(
            place, name, local_files_only=access["local_files_only"], _raise_exceptions_for_missing_entries=False
        )
        return None if file is None else Path(file)

    if find_spec("peft") is not None and found(ADAPTER) is not None:
        raise ModelError(is_adapter(place))
    if found(SAFE) is None:
        index = found(SAFE_INDEX)
        if index is None:
            raise ModelError(
                f"the hub model {place!r} has no {SAFE}{'' if hub_answers() else ' in the cache'}, and a pickle is not "
                f"read: download it and write safetensors of it, hf download {place} --local-dir FOLDER, then isthmus "
                "convert FOLDER --out NEW"
            )
        check_index(index, place)


@contextlib.contextmanager
def _no_foreign_conversion() -> Iterator[None]:
    """Inside, transformers does not ask a hub service to convert a pickle."""
    name = "DISABLE_SAFETENSORS_CONVERSION"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def read_weights(auto: Any, source: str | Path, config: PretrainedConfig) -> tuple[PreTrainedModel, set[str]]:
    """Load the model of class family `auto` in float32, and the names of parameters missing in the folder."""
    import torch

    if Path(locate(source)).is_dir():
        check_weights(Path(locate(source)))
    with reading(source), _no_foreign_conversion():
        check_name_in(config, str(source))
        _check_hub_files(source)
        model, report = auto.from_pretrained(
            **_access(source),
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    odd = report.get("mismatched_keys")
    if odd:
        raise ModelError(f"weights in {str(source)!r} have other shapes than its config.json says: {sorted(odd)[:3]}")
    return model, set(report.get("missing_keys") or ())
