"""The proof on images: packed data, the plan, its attacks, tables of figures, and what a kill leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from isthmus.attacks.gradient.pgd import PGD
from isthmus.core import catalog
from isthmus.core.crossed import crossed_difference, crossed_rate
from isthmus.core.errors import DataError
from isthmus.measures.base import Measurement
from ledger import Cell, Key, Ledger
from ledger.figures import FigureSpec, render_figures, written_figures
from proof import image_units
from proof.image_attacks import Given, MarginPGD, Outcome, attacked, united
from proof.image_figures import draw_figures, every_figure
from proof.image_pack import SUFFIX, first_of_each, pack, pack_folder, unpack, unpacked
from proof.image_plan import STAGES, plan, wanted
from proof.image_units import Book, ImagePlace, Wanted, asked, digest_of, ways_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("shape", [(7, 5, 6), (4, 8, 8, 3), (3, 4, 5, 1), (1, 1, 1, 3)])
def test_packed_images_come_back_to_the_last_bit(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for images in (rng.integers(0, 256, shape, dtype=np.uint8), np.full(shape, 255, np.uint8)):
        labels = rng.integers(0, 256, len(images)).astype(np.uint8)
        found, numbers = unpack(pack(images, labels))
        assert found.dtype == np.uint8
        assert np.array_equal(found, images)
        assert np.array_equal(numbers, labels)


def test_what_is_no_pack_is_refused() -> None:
    with pytest.raises(DataError, match="no packed images"):
        unpack(b"nothing")
    with pytest.raises(DataError, match="uint8"):
        pack(np.zeros((2, 4, 4), np.uint8), np.zeros(3, np.uint8))


def toy(folder: Path, rows: int = 60, side: int = 28, channels: int = 0) -> Path:
    """Images whose bright row is the class."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, n in (("train", rows), ("test", rows // 2)):
        labels = np.arange(n) % 10
        images = rng.integers(0, 60, (n, side, side) + ((channels,) if channels else ()), dtype=np.uint8)
        images[np.arange(n), 2 * labels] += 150
        np.savez(folder / f"{split}.npz", images=images, labels=labels.astype(np.uint8))
    (folder / "meta.json").write_text('{"labels": ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}')
    return folder


def test_a_folder_is_packed_and_unpacked_once(tmp_path: Path) -> None:
    source = toy(tmp_path / "cifar10", 60, 20, 3)
    pack_folder(source, tmp_path / "packed", {"train": 40, "test": 20})
    assert sorted(path.name for path in (tmp_path / "packed").iterdir()) == [
        "meta.json", f"test{SUFFIX}", f"train{SUFFIX}",
    ]  # fmt: skip
    folder = unpacked(tmp_path / "packed", tmp_path / "there")
    before, after = np.load(source / "train.npz"), np.load(folder / "train.npz")
    assert np.array_equal(after["images"], before["images"][:40])
    assert np.bincount(after["labels"]).tolist() == [4] * 10
    first = (folder / "train.npz").stat().st_mtime_ns
    assert unpacked(tmp_path / "packed", tmp_path / "there") == folder
    assert (folder / "train.npz").stat().st_mtime_ns == first
    assert unpacked(source, tmp_path / "nowhere") == source  # Plain folders are taken as they are.


def test_the_first_of_every_class_are_taken_in_their_order() -> None:
    assert first_of_each(np.array([1, 1, 1, 0, 0, 1, 0]), 4).tolist() == [0, 1, 3, 4]


def test_the_plan_has_whole_seeds_of_everything() -> None:
    units = plan()
    assert {unit.stage for unit in units} == set(STAGES)
    assert len({unit.title for unit in units}) == len(units)
    for stage in STAGES:
        seeds = [unit.seed for unit in units if unit.stage == stage]
        assert seeds == sorted(seeds), stage
    # All seeds of the tables come before anything that may be cut off.
    last = max(place for place, unit in enumerate(units) if unit.stage in ("table1", "vub", "table2"))
    assert {unit.stage for unit in units[last + 1 :]} == {"masking", "figures", "reference"}
    for unit in units:
        catalog.build("defences", unit.method.defence, unit.method.parameters)
    # The same training has the same folder, and another training another one.
    by_folder: dict[str, set[str]] = {}
    for unit in units:
        if not unit.others:
            trained = (unit.backbone, unit.data, unit.method.defence, unit.method.parameters, unit.settings, unit.seed)
            made = repr((*trained, unit.encoder))
            by_folder.setdefault(unit.folder, set()).add(made)
    assert all(len(what) == 1 for what in by_folder.values())
    assert len({next(iter(what)) for what in by_folder.values()}) == len(by_folder)


