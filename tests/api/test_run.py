"""`isthmus.open_run`: everything that a run folder holds, as typed results."""

from __future__ import annotations

from pathlib import Path

import isthmus
from isthmus.measures.base import Measurement
from isthmus.runs.explained import Explained

SYNONYMS = str(Path(__file__).parents[1] / "support" / "synonyms.json")


def test_a_run_has_all_its_results(run: str) -> None:
    opened = isthmus.open_run(run)
    nothing = (opened.attacks, opened.embeddings, opened.evaluations, opened.certificates, opened.measures)
    assert nothing == ({}, {}, {}, {}, {})
    assert opened.explanations == {}
    certified = isthmus.certify(run, "synonym", examples=4, device="cpu", table=SYNONYMS, n0=5, n=20, label_check=False)
    evaluated = isthmus.evaluate(run, device="cpu", label_check=False)
    measured = isthmus.measure(run, "calibration", device="cpu")
    isthmus.attack(run, "deepwordbug,fgsm", n=8, device="cpu", label_check=False)
    opened = isthmus.open_run(run)
    assert list(opened.certificates) == ["synonym"]
    assert list(opened.certificates["synonym"]) == list(certified)
    assert opened.certificates["synonym"].unit == certified.unit == "words"
    assert opened.certificates["synonym"].summary() == certified.summary()
    assert "certified" in repr(certified)
    assert {key: list(found) for key, found in opened.evaluations.items()} == {evaluated.name: list(evaluated)}
    assert isinstance(opened.measures["calibration"], Measurement)
    assert opened.measures["calibration"].to_json() == measured.to_json()
    assert list(opened.attacks) == ["deepwordbug"]
    assert list(opened.embeddings) == ["fgsm"]
    isthmus.explain(run, attack="deepwordbug", method="occlusion", device="cpu")
    kept = isthmus.open_run(run).explanations["deepwordbug"]
    assert kept
    assert all(isinstance(each, Explained) and each.attacked is not None for each in kept)
