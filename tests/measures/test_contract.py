"""What every measure must keep to; a new file in the family is found by itself."""

import dataclasses
import math

import pytest

from isthmus import measures
from isthmus.core import catalog
from isthmus.core.statistics import Interval
from isthmus.measures import Measure, Measurement
from isthmus.measures.base import Figure, MarkedText, Plot, Series

NAMES = catalog.names("measures")
HEADINGS = ["References:", "Where we depart:", "Relations:", "Example:"]


def test_the_public_names_are_the_files():
    classes = {catalog.find("measures", name).class_name for name in NAMES}
    assert set(measures.__all__) == classes | {"Measure", "Measurement", "Subject"}
    assert all(getattr(measures, name).__name__ == name for name in measures.__all__)
    assert sorted(dir(measures)) == sorted(measures.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_frozen_record_that_knows_its_name(name):
    measure = catalog.build("measures", name)
    assert isinstance(measure, Measure)
    assert measure.name == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(measure, "anything", 1)  # noqa: B010


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_says_what_a_reader_wants_to_know(name):
    entry = catalog.find("measures", name)
    places = [entry.docstring.find(heading) for heading in HEADINGS]
    assert all(place > 0 for place in places), f"{name}: {HEADINGS}"
    assert places == sorted(places)
    assert "\n    " in entry.docstring[: places[0]], "an equation"
    assert all(parameter.doc for parameter in entry.parameters)


def test_a_measurement_survives_json():
    import json

    found = Measurement(
        figures=(
            Figure.from_interval("rate (nats)", Interval(1.5, 1.0, 2.0), "dev"),
            Figure("spread", math.nan, of="dev"),
            Figure("accuracy", 0.5, share=True),
        ),
        plots=(
            Plot(
                "a", "A", "x", "y", (Series("s", (0.0, 1.0), (1.0, 2.0), y_bounds=((0.5, 1.5), (1.0, 3.0))),), "points"
            ),
        ),
        texts=(MarkedText("title", (("a", "anchored"), (" b", ""))),),
        legend={"anchored": "held"},
        notes=("a note",),
        details={"rows": [{"x": 1}]},
    )
    again = Measurement.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert again.to_json() == found.to_json()
    assert again.plots == found.plots
    assert again.texts == found.texts
    assert again.figure("rate (nats)", "dev").high == 2.0
    assert math.isnan(again.figure("spread").estimate)
    with pytest.raises(KeyError, match="there are: accuracy, rate"):
        again.figure("rat")
