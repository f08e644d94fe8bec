"""What stands between a command and its first query."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAVY = (
    "transformers.trainer",
    "scipy.stats",
    "matplotlib",
    "datasets",
    "sklearn",
    "pandas",
    "nltk",
    "spacy",
    "onnxruntime",
)
SCRIPT = """
import sys
from isthmus.cli.app import run
code = run(["attack", "model", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", "3", "--no-label-check"])
print(code, *(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""


def test_an_attack_on_a_transformer_loads_nothing_heavy_that_it_does_not_use(place: Path) -> None:
    from encoder_toys import CONFIGS, tiny_tokenizer
    from transformers import BertForSequenceClassification

    BertForSequenceClassification(CONFIGS["bert"]()).save_pretrained("model")
    tiny_tokenizer().save_pretrained("model")
    script = SCRIPT.format(heavy=HEAVY)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "0", ended.stderr
    assert "deepwordbug" in ended.stdout


def test_garbage_is_collected_as_before_once_an_attack_is_over(isthmus: Any, place: Path) -> None:
    from isthmus.cli.garbage import collect_rarely

    before = gc.get_threshold()
    ended = isthmus("attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 2)
    assert ended.code == 0, ended.err
    assert gc.get_threshold() == before
    with collect_rarely():
        assert gc.get_threshold()[0] >= 100_000
    assert gc.get_threshold() == before


def test_an_attack_shows_its_queries_before_a_text_has_ended(
    isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.cli import progress

    monkeypatch.setattr(progress, "_LINE_EVERY_S", -1.0)
    ended = isthmus("attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 4)
    assert ended.code == 0, ended.err
    assert re.search(r"deepwordbug  0/4  0 s  fooled 0  withstood 0  \d+ queries", ended.err), ended.err
