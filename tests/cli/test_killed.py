"""A command that was killed (with a real SIGKILL) and given again ends with the same files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "dull", "poor"]
WORDS = [*GOOD, *BAD, "a", "the", "film", "story", "plot", "is", "was", "with", "and", "of", "very"]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier with random weights, as transformers saves one."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder = tmp_path_factory.mktemp("killed") / "tiny"
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)))
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1}, initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(model_folder: Path) -> Path:
    path = model_folder.parent / "reviews.csv"
    lines = ["text,label"]
    for number in range(120):
        words = [WORDS[(number * 7 + place * (3 + number % 5)) % len(WORDS)] for place in range(8 + number % 9)]
        lines.append(f"{' '.join(words)} {number},{'positive' if number % 2 else 'negative'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def isthmus(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "isthmus", *map(str, arguments)]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def finish(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def kill_when(command: list[str], ready: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + 240
        while process.poll() is None and not ready():
            assert time.monotonic() < deadline, "it never got as far"
            time.sleep(0.002)
        assert process.poll() is None, "it ended before it could be killed"
        process.send_signal(signal.SIGSTOP)
        meanwhile()
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_killed_attack_ends_with_the_same_rows(model_folder: Path, data: Path, tmp_path: Path) -> None:
    def command(out: str, *more: object) -> list[str]:
        return isthmus(
            "attack", model_folder, "--data", data, "--attack", "deepwordbug", "--n", 0, "--no-label-check",
            "--out", tmp_path / out, *more,
        )  # fmt: skip

    whole, killed = (tmp_path / name / "attacks/deepwordbug.jsonl" for name in ("whole", "killed"))
    finish(command("whole", "--trace"))
    kill_when(command("killed", "--trace", "--in-flight", 2), lambda: count_lines(killed) >= 20)
    assert 20 <= count_lines(killed) < 120
    finish(command("killed", "--trace"))
    assert count_lines(whole) == 120
    assert killed.read_bytes() == whole.read_bytes()
    trace = "deepwordbug.trace.jsonl"
    assert killed.with_name(trace).read_bytes() == whole.with_name(trace).read_bytes()
    assert count_lines(whole.with_name(trace)) == sum(
        json.loads(line)["logical_queries"] for line in whole.read_text().splitlines()
    )


def test_an_attack_that_needs_gradients_runs_on_a_model_that_has_them(
    model_folder: Path, data: Path, tmp_path: Path
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {number} 1\n" for number, word in enumerate(WORDS, start=20)))
    ended = finish(
        isthmus(
            "attack", model_folder, "--data", data, "--attack", "hotflip", "--n", 4, "--no-label-check", "--json",
            "--out", tmp_path / "white", "-P", f"neighbours={vectors}", "-P", "part_of_speech=none",
        )
    )  # fmt: skip
    assert json.loads(ended.stdout)["outcomes"]["error"] == 0


def test_a_killed_training_ends_with_the_same_model(model_folder: Path, data: Path, tmp_path: Path) -> None:
    def command(out: str) -> list[str]:
        return isthmus(
            "train", "--data", data, "--backbone", model_folder, "--epochs", 4, "--batch-size", 4, "--out",
            tmp_path / out, "-S", "checkpoint_every=10", "--device", "cpu",
        )  # fmt: skip

    finish(command("whole"))
    log = tmp_path / "killed/train.jsonl"

    def second_is_refused() -> None:
        before = log.read_bytes()
        second = subprocess.run(command("killed"), capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
        assert second.returncode == 2
        assert "in use by `isthmus train` (process" in second.stderr
        assert log.read_bytes() == before

    kill_when(command("killed"), lambda: count_lines(log) >= 4, second_is_refused)
    assert (tmp_path / "killed/.lock").exists()
    assert not (tmp_path / "killed/model").exists()
    finish(command("killed"))
    for name in ("model/model.safetensors", "train.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "killed/checkpoints").exists()
    assert not (tmp_path / "killed/.lock").exists()
    check_the_finished_run(tmp_path / "killed", command("killed"))


def check_the_finished_run(run: Path, command: list[str]) -> None:
    """The run is left alone, refuses other settings, and is attacked on texts it was not trained on."""
    weights = (run / "model/model.safetensors").stat().st_mtime_ns
    assert "already holds this model" in finish(command).stderr
    assert (run / "model/model.safetensors").stat().st_mtime_ns == weights
    other = subprocess.run([*command, "--seed", "1"], capture_output=True, text=True, env=ENVIRONMENT)
    assert other.returncode == 2
    assert "seed: 0 -> 1" in other.stderr
    ended = finish(isthmus("attack", run, "--attack", "deepwordbug", "--n", 0, "--no-label-check", "--json"))
    assert json.loads(ended.stdout)["n"] == 12
    assert (run / "attacks/deepwordbug.jsonl").exists()


SLOW = """
import time

def classify(texts):
    time.sleep(0.004 * len(texts))
    return [[0.3, 0.7] if "good" in text else [0.8, 0.2] for text in texts]
"""


def test_a_killed_evaluation_ends_with_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    lines = [f"a {'good' if n % 3 else 'dull'} film {n},{'positive' if n % 2 else 'negative'}" for n in range(900)]
    (tmp_path / "many.csv").write_text("\n".join(["text,label", *lines]) + "\n")

    def command(out: str) -> list[str]:
        return isthmus(
            "evaluate", "slow:classify", "--on", "many.csv", "--labels", "negative,positive", "--out", tmp_path / out
        )

    whole, killed = (tmp_path / name / "evaluations/many.jsonl" for name in ("whole", "killed"))
    finish(command("whole"))
    kill_when(command("killed"), lambda: count_lines(killed) >= 200)
    assert 200 <= count_lines(killed) < 900
    assert "summary" not in json.loads(killed.with_suffix(".json").read_text())
    finish(command("killed"))
    assert count_lines(whole) == 900
    assert killed.read_bytes() == whole.read_bytes()
    one, other = (json.loads(path.with_suffix(".json").read_text())["summary"] for path in (whole, killed))
    assert one == other
