"""The ledger behind docs/results: what decides a cell, what is kept of it, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
from pathlib import Path

import pytest

from isthmus.attacks.result import AttackResult
from isthmus.core.errors import DataError
from isthmus.core.types import Example
from isthmus.data import Dataset
from isthmus.training.settings import TrainingSettings
from ledger import Cell, Contradiction, Key, Ledger, attack_key, data_key, merge, method_key, provenance, training_key
from ledger.cells import pack, unpack

KEY = Key(
    data={"name": "sst2", "split": "test", "fingerprint": "ab" * 8},
    backbone="minilm",
    method={"name": "freelb", "parameters": {"steps": 3}},
    training={"epochs": 3},
    seed=0,
    n=4,
    attack={"name": "textfooler"},
    limits={"budget": 500},
)


def cell(outcomes: str = ".xw.", **changed: object) -> Cell:
    key = dataclasses.replace(KEY, **changed)  # type: ignore[arg-type]
    return Cell(key, outcomes, {"racc": outcomes.count(".") / len(outcomes)}, "freelb", {"commit": "1234"})


def test_a_cell_survives_its_line() -> None:
    line = json.loads(json.dumps(cell().to_json()))
    assert Cell.from_json(line) == cell()
    assert Cell.from_json(line).key.id == KEY.id
    assert cell().right.tolist() == [True, False, False, True]
    assert cell().clean.tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    "changed",
    [
        {"data": {**KEY.data, "fingerprint": "cd" * 8}},
        {"backbone": "mpnet"},
        {"method": {"name": "freelb", "parameters": {"steps": 2}}},
        {"training": {"epochs": 2}},
        {"seed": 1},
        {"way": {"aggregate": "vote"}},
        {"attack": {"name": "pwws"}},
        {"attack": None},
        {"limits": {}},
        {"n": 5},
    ],
)
def test_every_part_of_the_key_decides_the_cell(changed: dict[str, object]) -> None:
    assert dataclasses.replace(KEY, **changed).id != KEY.id  # type: ignore[arg-type]


def test_neither_order_nor_provenance_is_part_of_the_key() -> None:
    turned = dataclasses.replace(KEY, data=dict(reversed([*KEY.data.items()])))
    assert turned.id == KEY.id
    assert dataclasses.replace(cell(), provenance={"commit": "other"}, row="other").key.id == KEY.id


def test_a_line_changed_by_hand_is_refused(tmp_path: Path) -> None:
    line = cell().to_json()
    line["key"]["seed"] = 7
    (tmp_path / "page.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(DataError, match=r"page.jsonl line 1: .* has a key that was changed"):
        Ledger(tmp_path / "page.jsonl").cells()


@pytest.mark.parametrize(
    ("outcomes", "key", "message"),
    [
        ("...", KEY, "needs as many outcomes"),
        ("..q.", KEY, "unknown outcomes 'q'"),
        ("..e.", KEY, "1 of 4 texts ended in an error"),
        ("..x.", dataclasses.replace(KEY, attack=None), "a cell without attack cannot hold 'x'"),
    ],
)
def test_unfinished_and_impossible_cells_are_refused(outcomes: str, key: Key, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Cell(key, outcomes)


def test_whole_splits_are_packed_and_stay_small() -> None:
    outcomes = "".join("w" if (number * 2654435761) % 100 < 15 else "." for number in range(9824))
    assert pack("..x") == "..x"
    assert unpack(pack(outcomes)) == outcomes
    assert len(pack(outcomes)) < 2500
    whole = Cell.of_answers(dataclasses.replace(KEY, n=9824, attack=None), [mark == "." for mark in outcomes])
    assert Cell.from_json(whole.to_json()) == whole
    with pytest.raises(DataError, match="packed outcomes"):
        unpack("zlib:0000")


def test_the_same_cell_is_written_once_and_a_contradiction_not_at_all(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "results" / "page.jsonl")
    assert KEY not in book
    assert book.append(cell())
    assert not book.append(dataclasses.replace(cell(), provenance={"commit": "5678"}))
    before = book.path.read_bytes()
    with pytest.raises(Contradiction, match=r"2 of 4 outcomes differ, the first at text 0.*remove its line"):
        book.append(cell("x.w."))
    with pytest.raises(Contradiction, match="racc of the summary differ"):
        book.append(dataclasses.replace(cell(), summary={"racc": 0.6}))
    assert book.path.read_bytes() == before
    assert book.append(cell(seed=1))
    assert [each.key.seed for each in book] == [0, 1]


def test_two_contradicting_lines_in_one_file_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "page.jsonl"
    path.write_text("".join(json.dumps(each.to_json()) + "\n" for each in (cell(), cell("....xxxx"[:4]))))
    with pytest.raises(Contradiction, match="line 2: freelb on sst2, seed 0, textfooler, n = 4 is there twice"):
        Ledger(path).cells()


def test_a_line_torn_by_a_kill_costs_that_line_alone(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "page.jsonl")
    book.append(cell())
    whole = book.path.read_bytes()
    book.path.write_bytes(whole + whole[: len(whole) // 2])
    assert len(book) == 1
    assert book.append(cell(seed=1))
    assert [each.key.seed for each in book] == [0, 1]


def append_some(path: Path, seed: int) -> None:
    for n in range(1, 9):
        Ledger(path).append(cell("." * n, seed=seed, n=n))


def test_processes_may_append_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    path = tmp_path / "page.jsonl"
    workers = [context.Process(target=append_some, args=(path, seed)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert {(each.key.seed, each.key.n) for each in Ledger(path)} == {(s, n) for s in range(4) for n in range(1, 9)}


def test_merging_adds_what_is_missing_and_refuses_what_contradicts(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path / "ours.jsonl"), Ledger(tmp_path / "theirs.jsonl")
    ours.append(cell())
    theirs.append(cell())
    theirs.append(cell(seed=1))
    assert merge(ours, [theirs]) == (1, 0)
    assert merge(ours, [theirs]) == (0, 0)
    other = Ledger(tmp_path / "other.jsonl")
    other.append(cell(seed=2))
    other.append(cell("wwww", seed=1))
    before = ours.path.read_bytes()
    with pytest.raises(Contradiction, match=r"disagree about freelb on sst2, seed 1.*--prefer ours"):
        merge(ours, [other])
    assert ours.path.read_bytes() == before
    assert merge(ours, [other], prefer="ours") == (1, 0)
    assert ours.cells()[cell(seed=1).key.id].outcomes == ".xw."
    assert merge(ours, [other], prefer="theirs") == (0, 1)
    assert ours.cells()[cell(seed=1).key.id].outcomes == "wwww"


def test_a_changed_default_is_another_cell() -> None:
    key = method_key("freelb", {"steps": 2})
    assert key["name"] == "freelb"
    assert key["parameters"]["steps"] == 2
    assert "max_norm" in key["parameters"]
    assert method_key("standard") == {"name": "standard"}


def test_how_a_randomised_model_is_searched_is_part_of_the_attack() -> None:
    plain, drawn = attack_key("deepwordbug"), attack_key("deepwordbug", restarts=0)
    assert plain["name"] == "deepwordbug"
    assert "search" not in plain
    assert drawn["search"] == {"restarts": 0}


def test_training_keeps_what_decides_and_drops_what_does_not() -> None:
    settings = TrainingSettings(epochs=2, log_every=7, warmup=0.2)
    key = training_key(settings, limit=100)
    assert key["epochs"] == 2
    assert key["warmup"] == 0.2
    assert key["limit"] == 100
    assert "log_every" not in key
    assert "weight_decay" not in key


def test_data_are_known_by_their_fingerprint() -> None:
    from isthmus.core.types import Classification

    def dataset(split: str, text: str) -> Dataset:
        task = Classification(("no", "yes"))
        return Dataset(name="toy", split=split, task=task, examples=(Example(id="0", fields={"text": text}, label=1),))

    test, train = dataset("test", "a film"), dataset("train", "a play")
    key = data_key(test, trained_on=train)
    assert key == {
        "name": "toy", "split": "test", "fingerprint": test.fingerprint, "trained_on": train.fingerprint, "texts": 1,
    }  # fmt: skip


def test_provenance_names_code_and_machine_and_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    found = provenance("cpu", seconds=1.23)
    assert {"code", "made", "torch", "machine", "cores"} <= found.keys()
    assert found["seconds"] == 1.2
    assert str(Path.home()) not in json.dumps(found)


def test_declining_a_clean_text_is_told_from_declining_an_attacked_one() -> None:
    results = [AttackResult(str(before), "abstained", 1, {}, {}, prediction_before=before) for before in (1, None)]
    found = Cell.of_attack(dataclasses.replace(KEY, n=2), results)
    assert found.outcomes == "ad"
    assert found.clean.tolist() == [True, False]
    assert found.right.tolist() == [False, False]


def test_a_line_is_about_a_kilobyte() -> None:
    key = Key(
        data={**KEY.data, "trained_on": "ef" * 8, "texts": 6920},
        backbone="minilm",
        method=method_key("infobert"),
        training=training_key(TrainingSettings(epochs=3, learning_rate=2e-4)),
        seed=0,
        n=500,
        attack=attack_key("textfooler"),
    )
    asked = {"logical_queries": 9, "words_changed": 0.25, "prediction_before": 1, "candidates": 1}
    outcomes = ["failed" if place % 4 else "succeeded" for place in range(500)]
    results = [AttackResult(str(place), outcome, 1, {}, {}, **asked) for place, outcome in enumerate(outcomes)]
    found = Cell.of_attack(key, results, row="infobert", provenance=provenance("cpu"))
    assert found.outcomes[:5] == "x...x"
    assert (found.summary["sacc"], found.summary["racc"]) == (1.0, 0.75)
    line = found.to_json()
    assert len(json.dumps(line)) < 2500
