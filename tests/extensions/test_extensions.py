"""A package from outside, installed by pip from a folder: found without being imported, and used by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import training_toys as toys

from isthmus.cli.app import run
from isthmus.core import catalog, extensions
from isthmus.core.errors import UnknownName, UsageError
from isthmus.data import load_data
from isthmus.verbs.sources import DataRequest

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shouting-methods"
version = "1.0"

[project.entry-points."isthmus.attacks"]
shout = "shouting.methods:Shout"
textfooler = "shouting.methods:Shout"
pixels = "shouting.methods:Pixels"

[project.entry-points."isthmus.defences"]
soft = "shouting.methods:Soft"

[project.entry-points."isthmus.certificates"]
never = "shouting.methods:Never"

[project.entry-points."isthmus.measures"]
length = "shouting.methods:Length"

[project.entry-points."isthmus.explanations"]
letters = "shouting.methods:Letters"

[project.entry-points."isthmus.data"]
few_reviews = "shouting.methods:reviews"

[tool.hatch.build.targets.wheel]
packages = ["shouting"]
"""
FILES = {
    "pyproject.toml": PROJECT,
    "shouting/__init__.py": 'import os\n\nif "MUST_SLEEP" in os.environ:\n    raise RuntimeError("imported")\n',
    "shouting/methods.py": Path(__file__).with_name("stranger.py").read_text(encoding="utf-8"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package, built from a folder of its own; nothing is fetched."""
    project, site = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("installed") / "site"
    for name, content in FILES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(site), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(project)
    return site


@pytest.fixture
def package(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The installed package in a folder on the path, which a test may spoil."""
    site = tmp_path / "site"
    shutil.copytree(installed, site)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    yield site
    for name in [name for name in sys.modules if name.split(".")[0] == "shouting"]:
        del sys.modules[name]


def was_imported() -> bool:
    return any(name.split(".")[0] == "shouting" for name in sys.modules)


def test_list_and_show_find_it_by_metadata_alone(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    shown = capsys.readouterr().out
    assert "Write important words loudly." in shown
    assert "from shouting-methods" in shown
    assert "few_reviews" in shown
    assert run(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"shout", "pixels"} <= set(found["attacks"])
    assert "soft" in found["defences"]
    assert "never" in found["certificates"]
    assert "length" in found["measures"]
    assert run(["show", "shout"]) == 0
    about = capsys.readouterr().out
    assert "More of it." in about
    assert "ending" in about
    assert run(["show", "shouting.methods:Soft"]) == 0
    assert "Smooth labels twice as much." in capsys.readouterr().out
    assert not was_imported()


def test_source_says_kind_and_inherited_parameters(package: Path) -> None:
    assert catalog.find("attacks", "shout").kind == "words"
    assert catalog.find("attacks", "pixels").kind == "gradient"
    assert [each.name for each in catalog.find("defences", "soft").parameters] == ["epsilon"]
    assert "shout" not in catalog.names("attacks")  # what isthmus brings does not depend on what is installed
    assert not was_imported()


def test_a_name_that_is_taken_keeps_its_module(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.find("attacks", "textfooler").module == "isthmus.attacks.words.textfooler"
    (clash,) = [one for one in extensions.find_announced("attacks", catalog.names("attacks")) if one.clashes_with]
    assert clash.name == "shouting.methods:Shout"
    assert run(["list", "attacks"]) == 0
    assert "its name textfooler is already taken" in " ".join(capsys.readouterr().out.split())


def test_names_that_lead_nowhere_are_usage_errors(package: Path) -> None:
    with pytest.raises(UnknownName, match="no module nowhere"):
        catalog.find("attacks", "nowhere.at.all:Shout")
    with pytest.raises(UnknownName, match="Shout"):
        catalog.find("attacks", "shouting.methods:Shoutt")
    with pytest.raises(UnknownName, match="shout"):
        catalog.find("attacks", "shoutt")
    (package / "shouting" / "broken.py").write_text("class Broken(\n")
    with pytest.raises(UsageError, match="cannot be read"):
        catalog.find("attacks", "shouting.broken:Broken")
    assert not was_imported()
    (package / "shouting" / "raises.py").write_text("class Raises:\n    pass\nraise OSError('no')\n")
    with pytest.raises(UsageError, match=r"cannot import 'shouting\.raises'"):
        catalog.build("attacks", "shouting.raises:Raises")


def test_everything_is_used_by_name(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attack = ["attack", "shouting.methods:classify", "--data", "few_reviews", "--n", "20", "--quiet", "--json"]
    assert run([*attack, "--attack", "shout", "-P", "shout.ending=?", "--out", "runs/a"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert first["asr"] > 0
    assert (tmp_path / "runs/a/attacks/shout.jsonl").is_file()
    named = [*attack, "--attack", "shouting.methods:Shout", "-P", "Shout.ending=?", "--out", "runs/b"]
    assert run(named) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["asr"] == first["asr"]
    (file,) = (tmp_path / "runs/b/attacks").glob("*.jsonl")
    assert ":" not in file.name
    certify = ["certify", "shouting.methods:classify", "--data", "shouting.methods:reviews", "--n", "10", "--quiet"]
    assert run([*certify, "--certificate", "never", "--out", "runs/c"]) == 0
    capsys.readouterr()


def test_a_model_trained_with_it_is_a_run_that_opens_without_it(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toys.classifier().save(tmp_path / "backbone")
    rows = [f"{each.texts['text']},{'good' if each.label else 'bad'}" for each in toys.dataset("train", 40, 0)]
    (tmp_path / "toy.csv").write_text("\n".join(["text,label", *rows]))
    given = ["--data", "toy.csv", "--backbone", "backbone", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    spec = "shouting.methods:Soft+freelb"
    command = ["train", *given, "--defence", spec, "-P", "Soft.epsilon=0.3", "-P", "freelb.steps=2", "--out", "run"]
    assert run([*command, "--quiet"]) == 0
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["defence"]["name"] == spec
    assert record["defence"]["parameters"]["Soft.epsilon"] == 0.3
    assert run(["measure", "run", "--measure", "length", "--quiet"]) == 0
    assert run(["attack", "run", "--attack", "shout", "--n", "4", "--quiet", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert "shouting.methods:Soft+freelb" in in_a_process(package, tmp_path, "report", "run", asleep=True)
    code = "import isthmus; run = isthmus.open_run('run'); print(run.defence, list(run.attacks))"
    assert in_a_process(package, tmp_path, code=code, asleep=True).strip() == f"{spec} ['shout']"


def in_a_process(package: Path, place: Path, *words: str, code: str = "", asleep: bool = False) -> str:
    """What a command prints that is started afresh, or some Python; `asleep`, importing the package raises."""
    path = os.pathsep.join([str(package), *(entry for entry in sys.path if entry)])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"} | ({"MUST_SLEEP": "1"} if asleep else {})
    command = [sys.executable, *(["-c", code] if code else ["-m", "isthmus", *words])]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_and_show_import_nothing(package: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="imported"):
        in_a_process(package, tmp_path, code="import shouting.methods", asleep=True)
    found = json.loads(in_a_process(package, tmp_path, "list", "--json", asleep=True))
    kinds = ("attacks", "shout"), ("defences", "soft"), ("certificates", "never"), ("measures", "length")
    for family, name in (*kinds, ("explanations", "letters")):
        assert name in found[family]
    assert "few_reviews" in in_a_process(package, tmp_path, "list", "data", asleep=True)
    shown = in_a_process(package, tmp_path, "show", "letters", asleep=True)
    assert "Weigh every word by its letters" in shown
    assert "Weight of a letter." in shown


def test_every_kind_is_used_by_entry_point(package: Path, tmp_path: Path) -> None:
    toys.classifier().save(tmp_path / "backbone")
    small = ["--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    given = ["--data", "few_reviews", "--backbone", "backbone", "--defence", "soft", "-P", "epsilon=0.3"]
    few = ["--n", "4", "--device", "cpu", "--json"]
    commands = [
        ["train", *given, *small, "--out", "run"],
        ["attack", "run", "--attack", "shout", "-P", "ending=?", *few],
        ["certify", "run", "--certificate", "never", *few],
        ["measure", "run", "--measure", "length"],
        ["explain", "run", "a quiet film", "--method", "letters", "-P", "each=0.5", "--keep"],
    ]
    # One process for all: each would import torch again.
    code = f"from isthmus.cli.app import run\nassert [run([*words, '--quiet']) for words in {commands}] == [0] * 5"
    in_a_process(package, tmp_path, code=code)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert (record["data"]["source"], record["defence"]["name"]) == ("few_reviews", "soft")
    assert record["defence"]["parameters"]["epsilon"] == 0.3
    rows = {name: read_lines(tmp_path / f"run/{name}.jsonl") for name in ("attacks/shout", "certificates/never")}
    edits = [edit for row in rows["attacks/shout"] for edit in row["edits"]]
    assert edits
    assert all(edit["replacement"] == edit["original"] + "?" for edit in edits)
    assert [row["strength"] for row in rows["certificates/never"]] == [0.0] * 4
    (words,) = json.loads((tmp_path / "run/measures.json").read_text())["Length"]["measurement"]["figures"]
    assert (words["name"], words["estimate"]) == ("words", 5.0)
    (reading,) = json.loads((tmp_path / "run/explanations.json").read_text())["texts"]["explained"]
    assert reading["method"] == "Letters"
    assert list(reading["weights"].values()) == [[0.5, 2.5, 2.0]]
    in_a_process(package, tmp_path, "report", "run", asleep=True)
    page = (tmp_path / "run/report.html").read_text()
    assert all(name in page for name in ("shout", "soft", "never", "Length", "letters"))


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_folder_does_not_decide_which_code_is_run(package: Path) -> None:
    assert len(load_data("shouting.methods:reviews")["all"]) == 40
    with pytest.raises(UsageError, match=r"name it yourself: --data shouting\.methods:reviews"):
        DataRequest("shouting.methods:reviews", from_run=True).load()
    assert len(DataRequest("few_reviews", from_run=True).load()["all"]) == 40
    with pytest.raises(UsageError, match="makes its data itself"):
        load_data("few_reviews", text="text")
