"""The plan behind docs/results/flat.md."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from isthmus.core import catalog
from isthmus.core.errors import DataError
from isthmus.data import load_data
from ledger import Cell, Key, Ledger
from proof import by_class
from proof.flat_plan import BACKBONES, CHOSEN, GRID, HEADLINE, STAGES, chosen, plan, seconds, shortened
from proof.units import Place, asked

ROOT = Path(__file__).parents[2]


def test_the_plan_has_whole_seeds_in_the_order_of_worth() -> None:
    units = plan()
    assert list(dict.fromkeys(unit.stage for unit in units)) == list(STAGES)
    headline = [unit for unit in units if unit.stage == "headline"]
    assert [unit.seed for unit in headline] == sorted(unit.seed for unit in headline)
    first = {(unit.backbone, unit.method.name) for unit in headline[: len(BACKBONES) * len(HEADLINE)]}
    assert first == {(backbone, name) for backbone in BACKBONES for name in HEADLINE}
    assert all(unit.n == 1821 and unit.attacks == ("textfooler", "pwws") for unit in headline)
    assert len({unit.title for unit in units}) == len(units)
    for unit in units:
        catalog.build("defences", unit.method.defence, {k: str(v) for k, v in unit.method.parameters.items()})
        assert seconds(unit, 6920) > 0


def test_arms_differ_in_nothing_but_the_method() -> None:
    own = {"beta", "gamma", "freeze_embeddings"}
    for backbone in BACKBONES:
        arms = [unit for unit in plan() if unit.stage in ("headline", "ablation") and unit.backbone == backbone]
        assert len({unit.settings for unit in arms}) == 1
        attacked = [unit.method.parameters for unit in arms if unit.method.name != "base"]
        assert len({tuple(sorted((k, v) for k, v in each.items() if k not in own)) for each in attacked}) == 1
        assert len({unit.method.name for unit in arms}) == 7


def test_a_folder_belongs_to_one_training() -> None:
    trainings: dict[str, tuple[object, ...]] = {}
    for unit in plan():
        own = (unit.data, unit.backbone, unit.method, unit.seed, unit.settings)
        assert trainings.setdefault(unit.folder, own) == own
    assert len(trainings) < len(plan())


def test_development_data_choose_and_only_a_whole_search_does() -> None:
    def cell(beta: float, gamma: float, rate: float, split: str = "dev") -> SimpleNamespace:
        method = {"name": "flat", "parameters": {"beta": beta, "gamma": gamma}}
        key = SimpleNamespace(backbone="cnn", attack={"name": "textfooler"}, data={"split": split}, method=method)
        return SimpleNamespace(key=key, right=(np.arange(300) < rate).astype(float))

    def searched(best: float) -> list[SimpleNamespace]:
        return [cell(beta, gamma, best if beta == 1 and gamma == 0.01 else 4) for beta in GRID for gamma in GRID]

    cells = searched(12)
    test = [cell(0.1, 0.1, 99, "test")]
    assert chosen([*cells, *test], "cnn") == (1, 0.01)
    assert chosen(searched(6), "cnn") == (0.1, 0.1)  # two texts more are no reason
    assert chosen(cells, "minilm") is None
    assert chosen(cells[1:], "cnn") is None


def test_the_plan_takes_what_its_search_says() -> None:
    book = list(Ledger(ROOT / "results" / "flat.jsonl"))
    for backbone in ("cnn", "minilm"):
        assert chosen(book, backbone) in (None, CHOSEN[backbone]), f"put it into CHOSEN: {backbone}"
    assert CHOSEN["lstm"] == CHOSEN["cnn"]


def test_a_quick_look_has_two_rounds_and_its_own_number_of_points() -> None:
    unit = next(unit for unit in plan(points=50) if unit.title == "sst2 cnn flat seed 0")
    assert unit.method.parameters["points"] == 50
    short = shortened(unit, 3)
    assert (short.method.parameters["start"], short.method.parameters["every"]) == (1, 1)
    assert {u.method.parameters["points"] for u in plan(50) if u.stage == "search"} == {1000}
    assert shortened(unit, None) == unit
    assert dataclasses.replace(unit, part="x").folder == unit.folder


RUNNER = """
    import os, pathlib, sys
    import flat
    import proof.units as units
    from isthmus.training.settings import TrainingSettings
    from proof.grid import Method
    from proof.plan import Explained, Unit

    settings = TrainingSettings(epochs=3, batch_size=8, precision="fp32", checkpoint_every=None, information=0)
    rounds = {"attack": "deepwordbug", "points": "none", "start": 1, "every": 1, "keep_failed": "true"}

    def unit(name, defence, parameters, **more):
        method = Method(name, defence, parameters)
        given = {"attacks": ("deepwordbug",), "backbone": "cnn", **more}
        return Unit("headline", "flat", "sst2", method, 0, settings, 6, **given)

    base = unit("base", "standard", {})
    explained = (
        Explained("occlusion", "base", 5, attack="deepwordbug"),
        Explained("integrated_gradients", "own", 5, controls=True, attack="deepwordbug"),
    )
    # Whoever asks first for what two units share makes it: here the pairs of base are asked for before base itself.
    flat.plan = lambda points, pairs: [
        unit("flat", "flat", rounds, explained=explained, pairs_of=base, part="pairs"),
        base,
        unit("flat", "flat", rounds),
    ]
    flat.warm = lambda todo, place: None
    results = pathlib.Path("results/flat.jsonl")

    def run(*more):
        sys.argv = ["flat.py", "--data", "pack", "--results", "results", "--runs", "runs", "--device", "cpu", *more]
        flat.main()

    if sys.argv[1] == "killed":
        filled = units._filled

        def dies(unit, place, run, each):
            if each.explained is not None:
                os.kill(os.getppid(), 9)  # The whole program, in the middle of a unit.
                os.kill(os.getpid(), 9)
            return filled(unit, place, run, each)

        units._filled = dies
    run("--only", "sst2 cnn flat*seed 0*", "sst2 cnn base*")
    run("--list")
