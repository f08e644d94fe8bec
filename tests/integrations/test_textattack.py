"""The wrapper for TextAttack, against a stand-in for its two base classes and, where it is installed, itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from isthmus.core.errors import UsageError, VictimError
from isthmus.core.types import Example
from isthmus.integrations.textattack import dataset, model_wrapper

ROOT = Path(__file__).parents[2]


@pytest.fixture
def textattack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Modules that look like TextAttack from where we stand."""

    class ModelWrapper:
        def tokenize(self, inputs: list[Any], strip_prefix: bool = False) -> Any:
            return self._tokenize(inputs)  # type: ignore[attr-defined]

    class Dataset:
        def __init__(self, rows: list[Any], input_columns: list[str], label_names: list[str] | None) -> None:
            self.rows, self.input_columns, self.label_names = rows, input_columns, label_names

    names = ["textattack", "textattack.models", "textattack.models.wrappers", "textattack.datasets"]
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules["textattack.models.wrappers"].ModelWrapper = ModelWrapper
    modules["textattack.datasets"].Dataset = Dataset
    modules["textattack"].datasets = modules["textattack.datasets"]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "isthmus.integrations._textattack_wrapper", raising=False)
    yield modules["textattack"]
    sys.modules.pop("isthmus.integrations._textattack_wrapper", None)


def counting(texts: list[str]) -> list[list[float]]:
    return [[1 / (1 + len(text)), len(text) / (1 + len(text))] for text in texts]


def test_scores_are_those_of_the_victim_and_rows_are_distributions(textattack: ModuleType) -> None:
    def many_classes(texts: list[str]) -> Any:
        weights = np.random.default_rng(0).random((len(texts), 501)).astype(np.float32)
        return weights / weights.sum(axis=1, keepdims=True)

    scores = model_wrapper(many_classes)(["a", "b", "c"])
    assert isinstance(scores, torch.Tensor)
    # TextAttack puts rows that miss one by 1e-6 through another softmax, which flattens them.
    assert ((scores.sum(dim=1) - 1).abs() < 1e-12).all()
    assert np.allclose(scores.numpy(), many_classes(["a", "b", "c"]), atol=1e-7)
    assert np.allclose(model_wrapper(counting)(["abc"]).numpy(), counting(["abc"]))


def test_pairs_come_as_tuples_and_reach_the_victim_by_name(textattack: ModuleType) -> None:
    seen: list[Any] = []

    def entails(pairs: list[Any]) -> list[list[float]]:
        seen.extend(pairs)
        return [[0.5, 0.5] for _ in pairs]

    model_wrapper(entails)([("a premise", "a hypothesis")])
    model_wrapper(entails, fields=("question", "answer"))([("q", "a")])
    assert seen == [{"premise": "a premise", "hypothesis": "a hypothesis"}, {"question": "q", "answer": "a"}]
    with pytest.raises(UsageError, match="2 texts for a model that reads 1"):
        model_wrapper(entails, fields=("text",))([("q", "a")])


def test_nan_is_an_error_and_not_a_score(textattack: ModuleType) -> None:
    wrapper = model_wrapper(lambda texts: [[0.5, 0.5]] * len(texts))
    wrapper.victim = _Silent()
    with pytest.raises(VictimError, match="NaN"):
        wrapper(["good", "bad"])


class _Silent:
    labels = ("a", "b")
    stochastic = False

    def scores(self, texts: Any, keys: Any = None) -> Any:
        return np.full((len(texts), 2), np.nan, np.float32)


def test_gradients_and_tokens_where_the_victim_has_them(
    textattack: ModuleType, tiny: Callable[[Path], None], tmp_path: Path
) -> None:
    tiny(tmp_path)
    wrapper = model_wrapper(tmp_path, device="cpu")
    found = wrapper.get_grad("a good film")
    (tokens,) = wrapper.tokenize(["a good film"])
    assert found["gradient"].shape == (len(tokens), 8)
    assert len(found["ids"][0]) == len(tokens)
    assert np.abs(found["gradient"]).sum() > 0
    with pytest.raises(UsageError, match="needs gradients"):
        model_wrapper(counting).get_grad("a good film")
    with pytest.raises(UsageError, match="needs the model's tokens"):
        model_wrapper(counting).tokenize(["a good film"])


def test_examples_become_a_dataset(textattack: ModuleType) -> None:
    single = dataset([Example("0", {"text": "a film"}, 1)], labels=("no", "yes"))
    assert (single.rows, single.input_columns, single.label_names) == ([("a film", 1)], ["text"], ["no", "yes"])
    pair = dataset([Example("0", {"premise": "p", "hypothesis": "h"}, 2)])
    assert (pair.rows, pair.input_columns, pair.label_names) == ([(("p", "h"), 2)], ["premise", "hypothesis"], None)


def test_without_textattack_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textattack", None)
    for act in (lambda: model_wrapper(counting), lambda: dataset([])):
        with pytest.raises(UsageError, match="pip install --no-deps isthmus"):
            act()


# ---------------------------------------------------------------------- the real one

PYTHON = Path(os.environ.get("TEXTATTACK_VENV", ROOT / ".venv-textattack")) / "bin/python"
RECIPES = """
import os, sys
os.environ.setdefault("NLTK_DATA", sys.prefix + "/nltk_data")
import nltk, torch
nltk.download = lambda *_, **__: True
torch.set_num_threads(1)
import textattack
from textattack.attack_recipes import DeepWordBugGao2018
from textattack.models.wrappers import HuggingFaceModelWrapper
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from isthmus.core.types import Example
from isthmus.integrations.textattack import dataset, model_wrapper

folder, texts = sys.argv[1], ["a good film", "the dull plot of a bad story", "a lovely and great film"]
settings = dict(num_examples=len(texts), disable_stdout=True, silent=True, random_seed=0)

def results(wrapper):
    labels = torch.as_tensor(wrapper(texts)).argmax(dim=1).tolist()
    data = dataset([Example(str(i), {"text": text}, label) for i, (text, label) in enumerate(zip(texts, labels))])
    attacker = textattack.Attacker(DeepWordBugGao2018.build(wrapper), data, textattack.AttackArgs(**settings))
    found = attacker.attack_dataset()
    return [(type(one).__name__, one.num_queries, one.perturbed_text()) for one in found]

theirs = HuggingFaceModelWrapper(
    AutoModelForSequenceClassification.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
)
ours = results(model_wrapper(folder, device="cpu"))
assert ours == results(theirs), (ours, results(theirs))
print("attacked", len(ours))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="TextAttack has no environment here: make bench-textattack")
def test_a_recipe_of_textattack_finds_the_same_through_our_wrapper_as_through_its_own(
    tiny: Callable[[Path], None], tmp_path: Path
) -> None:
    tiny(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [str(PYTHON), "-c", RECIPES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "attacked 3" in done.stdout
