"""Images become data sets: from .npz files, folders of images and the digits that come with the package."""

import random
import zipfile
from typing import Any

import numpy as np
import pytest

from isthmus.core.errors import DataError, UsageError
from isthmus.core.types import ImageClassification
from isthmus.data import load_data
from isthmus.data.images import pixels

IMAGES = np.arange(10 * 4 * 5, dtype=np.uint8).reshape(10, 4, 5)
LABELS = np.arange(10) % 3


def image_task(data: Any) -> ImageClassification:
    assert isinstance(data.task, ImageClassification)
    return data.task


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_digits_come_with_the_package(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    splits = load_data("digits")
    assert {split: len(data) for split, data in splits.items()} == {"train": 1197, "dev": 200, "test": 400}
    assert splits.task == ImageClassification(tuple("0123456789"), ("image",), (1, 8, 8))
    found = pixels(splits.test)
    assert found.shape == (400, 1, 8, 8)
    assert found.dtype == np.float32
    assert set(np.unique(found)) <= {np.float32(value / 16) for value in range(17)}
    assert found.max() == 1
    # What `sklearn.datasets.load_digits` has: the sum of all its numbers, and how many images of each class.
    assert sum(float(16 * pixels(data).sum(dtype=np.float64)) for data in splits.values()) == 561_718
    counts = np.sum([np.bincount(data.label_indices()) for data in splits.values()], axis=0)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_one_file_is_cut_and_sampled_like_texts(tmp_path):
    data = load_data(saved(tmp_path / "mine.npz", images=IMAGES, labels=LABELS, label_names=["a", "b", "c"]))
    assert list(data) == ["all"]
    assert data.is_one_file
    assert data["all"].labels == ("a", "b", "c")
    assert pixels(data["all"]).shape == (10, 1, 4, 5)
    assert pixels(data["all"])[1, 0, 0, 0] == np.float32(20 / 255)
    parts = data.for_training(0)
    assert set(parts) == {"train", "dev", "test"}
    assert sum(map(len, parts.values())) == 10
    six, nine = data["all"].sample(6, 1), data["all"].sample(9, 1)
    assert [one.id for one in nine][:6] == [one.id for one in six]
    assert sorted(one.label for one in six) == [0, 0, 1, 1, 2, 2]


def test_the_fingerprint_sees_pixels_labels_and_order(tmp_path):
    def fingerprint(images, labels):
        return load_data(saved(tmp_path / "f.npz", images=images, labels=labels))["all"].fingerprint

    changed = IMAGES.copy()
    changed[3, 2, 1] += 1
    every = [
        fingerprint(IMAGES, LABELS),
        fingerprint(changed, LABELS),
        fingerprint(IMAGES, np.roll(LABELS, 1)),
        fingerprint(IMAGES[::-1], LABELS[::-1]),
        fingerprint(IMAGES.reshape(10, 5, 4), LABELS),
    ]
    assert len(set(every)) == len(every)
    assert fingerprint(IMAGES, LABELS) == every[0]


@pytest.mark.parametrize(
    "arrays",
    [
        {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:4], "y_test": LABELS[:4]},
        {"train_images": IMAGES, "train_labels": LABELS[:, None], "test_images": IMAGES[:4], "test_labels": LABELS[:4]},
    ],
)
def test_splits_in_one_file(tmp_path, arrays):
    data = load_data(saved(tmp_path / "known.npz", **arrays))
    assert {split: len(part) for split, part in data.items()} == {"train": 10, "test": 4}
    assert data.name == "known"


