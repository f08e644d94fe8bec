"""Images from data to command line: train, attack, evaluate, report, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.cli.app import run
from isthmus.core.errors import RunError
from isthmus.data.images import make_images
from isthmus.models.image_backbones import MLP
from isthmus.runs.journal import Journal

CLASSES = 3


def stripes(n: int, seed: int) -> tuple[Any, Any]:
    """Images of one bright stripe each, whose place is the class."""
    generator, labels = np.random.default_rng(seed), np.arange(n) % CLASSES
    images = generator.uniform(0, 0.4, (n, 6, 6))
    images[np.arange(n), 2 * labels] += 0.5
    return images.astype(np.float32), labels


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a trained run."""
    place = tmp_path_factory.mktemp("images")
    arrays = {}
    for split, n, seed in (("train", 240, 0), ("dev", 60, 1), ("test", 250, 2)):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = stripes(n, seed)
    np.savez(place / "stripes.npz", **arrays)
    given = ["--data", str(place / "stripes.npz"), "--backbone", "mlp", "--epochs", "6", "-q"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MLP, "usual", (48, 24))
        options = ["-P", "beta=1e-3", "-P", "latent=8", "--learning-rate", "3e-3"]
        assert run(["train", *given, "--defence", "vib", *options, "--out", str(place / "vib")]) == 0
    return place


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    """The run by itself."""
    return Path(shutil.copytree(home / "vib", tmp_path / "run"))


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "attacks" / f"{name}.jsonl").read_text().splitlines()]


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text()


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in (folder / "attacks").iterdir() if path.suffix in (".jsonl", ".npz")
    }


def test_attack_writes_rows_images_and_the_union(isthmus: Any, copy: Path) -> None:
    ended = isthmus(
        "attack", copy, "--attack", "fgsm,pgd", "-P", "epsilon=0.15", "-P", "pgd.steps=10", "--n", 120, "--json"
    )
    assert ended.code == 0
    found = {name: rows(copy, name) for name in ("fgsm", "pgd")}
    assert all(len(each) == 120 for each in found.values())
    moved = np.load(copy / "attacks" / "pgd.npz")
    attempted = [row for row in found["pgd"] if row["outcome"] != "skipped"]
    assert moved["ids"].tolist() == [row["id"] for row in attempted]
    assert moved["success"].tolist() == [row["outcome"] == "succeeded" for row in attempted]
    assert moved["images"].min() >= 0
    assert moved["images"].max() <= 1
    clean = {str(row): image for row, image in enumerate(stripes(250, 2)[0])}
    for row, image in zip(attempted, moved["images"], strict=True):
        distance = np.abs(image[0] - clean[row["id"]]).max()
        assert distance == pytest.approx(row["linf"], abs=1e-5)
        assert distance <= 0.15 + 1e-6
        assert (row["prediction_after"] != row["label"]) == (row["outcome"] == "succeeded")
    held = {name: {row["id"] for row in each if row["outcome"] == "failed"} for name, each in found.items()}
    assert ended.json["racc"] == pytest.approx(len(held["fgsm"] & held["pgd"]) / 120, abs=1e-6)
    assert 0.1 < ended.json["asr"] <= 1
    shown = isthmus("report", copy)
    assert shown.code == 0
    assert "largest" in shown.out
    page = (copy / "report.html").read_text()
    assert "pixels moved by at most" in page
    shown = re.findall(r'<div class="pictures"><svg role="img" aria-label="([^"]*)".*?</svg>', page)
    assert len(shown) == sum(min(10, sum(row["outcome"] == "succeeded" for row in each)) for each in found.values())
    assert all(
        re.match(r"original \d, \d\.\d\d, adversarial \d, \d\.\d\d, and their difference", each) for each in shown
    )
    assert page.count("difference, ") >= len(shown)
    assert not re.search(
        r"\b[Tt]exts?\b(?![-:=])", re.sub(r"<(style|svg|script).*?</\1>|<[^>]*>", "", page, flags=re.S)
    )
    assert "candidates" not in ended.err
    assert "at any distance" not in page


