from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset, Rejected, Splits


def make(labels, names=("neg", "pos"), split="test", rejected=0):
    examples = tuple(Example(f"{split}:{n}", {"text": f"text {n}"}, label) for n, label in enumerate(labels))
    bad = tuple(Rejected(f"{split}:{len(labels) + n}", "no text") for n in range(rejected))
    return Dataset("toy", split, Classification(tuple(names)), examples, bad)


def test_behaves_like_a_sequence():
    data = make([0, 1, 1])
    assert len(data) == 3
    assert [example.id for example in data] == ["test:0", "test:1", "test:2"]
    assert data[-1].label == 1
    assert isinstance(data[1:], Dataset)
    assert data[1:].examples == data.examples[1:]
    assert data.labels == ("neg", "pos")
    assert data.fields == ("text",)
    assert data.texts()[0] == {"text": "text 0"}
    assert data.label_indices().tolist() == [0, 1, 1]
    assert data.label_indices().dtype == np.int64
    assert "3 examples" in repr(data)


def test_fingerprint_sees_every_change():
    data = make([0, 1, 1])
    changes = [
        make([0, 1, 0]),
        make([0, 1]),
        make([0, 1, 1], names=("neg", "poss")),
        make([0, 1, 1], rejected=1),
        Dataset("toy", "test", Classification(("neg", "pos"), ("t",)), data.examples),
        Dataset("toy", "test", data.task, data.examples[::-1]),
        Dataset("toy", "test", data.task, (Example("test:0", {"text": "text 0 "}, 0), *data.examples[1:])),
    ]
    prints = {other.fingerprint for other in [data, *changes]}
    assert len(prints) == len(changes) + 1
    assert data.fingerprint == make([0, 1, 1]).fingerprint
    assert len(data.fingerprint) == 16
    renamed = Dataset("other", "dev", data.task, data.examples)
    assert renamed.fingerprint == data.fingerprint


def test_fingerprint_of_arrays_and_moved_boundaries():
    task = Classification(("a",), ("x", "y"))

    def of(x, y):
        return Dataset("toy", "test", task, (Example("test:0", {"x": x, "y": y}, 0),)).fingerprint

    assert of("ab", "c") != of("a", "bc")
    assert of(np.zeros(4, np.uint8), "") != of(np.zeros((2, 2), np.uint8), "")
    assert of("é\ud800", "") != of("é", "")


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(0, 3), st.integers(0, 70), st.integers(0, 70))
def test_samples_are_nested(labels, rejected, n, m):
    data = make(labels, names="abc", rejected=rejected)
    small, large = sorted((n, m))
    first, second = data.sample(small, seed=3), data.sample(large, seed=3)
    assert second.examples[: len(first)] == first.examples
    assert second.rejected[: len(first.rejected)] == first.rejected
    assert len(first) + len(first.rejected) == min(small, len(labels) + rejected)


def test_samples_are_stratified_and_seeded():
    data = make([0] * 300 + [1] * 100)
    assert Counter(data.sample(40).label_indices().tolist()) == {0: 30, 1: 10}
    assert data.sample(40).examples == data.sample(40, seed=0).examples
    assert data.sample(40).examples != data.sample(40, seed=1).examples
    assert sorted(example.id for example in data.sample(10_000)) == sorted(example.id for example in data)
    assert len(data.sample(0)) == 0


def test_sample_of_one_label():
    data = make([0] * 30 + [1] * 10, rejected=2)
    for spam in (1, "pos", "POS"):
        chosen = data.sample(7, only_label=spam)
        assert set(chosen.label_indices()) == {1}
        assert len(chosen) == 7
        assert chosen.rejected == ()
        assert chosen.labels == data.labels
    with pytest.raises(UnknownName, match="Did you mean 'pos'"):
        data.sample(7, only_label="poss")
    with pytest.raises(UsageError, match="outside"):
        data.sample(7, only_label=2)
    with pytest.raises(UsageError, match="-1"):
        data.sample(-1)