"""


def test_limits_are_part_of_an_attack_and_not_of_the_accuracy(tmp_path: Path) -> None:
    folder = toy_pack(tmp_path)
    unit = next(unit for unit in plan() if unit.stage == "textdefender")
    free = dataclasses.replace(unit, attacks=("deepwordbug",), preset=None)
    place = Place(folder, tmp_path, tmp_path)
    (clean, attacked), (same, other) = (
        asked(each, place) for each in (dataclasses.replace(free, preset=unit.preset), free)
    )
    assert attacked.key.limits == {"preset": "textdefender-2021"}
    assert other.key.limits == {}
    assert clean.key.id == same.key.id
    assert attacked.key.id != other.key.id


def toy_pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack" / "sst2"
    folder.mkdir(parents=True)
    for split, size in (("train", 16), ("dev", 8), ("test", 12)):
        rows = [
            {"text": f"a {'fine' if i % 2 else 'dull'} old film of number {i}", "label": i % 2} for i in range(size)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder.parent


def test_what_withstands_is_told_by_class(tmp_path: Path) -> None:
    test = load_data(toy_pack(tmp_path) / "sst2", "test")
    plan_of = {"name": "sst2", "split": "test", "fingerprint": "ab" * 8}
    plain = Key(data=plan_of, backbone="cnn", method={"name": "flat"}, training={}, seed=0, n=len(test))
    labels = [example.label for example in test.sample(len(test))]
    one, other = sorted(set(labels))

    def cells(seed: int, kept: str) -> list[Cell]:
        """Right of `kept`, and of half of the others; the attack leaves `kept` alone."""
        right = [label == kept or place % 4 < 2 for place, label in enumerate(example.label for example in test)]
        key = dataclasses.replace(plain, seed=seed)
        marks = "".join("." if label == kept else "x" for label in labels)
        return [
            Cell.of_answers(key, right, row="flat"),
            Cell(dataclasses.replace(key, attack={"name": "pwws"}), marks, row="flat"),
        ]

    made = [*cells(0, one), *cells(1, other)]  # Another class in every seed, and still the favoured one.
    text = by_class.table(made, test, "cnn", "pwws", ["flat", "base"])
    assert "| flat | 2 | 100.0 | 50.0 | 100.0 | 0.0 |" in text
    assert "base" not in text
    with pytest.raises(DataError, match="other texts"):
        by_class.shares_of(made[0], made[1], test[:6])


def test_units_explain_pairs_and_go_on_after_a_kill(tmp_path: Path) -> None:
    toy_pack(tmp_path)

    def run(word: str) -> subprocess.CompletedProcess[str]:
        places = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(RUNNER), word],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300,
            env={**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    assert run("killed").returncode == -9
    path = tmp_path / "results" / "flat.jsonl"
    before = path.read_bytes()
    assert len(Ledger(path)) == 2  # Accuracy and attack of the first unit.
    made = (tmp_path / "runs" / "sst2-cnn-flat-seed0" / "run.json").read_bytes()
    found = run("again")
    assert found.returncode == 0, found.stderr
    assert " done, 0 failed, 0 left" in found.stdout
    assert "0 of 3 units to run" in found.stdout
    assert path.read_bytes().startswith(before)
    assert (tmp_path / "runs" / "sst2-cnn-flat-seed0" / "run.json").read_bytes() == made
    cells = list(Ledger(path))
    measured = {cell.key.measure["pairs"]: cell for cell in cells if cell.key.measure}
    assert measured.keys() == {"own", "base"}
    assert "completeness error" in measured["own"].summary
    assert "tau, two models with random weights" in measured["own"].summary
    assert not np.isnan(measured["base"].values["tau"]).all()
    clean = {cell.row: cell for cell in cells if cell.key.attack is None}
    assert [each["attacked"] for each in clean["flat"].summary["rounds"]] == [16, 16]
    assert "unknown" in clean["flat"].summary["rounds"][0]
    assert "rounds" not in clean["base"].summary
    # Shares are taken at the first step and every hundredth: before the first round there is no importance.
    assert "entropy" in clean["flat"].summary["gradient_shares"].keys() <= {"entropy", "importance"}
    assert "gradient_shares" not in clean["base"].summary
