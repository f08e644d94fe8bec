"""The sides that are measured in a process of their own: isthmus, the ideal, the host alone, the GPU."""

from __future__ import annotations

import cProfile
import gc
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.attacks.base import AttackRun, AttackSettings
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.deepwordbug import DeepWordBug
from isthmus.attacks.words.pwws import PWWS
from isthmus.core.types import Example, TokenVictim
from isthmus.data import load_data
from isthmus.engine.scheduler import EngineSettings
from isthmus.models.victims import load_victim
from isthmus.runs.journal import Journal
from speed import ideal
from speed.record import Clock, Record, peak_memory_mb
from speed.victims import FreeVictim, NotingVictim

ATTACKS = {"deepwordbug": DeepWordBug, "pwws": PWWS}


def examples(data: Path, split: str, n: int | None) -> list[Example]:
    """The first `n` examples of a split, all of them if `n` is None."""
    return list(load_data(str(data), split=split)[:n])


def isthmus_on_cpu(
    model: str, data: Path, recipe: str, precision: str, n: int, in_flight: int | None, rows_to: Path
) -> Record:
    """isthmus with TextAttack's semantics; the rows it forwarded are kept for the ideal."""
    victim = NotingVictim(load_victim(model, device="cpu", precision=precision))
    texts = examples(data, "test", n)
    run = _prepared(recipe, victim, texts, AttackSettings(engine=EngineSettings(in_flight=in_flight)))
    with Clock() as clock:
        results = list(run)
    ideal.save_rows(rows_to, victim.sent)
    record = _record("isthmus", recipe, precision, _in_order(results, texts), clock, victim)
    record.model_s = victim.cpu_s
    record.notes["unconfirmed"] = run.statistics.scores.unconfirmed
    return record


def host_alone(tokenizer_folder: str, data: Path, n: int | None, in_flight: int, profile: Path | None) -> list[Record]:
    """DeepWordBug on a victim that costs nothing: bare, then with results, journal, cache and budget."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    # The free victim finds nearly every text positive; with their own labels half of them would be skipped.
    texts = [replace(example, label=1) for example in examples(data, "train", n)]
    bare = AttackSettings(engine=EngineSettings(in_flight=in_flight, cache_megabytes=0))
    full = AttackSettings(engine=EngineSettings(in_flight=in_flight), budget=10_000)
    records = []
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "attack.jsonl") as journal:
        for side, settings in (("bare", bare), ("everything on", full)):
            victim = FreeVictim(tokenizer)
            run = _prepared("deepwordbug", victim, texts, settings)
            work = (lambda run=run: list(run.raw())) if side == "bare" else (lambda run=run: _journalled(run, journal))
            with Clock() as clock:
                _profiled(work, profile and profile.with_suffix(f".{side.split()[0]}.prof"))
            record = Record(side, "deepwordbug", "none", len(texts), clock.wall_s, clock.cpu_s, victim.seconds)
            record.rows, record.batches, record.peak_memory_mb = victim.rows, victim.batches, peak_memory_mb()
            record.notes = {"in flight": in_flight, "logical queries": run.statistics.scores.logical}
            records.append(record)
    return records


def on_gpu(
    model: str, data: Path, recipe: str, precision: str, n: int | None, in_flight: int | None, profile: Path | None
) -> list[Record]:
    """isthmus over the training texts, and the raw forward rate of the rows it sent."""
    texts = examples(data, "train", n)
    victim = load_victim(model, device="cuda", precision=precision)
    settings = AttackSettings(engine=EngineSettings(in_flight=in_flight))
    list(_prepared(recipe, victim, texts[:512], settings))  # Kernels are chosen and memory is taken at first use.
    noting = NotingVictim(victim)
    run = _prepared(recipe, noting, texts, settings)
    with Clock() as clock:
        results = _profiled(lambda: list(run), profile)
    record = _record("isthmus", recipe, precision, _in_order(results, texts), clock, noting)
    record.clock, record.model_s = "wall", noting.starting_s + noting.waiting_s
    raw = ideal.measure_gpu(model, ideal.unpadded(noting.sent), recipe, precision)
    record.notes = {
        "of the raw rate": record.queries_per_s / raw.queries_per_s,
        "dispatch s": noting.starting_s,
        "waiting for the GPU s": noting.waiting_s,
        "host s": clock.wall_s - noting.starting_s - noting.waiting_s,
        "unconfirmed": run.statistics.scores.unconfirmed,
        "exact rows": noting.exact_rows,
    }
    return [record, raw]


def _prepared(recipe: str, victim: TokenVictim, texts: Sequence[Example], settings: AttackSettings) -> AttackRun:
    """A run that has not begun. What exists now is put out of the collector's sight: the engine does the same when it
    begins, and the walk over everything torch imported would count as its work."""
    gc.collect()
    gc.freeze()
    return ATTACKS[recipe](semantics="textattack")(victim, texts, settings)


def _in_order(results: Sequence[AttackResult], texts: Sequence[Example]) -> list[AttackResult]:
    place = {example.id: index for index, example in enumerate(texts)}
    return sorted(results, key=lambda result: place[result.id])


def _profiled(work: Callable[[], list[Any]], profile: Path | None) -> list[Any]:
    if profile is None:
        return work()
    profiler = cProfile.Profile()
    try:
        return profiler.runcall(work)
    finally:
        profiler.dump_stats(profile)


def _journalled(run: AttackRun, journal: Journal) -> list[AttackResult]:
    results = []
    for result in run:
        journal.append(result.to_row())
        results.append(result)
    return results


def _record(
    side: str, recipe: str, precision: str, results: Sequence[AttackResult], clock: Clock, victim: NotingVictim
) -> Record:
    return Record(
        side,
        recipe,
        precision,
        examples=len(results),
        wall_s=clock.wall_s,
        cpu_s=clock.cpu_s,
        rows=victim.rows,
        batches=len(victim.sent),
        tokens=victim.tokens,
        padded_tokens=victim.padded_tokens,
        peak_memory_mb=peak_memory_mb(),
        outcomes=[_outcome(result) for result in results],
    )


def _outcome(result: AttackResult) -> dict[str, Any]:
    return {
        "text": " ".join(result.original.values()),
        "label": result.label,
        "outcome": result.outcome,
        "perturbed": " ".join(result.perturbed.values()),
        "queries": result.logical_queries,
    }
