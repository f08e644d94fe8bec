"""A classifier that always gives the same answer must not look good, and gates that it cannot pass."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.attacks.result import AttackResult
from isthmus.cli.gate import FAILED, INCONCLUSIVE, PASSED, PrintedGate, verdict
from isthmus.core.errors import UsageError
from isthmus.core.statistics import Interval, wilson
from isthmus.report.attack.view import AttackView
from isthmus.report.view import RunView
from isthmus.runs.folder import DataRecord, ModelRecord, RunFolder, RunRecord

Command = Callable[..., Any]

MODELS = """
def ham(texts):
    return [[0.9, 0.1] for _ in texts]

def spam(texts):
    return [[0.1, 0.9] for _ in texts]

def finds(texts):
    return [[0.1, 0.9] if "prize" in text else [0.9, 0.1] for text in texts]
"""


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every sixth message is spam, as in collections of text messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("constant_models", None)
    (tmp_path / "constant_models.py").write_text(MODELS)
    lines = [f"win the prize today {i},spam" if i % 6 == 0 else f"see you at home {i},ham" for i in range(120)]
    (tmp_path / "messages.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return tmp_path


ATTACK = ("--data", "messages.csv", "--labels", "ham,spam", "--attack", "deepwordbug", "--n", 0, "--quiet")


def test_a_constant_classifier_is_named_and_fails_a_balanced_bar(messages: Path, isthmus: Command) -> None:
    ended = isthmus("attack", "constant_models:ham", *ATTACK, "--fail-under", "racc=0.70")
    assert ended.code == PASSED  # The rate that was asked for is judged, but not in silence.
    flat = " ".join(ended.out.split())
    assert flat.count("Every prediction is ham: the model does not separate the classes.") == 2
    assert "Judge balanced_racc instead" in flat
    assert "ham: 83.3 %" in flat  # the share of the commonest class
    assert "spam: 0.0 %" in flat  # the weakest class
    balanced = isthmus("attack", "constant_models:ham", *ATTACK, "--fail-under", "balanced_racc=0.70", "--json")
    assert balanced.code == FAILED
    assert balanced.json["balanced_racc"] == pytest.approx(0.5)
    assert balanced.json["majority_share"] == pytest.approx(0.8333, abs=1e-3)
    assert "Every prediction is ham" in balanced.json["warnings"][0]
    recall = isthmus("attack", "constant_models:ham", *ATTACK, "--fail-under", "tpr=0.20", "--positive", "spam")
    assert recall.code == FAILED
    page = isthmus("report", balanced.json["run"])
    assert page.code == 0
    html = (Path(balanced.json["run"]) / "report.html").read_text()
    assert "Every prediction is ham" in html
    assert "balanced accuracy" in html


def test_a_classifier_that_tells_the_classes_apart_gets_no_warning(messages: Path, isthmus: Command) -> None:
    ended = isthmus("attack", "constant_models:finds", *ATTACK, "--fail-under", "sacc=0.70", "--json")
    assert ended.code == PASSED
    assert ended.json["warnings"] == []
    assert ended.json["balanced_sacc"] == 1
    assert ended.json["balanced_racc"] < ended.json["racc"]  # Only the small class can be fooled.


def test_an_evaluation_names_it_too(messages: Path, isthmus: Command) -> None:
    given = ("--on", "messages.csv", "--labels", "ham,spam", "--quiet")
    ended = isthmus("evaluate", "constant_models:ham", *given, "--fail-under", "accuracy=0.70")
    assert ended.code == PASSED
    assert "Every prediction is ham" in " ".join(ended.out.split())
    assert "balanced accuracy 50.0 %" in " ".join(ended.out.split())
    assert isthmus("evaluate", "constant_models:ham", *given, "--fail-under", "balanced_accuracy=0.7").code == FAILED
    positive = isthmus("evaluate", "constant_models:ham", *given, "--fail-under", "tpr=0.7", "--positive", "spam")
    assert positive.code == FAILED
    unnamed = isthmus("evaluate", "constant_models:ham", *given, "--fail-under", "tpr=0.7")
    assert unnamed.code == 2
    assert "--positive LABEL" in unnamed.err
    unknown = isthmus("evaluate", "constant_models:ham", *given, "--fail-under", "tpr=0.7", "--positive", "junk")
    assert unknown.code == 2
    assert "ham" in unknown.err


def test_a_detector_that_flags_everything_is_named(messages: Path, isthmus: Command) -> None:
    given = (*ATTACK, "--from-label", "spam")
    ended = isthmus("attack", "constant_models:spam", *given, "--fail-under", "tpr=0.50", "--no-label-check")
    assert "the model flags everything" in " ".join(ended.out.split())
    ceiling = isthmus("attack", "constant_models:spam", *given, "--fail-over", "fpr=0.10", "--no-label-check")
    assert ceiling.code == FAILED
    assert "above the maximum" in ceiling.out


def test_the_class_of_a_true_positive_rate_must_be_known_before_anything_runs(messages: Path, isthmus: Command) -> None:
    for more, said in [
        (("--fail-under", "tpr=0.5"), "--positive LABEL"),
        (("--fail-under", "tpr=0.5", "--positive", "junk"), "junk"),
        (("--fail-under", "tpr=0.5", "--positive", "ham", "--from-label", "spam"), "--from-label spam"),
        (("--fail-over", "fpr=0.5"), "--from-label"),
        (("--fail-under", "asr=0.5"), "--fail-over asr"),
        (("--fail-over", "racc=0.5"), "--fail-under racc"),
        (("--fail-over", "asr=1.5"), "between 0 and 1"),
        (("--fail-over", "asr=nan"), "between 0 and 1"),
    ]:
        ended = isthmus("attack", "constant_models:ham", *ATTACK, *more)
        assert ended.code == 2
        assert said in ended.err
        assert not (messages / "runs").exists()


@pytest.mark.parametrize(
    ("interval", "code"),
    [
        (wilson(90, 100), FAILED),
        (wilson(10, 100), PASSED),
        (wilson(60, 100), INCONCLUSIVE),
        (wilson(0, 0), INCONCLUSIVE),
    ],
)
def test_a_ceiling_is_judged_by_the_interval(interval: Interval, code: int) -> None:
    assert verdict(interval, 0.6, is_ceiling=True) == code


def test_a_ceiling_kept_only_by_what_has_no_result_is_inconclusive(tmp_path: Path) -> None:
    bar = PrintedGate({}, {"asr": 0.6})
    console = Console(file=io.StringIO(), width=100)
    assert bar.judge(console, _run(tmp_path, ["failed"] * 90 + ["succeeded"] * 10), ["pwws"]) == PASSED
    assert bar.judge(console, _run(tmp_path, ["failed"] * 40 + ["timed_out"] * 160), ["pwws"]) == INCONCLUSIVE
    assert bar.judge(console, _run(tmp_path, ["succeeded"] * 90 + ["failed"] * 10), ["pwws"]) == FAILED
    assert "160 examples without a result" in console.file.getvalue()  # type: ignore[attr-defined]


def test_floors_and_ceilings_are_read() -> None:
    bar = PrintedGate.parse("racc=0.40, balanced_racc=0.3", over="asr=0.60")
    assert bar is not None
    assert (bar.least, bar.most) == ({"racc": 0.4, "balanced_racc": 0.3}, {"asr": 0.6})
    assert bar.to_json() == {"bar": {"racc": 0.4, "balanced_racc": 0.3}, "ceiling": {"asr": 0.6}}
    assert PrintedGate.parse(None) is None
    with pytest.raises(UsageError, match="no rate for --fail-under named 'accuracy'"):
        PrintedGate.parse("accuracy=0.5")


def _run(path: Path, outcomes: list[str]) -> RunView:
    rows = [
        AttackResult(
            str(number), outcome, number % 2, {}, {}, candidates=5, prediction_before=number % 2, words=3,
            words_changed=0.3, logical_queries=4,
        )
        for number, outcome in enumerate(outcomes)
    ]  # fmt: skip
    record = RunRecord(ModelRecord("toy"), DataRecord("reviews.csv", "reviews"))
    return RunView("run", RunFolder(path), record, (AttackView("pwws", {}, rows),), [])
