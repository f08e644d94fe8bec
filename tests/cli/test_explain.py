"""`isthmus explain` from the command line: a text, a pair, data, a run's attack, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import certify_toys as toys
import pytest

from isthmus.cli.app import run as run_command

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


def test_texts_without_words_are_left_out_and_counted(place, capsys, monkeypatch, caplog):
    (place / "data.csv").write_text("text,label\na fine film,good\n!!!,bad\na dull film,bad\n...,good\n")
    code, out, err = isthmus(capsys, monkeypatch, "explain", "cnn", "--data", "data.csv", "--n", 4, "--device", "cpu")
    assert code == 0, err
    assert "2 of 4 texts of all without a word left out" in caplog.text
    assert "a fine film" in out
    assert "a dull film" in out


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
        (("cnn", "?!"), "text 1 has no words to explain"),
        (("cnn", "a film", "--keep"), "--run"),
        (("cnn", "a film", "--outcome", "won"), "succeeded"),
        (("cnn", "a film", "--figure", "words.pdf"), ".svg or .png"),
        (("cnn", "a film", "--against", "seen:score"), "seen:score: integrated_gradients needs the model's gradient"),
    ):
        code, out, err = isthmus(capsys, monkeypatch, "explain", *arguments)
        assert code == 2, err
        assert said in err
        assert out == ""  # Before anything is explained.
        assert "fault" not in err


def attack(capsys, monkeypatch) -> None:
    code, _, err = isthmus(capsys, monkeypatch, "attack", "seen:score", "--data", "data.csv", "--attack", "deepwordbug",
                           "--out", "run", "--labels", "bad,good", "-q")  # fmt: skip
    assert code == 0, err


def test_two_models_read_the_same_texts_and_the_run_keeps_it(place, capsys, monkeypatch):
    attack(capsys, monkeypatch)
    command = ("explain", "seen:score", "--run", "run", "--attack", "deepwordbug", "--method", "occlusion",
               "--against", "cnn", "--n", 2, "--json", "--device", "cpu")  # fmt: skip
    code, out, err = isthmus(capsys, monkeypatch, *command)
    assert code == 0, err
    told = json.loads(out.splitlines()[-1])
    assert told["kept"] == "deepwordbug"
    assert all(Path(file).is_file() for file in told["files"])
    for each in told["explanations"]:
        (other,) = each["against"]
        assert (each["model"], other["model"]) == ("seen:score", "cnn")
        assert other["texts"] == each["texts"]
        assert other["attacked"]["texts"] == each["attacked"]["texts"] != each["texts"]
        assert each["truth"] in ("bad", "good")
        assert each["prediction"] != each["attacked"]["prediction"]
    assert "seen:score" in err
    assert "cnn" in err

    code, out, err = isthmus(capsys, monkeypatch, "report", "run", "-q", "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["explanations"]["deepwordbug"] == told["explanations"]
    page = (place / "run/report.html").read_text()
    assert "deepwordbug by occlusion, beside cnn" in page
    first = told["explanations"][0]["attacked"]["texts"]["text"]
    fooled = next(word for word in first.split() if word not in ("a", "film"))
    assert f">{fooled}</span></u>" in page, "the word that the attack put in is underlined"

    # The same again replaces it; other settings stand beside it.
    isthmus(capsys, monkeypatch, *command)
    code, out, _ = isthmus(capsys, monkeypatch, *command, "--outcome", "all")
    assert code == 0
    key = json.loads(out.splitlines()[-1])["kept"]
    assert key.startswith("deepwordbug@")
    kept = json.loads((place / "run/explanations.json").read_text())
    assert set(kept) == {"deepwordbug", key, "check"}


def test_nothing_is_kept_of_texts_unless_that_is_asked_for(place, capsys, monkeypatch):
    attack(capsys, monkeypatch)
    options = ("explain", "seen:score", "a fine film", "--method", "occlusion", "--run", "run", "-q")
    assert isthmus(capsys, monkeypatch, *options)[0] == 0
    assert not (place / "run/explanations.json").exists()
    assert isthmus(capsys, monkeypatch, *options, "--keep")[0] == 0
    assert set(json.loads((place / "run/explanations.json").read_text())) == {"texts", "check"}
    attacked = (
        "explain",
        "seen:score",
        "--attack",
        "deepwordbug",
        "--method",
        "occlusion",
        "--run",
        "run",
        "--no-keep",
    )
    assert isthmus(capsys, monkeypatch, *attacked)[0] == 0
    assert set(json.loads((place / "run/explanations.json").read_text())) == {"texts", "check"}


def test_other_data_and_other_models_stand_beside_each_other(place, capsys, monkeypatch):
    attack(capsys, monkeypatch)
    (place / "other.csv").write_text((place / "data.csv").read_text().replace("film", "plot"))
    keys = []
    for model, data in (("seen:score", "data.csv"), ("seen:score", "other.csv"), ("cnn", "data.csv")) * 2:
        code, out, err = isthmus(
            capsys, monkeypatch, "explain", model, "--data", data, "--labels", "bad,good", "--method", "occlusion",
            "--run", "run", "--keep", "--n", 2, "--json", "-q",
        )  # fmt: skip
        assert code == 0, err
        keys.append(json.loads(out.splitlines()[-1])["kept"])
    assert len(set(keys)) == 3
    assert keys[:3] == keys[3:]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_figure_holds_every_word(place, capsys, monkeypatch, suffix):
    text = "a fine film with $math$ & <tags>, " + "very long " * 20 + "and dull"
    code, _, err = isthmus(capsys, monkeypatch, "explain", "seen:score", text, "--method", "occlusion", "--figure",
                           f"words.{suffix}")  # fmt: skip
    assert code == 0, err
    content = (place / f"words.{suffix}").read_bytes()
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
        return
    shown = content.decode()
    for word in ("fine", "math", "dull", "&lt;"):
        assert word in shown
    again = content
    isthmus(capsys, monkeypatch, "explain", "seen:score", text, "--method", "occlusion", "--figure", "words.svg")
    assert (place / "words.svg").read_bytes() == again


def test_a_damaged_file_of_explanations_is_refused(place, capsys, monkeypatch):
    attack(capsys, monkeypatch)
    isthmus(capsys, monkeypatch, "explain", "seen:score", "--attack", "deepwordbug", "--method", "occlusion", "--run",
            "run", "-q")  # fmt: skip
    path = place / "run/explanations.json"
    value = json.loads(path.read_text())
    del value["check"]
    value["deepwordbug"]["explained"][0]["weights"] = {"bad": [1.0]}
    path.write_text(json.dumps(value))
    code, _, err = isthmus(capsys, monkeypatch, "report", "run", "-q")
    assert code == 2
    assert "explanations.json: deepwordbug holds no explanations" in err
    assert "move the file away" in err


def test_a_damaged_file_is_found_out_before_the_model_is_asked(place, capsys, monkeypatch):
    attack(capsys, monkeypatch)
    (place / "run/explanations.json").write_text("{")
    (place / "asked.py").write_text("def score(texts):\n    raise SystemError('asked')\n")
    code, out, err = isthmus(capsys, monkeypatch, "explain", "asked:score", "a film", "--labels", "bad,good",
                             "--method", "occlusion", "--run", "run", "--keep")  # fmt: skip
    assert code == 2
    assert "explanations.json" in err
    assert out == ""


def test_a_class_that_is_no_class_is_named():
    from isthmus.core.errors import UnknownName
    from isthmus.explanations.base import choose_classes

    with pytest.raises(UnknownName, match=r"1\.5"):
        choose_classes(1.5, ("bad", "good"))
    assert choose_classes(1, ("bad", "good")) == choose_classes([1], ("bad", "good")) == (1,)


def test_weights_that_are_not_numbers_are_said_to_be_none():
    import numpy as np
    from rich.console import Console

    from isthmus.explanations import Explanation
    from isthmus.report.explanation.page import render_explained
    from isthmus.report.explanation.terminal import print_explained
    from isthmus.runs.explained import Explained, Reading

    weights = np.array([[0.5, np.nan, -0.2]])
    found = Explanation("0", {"text": "a <b> film"}, "made", ("bad", "good"), (0.4, 0.6), (1,), weights)
    each = Explained("0", (Reading("model", found),))
    console = Console(width=100, record=True, file=io.StringIO())
    print_explained(console, [each])
    told = console.export_text()
    assert "some weights are not numbers" in told
    assert "1 texts have weights that are not numbers" in told
    page = render_explained([each])
    assert "<b>film" not in page
    assert "nan" not in page
    assert Explained.from_json(json.loads(json.dumps(each.to_json()).replace("NaN", "null"))).title == "0"
