"""`isthmus.attack`: several attacks, goals, protection and options, by name and at hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import isthmus
from isthmus.attacks import Evasion, Protection, Targeted
from isthmus.attacks.parts.limits import Limits
from isthmus.cli.app import run as command
from isthmus.core.errors import IsthmusError, UnknownName, UsageError
from isthmus.engine.settings import EngineSettings
from isthmus.summaries.attack import together

ROWS = [("a dull plot", "bad"), ("a fine film", "good"), ("a stale joke", "bad"), ("a warm dull scene", "bad")]


def classify(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1] if "dull" in text or "stale" in text else [0.1, 0.9] for text in texts]


def attack(*given, **named):
    return isthmus.attack(classify, *given, labels=("bad", "good"), **named)


@pytest.mark.parametrize(
    "several",
    [
        ["deepwordbug", "badchars"],
        ("deepwordbug", "badchars"),
        "deepwordbug,badchars",
        ["deepwordbug", isthmus.attacks.BadChars()],
    ],
    ids=["list", "tuple", "commas", "name and object"],
)
def test_several_attacks_give_each_and_their_union(several) -> None:
    found = attack(several, ROWS)
    assert list(found.attacks) == ["deepwordbug", "badchars"]
    alone = attack("deepwordbug", ROWS)
    assert list(found.attacks["deepwordbug"]) == list(alone)
    assert [each.id for each in found] == [each.id for each in alone]
    assert list(found) == together([part.results for part in found.attacks.values()])
    worst = min(part.summary().racc.estimate for part in found.attacks.values())
    assert found.summary().racc.estimate <= worst
    assert found.name == "union of deepwordbug, badchars"
    half = found[:2]
    assert [len(part) for part in half.attacks.values()] == [2, 2]
    assert "badchars" in found.to_html()
    assert len(found.to_dataframe()) == len(ROWS)


def test_the_same_attack_with_two_parameters_keeps_both() -> None:
    swap, drop = isthmus.attacks.DeepWordBug(edit="swap"), isthmus.attacks.DeepWordBug(edit="insert")
    found = attack([swap, drop], ROWS)
    assert list(found.attacks) == ["deepwordbug", "deepwordbug@2"]
    for part, method in zip(found.attacks.values(), (swap, drop), strict=True):
        assert list(part) == list(attack(method, ROWS))


def test_parameters_go_to_the_attacks_that_have_them() -> None:
    found = attack("deepwordbug,badchars", ROWS, **{"deepwordbug.edit": "swap"})
    assert list(found.attacks["deepwordbug"]) == list(attack("deepwordbug", ROWS, edit="swap"))
    with pytest.raises(UnknownName, match="edits"):
        attack("deepwordbug,badchars", ROWS, edits="swap")


def test_one_attack_is_its_own_only_part() -> None:
    found = attack("deepwordbug", ROWS)
    assert found.attacks["deepwordbug"] is found
    assert not found.left_out
    assert not found.embeddings


def test_all_leaves_out_what_cannot_run_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISTHMUS_ASSETS", str(tmp_path))
    with pytest.warns(isthmus.core.errors.IsthmusWarning, match="left out"):
        found = attack("all", ROWS[:2], options=isthmus.AttackOptions(budget=30))
    assert "deepwordbug" in found.attacks
    assert "hotflip" in found.left_out  # A function has no gradients.
    assert not set(found.attacks) & set(found.left_out)


@pytest.mark.parametrize("wrong", [3, None, {"deepwordbug"}, [3], [], "", ",", isthmus.attacks.DeepWordBug, object()])
def test_what_is_no_attack_is_refused_with_what_would_be(wrong) -> None:
    with pytest.raises(IsthmusError, match=r"deepwordbug|DeepWordBug\(\)|at least one attack"):
        attack(wrong, ROWS)


def test_other_wrong_calls_say_what_would_work(run: str) -> None:
    with pytest.raises(UsageError, match=r"AttackSettings\(…\)"):
        attack("deepwordbug", ROWS, settings={"budget": 3})
    with pytest.raises(UsageError, match=r"AttackOptions\(…\)"):
        attack("deepwordbug", ROWS, options={"budget": 3})
    with pytest.raises(UsageError, match="budget is given by"):
        attack("deepwordbug", ROWS, options=isthmus.AttackOptions(budget=3), settings=isthmus.AttackSettings(budget=4))
    with pytest.raises(UsageError, match="both given"):
        attack("deepwordbug", ROWS, goal=Targeted(1), settings=isthmus.AttackSettings(goal=Targeted(0)))
    with pytest.raises(UsageError, match="is no goal"):
        attack("deepwordbug", ROWS, goal="good")
    with pytest.raises(UsageError, match="is for runs"):
        attack("deepwordbug", ROWS, options=isthmus.AttackOptions(trace=True))
    with pytest.raises(UsageError, match="the attack is an object"):
        isthmus.attack(run, isthmus.attacks.DeepWordBug(), out="elsewhere")
    with pytest.raises(UsageError, match="none of the presets"):
        isthmus.attack(
            run, "deepwordbug", out="elsewhere", settings=isthmus.AttackSettings(limits=Limits(max_share=0.1))
        )
    with pytest.raises(UsageError, match="moves embeddings"):
        attack("pgd", ROWS)
    with pytest.raises(UsageError, match="'colour' is not a valid option"):
        attack("deepwordbug", ROWS, victim={"colour": "red"})


FEW = ["--n", "6", "--no-label-check", "--quiet", "--device", "cpu"]


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ([], {}),
        (["--target-label", "good"], {"goal": Targeted("good")}),
        (["--target-label", "good"], {"settings": isthmus.AttackSettings(goal=Targeted(1))}),
        (["--from-label", "bad", "--threshold", "0.5"], {"settings": isthmus.AttackSettings(goal=Evasion("bad"))}),
        (["--from-label", "bad", "--threshold", "0.5"], {"goal": isthmus.GoalRequest(from_label="bad", threshold=0.5)}),
        (["--from-label", "bad", "--at-fpr", "0.2"], {"goal": isthmus.GoalRequest(from_label="bad", at_fpr=0.2)}),
        (
            ["--protect-pattern", "dull", "--protect-kind", "url"],
            {"settings": isthmus.AttackSettings(protection=Protection(pattern="dull", kinds=("url",)))},
        ),
        (["--budget", "9"], {"settings": isthmus.AttackSettings(budget=9)}),
        (["--budget", "9", "--time-limit", "60"], {"options": isthmus.AttackOptions(budget=9, time_limit=60.0)}),
        (["--time-limit", "60"], {"settings": isthmus.AttackSettings(engine=EngineSettings(time_limit=60.0))}),
        (["-P", "edit=swap", "--seed", "3"], {"edit": "swap", "seed": 3}),
        (["--trace"], {"options": isthmus.AttackOptions(trace=True)}),
        (["--precision", "bf16"], {"precision": "bf16"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_python_and_the_command_line_write_the_same_file(run: str, typed: list[str], given, capsys) -> None:
    shutil.copytree(run, "twin")
    # Another file is there first, so that a hash stands in the name of all other settings.
    for folder in (run, "twin"):
        assert command(["attack", folder, "--attack", "deepwordbug", *FEW, "--seed", "9"]) == 0
    assert command(["attack", run, "--attack", "deepwordbug", *FEW, *typed]) == 0
    found = isthmus.attack("twin", "deepwordbug", **{"n": 6, "device": "cpu", "label_check": False, **given})
    capsys.readouterr()
    own, twin = ({path.name for path in Path(folder, "attacks").iterdir()} for folder in (run, "twin"))
    assert own == twin
    assert found.name in {name.partition(".json")[0] for name in own}
    assert "@" in found.name
    for name in own:
        if name.endswith(".jsonl"):
            assert Path(run, "attacks", name).read_bytes() == Path("twin/attacks", name).read_bytes()
    settings = [json.loads(Path(folder, "attacks", f"{found.name}.json").read_text()) for folder in (run, "twin")]
    assert settings[0]["settings"] == settings[1]["settings"]
    assert settings[0]["hash"] == settings[1]["hash"]
    assert found.threshold == settings[0]["threshold"]


def test_a_goal_at_hand_attacks_what_a_run_attacks(run: str) -> None:
    model = isthmus.open_run(run).load_model("cpu")
    data = isthmus.open_run(run).load_data()
    for goal in (isthmus.GoalRequest(from_label="bad", at_fpr=0.2), Evasion("bad", 0.5), Targeted("good")):
        written = isthmus.attack(run, "deepwordbug", n=6, goal=goal, device="cpu", label_check=False)
        beside = isthmus.attack(model, "deepwordbug", data, n=6, goal=goal, device="cpu")
        assert {each.id: each.outcome for each in beside} == {each.id: each.outcome for each in written}
        assert beside.threshold == written.threshold
        assert beside.summary() == written.summary()


def test_several_attacks_of_a_run(run: str) -> None:
    found = isthmus.attack(run, ["deepwordbug", "badchars"], n=4, device="cpu", label_check=False)
    assert set(found.attacks) == set(isthmus.open_run(run).attacks) == {"deepwordbug", "badchars"}
    assert found.folder is not None
    opened = isthmus.open_run(run).attacks
    assert {name: list(part) for name, part in found.attacks.items()} == {
        name: list(part) for name, part in opened.items()
    }


def test_an_attack_on_embeddings_is_part_of_no_union(run: str) -> None:
    alone = isthmus.attack(run, "fgsm", n=4, device="cpu", label_check=False, epsilon=0.5)
    assert alone.name == "fgsm"
    assert len(alone) == 4
    both = isthmus.attack(run, ["fgsm", "deepwordbug"], n=4, device="cpu", label_check=False, **{"fgsm.epsilon": 0.5})
    assert list(both.attacks) == ["deepwordbug"]
    assert list(both.embeddings["fgsm"]) == list(alone)


def test_objects_take_a_preset_and_a_time_limit() -> None:
    few = attack("deepwordbug", ROWS, options=isthmus.AttackOptions(budget=1, in_flight=1, time_limit=60.0))
    assert all(each.budget_spent for each in few if each.outcome == "failed" and each.words)
    settings = isthmus.AttackSettings(limits=Limits(budget_per_word=1))
    assert all(each.logical_queries <= each.words for each in attack("deepwordbug", ROWS, settings=settings))
    with pytest.raises(UnknownName, match="preset"):
        attack("deepwordbug", ROWS, options=isthmus.AttackOptions(preset="none"))


class Heard(isthmus.Observer):
    def __init__(self) -> None:
        self.begun: list = []
        self.results: list = []
        self.ended: list = []

    def begin(self, key, total, results) -> None:
        self.begun.append((key, total))

    def result(self, key, result) -> None:
        self.results.append((key, result.outcome))

    def end(self, key) -> None:
        self.ended.append(key)


def test_progress_is_told_of_every_example(run: str) -> None:
    for target in (classify, run):
        heard = Heard()
        given = {"data": ROWS, "labels": ("bad", "good")} if target is classify else {"n": 4, "label_check": False}
        found = isthmus.attack(target, "deepwordbug", progress=heard, device="cpu", **given)
        assert heard.begun == [("deepwordbug", 4)]
        assert sorted(outcome for _, outcome in heard.results) == sorted(each.outcome for each in found)
        assert heard.ended == ["deepwordbug"]


def test_errors_are_tried_again_where_that_is_asked_for(run: str) -> None:
    found = isthmus.attack(run, "deepwordbug", n=4, device="cpu", label_check=False)
    path = Path(run, "attacks/deepwordbug.jsonl")
    from isthmus.runs.journal import Journal

    with Journal(path) as journal:
        journal.forget([found[0].id])
        journal.append({**found[0].to_row(), "outcome": "error", "reason": "it rained"})
    kept = isthmus.attack(run, "deepwordbug", n=4, device="cpu", label_check=False)
    assert kept[0].outcome == "error"
    again = isthmus.attack(run, "deepwordbug", n=4, device="cpu", label_check=False, retry_errors=True)
    assert list(again) == list(found)


def test_inference_options_reach_the_model(run: str, tmp_path: Path) -> None:
    (tmp_path / "place/shop.py").write_text("def classify(texts):\n    return [[0.9, 0.1] for _ in texts]\n")
    (tmp_path / "place/rows.csv").write_text("text,label\na dull plot,bad\na stale joke,bad\n")
    named = {"labels": ("bad", "good"), "label_check": False, "out": "shop"}
    found = isthmus.attack("shop:classify", "deepwordbug", "rows.csv", victim={"version": "1.10"}, **named)
    assert found.folder is not None
    header = json.loads(Path("shop/attacks/deepwordbug.json").read_text())
    assert header["settings"]["victim"] == {"version": "1.10"}
    other = isthmus.attack("shop:classify", "deepwordbug", "rows.csv", victim={"version": "1.11"}, **named)
    assert other.name != found.name
    slow = isthmus.attack(lambda texts: __import__("time").sleep(0.2), "deepwordbug", ROWS[:1], labels=("bad", "good"),
                          victim={"timeout": 0.01})  # fmt: skip
    assert slow[0].outcome in ("error", "timed_out")
