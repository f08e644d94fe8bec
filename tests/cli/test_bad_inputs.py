"""What a user can get wrong: one message that names it, never "a bug in isthmus"."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


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
    assert "bug in isthmus" not in said, said
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
    "classes a number": (setting("config.json", architectures=5), "architectures"),
    "weights named elsewhere": (setting("config.json", transformers_weights="x.bin"), "transformers_weights"),
    "no token for unknown words": (content("tokenizer_config.json", "{}"), "tokenizer_config.json"),
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


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_weights_that_cannot_be_read(
    isthmus: Any, model: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    import safetensors
    import safetensors.torch

    def refuse(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(safetensors, "safe_open", refuse)
    monkeypatch.setattr("transformers.modeling_utils.safe_open", refuse, raising=False)
    (model / "model.safetensors").write_bytes(b"")
    ended = isthmus("attack", model, "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 4)
    refused(ended, "model.safetensors")


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("draws=x", "draws is a whole number"),
        ("draws=0", "draws is a whole number"),
        ("draws=1.5", "draws is a whole number"),
        ("fixed=maybe", "fixed is true or false"),
        ("deployed=maybe", "deployed is true or false"),
        ("latent=nonsense", "nonsense"),
    ],
)
def test_a_bad_option_of_a_classifier(isthmus: Any, model: Path, option: str, named: str) -> None:
    refused(isthmus("attack", model, "--data", "reviews.csv", "--attack", "deepwordbug", "-V", option), named)


# ---------------------------------------------------------------------- options, addresses, names

ATTACK = ("attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", "4")
LONG = "n" * 5000

OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "timeout a word": ((*ATTACK, "-V", "timeout=abc"), ("timeout", "'abc'")),
    "timeout nan": ((*ATTACK, "-V", "timeout=nan"), ("timeout", "nan")),
    "timeout negative": ((*ATTACK, "-V", "timeout=-1"), ("timeout", "-1")),
    "batch size a fraction": ((*ATTACK, "-V", "batch_size=1.5"), ("batch_size", "1.5")),
    "outputs unknown": ((*ATTACK, "-V", "outputs=foo"), ("outputs", "foo", "logits")),
    "stochastic a word": ((*ATTACK, "-V", "stochastic=maybe"), ("stochastic", "maybe")),
    "option unknown": ((*ATTACK, "-V", "colour=red"), ("colour",)),
    "time limit nan": ((*ATTACK, "--time-limit", "nan"), ("--time-limit", "nan")),
    "time limit infinite": ((*ATTACK, "--time-limit", "inf"), ("--time-limit", "inf")),
    "time limit zero": ((*ATTACK, "--time-limit", "0"), ("--time-limit", "0")),
    "device gpu": ((*ATTACK, "--device", "gpu"), ("device", "'gpu'", "cpu")),
    "device of a number": ((*ATTACK, "--device", "cuda:x"), ("device", "cuda:x")),
    "device that is not there": ((*ATTACK, "--device", "cuda:99"), ("device", "cuda:99", "cpu")),
    "device in training": (("train", "--data", "reviews.csv", "--device", "gpu"), ("device", "'gpu'")),
    "all and another": (
        ("attack", "toy:classify", "--data", "reviews.csv", "--attack", "all,foo"),
        ("attack", "'foo'"),
    ),
    "module unknown": (("attack", "absent_module:f", "--data", "reviews.csv"), ("absent_module",)),
    "module does not parse": (("attack", "broken:f", "--data", "reviews.csv"), ("broken.py", "line 1")),
    "module raises": (("attack", "raising:f", "--data", "reviews.csv"), ("raising", "ZeroDivisionError")),
    "attribute unknown": (("attack", "toy:absent", "--data", "reviews.csv"), ("toy", "absent")),
    "address with a bad port": (("attack", "http://host:port/", "--data", "reviews.csv"), ("port",)),
    "address with a port too large": (("attack", "http://host:70000/", "--data", "reviews.csv"), ("port",)),
    "address without a host": (("attack", "http://", "--data", "reviews.csv"), ("host",)),
    "address with a broken host": (("attack", "http://[::1/", "--data", "reviews.csv"), ("host",)),
    "address with a space": (("attack", "http://host/a b", "--data", "reviews.csv"), ("%20",)),
    "address unreachable": (
        ("attack", "http://127.0.0.1:9/", "--data", "reviews.csv", "-V", "retries=0"),
        ("127.0.0.1:9", "cannot be reached"),
    ),
    "header with a line break": (
        ("attack", "http://host/", "--data", "reviews.csv", "--header", "A: b\nC: d"),
        ("header",),
    ),
    "model name too long": (("attack", LONG, "--data", "reviews.csv"), ("nnn", "too long")),
    "data name too long": (("attack", "toy:classify", "--data", f"./{LONG}.csv"), ("nnn", "too long")),
    "out too long": ((*ATTACK, "--out", LONG), ("nnn", "too long")),
    "NUL in out": ((*ATTACK, "--out", "a\0b"), ("NUL",)),
    "NUL in the model": (("attack", "a\0b", "--data", "reviews.csv"), ("NUL",)),
    "out under a file": ((*ATTACK, "--out", "reviews.csv/out"), ("reviews.csv",)),
    "out a device": ((*ATTACK, "--out", "/dev/full"), ("/dev/full",)),
    "export to a device": ((*ATTACK, "--export", "/dev/full/x.csv"), ("/dev/full",)),
    "the root as a model": (("attack", "/", "--data", "reviews.csv"), ("'/'", "no model")),
    "the root as a backbone": (("train", "--backbone", "/", "--data", "reviews.csv", "--out", "out"), ("'/'",)),
    "an empty folder as a model": (("attack", ".", "--data", "reviews.csv"), ("'.'", "no model")),
    "pattern not a pattern": ((*ATTACK, "--protect-pattern", "(a"), ("(a",)),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_bad_option(isthmus: Any, place: Path, case: str) -> None:
    (place / "broken.py").write_text("def f(:\n")
    (place / "raising.py").write_text("1 / 0\n")
    arguments, named = OPTIONS[case]
    refused(isthmus(*arguments), *named)


def test_a_pattern_that_takes_for_ever(isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.attacks.parts._matching.SECONDS", 0.5)
    rows = [f"{'a' * 50}! film number {number},{'positive' if number % 2 else 'negative'}" for number in range(20)]
    (place / "long.csv").write_text("\n".join(["text,label", *rows]))
    began = time.monotonic()
    ended = isthmus("attack", "toy:classify", "--data", "long.csv", "--protect-pattern", "(a+)+$", "--out", "out")
    refused(ended, "'(a+)+$'", "repeats inside repeats")
    assert time.monotonic() - began < 20
    assert not (place / "out").exists()


MIXED = """
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset

