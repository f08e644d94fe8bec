import numpy as np
import pytest
import question_toys
import training_toys as toys

from isthmus.core.calibration import calibration
from isthmus.core.errors import UnknownName, UsageError
from isthmus.measures import Calibration
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.victims import ClassifierVictim


def test_it_is_the_calibration_of_the_models_scores():
    model, splits = toys.classifier(), toys.splits(8, 60)
    found = Calibration(bins=5)(model, splits)
    scores = ClassifierVictim(model).scores(splits.dev.texts())
    right = scores.argmax(axis=1) == splits.dev.label_indices()
    wanted = calibration(scores.max(axis=1), right, bins=5)
    assert found.figure("expected calibration error", "dev").estimate == pytest.approx(wanted.ece.estimate)
    # The order of the examples differs, and with it what is drawn.
    assert found.figure("expected calibration error", "dev").high == pytest.approx(wanted.ece.high, abs=0.02)
    assert found.figure("accuracy", "dev").estimate == pytest.approx(right.mean())
    (plot,) = found.plots  # toys have no test split
    (series,) = plot.series
    assert sum(int(label) for label in series.labels) == 60
    assert series.y == tuple(each.accuracy.estimate for each in wanted.bins if each.count)


def test_bins_of_equal_mass_are_another_measure():
    model, splits = toys.classifier(), toys.splits(8, 60)
    wide, even = (Calibration(bins=6, binning=kind)(model, splits).plots[0].series[0] for kind in ("width", "mass"))
    counts = [int(label) for label in even.labels]
    assert max(counts) - min(counts) <= 2
    assert wide.labels != even.labels


def test_a_model_that_draws_gives_the_same_figures_twice():
    model = toys.classifier()
    model.fill(bottleneck=GaussianBottleneck(model.pooled_size, shift=1.0, inference="sample"))
    first, second = (Calibration()(model, toys.splits(8, 40)).to_json() for _ in range(2))
    assert first == second
    other = Calibration()(model, toys.splits(8, 40), seed=1).to_json()
    assert not np.isclose(first["figures"][1]["estimate"], other["figures"][1]["estimate"], rtol=1e-9)


def test_questions_are_refused():
    with pytest.raises(UsageError, match="measured on classifiers"):
        Calibration()(question_toys.answerer(), question_toys.splits(4, 4))


@pytest.mark.parametrize(("parameters", "error"), [({"bins": 0}, UsageError), ({"binning": "masses"}, UnknownName)])
def test_wrong_parameters_are_refused_before_anything_is_scored(parameters, error):
    with pytest.raises(error, match="calibration"):
        Calibration(**parameters)
