"""A tokenizer that knows no word makes every text the same: it is refused, with the file that is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, BertTokenizer

from isthmus.core.errors import ModelError
from isthmus.models.transformers_files import read_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "kino", "##s", "schön"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of an earlier transformers: settings in one file, the vocabulary in another."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 32}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return tmp_path


def test_a_small_vocabulary_of_another_language_will_do(folder: Path) -> None:
    tokenizer = read_tokenizer(folder)
    assert tokenizer.unk_token_id not in tokenizer("kinos", add_special_tokens=False)["input_ids"]


def lose(folder: Path) -> None:
    (folder / "vocab.txt").unlink()


def empty(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(WORDS[:5]) + "\n[unused0]\n")


@pytest.mark.parametrize(("damage", "said"), [(lose, "vocab.txt"), (empty, "vocab.txt hold no word")])
def test_a_tokenizer_without_its_vocabulary_is_refused(folder: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(folder)
    text = AutoTokenizer.from_pretrained(folder)("kinos", add_special_tokens=False)["input_ids"]
    assert set(text) == {AutoTokenizer.from_pretrained(folder).unk_token_id}  # What transformers would go on with.
    with pytest.raises(ModelError, match="knows no word") as refused:
        read_tokenizer(folder)
    assert said in str(refused.value)


def test_an_emptied_tokenizer_json_is_refused(folder: Path) -> None:
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    file = folder / "tokenizer.json"
    assert read_tokenizer(folder)("schön")["input_ids"]
    content = json.loads(file.read_text())
    content["model"]["vocab"] = {word: place for place, word in enumerate(WORDS[:5])}
    file.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="knows no word"):
        read_tokenizer(folder)
