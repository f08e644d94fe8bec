"""Every public name has an example that runs, and what Python does the command line can go on with."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import isthmus
from isthmus.cli.app import run as command
from isthmus.core.errors import DataError, RunError, UsageError
from isthmus.data import Splits
from isthmus.defences import FreeLB, Normalise

toys = importlib.import_module("training_toys")

SYNONYMS = str(Path(__file__).parent / "support" / "synonyms.json")
ROWS = [("a lovely film", "good"), ("a dull plot", "bad"), ("a warm scene", "good"), ("a stale actor", "bad")] * 8
QUICK = isthmus.TrainingSettings(epochs=1, batch_size=8, learning_rate=1e-2, precision="fp32")


def classify(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1] if "dull" in text or "stale" in text else [0.1, 0.9] for text in texts]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "backbone"
    toys.classifier().save(folder)
    return folder


@pytest.mark.parametrize("name", isthmus.__all__)
def test_every_public_name_has_an_example_that_runs(
    name: str, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documented = inspect.getdoc(getattr(isthmus, name)) or ""
    text = documented.replace('backbone="minilm"', f"backbone={str(backbone)!r}")
    test = doctest.DocTestParser().get_doctest(text, {"table": SYNONYMS}, name, None, None)
    assert test.examples, f"isthmus.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    said: list[str] = []
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_what_python_trains_the_command_line_attacks_and_the_other_way_round(
    backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"train": ROWS, "dev": ROWS[:8], "test": ROWS[:6]}
    model = isthmus.train(data, backbone, (Normalise(), FreeLB(steps=2)), settings=QUICK, folder="run", device="cpu")
    assert model.labels == ("bad", "good")
    opened = isthmus.open_run("run")
    assert opened.defence == "normalise+freelb"
    assert len(opened.load_data().test) == 6
    attack = ["attack", "run", "--attack", "deepwordbug", "--n", "6", "--no-label-check", "--quiet", "--device", "cpu"]
    assert command(attack) == 0
    capsys.readouterr()
    found = isthmus.open_run("run").attacks["deepwordbug"]
    again = isthmus.attack("run", "deepwordbug", n=6, device="cpu")
    assert list(again) == list(found)
    # The same by objects, with nothing written.
    beside = isthmus.attack(model, "deepwordbug", data, n=6, device="cpu")
    assert {each.id: each.outcome for each in beside} == {each.id: each.outcome for each in found}
    assert "run" in isthmus.open_run("run").to_html()
    assert isthmus.evaluate("run", device="cpu").summary().n == 6
    assert "calibration" not in json.loads((tmp_path / "run/run.json").read_text())["defence"]["name"]
    # The same call finds the finished run; other data are refused.
    assert isthmus.train(data, backbone, "normalise+freelb", parameters={"freelb.steps": 2}, settings=QUICK,
                         folder="run", device="cpu").labels == ("bad", "good")  # fmt: skip
    with pytest.raises(RunError, match="other data"):
        isthmus.train(ROWS[:10], backbone, settings=QUICK, folder="run")


def test_a_run_of_the_command_line_is_a_run_of_python(
    backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *(f"{text},{label}" for text, label in ROWS)]))
    given = ["--data", "rows.csv", "--backbone", str(backbone), "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    assert command(["train", *given, "--out", "made", "--quiet"]) == 0
    capsys.readouterr()
    opened = isthmus.open_run("made")
    same = isthmus.train(
        isthmus.load_data("rows.csv"), backbone, folder="twin", device="cpu",
        settings=isthmus.TrainingSettings(epochs=1, batch_size=8),
    )  # fmt: skip
    assert toys.same_bits(toys.weights(opened.load_model()), toys.weights(same))
    twin = json.loads((tmp_path / "twin/run.json").read_text())
    assert twin["data"]["source"] == "rows.csv"
    assert isthmus.measure("made", "calibration", device="cpu").figures
    assert isthmus.explain("made", "a dull plot", method="occlusion").words == ["a", "dull", "plot"]  # type: ignore[union-attr]


def test_results_are_sequences_that_sum_up_and_show_themselves() -> None:
    rows = [("a dull plot", "bad"), ("a fine film", "good"), ("a <b>stale</b> joke", "bad")]
    found = isthmus.attack(classify, "deepwordbug", rows, labels=("bad", "good"))
    assert len(found) == 3
    assert isinstance(found[:2], isthmus.AttackResults)
    assert found.summary().asr.low <= found.summary().asr.estimate <= found.summary().asr.high
    frame = found.to_dataframe()
    assert list(frame["id"]) == [each.id for each in found]
    page = found.to_html()
    assert "<del>dull</del>" in page
    assert "<b>stale</b>" not in page  # texts are escaped
    assert found._repr_html_() == found.to_html(20)
    assert "accuracy 100.0 %" in repr(found)
    judged = isthmus.evaluate(classify, rows, labels=("bad", "good"))
    assert isinstance(judged, isthmus.EvaluationResults)
    assert judged.summary().accuracy.estimate == 1.0
    assert "a fine film" in judged.to_html()
    assert "and 2 more" in judged.to_html(1)


@pytest.mark.parametrize(
    "plain",
    [
        ROWS,
        [{"text": text, "label": label} for text, label in ROWS],
        ([text for text, _ in ROWS], [label for _, label in ROWS]),
    ],
    ids=["pairs", "records", "two lists"],
)
def test_plain_input_is_taken(plain: Any) -> None:
    found = isthmus.load_data(plain, "all")
    assert found.labels == ("bad", "good")
    assert [example.texts["text"] for example in found] == [text for text, _ in ROWS]


def test_frames_and_hub_data_sets_are_taken() -> None:
    pandas = pytest.importorskip("pandas")
    datasets = pytest.importorskip("datasets")
    columns = {"text": [text for text, _ in ROWS], "label": [int(label == "good") for _, label in ROWS]}
    assert len(isthmus.load_data(pandas.DataFrame(columns), "all")) == len(ROWS)
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["dreadful", "fine"])}
    )
    hub = datasets.DatasetDict({"train": datasets.Dataset.from_dict(columns, features=features)})
    found = isthmus.load_data(hub)
    assert isinstance(found, Splits)
    assert found.train.labels == ("dreadful", "fine")
    pairs = isthmus.load_data([("it rains", "it is wet", "yes"), ("it rains", "it is dry", "no")], "all")
    assert pairs.fields == ("premise", "hypothesis")


@pytest.mark.parametrize("wrong", [3, [], ["a", "b"], [("a",)], (["a"], [1, 2])])
def test_what_is_no_data_says_what_would_be(wrong: Any) -> None:
    with pytest.raises(DataError):
        isthmus.load_data(wrong)


def test_calls_that_cannot_be_right() -> None:
    with pytest.raises(UsageError, match="has no data of its own"):
        isthmus.attack(classify, "deepwordbug")
    with pytest.raises(UsageError, match="needs a model and data that have names"):
        isthmus.attack(classify, "deepwordbug", ROWS, out="somewhere")
    with pytest.raises(UsageError, match="where it is made"):
        isthmus.attack(classify, isthmus.attacks.DeepWordBug(), ROWS, edit="swap")
    with pytest.raises(UsageError, match="given by name"):
        isthmus.train(ROWS, defence=FreeLB(), parameters={"steps": 2})
    with pytest.raises(RunError, match="no run folder"):
        isthmus.open_run("nowhere")


def test_an_attack_matches_the_labels_of_a_data_set_by_name() -> None:
    splits = isthmus.load_data({"test": [("a lovely film", "good"), ("a dull plot", "bad")]})
    assert splits["test"].labels == ("bad", "good")
    right = isthmus.load_victim(
        lambda texts: [[0.9, 0.1] if "lovely" in text else [0.1, 0.9] for text in texts], labels=("good", "bad")
    )
    results = list(isthmus.attacks.DeepWordBug()(right, splits["test"]))
    assert {result.outcome for result in results} <= {"succeeded", "failed"}
    assert [result.label for result in sorted(results, key=lambda result: result.id)] == [0, 1]
