"""The runner of the plan behind docs/results: order, what is run again, and what a kill or a deadline leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from isthmus.attacks.parts.shared_draws import SEARCH_DRAWS
from isthmus.core import catalog
from isthmus.core.errors import RunError
from isthmus.training.settings import TrainingSettings
from ledger import Ledger
from proof.grid import Method
from proof.plan import REGULARISERS, STAGES, Unit, Way, known, plan, wanted
from proof.units import Place, asked, search_options

ROOT = Path(__file__).parents[2]


def test_the_plan_begins_with_the_minimum_and_standard_training() -> None:
    units = plan()
    stages = [unit.stage for unit in units]
    assert list(dict.fromkeys(stages)) == list(STAGES)
    assert {unit.method.name for unit in units[:6]} == {"standard"}
    assert {unit.data for unit in units if unit.stage == "minimum"} == {"sst2", "snli"}
    assert all(unit.n == 500 and unit.attacks == ("textfooler",) for unit in units if unit.stage == "minimum")
    assert {unit.settings.precision for unit in units} == {"fp32"}
    # A unit, and a row with its seed, is there once.
    assert len({(unit.page, unit.title) for unit in units}) == len(units)
    assert len({unit.folder for unit in units}) == len(units)


def test_the_plan_has_the_rows_that_are_asked_for() -> None:
    units = plan()
    infobert = [unit for unit in units if unit.stage == "infobert"]
    assert len(infobert) == 2 * 3 * 2 * 3
    assert {unit.method.parameters["alpha"] for unit in infobert} == {0.5, 5.0}
    assert {unit.method.parameters["beta"] for unit in infobert} == {0.0, 1e-3, 5e-2}
    heads = [unit for unit in units if unit.stage == "vub"]
    assert {unit.seed for unit in heads} == set(range(5))
    randomised = [unit for unit in units if unit.stage == "rsmi"]
    assert {unit.data for unit in randomised} == {"qnli", "ag_news"}
    assert {unit.n for unit in randomised} == {200}
    for unit in randomised:
        names = [way.name for way in unit.ways]
        assert names == ([""] if unit.method.defence == "standard" else ["vote", "average"])
    for unit in units:
        catalog.build("defences", unit.method.defence, unit.method.parameters)


def test_defences_that_this_version_lacks_are_left_out() -> None:
    assert known("freelb") == "freelb"
    assert known("no-such-defence") is None
    named = {unit.method.name for unit in plan() if unit.stage == "minimum"}
    assert named == {"standard", *(name for name in REGULARISERS if known(name))}


def test_units_are_chosen_by_stage_or_title_and_parameters_may_be_set() -> None:
    units = plan({"freelb": {"steps": "2"}})
    assert {unit.stage for unit in wanted(units, ["mnli"])} == {"mnli"}
    (one,) = wanted(units, ["snli freelb seed 1"])
    assert one.method == Method("freelb", "freelb", {"steps": "2"})
    assert wanted(units, []) == units


def test_how_a_random_model_is_searched_is_taken_from_this_version(tmp_path: Path) -> None:
    usual = search_options(Place(tmp_path, tmp_path, tmp_path))
    assert usual["search_draws"] == SEARCH_DRAWS  # The number itself: another default is another cell.
    shared = search_options(Place(tmp_path, tmp_path, tmp_path, search={"search_draws": 5}))
    assert shared == {"fresh": usual["fresh"], "search_draws": 5}
    place = Place(tmp_path, tmp_path, tmp_path, search={"restarts": 1, "search_draws": 0})
    assert search_options(place) == {"restarts": 1, "fresh": usual["fresh"], "search_draws": 0}
    with pytest.raises(RunError, match="no option colour"):
        search_options(Place(tmp_path, tmp_path, tmp_path, search={"colour": 3}))


def run(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program with the benchmarks at hand, in a process of its own: it forks, which a test's process must not."""
    places = [str(ROOT / "src"), str(ROOT / "benchmarks")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *words],
        capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=120,
    )  # fmt: skip