def test_a_price_that_lets_nothing_through_is_said(home: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(MLP, "usual", (48, 24))
    words = ["train", "--data", str(home / "stripes.npz"), "--backbone", "mlp", "--epochs", "40", "--defence", "vib"]
    for beta, is_said in (("100", True), ("1e-3", False)):
        options = ["-P", f"beta={beta}", "-P", "latent=8", "--learning-rate", "3e-3", "--out", str(tmp_path / beta)]
        capsys.readouterr()
        assert run([*words, *options]) == 0
        assert ("The code collapsed" in " ".join(capsys.readouterr().out.split())) is is_said


def test_an_attack_without_a_bound_is_read_by_its_distance(isthmus: Any, copy: Path) -> None:
    command = ["--attack", "fgsm,deepfool", "-P", "fgsm.epsilon=0.05", "--n", 60]
    shown = " ".join(isthmus("attack", copy, *command).out.split())
    assert "deepfool searches for the nearest image that fools the model, at any distance" in shown
    assert "The line all together counts it too" in shown
    assert re.search(r"deepfool \d → \d \d+, pixels moved by at most 0\.\d+, l2", shown)
    assert isthmus("report", copy).code == 0
    assert "deepfool searches for the nearest image" in (copy / "report.html").read_text()


def test_more_and_interrupted_runs_end_with_the_same_files(
    isthmus: Any, home: Path, copy: Path, tmp_path: Path
) -> None:
    command = ["--attack", "pgd", "-P", "epsilon=0.15", "-P", "steps=10"]
    whole = Path(shutil.copytree(home / "vib", tmp_path / "whole"))
    assert isthmus("attack", whole, *command, "--n", 250).code == 0
    assert isthmus("attack", copy, *command, "--n", 30).code == 0
    assert len(rows(copy, "pgd")) == 30
    again = isthmus("attack", copy, *command, "--n", 250)
    assert "220 attacked now, 30 read back" in again.out
    assert files(copy) == files(whole)


def test_an_attack_that_broke_off_inside_a_cohort_continues(
    isthmus: Any, home: Path, copy: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    command = ["--attack", "pgd", "-P", "epsilon=0.15", "-P", "steps=5", "--n", 250]
    whole = Path(shutil.copytree(home / "vib", tmp_path / "whole"))
    assert isthmus("attack", whole, *command).code == 0
    written: list[Any] = []
    append = Journal.append

    def breaks(self: Journal, row: Any) -> None:
        if len(written) == 137:
            raise RunError("no space left")
        written.append(row)
        append(self, row)

    monkeypatch.setattr(Journal, "append", breaks)
    assert isthmus("attack", copy, *command).code == 2
    assert len(rows(copy, "pgd")) == 137
    monkeypatch.setattr(Journal, "append", append)
    assert "113 attacked now, 137 read back" in isthmus("attack", copy, *command).out
    assert files(copy) == files(whole)
    assert not (copy / "attacks" / "pgd.images").exists()


def test_evaluate_and_transfer(isthmus: Any, copy: Path) -> None:
    ended = isthmus("evaluate", copy, "--draws", 3, "--json")
    assert ended.code == 0
    assert isthmus("attack", copy, "--attack", "fgsm", "-P", "epsilon=0.2", "--n", 100).code == 0
    summary = json.loads((copy / "attacks" / "fgsm.json").read_text())["summary"]
    moved = isthmus("evaluate", copy, "--on", copy / "attacks" / "fgsm.npz", "--no-label-check", "--json")
    assert moved.json["accuracy"] == pytest.approx(1 - summary["asr"], abs=1e-6)


def test_a_stochastic_model_is_judged_on_fresh_draws(isthmus: Any, copy: Path) -> None:
    command = ["--attack", "fgsm", "-P", "epsilon=0.15", "-V", "latent=sample", "--n", 40, "--fresh", 7]
    assert isthmus("attack", copy, *command).code == 0
    found = rows(copy, "fgsm")
    assert all(row["fresh"]["draws"] == 7 for row in found if row["outcome"] != "skipped")
    for row in found:
        if row["outcome"] != "skipped":
            assert (row["fresh"]["reached"] > 3) == (row["outcome"] == "succeeded")


def test_towards_a_label(isthmus: Any, copy: Path) -> None:
    assert (
        isthmus(
            "attack", copy, "--attack", "pgd", "-P", "epsilon=0.3", "-P", "steps=10", "--target-label", "1", "--n", 60
        ).code
        == 0
    )
    found = rows(copy, "pgd")
    assert {row["outcome"] for row in found if row["label"] == 1} == {"skipped"}
    assert {row["prediction_after"] for row in found if row["outcome"] == "succeeded"} == {1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--attack", "pwws"], "pwws edits words, and these are images"),
        (["--attack", "pgd", "-P", "epsilon=8"], "Pixels are in the scale from 0 to 1"),
        (["--attack", "fgsm", "--preset", "meaning"], "--preset is for attacks that edit words"),
        (["--attack", "fgsm", "--precision", "bf16"], "images are attacked in fp32"),
        (["--attack", "fgsm", "--data", "digits"], r"reads inputs of shape \(1, 6, 6\), and those of digits are"),
        (["--attack", "fgsm", "-P", "sigma=1"], "no parameter of fgsm named 'sigma'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    isthmus: Any, copy: Path, options: list[str], words: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(copy.parent)  # Other data than the run's own get a folder in runs/.
    ended = isthmus("attack", copy, *options)
    assert ended.code == 2
    assert re.search(words, " ".join(ended.err.split()))
    assert not list((copy / "attacks").glob("*.jsonl"))


def test_texts_and_images_are_kept_apart(isthmus: Any, copy: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").write_text("text,label\n" + "good film,1\nbad film,0\n" * 20)
    (tmp_path / "toy.py").write_text("def classify(texts):\n    return [[0.4, 0.6]] * len(texts)\n")
    asked = isthmus("attack", "toy:classify", "--data", "texts.csv", "--attack", "fgsm")
    assert asked.code == 2
    assert "toy:classify has no accessible embeddings" in " ".join(asked.err.split())
    crossed = isthmus("evaluate", copy, "--on", "texts.csv")
    assert crossed.code == 2
    assert "run reads images, and texts holds texts" in " ".join(crossed.err.split())
    wrong = isthmus("train", "--data", "texts.csv", "--backbone", "mlp", "--out", tmp_path / "no")
    assert wrong.code == 2
    assert "mlp reads images, and texts holds texts" in " ".join(wrong.err.split())


MODULE = """
import numpy as np, torch
class Stripes(torch.nn.Module):
    def forward(self, images):
        return 20 * images[:, 0, ::2].mean(dim=2)
net = Stripes()
def function(images):
    return np.asarray(torch.softmax(net(torch.from_numpy(images)), dim=1))
"""


def test_modules_functions_and_onnx_files(isthmus: Any, home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stripe_models.py").write_text(MODULE)
    data = ["--data", home / "stripes.npz"]
    ended = isthmus("attack", "stripe_models:net", *data, "--attack", "fgsm", "-P", "epsilon=0.4", "--n", 50, "--json")
    assert ended.code == 0
    assert ended.json["asr"] > 0.5
    plain = isthmus("evaluate", "stripe_models:function", "--on", home / "stripes.npz", "--json", "--out", "f")
    assert plain.code == 0
    refused = isthmus("attack", "stripe_models:function", *data, "--attack", "fgsm", "--out", "g")
    assert refused.code == 2
    assert "gradient attacks need gradients" in " ".join(refused.err.split())


def test_an_onnx_file_is_evaluated(isthmus: Any, home: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    weights = np.zeros((36, CLASSES), np.float32)
    for label in range(CLASSES):
        weights[12 * label : 12 * label + 6, label] = 1
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["logits"])],
        "stripes",
        [helper.make_tensor_value_info("x", kind, ["n", 1, 6, 6])],
        [helper.make_tensor_value_info("logits", kind, ["n", CLASSES])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(tmp_path / "net.onnx"))
    ended = isthmus(
        "evaluate", tmp_path / "net.onnx", "--on", home / "stripes.npz", "--json", "--out", tmp_path / "out"
    )
    assert ended.code == 0
    assert ended.json["accuracy"] > 0.95


def test_an_image_that_the_model_fails_on_is_an_error_of_its_own(
    isthmus: Any, copy: Path, home: Path, monkeypatch: Any
) -> None:
    from isthmus.models import images

    before = images.ImageClassifier.forward
    poison = make_images(*stripes(250, 2), None, "s", "test", "s")[5].fields["image"]

    def forward(self: Any, pixels: Any) -> Any:
        output = before(self, pixels)
        bad = (pixels.numpy() == poison).all(axis=(1, 2, 3)) if not pixels.requires_grad else [False] * len(pixels)
        output.logits[np.asarray(bad)] = float("nan")
        return output

    monkeypatch.setattr(images.ImageClassifier, "forward", forward)
    isthmus("attack", copy, "--attack", "fgsm", "-P", "epsilon=0.1", "--n", 250)
    errors = [row for row in rows(copy, "fgsm") if row["outcome"] == "error"]
    assert [row["id"] for row in errors] == ["5"]
    assert "not numbers" in errors[0]["reason"]


ZERO = """
import torch
class Zero(torch.nn.Module):
    def forward(self, images):
        return (images[:, 0, ::2].mean(dim=2) > 0.45).float() * 9
net = Zero()
"""


def test_a_model_without_gradients_is_suspected(isthmus: Any, home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zero_gradient.py").write_text(ZERO)
    given = ["--data", home / "stripes.npz", "--attack", "fgsm", "-P", "epsilon=0.1", "--n", 40]
    ended = isthmus("attack", "zero_gradient:net", *given, "--out", "zero")
    told = " ".join((ended.out + ended.err).split())
    attempted = [row for row in rows(tmp_path / "zero", "fgsm") if row["outcome"] != "skipped"]
    assert len(attempted) > 20
    assert all(row["blind"] for row in attempted)
    assert f"{len(attempted)} images had no gradient at the first step: gradients are probably masked" in told
    assert isthmus("report", "zero").code == 0
    assert "gradients are probably masked" in (tmp_path / "zero" / "report.html").read_text()


def test_damaged_images_beside_the_rows_are_named(isthmus: Any, copy: Path) -> None:
    command = ["--attack", "fgsm", "-P", "epsilon=0.1", "--n"]
    assert isthmus("attack", copy, *command, 120).code == 0
    path = copy / "attacks" / "fgsm.npz"
    before, images = rows(copy, "fgsm"), path.read_bytes()
    path.write_bytes(path.read_bytes()[:2000])
    ended = isthmus("attack", copy, *command, 250)
    assert ended.code == 2
    assert re.search(r"fgsm\.npz cannot be read .* makes its images again and keeps", " ".join(ended.err.split()))
    assert isthmus("attack", copy, *command, 120).code == 2, "rows that are finished do not hide it"
    assert isthmus("report", copy).code == 0
    assert "its images cannot be shown" in page_of(copy)
    assert rows(copy, "fgsm")[:120] == before
    path.unlink()
    again = isthmus("attack", copy, *command, 120)
    assert again.code == 0
    assert "0 attacked now, 120 read back" in again.out
    assert path.read_bytes() == images
    assert isthmus("attack", copy, *command, 250).code == 0
    assert len(rows(copy, "fgsm")) == 250
