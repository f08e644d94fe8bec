"""Runs that were really trained, evaluated on their own data and on texts that fooled each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import measure_toys as toys
import numpy as np
import pytest
import training_toys

from isthmus.core.errors import UnknownName, UsageError
from isthmus.models.victims import load_victim
from isthmus.runs.folder import RunFolder
from isthmus.verbs.attack import AttackRequest, attack
from isthmus.verbs.evaluate import EvaluateRequest, SetRequest, evaluate


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    place = tmp_path_factory.mktemp("runs")
    return {name: toys.toy_run(place, name, name) for name in ("standard", "vib")}


def on(run: RunFolder, *sources: object, **more: Any) -> EvaluateRequest:
    sets = SetRequest(on=tuple(map(str, sources)), **{key: more.pop(key) for key in ("split", "rows") if key in more})
    return EvaluateRequest(str(run.path), sets, device="cpu", **more)


def scores_of(outcome: Any, way: str) -> list[Any]:
    return [result.scores[way] for result in outcome.results]


def test_a_run_is_evaluated_on_its_own_test_data_in_its_own_folder(runs: dict[str, RunFolder]) -> None:
    report = evaluate(on(runs["standard"]))
    (outcome,) = report.outcomes
    assert report.folder.path == runs["standard"].path
    assert outcome.file.rows_path == runs["standard"].path / "evaluations/data-test.jsonl"
    assert outcome.header["set"]["kind"] == "own"
    data = training_toys.dataset("test", 24, 0)
    scores = load_victim(runs["standard"].model_path, device="cpu").scores(data.texts())
    accuracy = outcome.header["summary"]["ways"]["model"]["accuracy"]["estimate"]
    assert accuracy == pytest.approx(float((scores.argmax(axis=1) == data.label_indices()).mean()), abs=1e-6)
    kept = np.array(scores_of(outcome, "model"))
    assert np.allclose(kept, scores, rtol=1e-6)
    every = evaluate(on(runs["standard"], split=("all",)))
    assert [each.file.key for each in every.outcomes] == ["data-train", "data-dev", "data-test"]
    assert every.outcomes[-1].made == 0
    with pytest.raises(UnknownName, match="no split in data named 'tset'"):
        evaluate(on(runs["standard"], split=("tset",)))


def test_a_stochastic_run_has_three_ways_that_repeat(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    first, second = (evaluate(on(runs["vib"], out=tmp_path / name)).outcomes[0] for name in "ab")
    assert first.header["ways"] == ["mean", "sample", "average"]
    assert first.header["headline"] == "mean"
    assert first.file.rows_path.read_bytes() == second.file.rows_path.read_bytes()
    # A mean code needs no draws: it is what the saved model says.
    data = training_toys.dataset("test", 24, 0)
    scores = load_victim(runs["vib"].model_path, device="cpu").scores(data.texts())
    assert np.allclose(scores_of(first, "mean"), scores, rtol=1e-6)
    other = evaluate(on(runs["vib"], out=tmp_path / "a", seed=1)).outcomes[0]
    assert other.file.key.startswith("data-test@")
    assert scores_of(other, "mean") == scores_of(first, "mean")
    assert scores_of(other, "sample") != scores_of(first, "sample")


def test_ways_cannot_be_chosen_twice(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    for key, value in {"latent": "sample", "draws": 3}.items():
        with pytest.raises(UsageError, match="--draws sets the number of draws"):
            evaluate(on(runs["vib"], out=tmp_path / key, victim={key: value}))


def test_texts_that_fooled_one_run_are_put_to_the_other(runs: dict[str, RunFolder]) -> None:
    request = AttackRequest(str(runs["standard"].path), ("deepwordbug",), n=24, device="cpu", label_check=False)
    results = [each for each in attack(request).outcomes[0].results if each.outcome in ("succeeded", "failed")]
    journal = runs["standard"].attacks_path / "deepwordbug.jsonl"
    (own,) = evaluate(on(runs["standard"], journal, rows="all")).outcomes
    held = sum(each.outcome == "failed" for each in results)
    # On the attacked model itself: robust among what it got right, and the originals all right.
    assert own.header["summary"]["ways"]["model"]["accuracy"]["estimate"] == pytest.approx(
        held / len(results), abs=1e-6
    )
    assert own.header["summary"]["original"]["ways"]["model"]["accuracy"]["estimate"] == 1.0
    (other,) = evaluate(on(runs["vib"], journal, rows="all")).outcomes
    assert other.file.key == "standard-deepwordbug"
    assert other.header["set"]["attacked_model"] == "standard"
    assert set(other.header["summary"]["difference"]) == {"mean", "sample", "average"}


def test_a_useless_run_is_a_result(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    """Its labels have names, so nothing can be mixed up: answering worse than by chance is what it does."""
    lines = [{"text": "a lovely film", "label": "bad"}, {"text": "a dull film", "label": "good"}] * 20
    (tmp_path / "turned.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (outcome,) = evaluate(on(runs["standard"], tmp_path / "turned.jsonl", out=tmp_path / "run")).outcomes
    assert outcome.header["suspicion"] is None


def test_the_trained_data_are_pointed_out(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    notes: list[str] = []

    class Listener:
        def note(self, message: str) -> None:
            notes.append(message)

        def begin(self, key: str, total: int, results: Any) -> None: ...
        def result(self, key: str, result: Any) -> None: ...
        def end(self, key: str) -> None: ...

    source = runs["standard"].record().data.source
    evaluate(on(runs["standard"], source, split=("train",), out=tmp_path / "run"), Listener())
    assert any("is the training data of this model" in note for note in notes)


def test_changed_data_are_not_taken_for_the_runs_own(runs: dict[str, RunFolder]) -> None:
    from isthmus.core.errors import DataError

    file = Path(runs["vib"].record().data.source) / "test.jsonl"
    before = file.read_text()
    try:
        file.write_text(before.replace("film", "movie"))
        with pytest.raises(DataError, match="is not what the model was trained with"):
            evaluate(on(runs["vib"]))
    finally:
        file.write_text(before)