def test_workers_outlive_failures_and_deaths_and_stop_in_time(tmp_path: Path) -> None:
    code = """
        import os, pathlib, time, types
        import proof.workers as workers

        workers._HEAVY = ()
        here = os.getpid()

        def work(number):
            assert os.getpid() != here
            marks = pathlib.Path(f"tried-{number}")
            marks.write_text(marks.read_text() + "x" if marks.exists() else "x")
            if number == 1:
                raise ValueError("bad luck")
            if number == 2 and marks.read_text() == "x":
                os.kill(os.getpid(), 9)
            if number == 5:
                time.sleep(600)
            return f"said {number}"

        heard = []  # The clock stands until everything but the last unit has ended, however busy the machine is.
        workers.time = types.SimpleNamespace(monotonic=lambda: 9.0 if len(heard) == 7 else 0.0)

        def tell(line):
            heard.append(line)
            print(line)

        titles = [f"unit {number}" for number in range(6)]
        ended = workers.work_off(titles, work, workers=2, deadline=8.0, stop=8.0, tell=tell)
        print(sorted(ended.done), ended.failed, ended.left)
        late = workers.work_off(titles, work, workers=2, deadline=0.0)
        print(late.done, late.failed, late.left)
    """
    found = run(code, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert "unit 1: failed, ValueError: bad luck" in found.stdout
    assert "unit 2: the process ended with code -9" in found.stdout
    assert "unit 2: said 2" in found.stdout
    assert "ValueError: bad luck" in found.stderr
    assert lines[-2] == "[0, 2, 3, 4] (1,) (5,)"
    assert lines[-1] == "() () (0, 1, 2, 3, 4, 5)"
    assert (tmp_path / "tried-1").read_text() == "xx"


RUNNER = """
    import pathlib, sys
    import evidence
    from isthmus.training.settings import TrainingSettings
    from proof.grid import Method
    from proof.plan import Unit, Way

    def unit(method, *ways):
        settings = TrainingSettings(epochs=1, batch_size=8, precision="fp32", checkpoint_every=None, information=0)
        return Unit("minimum", "toy", "sst2", method, 0, settings, 3, attacks=("deepwordbug",), ways=ways)

    vib = Method("vib-0.1", "vib", {"beta": 0.1})
    latent = Way("mean", {"latent": "mean"}), Way("sample", {"latent": "sample"}, True)
    evidence.plan = lambda changed: [unit(Method("standard"), Way()), unit(vib, *latent)]
    results = pathlib.Path("results/toy.jsonl")

    def run(*more):
        words = "--results results --runs runs --backbone cnn --device cpu --search-draws 3".split()
        sys.argv = ["evidence.py", "--data", "pack", *words, *more]
        print("$", *more)
        evidence.main()

    run("--deadline", "0")
    assert not results.exists()
    run("--workers", "2")
    whole = results.read_bytes()
    run()
    assert results.read_bytes() == whole
    pathlib.Path("whole.jsonl").write_bytes(whole)
    results.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))  # What a killed hour lost.
    run("--list")
    run()
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack" / "sst2"
    folder.mkdir(parents=True)
    for split, size in (("train", 16), ("dev", 8), ("test", 12)):
        rows = [{"text": f"a {'fine' if i % 2 else 'dull'} film number {i}", "label": i % 2} for i in range(size)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder.parent


def test_units_fill_the_ledger_once_and_a_cut_keeps_what_was_finished(pack: Path, tmp_path: Path) -> None:
    found = run(RUNNER, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    nothing, every, again, listed, rest = found.stdout.split("$")[1:]
    assert "2 of 2 units have something to run\n0 done, 0 failed, 2 left" in nothing
    assert "2 done, 0 failed, 0 left" in every
    assert "0 of 2 units have something to run\n0 done, 0 failed, 0 left" in again
    assert "1 of 2 units to run" in listed
    assert "1 of 2 units have something to run" in rest
    assert "1 done, 0 failed, 0 left" in rest
    cells = list(Ledger(tmp_path / "whole.jsonl"))
    assert sorted((cell.row, cell.key.attack is not None, cell.key.n) for cell in cells) == [
        ("standard", False, 12), ("standard", True, 3), ("vib-0.1-mean", False, 12), ("vib-0.1-mean", True, 3),
        ("vib-0.1-sample", False, 12), ("vib-0.1-sample", True, 3),
    ]  # fmt: skip
    attacked = {cell.row: cell.key.attack for cell in cells if cell.key.attack}
    assert attacked["vib-0.1-sample"]["search"]["search_draws"] == 3
    assert "search" not in attacked["vib-0.1-mean"]
    assert {"seconds", "code"} <= cells[0].provenance.keys()
    # The same command makes the lost cell again, with the same outcomes.
    made = Ledger(tmp_path / "results" / "toy.jsonl").cells()
    assert {key: cell.outcomes for key, cell in made.items()} == {cell.key.id: cell.outcomes for cell in cells}


def test_heads_are_known_by_the_encoder_they_stand_on(pack: Path, tmp_path: Path) -> None:
    settings = TrainingSettings(epochs=2)
    plain = Unit("minimum", "toy", "sst2", Method("standard"), 0, settings, 3, attacks=("deepwordbug",))
    head = dataclasses.replace(plain, encoder=plain)
    place = Place(pack, tmp_path, tmp_path, epochs=1)
    (own, _), (other, _) = asked(place.fitted(plain), place), asked(place.fitted(head), place)
    assert "encoder" not in own.key.training
    assert other.key.training["encoder"]["epochs"] == 1
    assert own.key.id != other.key.id
    assert plain.folder != head.folder


def test_a_way_says_whether_its_answers_are_random() -> None:
    for unit in plan():
        for way in unit.ways:
            assert way.draws == (unit.method.defence in ("rsmi", "safer") or way.options.get("latent") == "sample")
    assert not Way().draws
