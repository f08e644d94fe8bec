"""What the laboratory works with: a toy classifier, a tiny network, their data, and one command of each verb."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fault_assets import write_index

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "dull", "poor"]
WORDS = [*GOOD, *BAD, "a", "the", "film", "story", "plot", "is", "was", "with", "and", "of", "very", "number"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TOY = f'''
GOOD, BAD = {GOOD!r}, {BAD!r}

def classify(texts):
    """Counts good and bad words; a misspelt one counts nothing."""
    rows = []
    for text in texts:
        words = text.lower().split()
        value = sum(word in GOOD for word in words) - sum(word in BAD for word in words) + 0.25
        p = 1 / (1 + 2.718281828 ** -value)
        rows.append([1 - p, p])
    return rows
'''


@dataclass(frozen=True)
class Case:
    """A command, and those that must have run before it."""

    name: str
    argv: tuple[str, ...]
    before: tuple[str, ...] = ()
    """Names of cases."""
    is_exhaustive: bool = False
    """Whether CI breaks every one of its writes; else some, chosen by a seed."""
    call: str | None = None
    """``module:function`` that gets the arguments instead of the command line."""
    is_refused_when_done: bool = False
    """Whether the finished command, given again, says that its result is there already."""


TRAIN = (
    "train", "--data", "reviews.csv", "--backbone", "tiny", "--epochs", "2", "--batch-size", "4", "--out", "run",
    "-S", "checkpoint_every=6", "--device", "cpu",
)  # fmt: skip
OPTIONS = ("--device", "cpu", "--no-label-check")

CASES = {
    case.name: case
    for case in (
        Case(
            "attack",
            ("attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", "4", "--trace",
             "--labels", "negative,positive", "--export", "found.jsonl", "--out", "out"),
            is_exhaustive=True,
        ),
        Case("train", TRAIN),
        Case("attack-run", ("attack", "run", "--attack", "deepwordbug,leet", "--n", "4", *OPTIONS), ("train",)),
        Case("attack-embeddings", ("attack", "run", "--attack", "fgsm", "-P", "epsilon=0.2", "--n", "4", *OPTIONS),
             ("train",)),
        Case("train-images", ("train", "--data", "stripes.npz", "--backbone", "mlp", "--epochs", "1", "--out",
                              "pictures", "--device", "cpu")),
        Case("attack-images", ("attack", "pictures", "--attack", "fgsm,pgd", "-P", "epsilon=0.2", "-P", "pgd.steps=3",
                               "--n", "8", *OPTIONS), ("train-images",)),
        Case("report-images", ("report", "pictures"), ("train-images", "attack-images")),
        Case("evaluate", ("evaluate", "run", *OPTIONS), ("train",)),
        Case("certify", ("certify", "run", "-P", "sigma=0.1", "-P", "n=50", "-P", "pgd=2", "--n", "4", *OPTIONS),
             ("train", "attack-run")),
        Case("measure", ("measure", "run", "--measure", "calibration,anchored_words", "--n", "4", "--device", "cpu"),
             ("train", "attack-run")),
        Case("report", ("report", "run"), ("train", "attack-run", "evaluate", "certify", "measure")),
        Case("explain", ("explain", "run", "a fine film", "--html", "page.html", "--keep", "--device", "cpu"),
             ("train",)),
        Case("convert", ("convert", "pickled", "--out", "converted"), is_refused_when_done=True),
        Case("assets", ("assets", "fetch", "toy"), call="fault_assets:run"),
        Case("export", ("export", "run", "rows.csv"), ("train", "attack-run")),
        Case("export-texts", ("export", "out", "texts.jsonl"), ("attack",)),
    )
}  # fmt: skip


def make_inputs(folder: Path) -> None:
    """The toy classifier, its data, and a tiny network with random weights, as transformers saves one."""
    folder.mkdir(parents=True)
    (folder / "toy.py").write_text(TOY)
    write_reviews(folder / "reviews.csv", 40)
    write_stripes(folder / "stripes.npz", 60)
    write_network(folder / "tiny")
    pickle_network(folder / "tiny", folder / "pickled")
    write_index(folder / "index")


def pickle_network(folder: Path, out: Path) -> None:
    import torch
    from safetensors.torch import load_file

    shutil.copytree(folder, out)
    torch.save(load_file(out / "model.safetensors"), out / "pytorch_model.bin")
    (out / "model.safetensors").unlink()


def write_reviews(path: Path, n: int) -> None:
    """Every third review holds two telling words, the others one."""
    lines = ["text,label"]
    for number in range(n):
        words = (GOOD if number % 2 else BAD)[number // 2 % 4 :] or ["fine"]
        telling = " and ".join(words[: 2 if number % 3 == 0 else 1])
        lines.append(f"a {telling} film number {number},{'positive' if number % 2 else 'negative'}")
    path.write_text("\n".join(lines) + "\n")


def write_stripes(path: Path, n: int) -> None:
    """Grey images of one bright stripe each, whose place is the class."""
    import numpy as np

    labels = np.arange(n) % 3
    images = np.random.default_rng(0).integers(0, 120, (n, 6, 6))
    images[np.arange(n), 2 * labels] += 120
    np.savez(path, images=images.astype(np.uint8), labels=labels)


def write_network(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder.mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)))
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=40, id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1}, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fresh(template: Path, work: Path) -> None:
    """An unspoilt copy of a folder, always at the same place, so that nothing depends on where it lies."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(template, work)


def spread(count: int, most: int, rng: random.Random) -> Sequence[int]:
    """All numbers below `count`, or at most `most` of them; the last is always there."""
    return range(count) if count <= most else sorted({count - 1, *rng.sample(range(count), most - 1)})