def test_every_cell_has_a_key_of_its_own(tmp_path: Path) -> None:
    toy(tmp_path / "mnist")
    place = ImagePlace(tmp_path, tmp_path / "runs", tmp_path / "results", n=10)
    units = [place.fitted(unit) for unit in wanted(plan(1), ["*mnist* seed 0"]) if not unit.others]
    cells: dict[str, str] = {}
    for unit in units:
        assert ways_of(unit) == (
            ("mean", "draws") if "ib" in unit.method.name or "vi" in unit.method.name else ("mean",)
        )
        for each in asked(unit, place):
            assert cells.setdefault(each.key.id, each.row) == each.row
    assert len(set(cells.values())) == len(cells)  # And every row and column is one cell.
    assert {"ib/union-0.2", "ib-draws/from-mean-0.1", "ce/cw-search", "beta0.1-ib+adv/pgd-0.3"} <= set(cells.values())
    assert not any(row.startswith("ce/transfer") for row in cells.values())


class Linear(nn.Module):
    """Two classes, divided by the sum of the pixels."""

    stochastic = False

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        value = pixels.flatten(1).sum(dim=1) - 2.0
        return torch.stack([value, -value], dim=1)


def test_the_margin_attack_fools_exactly_what_can_be_fooled_in_the_ball() -> None:
    """Of an affine model the worst corner decides: an image falls where its margin is less than 4 epsilon."""
    sums = torch.tensor([2.05, 2.3, 2.5, 3.0, 1.9])
    images = (sums / 4).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    found = attacked(MarginPGD(epsilon=0.1, rivals=1), Linear(), images, torch.zeros(5, dtype=torch.int64))
    assert found.marks == "xx..w"
    assert float((found.points - images).abs().max()) <= 0.1 + 1e-6
    weaker = attacked(PGD(epsilon=0.1), Linear(), images, torch.zeros(5, dtype=torch.int64))
    assert united([found.marks, weaker.marks]) == found.marks


def test_weights_have_a_digest_of_their_own() -> None:
    model = nn.Linear(3, 2)
    before = digest_of(model)
    assert digest_of(model) == before
    with torch.no_grad():
        model.bias[0] += 1e-6
    assert digest_of(model) != before


