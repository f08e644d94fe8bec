from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from isthmus.core.errors import DataError, RunError, UnknownName, UsageError
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset, Splits
from isthmus.data.dataset import Rejected
from isthmus.runs.folder import DataRecord, ModelRecord, RunFolder, RunRecord
from isthmus.verbs.goal_options import GoalRequest, make_goal
from isthmus.verbs.sources import DataRequest, ModelSource, choose_split


def dataset(split: str, n: int) -> Dataset:
    examples = tuple(Example(f"{split}:{i}", {"text": f"text {i}"}, i % 2) for i in range(n))
    return Dataset("toy", split, Classification(("ham", "spam")), examples)


def test_one_file_is_cut_so_that_nothing_is_seen_twice() -> None:
    whole = dataset("all", 100)
    splits = Splits("toy", {"all": whole}).for_training(3)
    assert {name: len(part) for name, part in splits.items()} == {"train": 80, "dev": 10, "test": 10}
    ids = [example.id for part in splits.values() for example in part]
    assert sorted(ids) == sorted(example.id for example in whole)
    assert sum(splits.test.label_indices()) == 5
    again = Splits("toy", {"all": whole}).for_training(3)
    assert again.test.fingerprint == splits.test.fingerprint
    assert Splits("toy", {"all": whole}).for_training(4).test.fingerprint != splits.test.fingerprint
    with pytest.raises(DataError, match="too few"):
        Splits("toy", {"all": whole[:2]}).for_training(0)


def test_too_few_rows_say_how_many_could_not_be_used() -> None:
    few = dataclasses.replace(dataset("all", 2), rejected=(Rejected("all:2", "the answer is not in its context"),) * 7)
    with pytest.raises(DataError, match=r"2 examples.*\(7 more could not be used: the answer is not in its context\)"):
        Splits("toy", {"all": few}).for_training(0)


def test_splits_that_are_there_stay() -> None:
    given = Splits("toy", {"train": dataset("train", 20), "dev": dataset("dev", 4), "test": dataset("test", 4)})
    assert dict(given.for_training(0)) == dict(given)
    assert len(Splits("toy", {"train": dataset("train", 20)}).for_training(0).dev) == 2


def test_data_without_a_train_split_say_how_to_train_on_them() -> None:
    with pytest.raises(UsageError, match=r"no train split \(it has test\).*texts.jsonl"):
        Splits("toy", {"test": dataset("test", 20)}).for_training(0)


def test_the_split_to_attack() -> None:
    splits = Splits("toy", {"train": dataset("train", 4), "test": dataset("test", 2)})
    assert choose_split(splits, None).split == "test"
    assert choose_split(splits, "train").split == "train"
    with pytest.raises(UnknownName, match="Did you mean 'test'"):
        choose_split(splits, "tests")
    with pytest.raises(UsageError, match="empty"):
        choose_split(Splits("toy", {"test": dataset("test", 0)}), None)


def test_data_is_found_again_from_its_record() -> None:
    request = DataRequest("reviews.csv", text="review", pair=None, label="stars", labels=("a", "b"))
    record = request.record({"test": dataset("test", 2)})
    assert DataRequest.from_record(record) == request
    newer = DataRecord("x", "x", options={"text": "t", "novelty": 1})
    assert DataRequest.from_record(newer) == DataRequest("x", text="t")


def test_a_run_without_a_model_is_no_model(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write(RunRecord(ModelRecord("minilm"), DataRecord("d", "d"), training={}))
    with pytest.raises(RunError, match="to finish it"):
        ModelSource.of(str(folder.path))
    folder.model_path.mkdir()
    source = ModelSource.of(str(folder.path))
    assert source.spec == str(folder.model_path)
    assert source.shown == "run"
    assert ModelSource.of("http://u:p@host/a?key=1").shown == "http://host/a"


def test_goals_follow_the_options() -> None:
    from isthmus.attacks.parts.goals import Evasion, Targeted, Untargeted

    assert make_goal(None, None, None) == Untargeted()
    assert make_goal(None, 1, None) == Untargeted()
    assert make_goal(1, None, None) == Targeted(1)
    assert make_goal(None, 1, 0.8) == Evasion(1, 0.8)
    data = dataset("test", 4)
    assert GoalRequest(from_label="spam").find_attacked_class(data) == 1
    assert GoalRequest(from_label="1").find_attacked_class(data) == 1
    with pytest.raises(UnknownName, match="Did you mean 'spam'"):
        GoalRequest(target_label="spm").target(data)
    assert not GoalRequest(from_label="spam", target_label="ham").is_evasion
    with pytest.raises(UsageError):
        GoalRequest(from_label="a", target_label="a")


def test_a_folder_of_results_says_whose_they_are(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write(RunRecord(ModelRecord("toy:classify"), DataRecord("reviews.csv", "reviews")))
    with pytest.raises(RunError, match=r"results of toy:classify and no model of its own.*--out"):
        ModelSource.of(str(folder.path))
