"""What a training leaves in its run folder."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import training_toys as toys

from isthmus.core.calibration import expected_calibration_error
from isthmus.core.errors import UsageError
from isthmus.models import load_model
from isthmus.models.victims import ClassifierVictim
from isthmus.report.evaluation.figure import of_run
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder
from isthmus.training import TrainingSettings
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.subject import load_run_data
from isthmus.verbs.train import TrainRequest, train

SETTINGS = TrainingSettings(precision="fp32", epochs=3, batch_size=8, learning_rate=1e-2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    toys.classifier().save(place / "backbone")
    for split, size in {"train": 32, "dev": 40}.items():
        data = toys.dataset(split, size, 0)
        rows = [{"text": each.texts["text"], "label": data.labels[int(each.label)]} for each in data]  # type: ignore[arg-type]
        (place / "data").mkdir(exist_ok=True)
        (place / "data" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def request(place: Path, out: Path) -> TrainRequest:
    return TrainRequest(
        DataRequest(str(place / "data")), str(place / "backbone"), settings=SETTINGS, out=out, device="cpu"
    )


@pytest.fixture(scope="module")
def run(place: Path) -> RunFolder:
    return train(request(place, place / "run")).folder


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
    assert (name, panel.to_json()) == ("development data", (run.record().results or {})["dev_calibration"])
    page = render(view)
    assert 'id="calibration"' in page
    assert "Reliability diagrams. development data: expected calibration error" in page
    assert "weighted by the number of examples" in page


@pytest.mark.parametrize("limit", [12, 32, 99])
def test_a_limited_training_finds_its_data_again(run: RunFolder, limit: int, tmp_path: Path) -> None:
    source = DataRequest.from_record(run.record().data)
    backbone, settings = str(run.path.parent / "backbone"), dataclasses.replace(SETTINGS, epochs=1)
    request = TrainRequest(source, backbone, settings=settings, limit=limit, out=tmp_path / "run", device="cpu")
    record = train(request).record
    assert len(load_run_data(record).train) == min(limit, 32)


def results(folder: RunFolder) -> dict[str, Any]:
    """What is known of a finished training, without the time it took."""
    return {key: value for key, value in (folder.record().results or {}).items() if key != "wall_s"}


@pytest.mark.parametrize("moment", ["isthmus.verbs.train._calibration", "isthmus.verbs.train.machine"])
def test_killed_after_the_training_the_same_command_finds_out_what_is_missing(
    run: RunFolder, place: Path, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(moment, stop)
        with pytest.raises(KeyboardInterrupt):
            train(request(place, folder.path))
    assert folder.model_path.is_dir()
    assert folder.record().results is None
    progress = toys.Recorder()
    done = train(request(place, folder.path), progress)
    assert not progress.calls, "nothing is trained again"
    assert results(folder) == results(run)
    assert done.record.results == folder.record().results
    assert (folder.model_path / "model.safetensors").read_bytes() == (run.model_path / "model.safetensors").read_bytes()
    assert not (folder.path / "checkpoints").exists()


def stop(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


def test_a_finished_training_waits_for_nobody_who_reads_it(run: RunFolder, place: Path) -> None:
    began, end = threading.Event(), threading.Event()

    def measures() -> None:
        with run.hold("measure"):
            began.set()
            end.wait(60)

    other = threading.Thread(target=measures)
    other.start()
    try:
        began.wait(60)
        assert train(request(place, run.path)).was_finished
    finally:
        end.set()
        other.join()


def test_what_an_older_version_lost_is_computed_and_checkpoints_left_by_a_kill_are_deleted(
    run: RunFolder, place: Path, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, folder.path)
    known = folder.record()
    lost = {key: value for key, value in (known.results or {}).items() if key != "dev_calibration"}
    folder.write(dataclasses.replace(known, results=lost))
    (folder.path / "checkpoints").mkdir()
    done = train(request(place, folder.path))
    assert done.was_finished
    assert folder.record().results == run.record().results
    assert not (folder.path / "checkpoints").exists()


def test_a_composition_is_recorded_so_that_it_can_be_trained_again(place: Path) -> None:
    composed = dataclasses.replace(
        request(place, place / "composed"),
        defence="normalise+label_smoothing+freelb",
        parameters={"freelb.steps": "2", "epsilon": "0.2"},
        settings=dataclasses.replace(SETTINGS, epochs=1),
    )
    folder = train(composed).folder
    record = folder.record()
    assert record.defence is not None
    assert record.defence.name == "normalise+label_smoothing+freelb"
    assert record.defence.parameters["freelb.steps"] == 2
    assert record.defence.parameters["label_smoothing.epsilon"] == 0.2
    again = dataclasses.replace(
        composed, defence=record.defence.name, parameters=record.defence.parameters, out=place / "again"
    )
    assert train(again).folder.record().settings == record.settings
    assert (place / "again" / "model" / "model.safetensors").read_bytes() == (
        folder.model_path / "model.safetensors"
    ).read_bytes()
    page = render(read_run(folder))
    assert "normalise+label_smoothing+freelb" in page
    assert "freelb.steps" in page


def test_what_cannot_be_combined_is_refused_before_anything_is_loaded(place: Path) -> None:
    nowhere = TrainRequest(DataRequest("nowhere.csv"), "nowhere", defence="freelb+pgd", out=place / "refused")
    with pytest.raises(UsageError, match=r"freelb\+pgd: each of them makes its own passes"):
        train(nowhere)
    assert not (place / "refused").exists()