def write():
    texts = [{"text": "a dull film"}, {"premise": "a film", "hypothesis": "a fine film"}] * 10
    examples = [Example(str(number), fields, number % 2) for number, fields in enumerate(texts)]
    return Dataset("mixed", "all", Classification(("negative", "positive")), tuple(examples))
"""


@pytest.mark.parametrize(
    "command",
    [
        ("attack", "model", "--attack", "deepwordbug", "--no-label-check", "--out", "out"),
        ("certify", "model", "--certificate", "exact", "--no-label-check", "--out", "out"),
        ("explain", "model"),
        ("train", "--backbone", "model", "--epochs", 1, "--out", "out"),
    ],
    ids=lambda command: command[0],
)
def test_texts_of_one_field_and_pairs_in_one_data_set(isthmus: Any, place: Path, model: Path, command: Any) -> None:
    (place / "mixtures.py").write_text(MIXED)
    ended = isthmus(*command, "--data", "mixtures:write")
    refused(ended, "example 0 has the fields text, and example 1 has premise, hypothesis", "two data sets")
    assert "loading" not in ended.err
    assert not (place / "out").exists()


def test_no_secret_of_an_address_is_written_anywhere(isthmus: Any, place: Path) -> None:
    key, word = "sk-0123456789", "hunter22"
    address = f"http://ann:{word}@127.0.0.1:9/classify?api_key={key}"
    ended = isthmus(
        "attack", address, "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 4, "--out", "out",
        "--labels", "negative,positive", "--no-label-check", "-V", "retries=0", "--header", f"X-Key: {key}",
    )  # fmt: skip
    assert ended.code == 2
    isthmus("report", "out")
    written = b"".join(file.read_bytes() for file in (place / "out").rglob("*") if file.is_file())
    for secret in (key, word):
        assert secret not in ended.err + ended.out
        assert secret.encode() not in written


def test_no_secret_reaches_the_log_of_a_fault(isthmus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.core import catalog

    def broken(name: str) -> None:
        raise ZeroDivisionError("http://ann:hunter22@host/?api_key=sk-0123456789")

    monkeypatch.setattr(catalog, "search", broken)
    for ended in (isthmus("show", "pwws"), isthmus("show", "pwws", "--debug")):
        log = ended.err.rsplit(" ", 1)[1].strip()
        said = ended.err + (Path(log).read_text() if Path(log).is_file() else "")
        Path(log).unlink(missing_ok=True)
        assert "ZeroDivisionError" in said
        assert "hunter22" not in said
        assert "sk-0123456789" not in said
