"""`isthmus explain` from the command line: a text, a pair, data, a run's attack, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isthmus.cli.app import run as run_command

sys.path.insert(0, str(Path(__file__).parent.parent / "certify"))

import certify_toys as toys

VICTIM = """
def score(texts):
    good = [min(0.9, max(0.1, 0.5 + 0.3 * ("fine" in t) - 0.3 * ("dull" in t))) for t in texts]
    return [[1 - g, g] for g in good]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    toys.network("cnn", 4, 0.6).save(tmp_path / "cnn")
    (tmp_path / "seen.py").write_text(VICTIM)
    rows = "".join(f"{text},{label}\n" for text, label in [("a fine film", "good"), ("a dull film", "bad")] * 4)
    (tmp_path / "data.csv").write_text("text,label\n" + rows)
    return tmp_path


def isthmus(capsys, monkeypatch, *arguments: object) -> tuple[int, str, str]:
    given = [str(argument) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["isthmus", *given])
    capsys.readouterr()
    code = run_command(given)
    captured = capsys.readouterr()
    return int(code), captured.out, captured.err


def test_a_text_is_shown_with_its_heaviest_words(place, capsys, monkeypatch):
    code, out, err = isthmus(
        capsys, monkeypatch, "explain", "seen:score", "a fine but dull film", "--method", "occlusion", "--class", "all",
        "--labels", "bad,good", "-q", "--json", "--html", "page.html",
    )  # fmt: skip
    assert code == 0, err
    (found,) = json.loads(out.splitlines()[-1])["explanations"]
    assert found["words"] == ["a", "fine", "but", "dull", "film"]
    assert found["weights"]["good"] == pytest.approx([0, 0.3, 0, -0.3, 0], abs=1e-6)
    page = (place / "page.html").read_text()
    assert 'title="+0.3">fine</span>' in page
    code, out, err = isthmus(
        capsys, monkeypatch, "explain", "seen:score", "a fine but dull film", "--method", "shapley", "--class", "1"
    )
    assert code == 0, err
    assert "for: fine +0.300" in out
    assert "against: dull -0.300" in out


@pytest.mark.parametrize("method", ["integrated_gradients", "gradient_x_input", "lime"])
def test_a_model_folder_with_data(place, capsys, monkeypatch, method):
    code, out, err = isthmus(capsys, monkeypatch, "explain", "cnn", "--data", "data.csv", "--n", 3, "--method", method,
                             "--device", "cpu", "-q", "--json")  # fmt: skip
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])["explanations"]
    assert len(found) == 3
    assert all(len(each["words"]) == 3 for each in found)


def test_what_an_attack_changed_is_shown_beside_the_original(place, capsys, monkeypatch):
    code, _, err = isthmus(capsys, monkeypatch, "attack", "seen:score", "--data", "data.csv", "--attack", "deepwordbug",
                           "--out", "run", "--labels", "bad,good", "-q")  # fmt: skip
    assert code == 0, err
    code, out, err = isthmus(capsys, monkeypatch, "explain", "seen:score", "--run", "run", "--attack", "deepwordbug",
                             "--method", "occlusion", "--class", "good", "--json")  # fmt: skip
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])["explanations"]
    rows = [json.loads(line) for line in (place / "run/attacks/deepwordbug.jsonl").read_text().splitlines()]
    fooled = [row for row in rows if row["outcome"] == "succeeded"]
    assert fooled
    assert [(each["texts"], each["attacked"]["texts"]) for each in found] == [
        (row["original"], row["perturbed"]) for row in fooled
    ]
    assert all(list(each["weights"]) == ["good"] for each in found)
    assert "attacked" in err
    code, _, err = isthmus(capsys, monkeypatch, "explain", "seen:score", "--attack", "deepwordbug", "--method", "lime")
    assert code == 2
    assert "--run" in err


def test_what_is_refused(place, capsys, monkeypatch):
    for arguments, said in (
        (("seen:score", "a film"), "needs the model's gradient"),
        (("seen:score",), "nothing to explain"),
        (("cnn", "a film", "--method", "limes"), "lime"),
        (("cnn", "a film", "--class", "splendid"), "splendid"),
        (("cnn", "a film", "-P", "steps=0"), "at least 1 step"),
        (("cnn", "a film", "-P", "stepps=3"), "steps"),
    ):
        code, _, err = isthmus(capsys, monkeypatch, "explain", *arguments)
        assert code == 2, err
        assert said in err
        assert "fault" not in err
