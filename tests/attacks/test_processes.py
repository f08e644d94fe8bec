"""Several processes attack as one does, also where some of them are killed."""

from __future__ import annotations

import gc
import io
import os
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
from process_toys import BAD, GOOD, Counting, Toy

from isthmus.attacks import processes
from isthmus.attacks.base import AttackSettings
from isthmus.attacks.processes import LARGEST, SMALLEST, AttackWatch, Job, Workers, attack_in_processes, cohorts_of
from isthmus.attacks.words.deepwordbug import DeepWordBug
from isthmus.core.errors import RunError, UsageError, VictimError
from isthmus.core.types import Example


def examples(n: int = 24) -> list[Example]:
    words = sorted(GOOD), sorted(BAD)
    texts = [f"a {words[1 - n % 2][n % 3]} film of {n} {words[1 - n % 2][n // 2 % 3]} scenes" for n in range(n)]
    return [Example(f"test:{number}", {"text": text}, number % 2) for number, text in enumerate(texts)]


def job(**settings: Any) -> Job:
    return Job(DeepWordBug(), AttackSettings(**settings), "none")


def alone(**options: Any) -> dict[str, Any]:
    settings = AttackSettings(**options.pop("settings", {}))
    return {each.id: each.to_row() for each in DeepWordBug()(Counting(**options), examples(), settings)}


def together(processes: int, source: Toy | None = None, **rest: Any) -> dict[str, Any]:
    found = list(attack_in_processes(source or Toy(), rest.pop("job", job()), examples(), processes, **rest))
    assert len({each.id for each in found}) == len(found) == 24
    return {each.id: each.to_row() for each in found}


def test_two_processes_find_what_one_finds():
    counted, watch = list[int](), AttackWatch()
    watch.queries = counted.append
    expected = alone()
    assert together(2, watch=watch) == expected
    assert counted == sorted(counted)
    assert counted[-1] == sum(row["logical_queries"] for row in expected.values())
    assert sum(each.scores.logical for each in watch.statistics) == counted[-1]
    assert watch.cpu_s > 0


def test_a_randomised_victim_draws_the_same_in_every_process():
    settings = {"seed": 3, "fresh": 4, "search_draws": 2, "budget": 40}
    expected = alone(stochastic=True, settings=settings)
    assert together(2, Toy({"stochastic": True}), job=job(**settings)) == expected
    assert any(row["fresh"] for row in expected.values() if "fresh" in row)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_another_process_takes_over_from_one_that_was_killed(on_gpu: bool, tmp_path: Path):
    """On a GPU the whole cohort is attacked again, and what was found twice is handed on once."""
    source = Toy({"dies_on": "13", "once": str(tmp_path / "died")})
    assert together(2, source, on_gpu=on_gpu) == alone()
    assert (tmp_path / "died").exists()


def test_a_process_attacks_two_cohorts_in_turns():
    watch, cohorts = AttackWatch(), [examples()[start : start + 6] for start in range(0, 24, 6)]
    with Workers(Toy(), 1) as workers:
        wanted = {each.id for each in examples()}
        found = list(workers.attack(job(), cohorts, wanted, watch, at_once=2))
    assert {each.id: each.to_row() for each in found} == alone()
    assert len(found) == 24
    assert len(watch.statistics) == 4


@pytest.mark.parametrize("traced", [False, True])
def test_a_cohort_that_has_ended_keeps_no_memory(traced: bool):
    """While others are under attack hardly any garbage is collected."""
    task = processes._Task(Job(DeepWordBug(), AttackSettings(), "none", traced), 0, examples())
    cohort = processes._RunningCohort(Toy(), Counting(), task, None)
    engine, said = weakref.ref(cohort.run.engine), io.BytesIO()
    gc.disable()
    try:
        while cohort.take_turn(said):
            pass
        del cohort
        assert engine() is None
    finally:
        gc.enable()
    said.seek(0)
    queries = 0
    while isinstance(message := pickle.load(said), processes._Round):
        queries += sum(map(len, message.queries))
    assert queries == (message.statistics.scores.logical if traced else 0)


def test_a_text_that_kills_every_process_ends_the_attack():
    with pytest.raises(RunError, match=r"process \d of 2 was ended by signal 9 over the same examples"):
        together(2, Toy({"dies_on": "13"}))


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (VictimError("no such folder"), VictimError, "^process 1 of 1: no such folder$"),
        ("unknown", UsageError, "^process 1 of 1: no model named 'tyo'. Did you mean 'toy'?"),
        (ZeroDivisionError("oh"), RunError, "(?s)^process 1 of 1: oh\nTraceback.*in victim"),
    ],
    ids=["ours", "of a kind", "others"],
)
def test_an_error_names_its_process(given: Any, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        together(1, Toy(error=given))


def test_processes_stay_from_one_attack_to_the_next():
    traced: dict[int, int] = {}

    def trace(key: int, texts: Any, scores: Any) -> None:
        traced[key] = traced.get(key, 0) + 1

    with Workers(Toy(), 2) as workers:
        cohorts = cohorts_of(examples(), 2, on_gpu=False)
        wanted = {"test:3", "test:20"}
        first = {each.id for each in workers.attack(job(), cohorts, wanted)}
        pids = [worker.pid for worker in workers._workers]
        again = Job(DeepWordBug(), AttackSettings(), "none", traced=True)
        rows = {each.id: each for each in workers.attack(again, cohorts, wanted, AttackWatch(trace=trace))}
        assert [worker.pid for worker in workers._workers] == pids
    assert first == wanted == set(rows)
    assert sorted(traced.values()) == sorted(row.logical_queries for row in rows.values())
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_cohorts():
    many = [Example(f"test:{n}", {"text": "a"}, 0) for n in range(1300)]
    fixed = [cohorts_of(many, processes, on_gpu=True) for processes in (1, 2, 7)]
    assert fixed[0] == fixed[1] == fixed[2]
    assert [len(cohort) for cohort in fixed[0]] == [325] * 4
    few, lots = cohorts_of(many[:600], 2, on_gpu=True), cohorts_of(many * 8, 2, on_gpu=True)
    assert [len(cohort) for cohort in few] == [SMALLEST, SMALLEST, 600 - 2 * SMALLEST]
    assert [len(cohort) for cohort in lots] == [LARGEST] * 5 + [1300 * 8 - 5 * LARGEST]
    small = cohorts_of(many[:20], 2, on_gpu=False)
    assert [example for cohort in small for example in cohort] == many[:20]
    assert max(map(len, small)) == 3
    assert cohorts_of([], 2, on_gpu=False) == []


def test_at_least_one_process():
    with pytest.raises(UsageError, match="at least 1, not 0"):
        Workers(Toy(), 0)
