"""What the pages take for granted, at toy size: data sets, a small encoder, files of a reader's own, a server, runs."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
import training_toys as toys
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification, BertModel
from wordnet_toys import write_wordnet

from isthmus import assets
from isthmus.cli.app import run
from isthmus.core.errors import AssetError

QUICK = ("--epochs", "6", "--limit", "48", "--batch-size", "8", "--lr", "0.01", "--quiet")
PLAIN = ("train", "--data", "rotten_tomatoes", "--backbone", "minilm")
DIGITS = ("train", "--data", "digits", "--backbone", "mlp")
RUNS = {
    "demo": PLAIN,
    "plain": PLAIN,
    "standard": PLAIN,
    "sentiment": PLAIN,
    "cnn": ("train", "--data", "rotten_tomatoes", "--backbone", "cnn"),
    "nli": ("train", "--data", "nli", "--backbone", "minilm"),
    "vib": (*PLAIN, "--defence", "vib"),
    "vib-2": (*PLAIN, "--defence", "vib", "-P", "beta=0.1"),
    "digits-epochs": (*DIGITS, "--defence", "vib", "-S", "snapshots=true"),
    "digits-vib-1": (*DIGITS, "--defence", "vib"),
    "digits-vib-2": (*DIGITS, "--defence", "vib", "-P", "beta=0.1"),
    "digits-adv-1": (*DIGITS, "--defence", "adversarial", "-P", "attack=fgsm", "-P", "ratio=0.25"),
    "digits-adv-2": (*DIGITS, "--defence", "adversarial", "-P", "attack=fgsm", "-P", "ratio=0.75"),
    "rsmi": (*PLAIN, "--defence", "rsmi"),
    "safer": (*PLAIN, "--defence", "safer"),
    "vub": (*PLAIN, "--defence", "vub"),
    "infobert": (*PLAIN, "--defence", "infobert"),
    "flat": (*PLAIN, "--defence", "flat", "-P", "points=0"),
    "flat-plain": (*PLAIN, "--defence", "flat", "-P", "points=0", "-P", "gamma=0"),
    "freelb": (*PLAIN, "--defence", "freelb"),
    "model-reviews": PLAIN,
    "smooth": (*PLAIN, "--defence", "label_smoothing"),
    "other": PLAIN,
    "digits-vib": (*DIGITS, "--defence", "vib", "-P", "latent=16"),
    "digits-noise": (*DIGITS, "--defence", "gaussian_noise"),
    "normalised": (*PLAIN, "--defence", "normalise"),
    "infobert-qa": ("train", "--task", "qa", "--data", "squad/", "--backbone", "minilm", "--defence", "infobert"),
    "answers": ("train", "--task", "qa", "--data", "squad/", "--backbone", "minilm"),
}
"""Runs that a page speaks of and another page makes, or `make demo`."""
PATTERNS = {
    "runs/vib-*": "runs/vib runs/vib-2",
    "runs/digits-vib-*": "runs/digits-vib-1 runs/digits-vib-2",
    "runs/digits-adv-*": "runs/digits-adv-1 runs/digits-adv-2",
}
"""Runs that a pattern of a page stands for."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """A reader's folder as the working one, where assets are the toys and nothing is fetched."""
    furnish(folder)
    with pytest.MonkeyPatch.context() as patch, server() as port:
        patch.chdir(folder)
        patch.setenv("ISTHMUS_ASSETS", str(folder / "assets"))
        patch.setenv("COLUMNS", "120")
        patch.setenv("PORT_OF_THE_PAGE", str(port))
        patch.setattr(assets, "path", local_only(folder))
        forget_assets()
        yield folder
    forget_assets()


