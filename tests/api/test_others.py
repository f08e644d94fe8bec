"""`isthmus.certify`, `measure` and `explain` with what the command line has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import isthmus
from isthmus.attacks import Protection
from isthmus.cli.app import run as command
from isthmus.core.errors import UnknownName, UsageError
from isthmus.explanations.base import Explanation

SYNONYMS = str(Path(__file__).parents[1] / "support" / "synonyms.json")
ROWS = [("a dull plot", "bad"), ("a fine film", "good"), ("a stale joke", "bad"), ("a warm scene", "good")]
LABELS = ("bad", "good")


def classify(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts]


class Heard(isthmus.Observer):
    def __init__(self) -> None:
        self.results: list = []

    def result(self, key, result) -> None:
        self.results.append((key, result.id))


def test_a_certificate_is_the_command_lines(run: str, capsys) -> None:
    shutil.copytree(run, "twin")
    typed = ["--n", "4", "-P", f"table={SYNONYMS}", "-P", "n0=5", "-P", "n=20", "--protect-pattern", "dull"]
    assert (
        command(["certify", run, "--certificate", "synonym", *typed, "--no-label-check", "-q", "--device", "cpu"]) == 0
    )
    capsys.readouterr()
    heard = Heard()
    found = isthmus.certify("twin", "synonym", examples=4, protection=Protection(pattern="dull"), label_check=False,
                            table=SYNONYMS, n0=5, n=20, device="cpu", progress=heard)  # fmt: skip
    rows = [Path(folder, "certificates/synonym.jsonl").read_bytes() for folder in (run, "twin")]
    assert rows[0] == rows[1]
    hashes = [json.loads(Path(f, "certificates/synonym.json").read_text())["hash"] for f in (run, "twin")]
    assert hashes[0] == hashes[1]
    assert {each for _, each in heard.results} == {each.id for each in found}
    other = isthmus.certify("twin", "synonym", examples=4, label_check=False, table=SYNONYMS, n0=5, n=20, device="cpu")
    assert other.name != found.name
    # At hand: what is protected cannot be substituted there either.
    heard = Heard()
    beside = isthmus.certify(classify, "synonym", ROWS, labels=LABELS, table=SYNONYMS, n0=5, n=20,
                             protection=Protection(pattern="."), progress=heard)  # fmt: skip
    assert len(beside) == len(heard.results) == 4
    assert "radius" not in repr(beside)
    with pytest.raises(UsageError, match="the certificate is an object"):
        isthmus.certify(run, isthmus.certificates.Synonym(table=SYNONYMS), out="elsewhere")


def test_a_measure_takes_its_options_by_name(run: str) -> None:
    model, data = isthmus.open_run(run).load_model("cpu"), isthmus.open_run(run).load_data()
    for few in (
        isthmus.measure(model, "calibration", data, n=4, splits="dev", seed=1),
        isthmus.measure(model, "calibration", data, asked={"n": 4, "splits": ("dev",), "seed": 1}),
        isthmus.measure(run, "calibration", n=4, splits=["dev"], seed=1, device="cpu"),
    ):
        assert {figure.of for figure in few.figures} == {"dev"}
    assert isthmus.measure(run, "calibration", device="cpu").figures != few.figures
    with pytest.raises(UsageError, match="n is given twice"):
        isthmus.measure(run, "calibration", n=4, asked={"n": 5})
    with pytest.raises(UnknownName, match="bns"):
        isthmus.measure(run, "calibration", bns=4)
    with pytest.raises(UsageError, match="texts"):
        isthmus.measure(model, "calibration", data, texts="a dull plot")
    with pytest.raises(UsageError, match="measures one run"):
        isthmus.measure([run, run], "calibration")
    with pytest.raises(UsageError, match="compared as runs"):
        isthmus.measure(model, "calibration", data, against=run)
    heard: list = []
    isthmus.measure(run, "calibration", n=3, device="cpu", progress=lambda *told: heard.append(told))


def test_a_measure_with_a_parameter_of_the_same_name_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_measure.py").write_text(
        '''"""Counts."""
from dataclasses import dataclass
from isthmus.measures.base import Figure, Measure, Measurement, Subject


@dataclass(frozen=True)
class Count(Measure):
    """Counts to n."""

    n: int = 1
    takes = ("n", "seed")
    reads = ("model",)

    def measure(self, subject: Subject) -> Measurement:
        asked = subject.asked
        return Measurement((Figure("n", self.n), Figure("seed", asked.seed), Figure("asked", asked.n or 0)))
'''
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = isthmus.measure(object(), "own_measure:Count", ROWS, n=7, seed=3, asked={"n": 2})
    assert [figure.estimate for figure in found.figures] == [7, 3, 2]


def test_runs_are_compared(run: str) -> None:
    shutil.copytree(run, "other")
    for folder in (run, "other"):
        isthmus.attack(folder, "deepwordbug", n=8, device="cpu", label_check=False)
    alone = isthmus.measure(run, "latent_distance", device="cpu")
    found = isthmus.measure(run, "latent_distance", against="other", device="cpu")
    assert len(found.figures) > len(alone.figures)
    both = isthmus.measure([run, "other"], "trade_off", over="epochs", attack="deepwordbug", device="cpu")
    assert both.figures


def test_explanations_of_an_attack_and_of_data(run: str) -> None:
    isthmus.attack(run, "deepwordbug", n=8, device="cpu", label_check=False)
    found: Any = isthmus.explain(
        run, attack="deepwordbug", method="occlusion", against=run, n=2, keep=False, device="cpu"
    )
    assert len(found) == 2
    assert all(each.attacked is not None and len(each.readings) == 2 for each in found)
    assert isthmus.open_run(run).explanations == {}
    assert len(isthmus.explain(run, n=3, method="occlusion", device="cpu", keep=True)) == 3
    assert [len(each) for each in isthmus.open_run(run).explanations.values()] == [3]
    alone = isthmus.explain(run, "a dull plot", method="occlusion", device="cpu", classes="all")
    assert isinstance(alone, Explanation)
    named: Any = isthmus.explain(classify, ["a dull plot"], method="occlusion", labels=("awful", "fine"), classes="all")
    assert tuple(named[0].labels) == ("awful", "fine")
    with pytest.raises(UsageError, match="`attack` is for what a run holds"):
        isthmus.explain(run, "a dull plot", attack="deepwordbug")
    with pytest.raises(UsageError, match="pass the texts"):
        isthmus.explain(classify)