def test_a_union_takes_nothing_from_another_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that other weights left is attacked again before it enters the union; one of the same weights is not."""
    toy(tmp_path / "mnist", 40)
    place = ImagePlace(tmp_path, tmp_path / "runs", tmp_path / "results", n=4)
    (unit,) = (place.fitted(each) for each in wanted(plan(1), ["masking mnist ce seed 0"]))
    book, cells = Book(unit, place), asked(unit, place)
    by_column = {each.column: each for each in cells}
    for column, marks, weights in (
        ("fgsm-0.1", "x...", "own"),
        ("pgd-0.1", ".x..", "other"),
        ("pgd-0.2", "xxxx", "own"),
    ):
        book.put(by_column[column], marks, {}, 0.0, weights)
    again: list[str] = []

    def looked_at(unit: Any, place: Any, model: Any, wanted: Wanted, images: Any, labels: Any) -> Outcome:
        again.append(wanted.column)
        return Outcome("..x.", {}, torch.zeros(0))

    monkeypatch.setattr(image_units, "_looked_at", looked_at)
    marks, summary = image_units._fill(unit, place, book, None, by_column["union-0.1"], cells, "own")
    assert again == ["pgd-0.1"]
    assert marks == "x.x."
    assert summary["attacks"] == 2


def test_images_from_elsewhere_are_put_as_they_are() -> None:
    images = torch.full((3, 1, 2, 2), 0.7)
    points = images.clone()
    points[1] = 0.1
    found = attacked(Given(points=points), Linear(), images, torch.zeros(3, dtype=torch.int64))
    assert found.marks == ".x."
    assert torch.equal(found.points, points)
    assert found.summary["median_l2"] == pytest.approx(1.2, abs=1e-4)


def test_an_image_holds_where_it_holds_under_every_attack() -> None:
    assert united(["..xw", ".x.w"]) == ".xxw"


def key(method: str, seed: int, attack: str | None) -> Key:
    return Key(
        data={"name": "mnist", "split": "test", "fingerprint": "ab" * 8}, backbone="mlp", method={"name": method},
        training={"epochs": 3}, seed=seed, n=100, attack=None if attack is None else {"name": attack},
    )  # fmt: skip


def made(method: str, rate: float, figure: float, column: str = "pgd-0.1") -> list[Cell]:
    rng = np.random.default_rng([len(method), round(100 * rate)])
    return [
        Cell(
            key(method, seed, column),
            "".join("." if rng.random() < rate else "x" for _ in range(100)),
            {"rate_bits": figure + seed},
            f"{method}/{column}",
        )
        for seed in range(3)
    ]


def table(cells: list[Cell], words: str) -> list[list[str]]:
    text = render_figures(FigureSpec.read(words), cells)
    return [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_figures_are_those_of_the_statistics() -> None:
    cells = [*made("ib", 0.6, 10.0), *made("ce", 0.2, 4.0), *made("ib", 0.5, 1.0, "fgsm-0.1")]
    rows = table(cells, "x data=mnist rows=ce,ib columns=fgsm-0.1,pgd-0.1")
    assert rows[0] == ["", "seeds", "fgsm-0.1", "pgd-0.1"]
    assert rows[2][0] == "ce"
    assert rows[2][2] == "not yet run"
    own = crossed_rate(np.array([cell.right for cell in cells[:3]], dtype=np.float64))
    assert rows[3][3] == f"{100 * own.estimate:.1f} ({100 * own.low:.1f} to {100 * own.high:.1f})"
    # 10, 11, 12: mean 11, half width t(0.975, 2) / sqrt(3) = 2.484.
    assert table(cells, "x rows=ib columns=pgd-0.1 value=rate_bits")[2][2] == "11.00 (8.52 to 13.48)"
    right = [np.array([cell.right for cell in side], dtype=np.float64) for side in (cells[:3], cells[3:6])]
    change = crossed_difference(*right).difference
    shown = table(cells, "x rows=ib columns=pgd-0.1 against=ib:ce")[2]
    assert shown[1] == "3"
    assert shown[2].startswith(f"{100 * change.estimate:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f}), p")
    assert table(cells, "x rows=ib,ce columns=pgd-0.1 value=rate_bits against=ce")[2:] == [["ib", "3", "+6.00"]]


def test_figures_of_one_seed_are_not_said_to_cover_seeds() -> None:
    three = made("ib", 0.6, 1.0)
    assert "cover seeds and images." in render_figures(FigureSpec.read("x columns=pgd-0.1"), three)
    assert "cover images alone (one seed)." in render_figures(FigureSpec.read("x columns=pgd-0.1"), three[:1])
    mixed = [*three, *made("ib", 0.5, 1.0, "fgsm-0.1")[:1]]
    assert "and images, with one seed images alone." in render_figures(FigureSpec.read("x columns=*"), mixed)


def test_a_difference_that_is_not_significant_says_what_could_have_been_seen() -> None:
    cells = [*made("ib", 0.6, 10.0), *made("ce", 0.55, 4.0)]
    right = [np.array([cell.right for cell in side], dtype=np.float64) for side in (cells[:3], cells[3:])]
    detectable = 100 * crossed_difference(*right).detectable
    words = "x rows=ib columns=pgd-0.1 against=ib:ce"
    assert table(cells, words)[2][2].endswith(f", detectable {detectable:.1f}")
    assert "smallest detectable difference" in render_figures(FigureSpec.read(words), cells)
    far = [*made("ib", 0.99, 10.0), *made("ce", 0.01, 4.0)]
    assert "etectable" not in render_figures(FigureSpec.read(words), far)


def test_so_does_a_difference_of_another_figure() -> None:
    cells = [*made("ib", 0.6, 10.0), *made("ce", 0.55, 4.0)]
    for place, change in enumerate((1.0, -1.0, 0.5)):
        ours = cells[place]
        cells[place] = dataclasses.replace(ours, summary={"rate_bits": cells[3 + place].summary["rate_bits"] + change})
    words = "x rows=ib columns=pgd-0.1 value=rate_bits against=ib:ce"
    # 1, -1, 0.5: standard error 0.6009; t(0.975, 2) + t(0.8, 2) = 4.3027 + 1.0607.
    assert table(cells, words)[2][2].startswith("+0.17 (-2.42 to +2.75), p 0.8")
    assert table(cells, words)[2][2].endswith(", detectable 3.22")
    assert "smallest detectable difference" in render_figures(FigureSpec.read(words), cells)


def test_figures_are_drawn_from_the_results_of_this_repository(tmp_path: Path) -> None:
    lines = list(draw_figures(ROOT / "results", tmp_path))
    drawn = {path.name for path in tmp_path.iterdir()}
    page = (ROOT / "docs/results/ib-robustness.md").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r"images/(ib_figure_[^)]*)", page))
    assert {Path(line).name for line in lines if line.endswith(".png")} == drawn
    plots, told = every_figure(ROOT / "results")
    assert [line for line in lines if not line.endswith(".png")] == told
    # What the measure kept about its pairs is what is told of them.
    kept = next(line for line in told if "gap and product" in line)
    assert "r = -0.16 (-0.50 to +0.21), p 0.385, 30 pairs" in kept
    (units,) = [plot for plot in plots if plot.name == "ib_figure_4_units"]
    assert [series.labels.count("one class") for series in units.series] == [2, 1, 0]  # One label of two is shared.
    with pytest.raises(DataError, match="no measurement"):
        every_figure(tmp_path)


def test_a_record_of_figures_says_what_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = json.loads((ROOT / "results" / "figures" / "mnist-figure-2.json").read_text(encoding="utf-8"))
    found = SimpleNamespace(measurement=Measurement.from_json(kept["vulnerability"]))
    monkeypatch.setattr("isthmus.verbs.measure.measure", lambda request: [found])
    monkeypatch.setattr(image_units, "trained", lambda unit, place: SimpleNamespace(path=tmp_path / "run"))
    (unit,) = [unit for unit in plan() if unit.stage == "figures" and unit.method.name == "figure-2"]
    toy(tmp_path / "data" / "mnist")
    place = ImagePlace(tmp_path / "data", tmp_path / "runs", tmp_path / "results")
    assert image_units.do(unit, place) == "1 runs, vulnerability"
    record = json.loads((tmp_path / "results" / "figures" / "mnist-figure-2.json").read_text(encoding="utf-8"))
    assert {"code", "made", "torch", "machine", "cores", "seconds"} <= record.pop("provenance").keys()
    assert record == {"runs": ["run"], "vulnerability": kept["vulnerability"]}


def test_markers_of_figures_are_written_and_the_rest_stays(tmp_path: Path) -> None:
    for cell in made("ib", 0.6, 10.0):
        Ledger(tmp_path / "x.jsonl").append(cell)
    page = "Before.\n<!-- figures: x rows=ib columns=pgd-0.1 -->\nold\n<!-- end -->\nAfter.\n"
    text = written_figures(page, tmp_path)
    assert text.startswith("Before.\n<!-- figures: x")
    assert text.endswith("<!-- end -->\nAfter.\n")
    assert "| ib | 3 |" in text
    assert written_figures(text, tmp_path) == text
    assert "Not yet run." in written_figures(page.replace("figures: x", "figures: y"), tmp_path)
    with pytest.raises(DataError, match="opened and not closed"):
        written_figures("<!-- figures: x columns=a -->\n", tmp_path)
    with pytest.raises(DataError, match="columns"):
        FigureSpec.read("x rows=ib")
    with pytest.raises(DataError, match="two cells"):
        render_figures(FigureSpec.read("x columns=*"), [*made("ib", 0.6, 1.0), *made("ib", 0.6, 1.0)])


def command(tmp_path: Path, *words: str) -> list[str]:
    return [
        sys.executable, str(ROOT / "benchmarks" / "ib_robustness.py"), "--data", str(tmp_path), "--device", "cpu",
        "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results"), "--epochs", "2", "--n", "6", *words,
    ]  # fmt: skip


def test_a_killed_run_goes_on_and_does_nothing_twice(tmp_path: Path) -> None:
    toy(tmp_path / "mnist", 200)
    book = Ledger(tmp_path / "results" / "ib_robustness.jsonl")
    words = command(tmp_path, "--only", "table2 mnist ib*seed 0", "reference*", "--seeds", "1")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and child.poll() is None and not book.path.is_file():
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    first = set(book.cells())
    again = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    cells = book.cells()
    assert first <= set(cells)
    assert len(cells) == 2 * 3 * 3 + 2  # Three betas, two arms, three attacks; two sets of weights.
    assert "0 failed, 0 left" in again.stdout
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0 of ")
    rates = {cell.row: cell.summary["rate_bits"] for cell in cells.values()}
    assert rates["beta0.1-ib/fgsm-0.3"] < rates["beta0.001-ib/fgsm-0.3"]
    assert all(len(cell.outcomes) == cell.key.n for cell in cells.values())
    assert dataclasses.asdict(next(iter(cells.values())).key)
