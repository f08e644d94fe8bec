"""What is no text, no class or no answer in time never counts as robust, and never passes in silence."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from isthmus.attacks import PWWS, DeepWordBug, Evasion, Targeted
from isthmus.attacks.base import AttackSettings
from isthmus.attacks.parts.goals import Goal, bound
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import ABSTAINS, Example
from isthmus.engine.scheduler import EngineSettings
from isthmus.models.victims import CallableVictim
from isthmus.summaries.attack import summarise

LABELS = ("ham", "spam")


def classify(texts: list[Any]) -> list[list[float]]:
    return [[0.1, 0.9] if "prize" in text else [0.9, 0.1] for text in texts]


def spam(name: str = "a", text: Any = "win a prize") -> Example:
    return Example(name, {"text": text}, 1)


@pytest.mark.parametrize("attack", [DeepWordBug(), PWWS()])
@pytest.mark.parametrize("value", [None, b"win a prize", 5, ["win a prize"], {"a": 1}, float("nan"), True])
def test_what_is_no_text_is_an_error_of_its_own(attack: Any, value: Any) -> None:
    # A classifier that takes anything for spam: nothing could turn it, so the attack on an empty text would fail.
    steady = CallableVictim(lambda texts: [[0.1, 0.9]] * len(texts), LABELS)
    found = {result.id: result for result in attack(steady, [spam("bad", value), spam("good")])}
    assert found["bad"].outcome == "error"
    assert "not a text" in found["bad"].reason
    assert found["good"].outcome == "failed"
    assert summarise(list(found.values())).robust == 1


@pytest.mark.parametrize("fields", [None, {}, {"image": np.zeros(3)}, "win a prize"])
def test_an_example_without_a_text_is_an_error(fields: Any) -> None:
    (result,) = DeepWordBug()(CallableVictim(classify, LABELS), [Example("a", fields, 1)])
    assert result.outcome == "error"


def test_a_pair_with_half_of_it_missing_is_an_error() -> None:
    pair = Example("a", {"premise": None, "hypothesis": "win a prize"}, 1)  # type: ignore[dict-item]
    (result,) = DeepWordBug()(CallableVictim(classify, LABELS), [pair], budget_per_word=3)
    assert (result.outcome, result.reason) == ("error", "DataError: 'premise' holds None, not a text")


def test_what_is_no_example_is_refused() -> None:
    with pytest.raises(UsageError, match="Example"):
        list(PWWS()(CallableVictim(classify, LABELS), ["win a prize"]))  # type: ignore[list-item]


@pytest.mark.parametrize("label", [2, -1])
def test_a_label_that_is_no_class_is_refused_with_the_classes(label: int) -> None:
    with pytest.raises(UsageError, match=rf"'a' has label {label}; the victim has 0 ham, 1 spam"):
        list(DeepWordBug()(CallableVictim(classify, LABELS), [Example("a", {"text": "win a prize"}, label)]))


@pytest.mark.parametrize("goal", [Evasion("spam"), Evasion("SPAM"), Evasion(1), Targeted("ham"), Targeted(0)])
def test_classes_are_taken_by_name_and_by_number(goal: Goal) -> None:
    (result,) = DeepWordBug()(CallableVictim(classify, LABELS), [spam()], goal=goal)
    assert result.outcome == "succeeded"


@pytest.mark.parametrize("goal", [Evasion("junk"), Targeted("LABEL_1"), Evasion(2), Targeted(-1), Evasion(True)])
def test_what_is_no_class_is_refused_with_the_classes(goal: Goal) -> None:
    with pytest.raises(UsageError, match=r"ham.*spam"):
        DeepWordBug()(CallableVictim(classify, LABELS), [spam()], goal=goal)


def test_declining_to_answer_is_no_class_to_aim_at() -> None:
    with pytest.raises(UnknownName):
        bound(Targeted(ABSTAINS), (*LABELS, ABSTAINS))
    aware = bound(Evasion("spam"), (*LABELS, ABSTAINS))
    assert aware == Evasion(1, abstains=2)


@pytest.mark.parametrize("answered", [0, 1])
def test_a_victim_that_hangs_is_a_time_out(answered: int) -> None:
    calls = []

    def hangs(texts: list[Any]) -> list[list[float]]:
        calls.append(texts)
        if len(calls) > answered:
            time.sleep(1)
        return classify(texts)

    (result,) = DeepWordBug()(CallableVictim(hangs, LABELS, timeout=0.1), [spam()])
    assert result.outcome == "timed_out"
    assert "within 0.1 s" in result.reason
    assert result.prediction_before == (1 if answered else None)
    assert summarise([result]).timed_out == 1


def test_a_first_answer_after_the_time_limit_is_a_time_out() -> None:
    def slow(texts: list[Any]) -> list[list[float]]:
        time.sleep(0.05)
        return classify(texts)

    settings = AttackSettings(engine=EngineSettings(time_limit=0.01))
    (result,) = DeepWordBug()(CallableVictim(slow, LABELS), [spam()], settings)
    assert (result.outcome, result.reason) == ("timed_out", "more than 0.01 s")