def test_a_folder_with_one_file_a_split(tmp_path):
    (tmp_path / "set").mkdir()
    saved(tmp_path / "set" / "train.npz", x=IMAGES, y=LABELS)
    saved(tmp_path / "set" / "validation.npz", x=IMAGES[:4], y=LABELS[:4])
    (tmp_path / "set" / "meta.json").write_text('{"labels": ["a", "b", "c"]}')
    data = load_data(tmp_path / "set")
    assert (list(data), data.name, data.dev.labels) == (["train", "dev"], "set", ("a", "b", "c"))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((2, 6, 7, 3), (3, 6, 7)), ((2, 3, 6, 7), (3, 6, 7)), ((2, 6, 7), (1, 6, 7)), ((2, 9), (9,))],
)
def test_layouts(tmp_path, shape, expected):
    data = load_data(saved(tmp_path / "l.npz", images=np.zeros(shape), labels=[0, 1]))
    assert image_task(data).shape == expected
    assert image_task(data).has_pixels == (len(expected) == 3)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": IMAGES.astype("f4"), "labels": LABELS}, "pixels run from 0 to 199 as float32.*divide by 255"),
        ({"images": IMAGES / 255.0 - 0.5, "labels": LABELS}, "pixels run from -0.5 to"),
        ({"images": IMAGES.astype("i4") * 100, "labels": LABELS}, "0 … 255, or save `maximum`"),
        ({"images": IMAGES.astype("c8"), "labels": LABELS}, "should be numbers, not complex64"),
        ({"images": IMAGES[None], "labels": LABELS}, r"not \[1, 10, 4, 5\]"),
        ({"images": IMAGES, "labels": LABELS[:4]}, r"10 images and labels of shape \[4\]"),
        ({"images": IMAGES, "labels": LABELS + 0.5}, "whole numbers from 0, not float64"),
        ({"images": IMAGES, "labels": LABELS + 10**12}, "labels go up to 1000000000002"),
        ({"images": IMAGES, "labels": np.array(["a"] * 10)}, "whole numbers from 0, not <U1"),
        ({"images": IMAGES, "kinds": LABELS}, "holds the arrays images, kinds"),
        ({"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:, 1:], "y_test": LABELS}, "different shapes"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, words):
    with pytest.raises(DataError, match=words):
        load_data(saved(tmp_path / "bad.npz", **arrays))


def test_single_rows_that_cannot_be_used(tmp_path):
    images = IMAGES / np.float32(255)
    images[2, 0, 0] = np.nan
    path = saved(tmp_path / "rows.npz", images=images, labels=np.where(np.arange(10) == 5, 7, LABELS))
    data = load_data(path, labels=["a", "b", "c"])["all"]
    assert len(data) == 8
    assert [row.id for row in data.rejected] == ["2", "5"]
    assert "row 3: the image holds NaN" in data.rejected[0].reason
    assert "row 6: label 7 is outside 0 … 2 (a, b, c)" in data.rejected[1].reason


def test_bytes_that_changed_are_refused_or_read(tmp_path):
    sound = saved(tmp_path / "sound.npz", images=IMAGES, labels=LABELS).read_bytes()
    refused = 0
    for number in range(120):
        stream = random.Random(number)
        content = bytearray(sound[: stream.randrange(len(sound))] if number % 4 == 0 else sound)
        for _ in range(3):
            content[stream.randrange(len(content))] = stream.randrange(256)
        (tmp_path / "damaged.npz").write_bytes(content)
        try:
            load_data(tmp_path / "damaged.npz")
        except DataError:
            refused += 1
    assert refused > 60


def test_damaged_files_and_pickles(tmp_path):
    (tmp_path / "cut.npz").write_bytes(saved(tmp_path / "whole.npz", x=IMAGES, y=LABELS).read_bytes()[:300])
    with pytest.raises(DataError, match=r"cut\.npz cannot be read as an \.npz file"):
        load_data(tmp_path / "cut.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}, []], dtype=object), y=np.array([0, 1]))
    with pytest.raises(DataError, match="it holds Python objects"):
        load_data(tmp_path / "objects.npz")
    with pytest.raises(DataError, match="no file or folder"):
        load_data(tmp_path / "missing.npz")
    with pytest.raises(UsageError, match="neither pairs of texts nor questions"):
        load_data("digits", task="qa")
    data = load_data(saved(tmp_path / "own.npz", faces=IMAGES, who=LABELS), text="faces", label="who")
    assert len(data["all"]) == 10
    assert zipfile.is_zipfile(tmp_path / "own.npz")


def test_a_folder_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    root = tmp_path / "pets"
    for number, kind in enumerate(("cat", "dog", "cat", "dog")):
        (root / kind).mkdir(parents=True, exist_ok=True)
        image.fromarray(IMAGES[number]).save(root / kind / f"{number}.png")
    data = load_data(root)["all"]
    assert (data.name, data.labels, image_task(data).shape) == ("pets", ("cat", "dog"), (1, 4, 5))
    assert [(one.id, one.label) for one in data] == [
        ("cat/0.png", 0),
        ("cat/2.png", 0),
        ("dog/1.png", 1),
        ("dog/3.png", 1),
    ]
    assert np.array_equal(data[2].fields["image"], IMAGES[1][None])

    whole = (root / "cat" / "0.png").read_bytes()
    (root / "cat" / "torn.png").write_bytes(whole[: len(whole) - 30])
    (root / "cat" / "words.png").write_text("not an image")
    image.fromarray(IMAGES[0, :2]).save(root / "dog" / "small.png")
    image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(root / "dog" / "zcolour.png")
    data = load_data(root)["all"]
    assert (len(data), image_task(data).shape) == (5, (3, 4, 5))
    reasons = {row.id: row.reason for row in data.rejected}
    assert set(reasons) == {"cat/torn.png", "cat/words.png", "dog/small.png"}
    assert "torn.png cannot be read as an image" in reasons["cat/torn.png"]
    assert "small.png is 5 x 2 pixels, and most images are 5 x 4" in reasons["dog/small.png"]


def test_a_folder_of_images_in_splits(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for split in ("train", "val"):
        for number, kind in enumerate(("cat", "dog")):
            (tmp_path / split / kind).mkdir(parents=True)
            image.fromarray(IMAGES[number]).save(tmp_path / split / kind / "0.png")
    assert list(load_data(tmp_path)) == ["train", "dev"]
