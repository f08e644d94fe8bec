"""`isthmus.gate` judges as the command line does, and says it with a typed verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import question_toys

import isthmus
from isthmus.cli.app import run as command
from isthmus.core.errors import ExitCode, UnknownName, UsageError

SYNONYMS = str(Path(__file__).parents[1] / "support" / "synonyms.json")
LABELS = ("bad", "good")
ROWS = [("a dull plot", "bad"), ("a fine film", "good")] * 20


def classify(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts]


@pytest.fixture(scope="module")
def found() -> isthmus.AttackResults:
    return isthmus.attack(classify, ["deepwordbug", "badchars"], ROWS, labels=LABELS)


@pytest.mark.parametrize(
    ("limits", "outcomes"),
    [
        ({"fail_under": {"racc": 0.1}}, ["passed"] * 3),
        ({"fail_under": "racc=0.9"}, ["failed"] * 3),
        ({"fail_under": {"racc": 0.5}}, ["inconclusive"] * 3),
        ({"fail_under": {"sacc": 0.8, "racc": 0.9}}, ["passed", "failed"] * 3),
        ({"fail_over": {"asr": 0.9}}, ["passed"] * 3),
        ({"fail_over": {"asr": 0.1}}, ["failed"] * 3),
        ({"fail_under": {"tpr": 0.5}, "positive": "good"}, ["passed"] * 3),
        ({"fail_under": {"tpr": 0.5}, "positive": "bad"}, ["failed"] * 3),
    ],
)
def test_attacks_are_judged_alone_and_together(found: isthmus.AttackResults, limits, outcomes) -> None:
    verdict = isthmus.gate(found, **limits)
    assert [check.outcome for check in verdict.checks] == outcomes
    assert {check.name for check in verdict.checks} == {"deepwordbug", "badchars", "all together"}
    worst = next(name for name in ("failed", "inconclusive", "passed") if name in outcomes)
    assert verdict.outcome == worst
    assert verdict.passed == (worst == "passed")
    assert verdict.exit_code == {"passed": 0, "failed": 1, "inconclusive": 3}[worst]
    assert worst in repr(verdict)
    assert len(isthmus.gate(found.attacks["badchars"], **limits).checks) == len(outcomes) // 3


def test_the_verdict_is_the_command_lines(run: str, capsys) -> None:
    few = ["--n", "8", "--no-label-check", "--quiet", "--device", "cpu", "--json"]
    for limits in ("racc=0.05,sacc=0.1", "racc=0.99", "racc=0.5"):
        code = command(["attack", run, "--attack", "deepwordbug,badchars", *few, "--fail-under", limits])
        said = json.loads(capsys.readouterr().out.splitlines()[-1])
        results = isthmus.attack(run, "deepwordbug,badchars", n=8, label_check=False, device="cpu")
        for judged in (run, isthmus.open_run(run), results):
            assert isthmus.gate(judged, fail_under=limits).exit_code == code == said["gate"]["exit_code"]
    evaluated = isthmus.evaluate(run, device="cpu", label_check=False)
    code = command(["evaluate", run, "--fail-under", "accuracy=0.5", "--latency", "0", "-q", "--device", "cpu"])
    assert isthmus.gate(evaluated, fail_under={"accuracy": 0.5}).exit_code == code == ExitCode.PASSED
    mixed = isthmus.gate(run, fail_under={"accuracy": 0.5, "racc": 0.05})
    assert {check.rate for check in mixed.checks} == {"accuracy", "racc"}
    with pytest.raises(UsageError, match="has no certificates"):
        isthmus.gate(run, fail_under={"certified": 0.5})


def test_a_detector_is_judged_by_its_false_positives(run: str) -> None:
    goal = isthmus.GoalRequest(from_label="bad", threshold=0.5)
    found = isthmus.attack(run, "deepwordbug", n=4, goal=goal, label_check=False, device="cpu")
    verdict = isthmus.gate(found, fail_over={"fpr": 0.99}, fail_under={"tpr": 0.01})
    assert [check.rate for check in verdict.checks] == ["tpr", "fpr"]
    with pytest.raises(UsageError, match="detector that was evaded"):
        isthmus.gate(isthmus.attack(classify, "deepwordbug", ROWS[:2], labels=LABELS), fail_over={"fpr": 0.1})
    with pytest.raises(UsageError, match="true-positive rate of one class"):
        isthmus.gate(isthmus.attack(classify, "deepwordbug", ROWS[:2], labels=LABELS), fail_under={"tpr": 0.1})


def test_certificates_and_questions_are_judged_too(tmp_path: Path) -> None:
    proven = isthmus.certify(classify, "synonym", ROWS, labels=LABELS, table=SYNONYMS, n0=5, n=20)
    verdict = isthmus.gate(proven, fail_under={"clean": 0.3, "certified": 0.0})
    assert [check.rate for check in verdict.checks] == ["clean", "certified"]
    assert verdict.passed
    assert "all words" in verdict.checks[0].name
    assert "1 word" in isthmus.gate(proven, fail_under="clean=0.3", at=1).checks[0].name
    data = isthmus.data.Splits("toy", {"test": question_toys.dataset("test", 12)})
    answered = isthmus.evaluate(question_toys.answerer(), data, device="cpu")
    assert isthmus.gate(answered, fail_under={"f1": 0.999}).outcome == "failed"
    with pytest.raises(UnknownName, match="accuracy"):
        isthmus.gate(answered, fail_under={"accuracy": 0.5})


def test_wrong_limits_say_what_would_work(found: isthmus.AttackResults) -> None:
    with pytest.raises(UsageError, match="give a limit"):
        isthmus.gate(found)
    with pytest.raises(UsageError, match="limits are a mapping"):
        isthmus.gate(found, fail_under=0.4)
    with pytest.raises(UsageError, match="not 3"):
        isthmus.gate(3, fail_under={"racc": 0.4})
    with pytest.raises(UnknownName, match="racy"):
        isthmus.gate(found, fail_under={"racy": 0.4})
    with pytest.raises(UsageError, match="between 0 and 1"):
        isthmus.gate(found, fail_under={"racc": 40})
    proven = isthmus.evaluate(classify, ROWS, labels=LABELS)
    with pytest.raises(UsageError, match="rates of attacks"):
        isthmus.gate(proven, fail_over={"asr": 0.4})


def test_a_gate_without_a_limit_judges_nothing_and_says_so(run: str) -> None:
    isthmus.attack(run, "deepwordbug", n=2, device="cpu")
    found: Any
    for found in (run, isthmus.attack(classify, "deepwordbug", ROWS, labels=LABELS)):
        limits: Any
        for limits in ({}, "", ","):
            with pytest.raises(UsageError):
                isthmus.gate(found, fail_under=limits)
            with pytest.raises(UsageError):
                isthmus.gate(found, fail_over=limits)


def test_the_strength_of_a_certificate_is_for_certificates() -> None:
    found = isthmus.attack(classify, "deepwordbug", ROWS, labels=LABELS)
    with pytest.raises(UsageError, match="at"):
        isthmus.gate(found, fail_under={"racc": 0.4}, at=1)
