"""How fast a model answers: measured, kept apart from what decides, and counted in passes of the network."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measure_toys as toys
import pytest
import training_toys

from isthmus.core.errors import RunError, UsageError
from isthmus.defences import SAFER
from isthmus.inference.two_step import TwoStep
from isthmus.models import wrap
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.runs.folder import RunFolder
from isthmus.verbs.evaluate import EvaluateRequest, evaluate
from isthmus.verbs.evaluate.speed import TEXTS, Speed, measure

TEXTS_OF_TOYS = [{"text": text} for text in ("a fine film", "the plot was dull", "bad", "very very good and fine")] * 8


def test_single_texts_and_batches_are_timed() -> None:
    asked: list[list[int]] = []

    def ask(places: Sequence[int]) -> None:
        asked.append(list(places))
        time.sleep(0.002 if len(places) == 1 else 0.02)

    found = measure(ask, 80, single=12)
    alone = [places for places in asked if len(places) == 1]
    many = [places for places in asked if len(places) > 1]
    assert len(alone) == 3 + 12  # the first are a warm-up
    assert found.single == 12
    assert many == [list(range(80))] * 4
    assert 0.002 <= found.p50.low <= found.p50.estimate <= found.p95.estimate
    assert 80 / 0.02 >= found.texts_per_second.high >= found.texts_per_second.estimate
    assert (found.passes, found.second) == (None, None)
    assert found.to_json()["p95_s"]["high"] is None


def test_a_slow_model_is_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def ask(places: Sequence[int]) -> None:
        now[0] += 2.0 * len(places)

    found = measure(ask, 500, single=TEXTS)
    assert (found.single, found.batch) == (10, 16)
    assert found.p50.estimate == 2.0
    assert found.texts_per_second.estimate == pytest.approx(0.5)


def test_the_cost_follows_from_price_and_rate() -> None:
    speed = Speed.from_json({"texts_per_second": {"estimate": 10.0, "low": 9.0, "high": 11.0}})
    assert speed.cost_of_thousand(36.0) == pytest.approx(1.0)  # a hundredth a second, for a hundred seconds
    assert speed.cost_of_thousand(0.0) == 0.0
    assert speed.cost_of_thousand(None) is None
    assert Speed.from_json({}).cost_of_thousand(1.0) is None


def test_a_stored_speed_is_read_and_written_without_a_change() -> None:
    stored = {
        "p50_s": {"estimate": 0.0123, "low": 0.0119, "high": 0.0131},
        "p95_s": {"estimate": 0.031, "low": 0.02, "high": None},
        "single_texts": 50,
        "texts_per_second": {"estimate": 250.0, "low": 240.0, "high": 261.0},
        "batch_texts": 256,
        "passes_per_text": 22.6,
        "second_step": {"estimate": 0.3, "low": 0.25, "high": 0.36},
    }
    assert json.dumps(Speed.from_json(stored).to_json()) == json.dumps(stored)
    assert Speed.from_json(stored).p95.high == math.inf  # as measured: there is no bound
    bare = {**stored, "passes_per_text": None, "second_step": None}
    assert json.dumps(Speed.from_json(bare).to_json()) == json.dumps(bare)
    with pytest.raises(RunError, match="no record of a model's speed"):
        Speed.from_json({**stored, "single_texts": "many"})


@pytest.mark.parametrize(
    ("settings", "sigma", "passes", "second"),
    [
        ({"masking": "none", "two_step": False, "k0": 1}, 0.5, 1, 0.0),
        ({"two_step": False, "k0": 3}, 0.5, 2 + 3, 0.0),
        ({"masking": "random", "two_step": False, "k0": 3}, 0.5, 3, 0.0),
        ({"k0": 3, "k1": 7, "accept_rule": "greater", "level": 1e-9}, 0.5, 2 + 3 + 2 + 7, 1.0),
        ({"k0": 3, "k1": 7}, 0.0, 2 + 3, 0.0),
    ],
    ids=["one pass", "first step", "random masks", "both steps", "no noise"],
)
def test_passes_and_second_steps_are_counted(
    settings: dict[str, Any], sigma: float, passes: int, second: float
) -> None:
    model = training_toys.classifier()
    model.fill(noise=GaussianNoise(sigma, (0,)))
    model.deployment = TwoStep(**settings)
    victim = wrap(model, device="cpu")
    found = measure(lambda places: victim.scores([TEXTS_OF_TOYS[at] for at in places]), 32, single=2, model=victim)
    assert found.passes == passes
    assert found.second is not None
    assert found.second.estimate == second
    often = wrap(model, device="cpu", draws=2)
    found = measure(lambda places: often.scores([TEXTS_OF_TOYS[at] for at in places]), 32, single=2, model=often)
    assert found.passes == passes * (2 if sigma else 1)


def test_passes_of_a_plain_model_and_of_one_that_reads_synonyms(tmp_path: Path) -> None:
    model = training_toys.classifier()
    victim = wrap(model, device="cpu")
    found = measure(lambda places: victim.scores([TEXTS_OF_TOYS[at] for at in places]), 32, single=2, model=victim)
    assert (found.passes, found.second) == (1, None)
    (tmp_path / "table.json").write_text(json.dumps({"good": ["fine"], "fine": ["good"]}))
    SAFER(table=str(tmp_path / "table.json"), draws=5).prepare(model, ())
    smoothed = wrap(model, device="cpu")
    found = measure(lambda places: smoothed.scores([TEXTS_OF_TOYS[at] for at in places]), 32, single=2, model=smoothed)
    assert found.passes is not None
    assert 0 < found.passes <= 5  # equal draws, of equal texts too, are read once


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return toys.toy_run(tmp_path_factory.mktemp("runs"), "standard", "standard")


def test_speed_stands_in_the_header_and_decides_nothing(run: RunFolder, tmp_path: Path) -> None:
    def request(name: str, **more: Any) -> EvaluateRequest:
        return EvaluateRequest(str(run.path), device="cpu", out=tmp_path / name, **more)

    (first,), (second,) = (evaluate(request(name)).outcomes for name in "ab")
    assert first.header["speed"]["single_texts"] == 24
    assert first.header["speed"]["passes_per_text"] == 1
    assert first.file.rows_path.read_bytes() == second.file.rows_path.read_bytes()
    assert (first.header["hash"], first.header["summary"]) == (second.header["hash"], second.header["summary"])
    # The same command again reads what was measured; a price is put beside it without asking the model.
    (again,) = evaluate(request("a")).outcomes
    assert again.header["speed"] == first.header["speed"]
    (priced,) = evaluate(request("a", price_per_hour=2.0)).outcomes
    assert (priced.made, priced.header["speed"]) == (0, first.header["speed"])
    assert json.loads(first.file.header_path.read_text())["price_per_hour"] == 2.0
    # Asked for, it is measured again.
    (timed,) = evaluate(request("a", latency=7)).outcomes
    assert (timed.made, timed.header["speed"]["single_texts"]) == (0, 7)
    (none,) = evaluate(request("c", latency=0)).outcomes
    assert none.header["speed"] is None


def test_numbers_that_mean_nothing_are_refused(run: RunFolder) -> None:
    for more, said in (({"latency": -1}, "--latency"), ({"price_per_hour": -2.0}, "--price-per-hour")):
        with pytest.raises(UsageError, match=said):
            evaluate(EvaluateRequest(str(run.path), device="cpu", **more))
