"""Arguments of the wrong kind: each is refused by its name, before anything is asked or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isthmus
from isthmus import AttackOptions, GoalRequest, IsthmusError
from isthmus.attacks import Evasion, Protection, Targeted
from isthmus.core.errors import IsthmusWarning, UsageError

SYNONYMS = str(Path(__file__).parents[1] / "support" / "synonyms.json")
LABELS = ("bad", "good")
ROWS = [("a lovely film", "good"), ("a dull plot", "bad")] * 2
CLASSIFIERS = ("attack", "evaluate", "certify", "explain")
RUNS = (*CLASSIFIERS, "measure", "show_words")

# The argument, the functions that take it, and what each of them refuses.
WRONG: list[tuple[str, tuple[str, ...], tuple[Any, ...]]] = [
    ("n", ("attack", "evaluate", "explain", "measure", "show_words"), (0, -1, 1.5, "3", True, [1], float("nan"))),
    ("examples", ("certify",), (0, -1, 1.5, "3", True, {1})),
    ("limit", ("train",), (0, -1, 1.5, "3", True)),
    ("least", ("show_words",), (-1, 1.5, None)),
    ("draws", ("evaluate",), (0, 1.5, None, "3")),
    ("latency", ("evaluate",), (-1, 1.5, "3")),
    ("price_per_hour", ("evaluate",), (-1, "3", float("inf"), True)),
    ("precision", ("attack", "evaluate"), (3, "fp16", [])),
    ("seed", (*RUNS, "train"), (1.5, "3", True, {1}, [1], object())),
    ("split", ("attack", "evaluate", "certify", "explain"), (3, {1}, [3], object())),
    ("splits", ("measure",), (3, {1}, [3])),
    ("labels", CLASSIFIERS, (3, "bad,good", {"bad", "good"}, [1, 2], b"x")),
    ("victim", CLASSIFIERS, (3, [], "timeout=3", {3: 4})),
    ("label_check", ("attack", "evaluate", "certify"), (0, "no", [])),
    ("retry_errors", ("attack", "evaluate", "certify"), (1, "no", [])),
    ("keep", ("explain",), (1, "no", [])),
    ("every_epoch", ("measure",), (1, "no", [])),
    ("asked", ("measure",), (3, "n=3", [], {"nn": 3}, {3: 3})),
    ("out", ("attack", "evaluate", "certify"), (3, "", b"x", [])),
    ("folder", ("train",), (3, "", b"x", [])),
    ("file", ("show_words",), (3, "", b"x", [])),
    ("device", (*RUNS, "train"), (3, b"x", [], "gpu")),
    ("progress", ("attack", "evaluate", "certify", "explain"), (3, [], isthmus.Observer)),
    ("progress", ("measure", "train"), (3, [])),
    ("rows", ("evaluate",), (3, [], "al")),
    ("task", ("evaluate",), (3, [], "q")),
    ("attack", ("explain",), (3, [], "")),
    ("method", ("explain",), (3, [], None, isthmus.Observer)),
    ("settings", ("train",), (3, [], "epochs=1")),
    ("parameters", ("train",), (3, [], "steps=1")),
    ("defence", ("train",), (3, object(), isthmus.defences.FreeLB)),
    ("backbone", ("train",), (3, [], None)),
    ("protection", ("certify",), (3, "url", {})),
    ("certificate", ("certify",), (3, None, [], isthmus.certificates.Synonym)),
    ("measure", ("measure",), (3, None, [], isthmus.Observer)),
]  # fmt: skip
CASES = [(name, verb, value) for name, verbs, values in WRONG for verb in verbs for value in values]


def classify(texts: list[str]) -> list[list[float]]:
    return [[0.1, 0.9] if "lovely" in text else [0.9, 0.1] for text in texts]


def call(verb: str, given: dict[str, Any], model: Any) -> object:
    """Call a function with what it needs, and with `given`."""
    needed: dict[str, dict[str, Any]] = {
        "attack": {"attack": "deepwordbug"},
        "certify": {"certificate": "synonym"},
        "explain": {"method": "occlusion"},
        "measure": {"measure": "calibration"},
        "train": {"data": ROWS},
    }
    function: Callable[..., object] = getattr(isthmus, verb)
    arguments = {**needed.get(verb, {}), **given}
    return function(**arguments) if verb == "train" else function(model, **arguments)


def id_of(value: Any) -> str:
    """A name that is the same in every process: neither addresses nor the order of a set."""
    if isinstance(value, str | int | float | bool | None | list | tuple | dict):
        return str(value)[:30]
    return value.__name__ if isinstance(value, type) else type(value).__name__


@pytest.mark.parametrize(("name", "verb", "value"), CASES, ids=id_of)
def test_an_argument_of_the_wrong_kind_is_refused_by_its_name(name: str, verb: str, value: Any, run: str) -> None:
    before = sorted(Path().rglob("*"))
    with pytest.raises(IsthmusError) as caught:
        call(verb, {name: value}, run)
    word = {"progress": "progress|step", "rows": "rows", "asked": "asked|option", "splits": "split"}.get(name, name)
    assert any(each in str(caught.value) for each in (*word.split("|"), str(value)))
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("verb", ["attack", "evaluate", "certify"])
@pytest.mark.parametrize("name", ["n", "seed", "labels", "victim", "split", "progress", "device"])
def test_the_same_is_refused_of_objects(verb: str, name: str) -> None:
    own = "examples" if (verb, name) == ("certify", "n") else name
    with pytest.raises(UsageError, match="splits?" if name == "split" else own):
        call(verb, {"data": ROWS, "labels": LABELS, own: 1.5}, classify)


@pytest.mark.parametrize("value", [None, 3, [], "", b"x"])
def test_what_names_no_folder_is_refused(value: Any) -> None:
    for function in (isthmus.open_run, isthmus.write_report, isthmus.show_words, isthmus.load_model):
        with pytest.raises(IsthmusError):
            function(value)
    with pytest.raises(UsageError, match="out is"):
        isthmus.convert("model", value)


@pytest.mark.parametrize("function", [isthmus.list_assets, isthmus.fetch_assets, isthmus.verify_assets])
def test_assets_are_named_one_by_one(function: Callable[..., object]) -> None:
    for value in (3, None, ["minilm", "wordnet"]):
        with pytest.raises(UsageError, match="one by one"):
            function(value)


@pytest.mark.parametrize("value", [-1, 1.5, None, {"a": 1}, [], object()])
def test_a_parameter_of_a_method_is_refused_if_it_does_not_fit(value: Any) -> None:
    with pytest.raises(UsageError, match="deepwordbug: edit should be one of"):
        isthmus.attack(classify, "deepwordbug", ROWS, labels=LABELS, edit=value)


def test_an_option_among_the_parameters_is_told_its_place() -> None:
    with pytest.raises(UsageError, match=r"options=AttackOptions\(budget=…\)"):
        isthmus.attack(classify, "deepwordbug", ROWS, labels=LABELS, budget=50)


@pytest.mark.parametrize("value", ["3", [], True])
def test_options_with_bounds_are_numbers(value: Any) -> None:
    for name in ("budget", "time_limit", "in_flight", "fresh"):
        with pytest.raises(UsageError, match=name.replace("_", ".")):
            AttackOptions(**{name: value})


def test_options_that_count_are_whole_numbers_and_flags_are_flags() -> None:
    for name, value in (("budget", 2.5), ("trace", "yes")):
        with pytest.raises(UsageError, match=f"--{name} is"):
            AttackOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [{"target_label": 1}, {"from_label": ["a"]}, {"from_label": "a", "threshold": "x"}], ids=str
)
def test_a_goal_names_its_classes_and_rates(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=list(given)[-1]):
        GoalRequest(**given)


@pytest.mark.parametrize("goal", [Targeted, Targeted(1.5), Targeted([])], ids=id_of)  # type: ignore[arg-type]
def test_a_goal_that_names_no_class_is_refused(goal: Any, run: str) -> None:
    for model, data in ((run, None), (classify, ROWS)):
        with pytest.raises(UsageError, match=r"Targeted|no class of"):
            isthmus.attack(model, "deepwordbug", data, goal=goal)


def test_a_threshold_is_a_number() -> None:
    threshold: Any = "x"
    with pytest.raises(UsageError, match="threshold"):
        Evasion("good", threshold)


@pytest.mark.parametrize(
    ("given", "words"), [({"columns": "text"}, "columns"), ({"kinds": 3}, "kinds"), ({"pattern": 3}, "pattern")]
)
def test_what_is_protected_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Protection(**given)


def test_a_protected_column_that_the_data_lack_is_refused_of_objects_too() -> None:
    protection = Protection(columns=("premiss",))
    with pytest.raises(UsageError, match="no column named 'premiss'"):
        isthmus.attack(
            classify, "deepwordbug", ROWS, labels=LABELS, settings=isthmus.AttackSettings(protection=protection)
        )
    with pytest.raises(UsageError, match="no column named 'premiss'"):
        isthmus.certify(classify, "synonym", ROWS, labels=LABELS, table=SYNONYMS, protection=protection)


@pytest.mark.parametrize("name", ["protection", "limits", "engine"])
def test_parts_of_settings_are_of_their_kind(name: str) -> None:
    parts: dict[str, Any] = {name: "strict"}
    with pytest.raises(UsageError, match=rf"settings\.{name} takes"):
        isthmus.attack(classify, "deepwordbug", ROWS, settings=isthmus.AttackSettings(**parts))


@pytest.mark.parametrize("labels", [3, "ab", {"bad", "good"}, [1, 2]], ids=id_of)
def test_label_names_are_a_list_wherever_they_are_given(labels: Any, run: str) -> None:
    for function, source in ((isthmus.load_data, ROWS), (isthmus.load_victim, classify), (isthmus.load_model, run)):
        load: Callable[..., object] = function
        with pytest.raises(UsageError, match="labels is a list of names"):
            load(source, labels=labels)


def test_numbers_of_numpy_are_plain_numbers_in_a_run(run: str) -> None:
    plain = isthmus.attack(run, "deepwordbug", n=3, seed=2, device="cpu")
    assert plain.folder is not None
    file = plain.folder.path / "attacks" / f"{plain.name}.jsonl"
    kept = file.read_bytes()
    again = isthmus.attack(run, "deepwordbug", n=np.int64(3), seed=np.int64(2), device="cpu")  # type: ignore[arg-type]
    assert again.name == plain.name
    assert file.read_bytes() == kept


def test_labels_may_be_an_array() -> None:
    found = isthmus.attack(classify, "deepwordbug", ROWS, labels=np.array(LABELS))  # type: ignore[arg-type]
    assert found.labels == LABELS


def test_a_task_that_the_data_do_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="task='qa'"):
        isthmus.evaluate(classify, ROWS, labels=LABELS, task="qa")


def test_a_class_may_be_given_by_its_number(run: str) -> None:
    by_number, by_name = (
        isthmus.explain(run, method="occlusion", n=1, classes=each, device="cpu") for each in (1, "good")
    )
    assert repr(by_number) == repr(by_name)


def test_examples_without_an_answer_are_warned_of() -> None:
    def answers_nothing(texts: list[str]) -> list[list[float]]:
        return [[float("nan"), 1.0]] * len(texts)

    for verb in (isthmus.attack, isthmus.evaluate):
        given: dict[str, Any] = {"attack": "deepwordbug"} if verb is isthmus.attack else {}
        with pytest.warns(IsthmusWarning, match="4 of 4 examples ended in an error.*NaN") as warned:
            verb(answers_nothing, data=ROWS, labels=LABELS, **given)
        assert warned[0].filename == __file__
