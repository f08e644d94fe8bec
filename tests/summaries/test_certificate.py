"""Rates of certificates: certified never exceeds empirical, whatever the rows, unless a text refutes a certificate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.certificates.base import Certified
from isthmus.summaries.certificate import accuracy_at, grid, is_fooled, levels, summarise_certificate


def row(key: int, outcome: str, strength: float | str | None, label: int = 1) -> dict:
    prediction = None if outcome == "error" else label if outcome != "wrong" else 1 - label
    return {"id": f"t:{key}", "outcome": outcome, "label": label, "prediction": prediction, "strength": strength}


def result(*made) -> Certified:
    return Certified.from_row(row(*made))


def challenge(key: int, needs: float, inside: bool, prediction: int, refutes: bool = False) -> dict:
    return {"example": f"t:{key}", "needs": needs, "inside": inside, "prediction": prediction, "certified": 1,
            "refutes": refutes}  # fmt: skip


ROWS = [result(0, "certified", 0), result(1, "certified", 2), result(2, "certified", "all"),
        result(3, "abstained", None), result(4, "wrong", 5), result(5, "error", None)]  # fmt: skip


def test_rates_by_hand():
    summary = summarise_certificate(ROWS, "words")
    assert summary.clean.estimate == pytest.approx(4 / 6)
    assert (summary.n, summary.abstained, summary.wrong, summary.errors) == (6, 1, 1, 1)
    assert [accuracy_at(ROWS, strength).estimate * 6 for strength in (0, 1, 2, 3, math.inf)] == [3, 2, 2, 1, 1]
    assert all(level.empirical is None for level in summary.levels)
    assert [level.strength for level in summary.levels] == [0, 1, 2, math.inf]


def test_an_example_falls_at_the_nearest_text_that_turned_it():
    attacks = {"pwws": [each.id for each in ROWS]}
    found = [challenge(0, 2.0, False, 0), challenge(0, 1.0, False, 0), challenge(1, 3.0, False, 0)]
    held = [level.empirical.estimate * 6 for level in levels(ROWS, [0, 1, 2, 3, math.inf], found, attacks)]
    assert held == [4, 3, 3, 2, 2]
    some = {"pwws": attacks["pwws"][:4]}
    assert levels(ROWS, [0], found, some)[0].empirical is None, "not every example was attacked"


def test_inside_a_certificate_a_bare_majority_may_be_chance():
    assert not is_fooled(challenge(1, 1.0, True, 0))
    assert is_fooled(challenge(1, 1.0, True, 0, refutes=True))
    assert is_fooled(challenge(1, 9.0, False, 0))
    assert not is_fooled(challenge(1, 9.0, False, 1))


rows = st.lists(
    st.tuples(st.sampled_from(["certified", "abstained", "wrong", "error"]), st.sampled_from([0, 1, 2, 3, "all"])),
    min_size=1, max_size=12,
)  # fmt: skip


@given(rows, st.lists(st.tuples(st.integers(0, 11), st.integers(1, 5), st.integers(0, 1)), max_size=12))
def test_certified_is_at_most_empirical(made, attacked):
    table = [row(n, outcome, strength) for n, (outcome, strength) in enumerate(made)]
    found = []
    for key, needs, prediction in attacked:
        if key < len(table) and table[key]["outcome"] != "error":
            strength = math.inf if table[key]["strength"] == "all" else table[key]["strength"]
            inside = table[key]["outcome"] in ("certified", "wrong") and needs <= strength
            found.append(challenge(key, float(needs), inside, prediction))
    attacks = {"pwws": [each["id"] for each in table]}
    rates = levels(list(map(Certified.from_row, table)), [0, 1, 2, 3, 4, math.inf], found, attacks)
    assert all(level.certified.estimate <= level.empirical.estimate for level in rates)
    assert [level.certified.estimate for level in rates] == sorted((r.certified.estimate for r in rates), reverse=True)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=8))
def test_a_grid_of_radii_is_round_and_reaches_the_longest(radii):
    found = grid([result(n, "certified", radius) for n, radius in enumerate(radii)], "radius")
    assert found[0] == 0
    assert max(radii) <= found[-1] * (1 + 1e-9)
    assert len(found) <= 8
    assert found == sorted(set(found))


def test_a_grid_without_any_certificate():
    assert grid([result(0, "abstained", None)], "radius") == [0.0]
    assert grid([result(0, "abstained", None)], "words") == [0.0, 1.0, math.inf]


def counted(key: int, held: object, substitutable: int, overlap: float, share: float, leaves: float | None) -> dict:
    return {**row(key, "certified", held), "words": 10, "substitutable": substitutable, "synonyms": 3 * substitutable,
            "overlap": overlap, "worst_share": share, "deployed_leaves": leaves,
            "deployed_draws": None if leaves is None else 15, "draws_for_1_percent": round(100 * share)}  # fmt: skip


def test_what_is_trivial_and_what_the_deployed_vote_keeps():
    rows = [counted(0, "all", 0, 1.0, 0.9, 0.0), counted(1, "all", 2, 1.0, 0.8, 0.1), counted(2, 1, 4, 0.7, 0.6, 0.3),
            row(3, "abstained", None)]  # fmt: skip
    summary = summarise_certificate(list(map(Certified.from_row, rows)), "words")
    own, vote = summary.substitutes, summary.deployed
    assert (own.none, own.whole, own.words, own.substitutable, own.synonyms, own.overlap) == (1, 1, 10, 2, 6, 1.0)
    assert (vote.draws, vote.worst, vote.draws_for_1_percent) == (15, 0.3, 80)
    assert vote.mean == pytest.approx(0.4 / 3)
    assert summary.to_json()["deployed"]["draws"] == 15
    bare = summarise_certificate([Certified.from_row(counted(0, "all", 2, 0.9, 0.8, None))], "words").deployed
    assert (bare.draws, bare.mean, bare.draws_for_1_percent) == (None, None, 80)
    older = summarise_certificate([Certified.from_row({**row(0, "certified", "all"), "substitutable": 0})], "words")
    assert (older.nothing, older.deployed) == (1, None)
