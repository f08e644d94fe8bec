import sys
import types
from typing import Any

import numpy as np
import pytest

from isthmus.assets import hub
from isthmus.core.errors import DataError, MissingExtra, UnknownName
from isthmus.core.types import ImageClassification
from isthmus.data import load_data


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    monkeypatch.setattr(hub, "reachable", lambda: True)


@pytest.fixture
def library(monkeypatch):
    """The `datasets` library with its loader replaced."""
    datasets = pytest.importorskip("datasets")
    asked = []
    made: dict[str, Any] = {}

    def load(name, configuration=None):
        asked.append((name, configuration))
        answer = made[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(datasets, "load_dataset", load)
    return types.SimpleNamespace(asked=asked, made=made, datasets=datasets)


def pair_set(datasets):
    features = datasets.Features(
        {
            "kind": datasets.ClassLabel(names=["x", "y"]),
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["entailment", "neutral"]),
        }
    )
    rows = {"kind": [0, 1, 1], "premise": ["a", "b", None], "hypothesis": ["c", "d", "e"], "label": [1, -1, 0]}
    unlabelled = {**rows, "label": [-1, -1, -1]}
    return datasets.DatasetDict(
        {
            "train": datasets.Dataset.from_dict(rows, features),
            "validation": datasets.Dataset.from_dict(rows, features),
            "test": datasets.Dataset.from_dict(unlabelled, features),
        }
    )


def test_names_and_missing_labels_come_from_the_hub(library):
    library.made["owner/set"] = pair_set(library.datasets)
    splits = load_data("owner/set:small")
    assert library.asked == [("owner/set", "small")]
    assert list(splits) == ["train", "dev"]
    assert splits.dev.labels == ("entailment", "neutral")
    assert [example.id for example in splits.dev] == ["dev:0"]
    assert splits.dev[0].label == 1
    assert [row.id for row in splits.dev.rejected] == ["dev:1", "dev:2"]
    assert "owner/set:small/dev, row 2: no label" in splits.dev.rejected[0].reason
    assert splits.evaluation() is splits.dev


def test_usual_names_are_known(library):
    library.made["stanfordnlp/sst2"] = pair_set(library.datasets)
    assert load_data("sst2", "dev").name == "sst2"


def test_plain_columns(library):
    rows = {"text": ["a", "b"], "label": ["no", "yes"]}
    library.made["set"] = library.datasets.DatasetDict({"test": library.datasets.Dataset.from_dict(rows)})
    assert load_data("set").test.labels == ("no", "yes")


def test_a_name_nobody_knows(library):
    library.made["rotten_tomatos"] = FileNotFoundError("no such thing on the hub")
    with pytest.raises(UnknownName, match=r"Did you mean 'rotten_tomatoes'\?.*hub has none either"):
        load_data("rotten_tomatos")


def test_other_failures_keep_their_reason(library):
    library.made["owner/set"] = ValueError("Config name is missing.\nPick one of a, b")
    with pytest.raises(DataError, match=r"cannot read owner/set .*Config name is missing\.$"):
        load_data("owner/set")


def test_without_network(library, monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda: False)
    library.made["owner/set"] = ConnectionError("offline")
    library.made["rotten_tomatos"] = ConnectionError("offline")
    with pytest.raises(DataError, match=r"cannot be reached from here.*ISTHMUS_ASSETS"):
        load_data("owner/set")
    with pytest.raises(UnknownName, match=r"Did you mean 'rotten_tomatoes'"):
        load_data("rotten_tomatos")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'isthmus\[data\]'"):
        load_data("owner/set")
    with pytest.raises(MissingExtra):
        load_data("ag_news")
    with pytest.raises(UnknownName, match="Did you mean 'imdb'"):
        load_data("imbd")


def test_a_column_of_images(library):
    image = pytest.importorskip("PIL.Image")
    features = library.datasets.Features(
        {"image": library.datasets.Image(), "label": library.datasets.ClassLabel(names=["cat", "dog"])}
    )
    pixels = [np.full((4, 5), value, np.uint8) for value in (10, 200, 60)]
    rows = {"image": [image.fromarray(each) for each in pixels], "label": [0, 1, 1]}
    part = library.datasets.Dataset.from_dict(rows, features)
    library.made["owner/pets"] = library.datasets.DatasetDict({"train": part, "test": part})
    data = load_data("owner/pets")
    assert {split: len(each) for split, each in data.items()} == {"train": 3, "test": 3}
    assert isinstance(data.task, ImageClassification)
    assert (data.task.labels, data.task.shape) == (("cat", "dog"), (1, 4, 5))
    assert np.asarray(data.test[1].fields["image"]).max() == 200
    assert data.test.label_indices().tolist() == [0, 1, 1]
    with pytest.raises(DataError, match="no column 'kind': it has image, label"):
        load_data("owner/pets", label="kind")
