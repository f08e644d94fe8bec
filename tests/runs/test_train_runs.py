"""What a training leaves in its run folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import training_toys as toys

from isthmus.core.calibration import expected_calibration_error
from isthmus.models import load_model
from isthmus.models.victims import ClassifierVictim
from isthmus.report.page import render
from isthmus.report.reliability import of_run
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder
from isthmus.runs.sources import DataRequest
from isthmus.runs.subject import load_run_data
from isthmus.runs.train import TrainRequest, train
from isthmus.training import TrainingSettings

SETTINGS = TrainingSettings(precision="fp32", epochs=3, batch_size=8, learning_rate=1e-2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    place = tmp_path_factory.mktemp("trained")
    toys.classifier().save(place / "backbone")
    for split, size in {"train": 32, "dev": 40}.items():
        data = toys.dataset(split, size, 0)
        rows = [{"text": each.texts["text"], "label": data.labels[int(each.label)]} for each in data]  # type: ignore[arg-type]
        (place / "data").mkdir(exist_ok=True)
        (place / "data" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = TrainRequest(
        DataRequest(str(place / "data")), str(place / "backbone"), settings=SETTINGS, out=place / "run", device="cpu"
    )
    return train(request).folder


def test_the_calibration_of_the_finished_model_is_noted_with_its_interval(run: RunFolder) -> None:
    results = run.record().results or {}
    found, dev = results["dev_calibration"], toys.dataset("dev", 40, 0)
    model = load_model(run.model_path)
    scores = ClassifierVictim(model).scores(dev.texts())
    right = scores.argmax(axis=1) == [model.labels.index(dev.labels[label]) for label in dev.label_indices()]
    expected = expected_calibration_error(scores.max(axis=1), right)
    assert found["ece"]["estimate"] == pytest.approx(expected, abs=1e-5)
    assert found["ece"]["estimate"] == pytest.approx(results["dev_ece"], abs=1e-5)
    assert found["ece"]["low"] <= expected <= found["ece"]["high"]
    assert sum(each["count"] for each in found["bins"]) == 40


def test_the_page_of_a_run_that_was_only_trained_draws_it(run: RunFolder, tmp_path: Path) -> None:
    view = read_run(run)
    ((name, panel),) = of_run(view)
    assert (name, panel) == ("development data", (run.record().results or {})["dev_calibration"])
    page = render(view)
    assert 'id="calibration"' in page
    assert "Reliability diagrams. development data: expected calibration error" in page
    assert "weighted by the texts" in page


@pytest.mark.parametrize("limit", [12, 32, 99])
def test_a_limited_training_finds_its_data_again(run: RunFolder, limit: int, tmp_path: Path) -> None:
    source = DataRequest.from_record(run.record().data)
    backbone, settings = str(run.path.parent / "backbone"), dataclasses.replace(SETTINGS, epochs=1)
    request = TrainRequest(source, backbone, settings=settings, limit=limit, out=tmp_path / "run", device="cpu")
    record = train(request).record
    assert len(load_run_data(record).train) == min(limit, 32)
