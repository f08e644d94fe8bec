"""What a user can get wrong: one message that names it, never "a fault in isthmus"."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "models"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny classifier of transformers with random weights."""
    import torch
    from encoder_toys import CONFIGS, tiny_tokenizer
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path_factory.mktemp("sound")
    config = CONFIGS["bert"]()
    config.num_labels = 2
    config.id2label, config.label2id = {0: "negative", 1: "positive"}, {"negative": 0, "positive": 1}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def model(sound: Path, place: Path) -> Iterator[Path]:
    """A copy to damage, beside the toy classifier and its data."""
    import shutil

    folder = place / "model"
    shutil.copytree(sound, folder)
    yield folder
    for file in folder.rglob("*"):
        file.chmod(0o700)


def refused(ended: Any, *named: str, code: int = 2) -> None:
    """One message that names the thing, and no traceback."""
    said = " ".join(ended.err.replace("│", " ").split())
    assert "fault in isthmus" not in said, said
    assert "Traceback" not in said
    assert ended.code == code, said
    for name in named:
        assert name in said, said


# ---------------------------------------------------------------------- model folders


def cut(share: float) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = folder / "model.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[: int(len(content) * share)])

    return damage


def setting(name: str, **entries: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        known = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**known, **entries}))

    return damage


def content(name: str, text: str | bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights empty": (cut(0), "model.safetensors"),
    "weights cut in the header": (cut(0.01), "model.safetensors"),
    "weights cut in the middle": (cut(0.5), "model.safetensors"),
    "weights cut at the end": (cut(0.999), "model.safetensors"),
    "weights of zeros": (content("model.safetensors", bytes(4096)), "model.safetensors"),
    "weights of text": (content("model.safetensors", "hello " * 100), "model.safetensors"),
    "id2label of junk": (setting("config.json", id2label={"a": "x", "b": "y"}), "id2label"),
    "id2label a list": (setting("config.json", id2label=["x", "y"]), "id2label"),
    "id2label a number": (setting("config.json", id2label=7), "id2label"),
    "id2label with gaps": (setting("config.json", id2label={"0": "x", "5": "y"}), "id2label"),
    "id2label of one name twice": (setting("config.json", id2label={"0": "x", "1": "x"}), "id2label"),
    "config null": (content("config.json", "null"), "config.json"),
    "config a list": (content("config.json", "[]"), "config.json"),
    "config cut": (content("config.json", '{"model_type": "be'), "config.json"),
    "config empty": (content("config.json", ""), "config.json"),
    "config not text": (content("config.json", b"\xff\xfe\x00"), "config.json"),
    "layers negative": (setting("config.json", num_hidden_layers=-1), "num_hidden_layers"),
    "layers a word": (setting("config.json", num_hidden_layers="three"), "num_hidden_layers"),
    "width zero": (setting("config.json", hidden_size=0), "hidden_size"),
    "heads zero": (setting("config.json", num_attention_heads=0), "num_attention_heads"),
    "positions negative": (setting("config.json", max_position_embeddings=-3), "max_position_embeddings"),
    "padding beyond the vocabulary": (setting("config.json", pad_token_id=99999), "pad_token_id"),
    "padding negative": (setting("config.json", pad_token_id=-7), "pad_token_id"),
    "padding a word": (setting("config.json", pad_token_id="zero"), "pad_token_id"),
    "no length": (setting("tokenizer_config.json", model_max_length=0), "model_max_length"),
    "length negative": (setting("tokenizer_config.json", model_max_length=-5), "model_max_length"),
    "length a word": (setting("tokenizer_config.json", model_max_length="long"), "model_max_length"),
    "length of the special tokens": (setting("tokenizer_config.json", model_max_length=2), "model_max_length"),
    "tokenizer null": (content("tokenizer.json", "null"), "tokenizer"),
    "tokenizer cut": (content("tokenizer.json", '{"version": "1'), "tokenizer"),
    "tokenizer settings a list": (content("tokenizer_config.json", "[]"), "tokenizer"),
    "tokenizer settings null": (content("tokenizer_config.json", "null"), "tokenizer"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_folder(isthmus: Any, model: Path, damage: str) -> None:
    harm, named = DAMAGES[damage]
    harm(model)
    ended = isthmus("attack", model, "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 4, "--no-label-check")
    refused(ended, named)


@pytest.mark.parametrize("damage", [name for name in DAMAGES if not name.startswith("id2label")])
def test_a_damaged_backbone(isthmus: Any, model: Path, damage: str) -> None:
    harm, named = DAMAGES[damage]
    harm(model)
    ended = isthmus("train", "--backbone", model, "--data", "reviews.csv", "--out", "out", "-S", "epochs=1")
    refused(ended, named)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="everything can be read here")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_that_may_not_be_read(isthmus: Any, model: Path, name: str) -> None:
    (model / name).chmod(0)
    ended = isthmus("attack", model, "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 4)
    refused(ended, name)
