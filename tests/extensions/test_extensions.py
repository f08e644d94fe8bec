"""A package from outside, put on the path with made-up metadata: found without being imported, and used by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import training_toys as toys

from isthmus.cli.app import run
from isthmus.core import catalog, extensions
from isthmus.core.errors import UnknownName, UsageError
from isthmus.data import load_data
from isthmus.verbs.sources import DataRequest

PACKAGE = {
    "__init__.py": 'raise_on_import = __import__("os").environ.get("SHOUTING_MUST_SLEEP")\n'
    'assert not raise_on_import, "the package was imported"\n',
    "methods.py": Path(__file__).with_name("stranger.py").read_text(encoding="utf-8"),
}
POINTS = """
[isthmus.attacks]
shout = shouting.methods:Shout
textfooler = shouting.methods:Shout
pixels = shouting.methods:Pixels
[isthmus.defences]
soft = shouting.methods:Soft
[isthmus.certificates]
never = shouting.methods:Never
[isthmus.measures]
length = shouting.methods:Length
[isthmus.data]
few_reviews = shouting.methods:reviews
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with the package and what an installer would have written about it."""
    site = tmp_path / "site"
    (site / "shouting").mkdir(parents=True)
    for name, code in PACKAGE.items():
        (site / "shouting" / name).write_text(code)
    info = site / "shouting_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
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
    # Reading it again, in a fresh process, imports nothing of the package.
    for verb in (["report", "run"], ["list"], ["show", "shout"]):
        done = subprocess.run(
            [sys.executable, "-m", "isthmus", *verb],
            cwd=tmp_path,
            env={**__import__("os").environ, "SHOUTING_MUST_SLEEP": "1", "PYTHONPATH": _path(package)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def _path(package: Path) -> str:
    return ":".join([str(package), *(entry for entry in sys.path if entry)])


def test_a_folder_does_not_decide_which_code_is_run(package: Path) -> None:
    assert len(load_data("shouting.methods:reviews")["all"]) == 40
    with pytest.raises(UsageError, match=r"name it yourself: --data shouting\.methods:reviews"):
        DataRequest("shouting.methods:reviews", from_run=True).load()
    assert len(DataRequest("few_reviews", from_run=True).load()["all"]) == 40
    with pytest.raises(UsageError, match="makes its data itself"):
        load_data("few_reviews", text="text")