def forget_assets() -> None:
    """Let go of word lists and models kept by their names: the folder's toys must not answer the tests that follow."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("isthmus.lexicon", "isthmus.models", "isthmus.attacks")):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def local_only(folder: Path) -> Callable[..., Path]:
    def path(name: str, *_: object) -> Path:
        if (folder / "assets" / name).exists():
            return folder / "assets" / name
        raise AssetError(f"{name} is not there: tests fetch nothing")

    return path


def isthmus(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["isthmus", *words])
        return run(list(words))


def make_run(name: str) -> None:
    """Train a run that a page speaks of, unless it is there."""
    if not Path("runs", name).exists():
        assert isthmus(*RUNS[name], *QUICK, "--out", f"runs/{name}") == 0, name


def attack_run(name: str, attack: str) -> None:
    """Attack a run, unless that is done."""
    if not Path("runs", name, "attacks", f"{attack}.jsonl").exists():
        command = ("attack", f"runs/{name}", "--attack", attack, "--n", "24", "--no-label-check", "--quiet")
        assert isthmus(*command) == 0, name


def text(stream: random.Random, label: int) -> str:
    words = [stream.choice(toys.PLAIN) for _ in range(stream.randint(4, 9))]
    words[1:1] = stream.sample(toys.GOOD if label else toys.BAD, 2)
    return " ".join(words)


def furnish(place: Path) -> None:
    """Put everything but the runs into a folder."""
    stream = random.Random(0)
    for name, labels in {"rotten_tomatoes": ("negative", "positive"), "sms_spam": ("ham", "spam")}.items():
        for split, size in {"train": 48, "dev": 24, "test": 24}.items():
            rows = [{"text": text(stream, n % 2), "label": labels[n % 2]} for n in range(size)]
            write_rows(place / name / f"{split}.jsonl", rows)
    pairs = [{"premise": text(stream, n % 2), "hypothesis": text(stream, n % 2)} for n in range(48)]
    relations = ("entailment", "neutral", "contradiction")
    rows = [{**pair, "label": relations[n % 3]} for n, pair in enumerate(pairs)]
    for split in ("nli/train", "nli/dev", "nli/test", "data/anli/dev_r1", "data/anli/dev_r2", "data/anli/dev_r3"):
        write_rows(place / f"{split}.jsonl", rows)
    attacked = [
        {
            "sentence": text(stream, n % 2),
            "original_sentence": text(stream, n % 2),
            "label": ("negative", "positive")[n % 2],
        }
        for n in range(16)
    ]
    write_rows(place / "data/advglue/dev_sst2.jsonl", attacked)
    lines = [f"{text(stream, n % 2)},{('negative', 'positive')[n % 2]}" for n in range(60)]
    (place / "reviews.csv").write_text("\n".join(["review,stars", *lines]))
    write_questions(place, stream)
    write_encoder(place / "minilm")
    write_classifier(place / "some/transformers-model")
    write_classifier(place / "model")
    write_onnx(place)
    write_pickled(place / "old-model")
    (place / "mymodule.py").write_text(MODULE)
    write_package(place / "mymethods")
    (place / "assets").mkdir()
    write_vectors(place / "assets/counter-fitted-vectors.txt", stream)
    (place / "assets/wordnet").mkdir()
    write_wordnet(place / "assets/wordnet")


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_vectors(path: Path, stream: random.Random) -> None:
    """Word vectors that take a word of praise for its opposite, as WordNet's toy does: so that attacks succeed."""
    lines = [f"{word} " + " ".join(f"{stream.gauss(0, 1):.3f}" for _ in range(12)) for word in toys.PLAIN]
    for praise, blame in zip(toys.GOOD, reversed(toys.BAD), strict=True):
        place = [stream.gauss(0, 1) for _ in range(12)]
        lines += [
            f"{word} " + " ".join(f"{at + stream.gauss(0, 0.05):.3f}" for at in place) for word in (praise, blame)
        ]
    path.write_text("\n".join(lines))


def write_questions(place: Path, stream: random.Random) -> None:
    def questions(count: int, kind: str) -> dict[str, object]:
        paragraphs = []
        for number in range(count):
            context = text(stream, 1)
            word = next(word for word in context.split() if word in toys.GOOD)
            answer = {"text": word, "answer_start": context.index(word)}
            asked = [{"id": f"{kind}{number}{more}", "question": "film", "answers": [answer]} for more in ("", "-a")]
            paragraphs.append({"context": context, "qas": asked})
        return {"data": [{"title": kind, "paragraphs": paragraphs}]}

    (place / "squad").mkdir()
    (place / "squad/train-v1.1.json").write_text(json.dumps(questions(24, "t")))
    (place / "squad/dev-v1.1.json").write_text(json.dumps(questions(8, "d")))
    (place / "addsent.json").write_text(json.dumps(questions(8, "a")))


def config(labels: tuple[str, ...]) -> BertConfig:
    return BertConfig(
        vocab_size=len(toys.tokenizer()),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.2,
        id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
    )


def write_encoder(folder: Path) -> None:
    torch.manual_seed(0)
    BertModel(config(("0", "1"))).save_pretrained(folder)
    toys.tokenizer().save_pretrained(folder)


def write_classifier(folder: Path) -> None:
    torch.manual_seed(0)
    BertForSequenceClassification(config(("negative", "positive"))).save_pretrained(folder)
    toys.tokenizer().save_pretrained(folder)


def write_pickled(folder: Path) -> None:
    """A classifier as older versions of transformers saved it."""
    write_classifier(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def write_package(folder: Path) -> None:
    """Methods of a reader's own, each in the module that the page names."""
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    stranger = Path(__file__).parents[1] / "extensions" / "stranger.py"
    (folder / "everything.py").write_text(stranger.read_text(encoding="utf-8"))
    homes = {"attacks": "Shout", "defences": "Soft", "proofs": "Never as Interval", "measures": "Length"}
    for module, name in {**homes, "words": "Letters", "data": "reviews"}.items():
        (folder / f"{module}.py").write_text(f"from mymethods.everything import {name}\n")


MODULE = f"""
def classify(texts):
    return [[0.1, 0.9] if set(text.split()) & set({list(toys.GOOD)!r}) else [0.9, 0.1] for text in texts]
"""


def write_onnx(place: Path) -> None:
    """A bag of words that tells spam from ham, with its tokenizer beside it."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    tokenizer = toys.tokenizer()
    table = np.zeros((len(tokenizer), 2), np.float32)
    for word in toys.GOOD:
        table[tokenizer.convert_tokens_to_ids(word)] = (-1.5, 1.5)
    for word in toys.BAD:
        table[tokenizer.convert_tokens_to_ids(word)] = (1.5, -1.5)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["rows", "length"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 2])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("ReduceSum", ["words", "axes"], ["logits"], keepdims=0),
    ]
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axes")]
    graph = helper.make_graph(nodes, "bag", [ids], [logits], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, place / "detector.onnx")
    tokenizer.save_pretrained(place)
    (place / "config.json").write_text('{"id2label": {"0": "ham", "1": "spam"}, "model_type": "bert"}')


@contextlib.contextmanager
def server() -> Iterator[int]:
    """A classifier behind an address; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
            good = [sum(word in toys.GOOD for word in str(each).split()) for each in texts]
            body = json.dumps({"scores": [[0.9, 0.1] if count == 0 else [0.1, 0.9] for count in good]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running.server_address[1]
    running.shutdown()