def test_aligned_by_name_and_number():
    data = make([0, 1, 1])
    assert data.align_labels(("neg", "pos")) is data
    swapped = data.align_labels(("POS", "NEG"))
    assert swapped.label_indices().tolist() == [1, 0, 0]
    assert swapped.labels == ("POS", "NEG")
    assert data.align_labels(("LABEL_0", "LABEL_1")).label_indices().tolist() == [0, 1, 1]
    assert data.align_labels(("LABEL_1", "LABEL_0")).label_indices().tolist() == [1, 0, 0]
    assert data.align_labels(("neg", "neutral", "pos")).label_indices().tolist() == [0, 2, 2]
    numbered = make([0, 1, 1], names=("0", "1"))
    assert numbered.align_labels(("neg", "pos")).label_indices().tolist() == [0, 1, 1]
    only_ones = make([0], names=("1",))
    assert only_ones.align_labels(("ham", "spam")).label_indices().tolist() == [1]
    unused = make([1, 1], names=("other", "pos"))
    assert unused.align_labels(("pos", "neg")).label_indices().tolist() == [0, 0]
    with pytest.raises(DataError, match="do not match"):
        data.align_labels(("ham", "spam"))
    with pytest.raises(DataError, match="do not match"):
        make([4], names="01234").align_labels(("a", "b"))


def test_splits():
    splits = Splits("toy", {"train": make([0, 1] * 20, split="train"), "test": make([0, 1])})
    assert splits.train.split == "train"
    assert splits.test is splits["test"]
    assert splits.evaluation() is splits.test
    assert dict(splits) == {"train": splits.train, "test": splits.test}
    assert splits.task.labels == ("neg", "pos")
    with pytest.raises(UnknownName, match="no split in toy named 'dev'"):
        _ = splits.dev
    with pytest.raises(KeyError):
        splits["dev"]
    assert "train 40" in repr(splits)


def test_validation_is_dev():
    splits = Splits("toy", {"dev": make([0, 1], split="dev")})
    assert splits["validation"] is splits.dev
    assert "val" in splits
    assert "nothing" not in splits
    assert splits.evaluation() is splits.dev
    assert splits.with_dev() is splits


def test_evaluation_of_others():
    only = Splits("toy", {"all": make([0, 1])})
    assert only.evaluation() is only["all"]
    several = Splits("toy", {"test_a": make([0]), "test_b": make([0])})
    with pytest.raises(UsageError, match="test_a, test_b"):
        several.evaluation()


def test_empty_datasets_are_still_there():
    splits = Splits("toy", {"train": make([]), "test": make([0])})
    assert len(splits.train) == 0
    assert splits.task == make([]).task


def test_with_dev_takes_a_stratified_tenth():
    splits = Splits("toy", {"train": make([0] * 60 + [1] * 40, split="train"), "test": make([0, 1])})
    made = splits.with_dev(seed=4)
    assert Counter(made.dev.label_indices().tolist()) == {0: 6, 1: 4}
    assert len(made.train) == 90
    assert not {example.id for example in made.train} & {example.id for example in made.dev}
    assert made.dev.split == "dev"
    assert made.test is splits.test
    assert made.with_dev(seed=5) is made
    assert splits.with_dev(seed=4).dev.examples == made.dev.examples
    assert splits.with_dev(seed=5).dev.examples != made.dev.examples
    with pytest.raises(DataError, match="too few"):
        Splits("toy", {"train": make([0])}).with_dev()


def test_texts_of_one_field_and_pairs_are_no_data_set():
    single, pair = Example("0", {"text": "a fine film"}, 1), Example("1", {"premise": "a", "hypothesis": "b"}, 0)
    task = Classification(("neg", "pos"))
    with pytest.raises(DataError, match="example 0 has the fields text, and example 1 has premise, hypothesis"):
        Dataset("toy", "test", task, (single, pair))
