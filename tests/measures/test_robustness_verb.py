"""The measures of robustness on real runs of texts and of images, by the verb."""

from pathlib import Path

import pytest
from measure_toys import QUICK, add_attack, toy_run

from isthmus.core.errors import UnknownName, UsageError
from isthmus.measures.base import Asked
from isthmus.measures.information import RATE
from isthmus.models.image_backbones import VIBMLP
from isthmus.report.measure.files import write_figures
from isthmus.runs.folder import RunFolder
from isthmus.training import TrainingSettings
from isthmus.verbs.measure import MeasureRequest, measure
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.train import TrainRequest, train

SETTINGS = TrainingSettings(precision="fp32", epochs=2, batch_size=64, learning_rate=1e-3, snapshots=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> RunFolder:
    place = tmp_path_factory.mktemp("digits")
    request = TrainRequest(
        data=DataRequest("digits"),
        backbone="vib_mlp",
        defence="vib",
        settings=SETTINGS,
        out=place / "run",
        device="cpu",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VIBMLP, "usual", (64, 32))
        return train(request).folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> RunFolder:
    folder = toy_run(tmp_path_factory.mktemp("texts"), defence="vib", settings=QUICK)
    add_attack(folder)
    return folder


def take(folder: RunFolder, names: str, n: int = 12, every_epoch: bool = False, **parameters: str):
    request = MeasureRequest(
        (str(folder.path),), tuple(names.split(",")), parameters, Asked(n=n, every_epoch=every_epoch), device="cpu"
    )
    return {each.measure: each for each in measure(request)}


def test_texts(texts):
    names = "information_bounds,lipschitz,vulnerability,feature_entropy,transferability"
    found = take(texts, names, attack="fgsm", epsilon="0.5", heads="2", fit_on="20", fit_steps="5")
    assert all(each.measurement.figures for each in found.values())
    bounds = found["information_bounds"].measurement
    assert bounds.figure(RATE, "test, fgsm 0.5").estimate != bounds.figure(RATE, "test").estimate
    again = take(texts, "information_bounds", attack="fgsm", epsilon="0.5")
    assert again["information_bounds"].was_there


def test_texts_that_an_attack_on_words_has_made(texts):
    found = take(texts, "information_bounds", attack="pwws")["information_bounds"].measurement
    assert {"test", "pwws", "pwws, originals"} <= {figure.of for figure in found.figures}
    with pytest.raises(UnknownName, match="textfoler"):
        take(texts, "information_bounds", attack="textfoler")


def test_images_and_their_epochs(images, tmp_path):
    names = "information_bounds,vulnerability,feature_entropy,adversarial_images"
    found = take(images, names, attack="fgsm", epsilon="0.1", n=40)
    assert all(each.measurement.figures for each in found.values())
    every = take(images, "vulnerability", n=40, every_epoch=True)
    assert [len(plot.series[0].x) for plot in every["vulnerability"].measurement.plots] == [2, 2, 2]
    drawn = write_figures(found["adversarial_images"])
    assert {path.suffix for path in drawn} == {".svg", ".png"}
    assert all(Path(path).stat().st_size > 500 for path in drawn)
    with pytest.raises(UsageError, match="does not use --text"):
        measure(MeasureRequest((str(images.path),), ("vulnerability",), asked=Asked(texts=("a",))))
