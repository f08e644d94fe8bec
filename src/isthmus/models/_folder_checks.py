"""Checks a transformers folder; errors name the file and the entry.

transformers reads a folder on trust: a damaged one ends in whatever its classes, torch or safetensors stumble over.
These checks come first and say which file to mend.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.errors import ModelError, RunError
from isthmus.core.files import explain_error, read_json

NO_LIMIT = -1
"""What a model without a limit on positions (XLNet) gives as their number; also a padding id that there is not."""
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_OF_THE_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_COMMON_WORDS = ("the", "a", "and", "1")
"""Of a usable vocabulary almost every one has one of these; where none is known all of it is looked at."""
_WORDS_TRIED = 64
_STRANGE = "☃ qxzzv"


def check_config(folder: Path) -> None:
    """Refuse a config.json with invalid entries."""
    file = folder / "config.json"
    if not file.exists():
        return
    config = _json_object(file)
    for name in _SIZES:
        value = config.get(name)
        if value is not None and not isinstance(value, list) and not _is_whole(value, least=1):
            raise _describe_wrong(file, name, value, "a positive whole number")
    positions = config.get("max_position_embeddings")
    if positions is not None and positions != NO_LIMIT and not _is_whole(positions, least=1):
        raise _describe_wrong(file, "max_position_embeddings", positions, "a positive whole number")
    classes = config.get("architectures")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise _describe_wrong(file, "architectures", classes, "a list of class names, or null")
    padding, words = config.get("pad_token_id"), config.get("vocab_size")
    if padding is not None and (
        not _is_whole(padding, least=NO_LIMIT) or (_is_whole(words, least=1) and padding >= words)
    ):
        among = f"one of the {words} tokens of the vocabulary" if _is_whole(words, least=1) else "a token's number"
        raise _describe_wrong(file, "pad_token_id", padding, f"{among}, or null")


def label_names(file: Path, config: Mapping[str, Any] | None = None) -> tuple[str, ...] | None:
    """The class names in a config.json, in the order of the outputs; None if it has none."""
    names = (_json_object(file) if config is None else config).get("id2label")
    if names is None:
        return None
    expected = 'an object such as {"0": "negative", "1": "positive"}, one name of its own for every output from 0'
    if not isinstance(names, dict) or not all(isinstance(name, (str, int)) for name in names.values()):
        raise _describe_wrong(file, "id2label", names, expected)
    try:
        pairs = sorted((int(key), str(name)) for key, name in names.items())
    except ValueError:
        raise _describe_wrong(file, "id2label", names, expected) from None
    if [key for key, _ in pairs] != list(range(len(pairs))) or len({name for _, name in pairs}) < len(pairs):
        raise _describe_wrong(file, "id2label", names, expected)
    return tuple(name for _, name in pairs)


def check_tokenizer_files(folder: Path) -> None:
    """Refuse a tokenizer whose files are not JSON objects."""
    for name in _OF_THE_TOKENIZER:
        if (folder / name).exists():
            _json_object(folder / name)
    if (folder / "tokenizer_config.json").exists():
        length = _json_object(folder / "tokenizer_config.json").get("model_max_length")
        if length is not None and (isinstance(length, bool) or not isinstance(length, (int, float)) or not length > 0):
            raise _describe_wrong(
                folder / "tokenizer_config.json", "model_max_length", length, "a positive number, or null"
            )


def check_vocabulary(tokenizer: Any, source: str, folder: Path) -> None:
    """Refuse a tokenizer without words: transformers makes one if the vocabulary file is missing.

    One whose vocabulary lacks the token for unknown words stumbles over the first of them.
    """
    try:
        tokenizer(_STRANGE)
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise ModelError(
            f"the tokenizer in {source!r} cannot read {_STRANGE!r}: {error}. tokenizer.json and tokenizer_config.json "
            "do not fit each other: save the tokenizer again"
        ) from error
    if _knows(tokenizer, _COMMON_WORDS):
        return
    special = set(tokenizer.all_special_tokens)
    bare = (token.strip("#Ġ▁").removesuffix("</w>") for token in tokenizer.get_vocab() if token not in special)
    if _knows(tokenizer, list(itertools.islice((word for word in bare if word.isalnum()), _WORDS_TRIED))):
        return
    files = [name for name in tokenizer.vocab_files_names.values() if name]
    there = [str(folder / name) for name in files if (folder / name).is_file()]
    found = f"{' and '.join(there)} hold no word" if there else f"{' or '.join(files) or 'its vocabulary'} is missing"
    raise ModelError(
        f"the tokenizer in {source!r} knows no word, so that all texts would be the same to the model: {found}. Save "
        "the tokenizer again: AutoTokenizer.from_pretrained(<the model it came from>).save_pretrained(<this folder>)"
    )


def _knows(tokenizer: Any, words: Sequence[str]) -> bool:
    """Whether the tokenizer knows any of these words."""
    unknown = tokenizer.unk_token_id
    return any(
        any(token != unknown for token in tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words
    )


def find_damaged_weights(folder: Path) -> str | None:
    """The first unreadable file of weights, and the reason; None if all can be read."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="np"):
                pass
        except OSError as error:
            return f"cannot read {file}: {explain_error(error)}"
        except SafetensorError as error:
            return f"{file} is damaged or cut short ({error}): copy or download it again"
    return None


def _json_object(file: Path) -> dict[str, Any]:
    try:
        value = read_json(file)
    except RunError as error:
        raise ModelError(str(error)) from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} should hold a JSON object, not {'null' if value is None else type(value).__name__}")
    return value


def _describe_wrong(file: Path, entry: str, value: Any, expected: str) -> ModelError:
    return ModelError(f"{entry} in {file} is {value!r:.80}; it should be {expected}")


def _is_whole(value: Any, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
