"""Cells of a measure of attacked texts, and their table."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, t

from isthmus.core.errors import DataError
from ledger import Cell, Contradiction, Key, Ledger, measure_key
from ledger.cells import pack_values, unpack_values
from ledger.measured import fooled, mean_of_seeds
from ledger.pages import Spec, render

MEASURE = measure_key("interpretation_consistency", {"attack": "somewhere", "method": "lime"}, pairs="own", most=9)
KEY = Key(
    data={"name": "sst2", "split": "test", "fingerprint": "ab" * 8},
    backbone="cnn",
    method={"name": "flat"},
    training={"epochs": 2},
    seed=0,
    n=6,
    attack={"name": "textfooler"},
    measure=MEASURE,
)
SPEC = "flat backbone=cnn attack=textfooler measure=interpretation_consistency method=lime pairs=own against=adv"
TEXTS: dict[str, list[Any]] = {
    "ids": ["d", "a", "b", "c"],
    "outcomes": ["failed", "succeeded", "succeeded", "succeeded"],
    "tau": [1.0, 0.5, -0.25, None],
    "top-5": [1.0, 0.8, None, 0.6],
}


def cell(seed: int = 0, row: str = "flat", change: float = 0.0, **key: object) -> Cell:
    texts = {**TEXTS, "tau": [value if value is None else value - change for value in TEXTS["tau"]]}
    made = dataclasses.replace(KEY, seed=seed, method={"name": row}, **key)
    return Cell.of_pairs(made, list("abcdef"), texts, row=row, **{"completeness error": [0.01 + seed / 100, 0, 1]})


def test_values_stand_at_their_texts_and_survive_the_line(tmp_path: Path) -> None:
    found = cell()
    assert found.outcomes == "xxx.ww"
    np.testing.assert_array_equal(found.values["tau"], [0.5, -0.25, np.nan, 1, np.nan, np.nan])
    np.testing.assert_array_equal(fooled(found, "top-5"), [0.8, np.nan, 0.6, np.nan, np.nan, np.nan])
    book = Ledger(tmp_path / "flat.jsonl")
    assert book.append(found)
    assert not book.append(cell())
    (again,) = book
    assert again.to_json() == json.loads(json.dumps(found.to_json()))
    np.testing.assert_array_equal(again.values["tau"], found.values["tau"])
    with pytest.raises(Contradiction, match="values of tau differ"):
        book.append(cell(change=0.1))


def test_values_are_kept_to_a_thousandth() -> None:
    values = np.array([-1, 0.12345, np.nan, 1])
    np.testing.assert_allclose(unpack_values(pack_values(values)), [-1, 0.123, np.nan, 1])
    with pytest.raises(DataError, match="within 32"):
        pack_values(np.array([40.0]))
    with pytest.raises(DataError, match="cannot be read"):
        unpack_values("zlib:nothing")
    with pytest.raises(DataError, match="as many values of tau, not 2"):
        Cell(KEY, "xx....", values={"tau": np.zeros(2)})


def test_a_key_without_measure_is_what_it_was() -> None:
    plain = dataclasses.replace(KEY, measure={})
    assert "measure" not in plain.to_json()
    assert plain.id != KEY.id
    assert "attack" not in MEASURE["parameters"]
    assert MEASURE["parameters"]["method"] == "lime"


def test_one_seed_has_the_interval_of_its_texts() -> None:
    values = np.array([0.2, 0.4, np.nan, 0.9])
    found = mean_of_seeds([values])
    error = np.nanstd(values, ddof=1) / math.sqrt(3)
    assert found.estimate == pytest.approx(0.5)
    assert found.texts == 3
    assert found.half == pytest.approx(norm.isf(0.025) * error)
    assert found.detectable == pytest.approx((norm.isf(0.025) + norm.isf(0.2)) * error)


def test_several_seeds_count_seeds_and_texts() -> None:
    flat = [np.full(5, mean) for mean in (0.1, 0.2, 0.6)]  # Texts that do not differ: what is left is Student's t.
    found = mean_of_seeds(flat)
    assert found.estimate == pytest.approx(0.3)
    assert found.half == pytest.approx(t.isf(0.025, 2) * np.std([0.1, 0.2, 0.6], ddof=1) / math.sqrt(3))
    texts = np.array([0.0, 0.3, 0.6, 0.9])  # Seeds that do not differ say nothing more about texts.
    assert mean_of_seeds([texts] * 4).half == pytest.approx(mean_of_seeds([texts]).half)
    assert math.isnan(mean_of_seeds([]).estimate)
    assert math.isinf(mean_of_seeds([np.array([0.5])]).half)


def test_the_table_compares_text_by_text() -> None:
    book = [cell(seed, row, change) for seed in range(3) for row, change in (("flat", 0.0), ("adv", 0.2))]
    text = render(Spec.read(SPEC), book)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[2:]] == ["| adv", "| flat"]
    assert rows[3][1:3] == ["3", "6"]
    assert rows[3][4] == "+0.20 (+0.20 to +0.20)"
    assert "detectable" in rows[3][6]
    assert rows[3][7] == "0.020 |"
    assert "Not yet run." in render(Spec.read(SPEC.replace("pairs=own", "pairs=base")), book)


def test_measures_and_limits_stay_out_of_other_tables() -> None:
    plain = dataclasses.replace(KEY, measure={}, limits={})
    marks = {"": "......", "strict": "xxxxxx"}
    book = [cell()]
    for name, outcomes in marks.items():
        limits = {"preset": name} if name else {}
        book.append(Cell(dataclasses.replace(plain, limits=limits), outcomes, {}, "flat"))
    assert "| 100.0 (" in render(Spec.read("flat attack=textfooler"), book)
    assert "| 0.0 (" in render(Spec.read("flat attack=textfooler preset=strict"), book)


def test_cells_that_do_not_belong_together_are_refused() -> None:
    other = cell(measure={**MEASURE, "pairs": "base"})
    with pytest.raises(DataError, match="two cells of seed 0"):
        render(Spec.read(SPEC.replace(" pairs=own", "")), [cell(), other])
    moved = cell(row="adv", data={**KEY.data, "fingerprint": "cd" * 8})
    with pytest.raises(DataError, match="different texts"):
        render(Spec.read(SPEC), [cell(), moved])


def test_rounds_are_told_with_the_share_of_unknown_words() -> None:
    plain = dataclasses.replace(KEY, measure={}, attack=None)
    rounds = [
        {"epoch": 1, "attacked": 10, "fooled": 5, "held": 2, "unknown": 0.25},
        {"epoch": 2, "attacked": 10, "fooled": 4},
    ]
    made = [
        Cell.of_answers(dataclasses.replace(plain, seed=seed), [True] * 6, row="flat", rounds=rounds[: 2 - seed])
        for seed in range(2)
    ]
    text = render(Spec.read("flat show=rounds"), [*made, Cell.of_answers(plain, [True] * 6, row="base")])
    assert "| flat | 2 | 50.0 | 25.0 | 40.0 |  |" in text
    assert "base" not in text
    assert render(Spec.read("flat show=rounds"), []) == "Not yet run.\n"
    with pytest.raises(DataError, match="shows rounds"):
        render(Spec.read("flat show=colours"), made)


def test_controls_stand_beside_what_the_attack_did() -> None:
    found = {"tau, the attack succeeded": [0.5, 0.4, 0.6], "tau, as many words replaced at random": [0.7, 0.6, 0.8]}
    without = {**MEASURE, "parameters": {**MEASURE["parameters"], "controls": False}}
    with_controls = dataclasses.replace(cell(), summary=found)
    spec = Spec.read(f"{SPEC} show=controls")
    text = render(spec, [with_controls, cell(row="adv", measure=without)])
    assert "|  | seed | tau-b | words replaced at random |" in text
    assert "| flat | 0 | 0.50 (0.40 to 0.60) | 0.70 (0.60 to 0.80) |" in text
    assert "adv |" not in text, "it has none"
    assert render(spec, [cell(measure=without)]) == "Not yet run.\n"


def test_shares_of_the_gradient_are_medians_with_the_smallest() -> None:
    plain = dataclasses.replace(KEY, measure={}, attack=None)
    shares = [{"entropy": [0.02, 0.01]}, {"entropy": [0.04, 0.003], "importance": [0.1, 0.05]}]
    made = [
        Cell.of_answers(dataclasses.replace(plain, seed=seed), [True] * 6, row="flat", gradient_shares=each)
        for seed, each in enumerate(shares)
    ]
    text = render(Spec.read("flat show=shares"), [*made, Cell.of_answers(plain, [True] * 6, row="base")])
    assert "| flat | 2 | 0.030 (smallest 0.0030) | 0.100 (smallest 0.0500) |" in text
    assert "base" not in text
    assert render(Spec.read("flat show=shares"), []) == "Not yet run.\n"
