"""`isthmus certify -P pgd=…`: the certificate attacked on its own ground, from end to end."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import certify_toys as toys
import pytest

from isthmus.cli.app import run as run_command
from isthmus.core.lines import seal_row
from isthmus.models import wrap
from isthmus.report.certificate.figure import draw_curve
from isthmus.report.certificate.view import read_certificate
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder
from isthmus.runs.journal import read_rows

WORDS = ("fine", "dull", "good", "flat", "great", "boring", "movie", "film")
TEXTS = [f"the {a} was {b}" for a in ("film", "plot") for b in WORDS]
PARAMETERS = {"n": 200, "n0": 30, "sigma": 0.5, "pgd": 4, "pgd_draws": 8}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with a linear model, and texts labelled as it answers but for the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "straight.py").write_text("import certify_toys\nmodel = certify_toys.linear()\n")
    sys.modules.pop("straight", None)
    answers = wrap(toys.linear()).scores([{"text": text} for text in TEXTS]).argmax(axis=1)
    labels = [toys.TASK.labels[int(answer) ^ (number == 0)] for number, answer in enumerate(answers)]
    rows = [f"{text},{label}" for text, label in zip(TEXTS, labels, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return tmp_path


@pytest.fixture
def certify(capsys, monkeypatch, place):
    monkeypatch.setenv("COLUMNS", "110")

    def command(out: str = "out", **changes: Any) -> tuple[int, dict[str, Any], str]:
        parameters = [part for key, value in {**PARAMETERS, **changes}.items() for part in ("-P", f"{key}={value}")]
        given = ["certify", "straight:model", "--data", "data.csv", "--n", "0", "--out", out, "--device", "cpu",
                 "--no-label-check", "-q", "--json", *parameters]  # fmt: skip
        capsys.readouterr()
        code = run_command(given)
        captured = capsys.readouterr()
        return code, json.loads(captured.out.strip().splitlines()[-1]) if code == 0 else {}, captured.err

    return command


def lines(path: Path) -> list[dict[str, Any]]:
    return read_rows(path)


def test_accuracy_under_the_attack_lies_above_certified_accuracy_and_below_the_distances(certify, place):
    code, found, _ = certify()
    assert code == 0
    assert found["attacks"] == ["embedding_pgd"]
    rows = lines(place / "out/certificates/gaussian.jsonl")
    points = lines(place / "out/certificates/gaussian.challenges.jsonl")
    certain = [row for row in rows if row["strength"] is not None]
    assert sum(point["inside"] for point in points) == len(certain)
    distances = {f"{number}": abs(toys.distance(toys.linear(), text)) for number, text in enumerate(TEXTS)}
    away = [distances[row["id"].rpartition(":")[2]] for row in rows if row["prediction"] == row["label"]]
    chance = 0.15  # Within this of the plane 200 draws may vote either way: four deviations.
    assert len({level["empirical"]["estimate"] for level in found["levels"]}) > 2
    for level in found["levels"]:
        reach, held = level["strength"], level["empirical"]["estimate"] * len(rows)
        assert level["certified"]["estimate"] <= level["empirical"]["estimate"]
        assert sum(each > reach + chance for each in away) <= round(held)
        assert reach == 0 or round(held) <= sum(each > reach - chance for each in away)
    page = render(read_run(RunFolder(place / "out")))
    assert "accuracy<br>under attack" in page
    view = read_certificate(next(iter(RunFolder(place / "out").certificate_files())))
    told = f"embedding_pgd attacked {len(certain)} examples within their certificates and fooled the model on none"
    assert any(told in note
               for note in view.notes())  # fmt: skip
    assert "under attack" in draw_curve(view)


def test_without_it_nothing_is_attacked(certify, place):
    _, found, _ = certify(pgd=0)
    assert found["attacks"] == []
    assert all(level["empirical"] is None for level in found["levels"])


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.8])
def test_a_torn_journal_is_completed_to_the_same_file(certify, place, kept):
    certify("whole")
    path = place / "whole/certificates/gaussian.challenges.jsonl"
    whole = path.read_bytes()
    shutil.copytree(place / "whole", place / "torn")
    torn = place / "torn/certificates/gaussian.challenges.jsonl"
    torn.write_bytes(whole[: int(kept * len(whole))])
    code, found, _ = certify("torn")
    assert code == 0
    assert found["certified_now"] == 0
    assert torn.read_bytes() == whole


def test_a_certificate_that_claims_too_much_is_broken(certify, place):
    certify()
    path = place / "out/certificates/gaussian.jsonl"
    rows = lines(path)
    chosen = max((row for row in rows if row["outcome"] == "certified"), key=lambda row: row["strength"])
    distance = abs(toys.distance(toys.linear(), TEXTS[int(chosen["id"].rpartition(":")[2])]))
    assert chosen["strength"] < distance
    inflated = [{**row, "strength": 1.5 * distance + 0.5} if row["id"] == chosen["id"] else row for row in rows]
    path.write_bytes(b"".join(map(seal_row, inflated)))
    code, _, told = certify()
    assert code == 4
    assert f"example {chosen['id']}: embedding_pgd found a point within its certificate" in told
    assert "bug" in told
    header = json.loads((place / "out/certificates/gaussian.json").read_text())
    assert [each.rpartition("/")[0] for each in header["refuted"]] == [f"embedding_pgd/{chosen['id']}"]
    view = read_certificate(next(iter(RunFolder(place / "out").certificate_files())))
    assert any("refuted. This is a bug" in note for note in view.notes())
    path.write_bytes(b"".join(map(seal_row, rows)))
    assert certify()[0] == 0, "the right rows are not to blame"
