"""A randomised model from the command line: trained, attacked in several ways, reported."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import training_toys as toys

from isthmus.attacks.base import AttackSettings
from isthmus.cli.attack import attack
from isthmus.core.types import ABSTAINS
from isthmus.report.training.terminal import describe_training
from isthmus.runs.folder import RunFolder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a tiny model trained with RSMI, and the data beside it."""
    from isthmus.cli.app import run

    place = tmp_path_factory.mktemp("rsmi")
    toys.classifier().save(place / "backbone")
    for split, size in (("train", 96), ("dev", 24), ("test", 24)):
        rows = [
            {"text": example.fields["text"], "label": toys.TASK.labels[int(example.label)]}
            for example in toys.dataset(split, size, 0)
        ]
        (place / "data").mkdir(exist_ok=True)
        (place / "data" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        "train", "--data", place / "data", "--backbone", place / "backbone", "--defence", "rsmi", "-P", "sigma=1.0",
        "-P", "masked=1", "-P", "k1=9", "--epochs", "4", "-S", "learning_rate=0.01", "--out", place / "run",
        "--device", "cpu", "--quiet",
    ]  # fmt: skip
    assert run([str(part) for part in command]) == 0
    return place / "run"


def attacked(isthmus: Any, run: Path, *more: object) -> dict[str, Any]:
    ended = isthmus(
        "attack", run, "--attack", "deepwordbug", "--n", 12, "--device", "cpu", "--json", "--no-label-check",
        "--budget", 25, *more,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    figures: dict[str, Any] = ended.json
    return figures


def test_a_run_is_attacked_as_it_is_deployed_and_as_the_options_say(isthmus: Any, trained: Path) -> None:
    figures = attacked(isthmus, trained, "-V", "aggregate=vote", "--budget", 200)
    assert figures["n"] == 12 == sum(figures["outcomes"].values())
    files = [path for path in (trained / "attacks").glob("*.jsonl") if "@" not in path.name]
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    looked = [row for row in rows if "fresh" in row]
    assert looked, "no attack on a model with this much noise ever seems to succeed"
    assert figures["fresh"]["claimed"] == sum(row["fresh"]["claimed"] for row in looked)
    assert all(row["fresh"]["draws"] == 20 for row in looked)
    again = attacked(isthmus, trained, "-V", "aggregate=vote", "--budget", 200)
    assert again["attacked_now"] == 0


def test_the_accuracy_of_training_is_said_to_be_that_of_a_single_pass(isthmus: Any, trained: Path) -> None:
    results = RunFolder(trained).record().results or {}
    assert "development accuracy of a single pass" in " ".join(isthmus("report", trained).out.split())
    assert "single pass" not in describe_training({**results, "dev_single_pass": False})


def test_a_trace_holds_the_attacks_queries_and_not_its_judges(isthmus: Any, trained: Path) -> None:
    options = ("-V", "two_step=false", "-V", "k0=2", "--trace")
    figures = attacked(isthmus, trained, *options)
    (key,) = figures["attacks"]
    lines = (trained / "attacks" / f"{key}.trace.jsonl").read_text().splitlines()
    assert len(lines) == figures["queries"]
    assert figures["effort"]["forwarded"] > figures["queries"]
    assert attacked(isthmus, trained, *options)["attacked_now"] == 0


def test_a_fixed_seed_makes_it_deterministic(isthmus: Any, trained: Path) -> None:
    figures = attacked(isthmus, trained, "-V", "fixed=true")
    assert "fresh" not in figures
    (key,) = figures["attacks"]
    rows = [json.loads(line) for line in (trained / "attacks" / f"{key}.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    assert not any("fresh" in row for row in rows)


def test_the_ablation_without_masks_is_asked_for_by_name(isthmus: Any, trained: Path) -> None:
    figures = attacked(isthmus, trained, "-V", "masking=none", "-V", "k0=1", "-V", "two_step=false")
    assert figures["outcomes"]["error"] == 0


def test_abstentions_have_a_label_and_an_outcome(isthmus: Any, trained: Path) -> None:
    figures = attacked(isthmus, trained, "-V", "aggregate=vote", "-V", "abstain=0.01", "-V", "two_step=false")
    (key,) = figures["attacks"]
    header = json.loads((trained / "attacks" / f"{key}.json").read_text())
    assert header["labels"][-1] == ABSTAINS
    assert figures["outcomes"].get("abstained", 0) > 0
    assert sum(figures["outcomes"].values()) == 12


def test_a_refused_option_leaves_no_file(isthmus: Any, trained: Path) -> None:
    before = set((trained / "attacks").iterdir())
    ended = isthmus("attack", trained, "--attack", "deepwordbug", "--n", 3, "-V", "k0=0")
    assert ended.code == 2
    assert set((trained / "attacks").iterdir()) == before


def test_more_draws_are_drawn_against_fewer(isthmus: Any, trained: Path) -> None:
    for draws in (1, 3):
        attacked(isthmus, trained, "-V", "two_step=false", "-V", f"draws={draws}")
    ended = isthmus("report", trained)
    assert ended.code == 0, ended.err
    assert "fresh draws" in ended.out
    page = (trained / "report.html").read_text()
    assert "Randomised model" in page
    assert "averaged over" in page
    assert page.count("<svg") > 4


def test_what_cannot_be_is_refused(isthmus: Any, trained: Path) -> None:
    for options, message in {
        ("-V", "k0=0"): "k0",
        ("-V", "abstain=2"): "abstain",
        ("-V", "colour=red"): "colour",
        ("--fresh", "-1"): "at least 0",
        ("--restarts", "-1"): "--restarts must be at least 0, not -1",
        ("--search-draws", "-1"): "--search-draws must be at least 0, not -1",
        ("--search-draws", "100000000"): "at most 1024",
        ("--budget", "0"): "--budget must be at least 1, not 0",
        ("--in-flight", "0"): "--in-flight must be at least 1",
        ("--processes", "0"): "--processes must be at least 1",
    }.items():
        ended = isthmus("attack", trained, "--attack", "deepwordbug", "--n", 4, "--device", "cpu", *options)
        assert ended.code == 2
        assert message in ended.err


def rows_of(run: Path, key: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "attacks" / f"{key}.jsonl").read_text().splitlines()]


def test_a_search_over_shared_draws_is_recorded_and_continued(isthmus: Any, trained: Path, tmp_path: Path) -> None:
    fast = ("-V", "two_step=false", "-V", "k0=1", "--budget", 65)
    options = (*fast, "--search-draws", 4, "--out", tmp_path / "parts")
    first = attacked(isthmus, trained, *options, "--n", 5)
    (key,) = first["attacks"]
    header = json.loads((tmp_path / "parts" / "attacks" / f"{key}.json").read_text())
    assert header["settings"]["randomised"] == {"fresh": 20, "search_draws": 4}
    assert attacked(isthmus, trained, *options)["attacked_now"] == 7
    once = attacked(isthmus, trained, *fast, "--search-draws", 4, "--out", tmp_path / "once")
    rows = rows_of(tmp_path / "parts", key)
    assert rows == rows_of(tmp_path / "once", *once["attacks"])
    for row in rows:
        if row["outcome"] != "skipped":
            assert row["logical_queries"] % 4 == 1
            assert row["logical_queries"] <= 65
    other = attacked(isthmus, trained, *fast, "--search-draws", 0, "--out", tmp_path / "once")
    assert other["attacked_now"] == 12  # Another question: not those rows.


@pytest.mark.slow
def test_a_killed_search_over_shared_draws_ends_with_the_same_rows(isthmus: Any, trained: Path, tmp_path: Path) -> None:
    def command(out: str) -> list[str]:
        options = (
            "attack", trained, "--attack", "deepwordbug", "--n", 12, "--device", "cpu", "--no-label-check",
            "--search-draws", 3, "--budget", 61, "-V", "two_step=false", "-V", "k0=1", "--in-flight", 1, "--quiet",
            "--out", tmp_path / out,
        )  # fmt: skip
        return [sys.executable, "-m", "isthmus", *map(str, options)]

    def lines() -> int:
        return sum(path.read_bytes().count(b"\n") for path in (tmp_path / "killed" / "attacks").glob("*.jsonl"))

    process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and lines() < 3:
            time.sleep(0.002)
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        process.kill()
        process.wait()
    assert lines() < 12
    for out in ("killed", "whole"):
        subprocess.run(command(out), check=True, capture_output=True, timeout=300)
    found = [[path.read_text() for path in (tmp_path / out / "attacks").glob("*.jsonl")] for out in ("killed", "whole")]
    assert found[0] == found[1]
    assert len(found[0][0].splitlines()) == 12


def test_a_search_over_draws_is_refused_where_there_are_none(isthmus: Any, trained: Path, tmp_path: Path) -> None:
    ended = isthmus(
        "attack", trained, "--attack", "deepwordbug", "--n", 3, "-V", "fixed=true", "--search-draws", 4,
        "--out", tmp_path / "refused",
    )  # fmt: skip
    assert ended.code == 2
    assert "draws nothing" in ended.err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_the_defaults_are_those_of_the_library() -> None:
    given = inspect.signature(attack).parameters
    settings = AttackSettings()
    for name in ("fresh", "restarts", "search_draws"):
        assert given[name].default == getattr(settings, name)


def test_attack_by_gradient_goes_through_the_whole_defence(isthmus: Any, trained: Path) -> None:
    ended = isthmus(
        "attack", trained, "--attack", "hotflip", "-P", "draws=3", "-P", "semantics=textattack", "-P",
        "part_of_speech=none", "--n", 3, "--device", "cpu", "--no-label-check", "--budget", 20, "--json",
    )  # fmt: skip
    if "cannot run" in ended.err:
        pytest.skip("hotflip's word vectors are not at hand")
    assert ended.code == 0, ended.err
    assert ended.json["outcomes"]["error"] == 0
