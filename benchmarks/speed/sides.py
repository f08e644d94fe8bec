"""The sides that are measured in a process of their own: isthmus, the ideal, the host alone, the GPU."""

from __future__ import annotations

import cProfile
import gc
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus import attacks
from isthmus.attacks import AttackResult, AttackSettings
from isthmus.core.types import Example, TokenVictim
from isthmus.data import load_data
from isthmus.models.victims import load_victim
from isthmus.runs.journal import Journal
from speed import ideal
from speed.record import Clock, Record, peak_memory_mb
from speed.victims import FreeVictim, NotingVictim

ATTACKS = {"deepwordbug": attacks.DeepWordBug, "pwws": attacks.PWWS}


def examples(data: Path, split: str, n: int | None) -> list[Example]:
    """The first `n` examples of a split, all of them if `n` is None."""
    return list(load_data(str(data), split=split)[:n])


def isthmus_on_cpu(
    model: str, data: Path, recipe: str, precision: str, n: int, in_flight: int | None, rows_to: Path
) -> Record:
    """isthmus with TextAttack's semantics; the rows it forwarded are kept for the ideal."""
    victim = NotingVictim(load_victim(model, device="cpu", precision=precision))
    results, clock, report = _attack(recipe, victim, examples(data, "test", n), AttackSettings(in_flight=in_flight))
    ideal.save_rows(rows_to, victim.batches)
    record = _record("isthmus", recipe, precision, results, clock, victim)
    record.model_s = victim.cpu_s
    record.notes["unconfirmed"] = report.unconfirmed
    return record


def host_alone(tokenizer_folder: str, data: Path, n: int | None, in_flight: int, profile: Path | None) -> list[Record]:
    """DeepWordBug on a victim that costs nothing: bare, then with journal, cache and budget."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    # The free victim finds nearly every text positive; with their own labels half of them would be skipped.
    texts = [replace(example, label=1) for example in examples(data, "train", n)]
    bare = AttackSettings(in_flight=in_flight, cache_mb=0)
    full = AttackSettings(in_flight=in_flight, budget=10_000)
    records = []
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "attack.jsonl") as journal:
        for side, settings, keep in (("bare", bare, None), ("everything on", full, journal)):
            victim = FreeVictim(tokenizer)
            results, clock, report = _attack("deepwordbug", victim, texts, settings, keep, profile)
            record = Record(side, "deepwordbug", "none", len(results), clock.wall_s, clock.cpu_s, victim.seconds)
            record.rows, record.batches, record.outcomes = victim.rows, victim.batches, [_outcome(r) for r in results]
            record.peak_memory_mb = peak_memory_mb()
            record.notes = {"in flight": in_flight, "logical queries": report.logical, "victim s": victim.seconds}
            records.append(record)
    return records


def on_gpu(
    model: str, data: Path, recipe: str, precision: str, n: int | None, in_flight: int | None, profile: Path | None
) -> list[Record]:
    """isthmus over the training texts, and the raw forward rate of the rows it sent."""
    texts = examples(data, "train", n)
    victim = load_victim(model, device="cuda", precision=precision)
    settings = AttackSettings(in_flight=in_flight)
    _attack(recipe, victim, texts[:512], settings)  # Kernels are chosen and memory is taken at first use.
    noting = NotingVictim(victim)
    results, clock, report = _attack(recipe, noting, texts, settings, None, profile)
    record = _record("isthmus", recipe, precision, results, clock, noting)
    record.clock, record.model_s = "wall", noting.starting_s + noting.waiting_s
    raw = ideal.measure_gpu(model, [row for batch in noting.batches for row in batch], recipe, precision)
    record.notes = {
        "of the raw rate": record.queries_per_s / raw.queries_per_s,
        "dispatch s": noting.starting_s,
        "waiting for the GPU s": noting.waiting_s,
        "host s": clock.wall_s - noting.starting_s - noting.waiting_s,
        "unconfirmed": report.unconfirmed,
        "exact rows": noting.exact_rows,
    }
    return [record, raw]


def _attack(
    recipe: str,
    victim: TokenVictim,
    texts: Sequence[Example],
    settings: AttackSettings,
    journal: Journal | None = None,
    profile: Path | None = None,
) -> tuple[list[AttackResult], Clock, Any]:
    """All results in the order of `texts`, what they cost, and the engine's own statistics."""
    run = ATTACKS[recipe](semantics="textattack")(victim, texts, seed=0, settings=settings)
    profiler = cProfile.Profile() if profile is not None else None
    gc.collect()
    gc.freeze()
    gc.disable()
    with Clock() as clock:
        finished = list(_profiled(run, profiler)) if journal is None else _journalled(run, journal)
    gc.enable()
    if profiler is not None and profile is not None:
        profiler.dump_stats(profile)
    place = {example.id: index for index, example in enumerate(texts)}
    return sorted(finished, key=lambda result: place[result.id]), clock, run.report


def _profiled(run: Iterable[AttackResult], profiler: cProfile.Profile | None) -> list[AttackResult]:
    if profiler is None:
        return list(run)
    return profiler.runcall(list, run)


def _journalled(run: Iterable[AttackResult], journal: Journal) -> list[AttackResult]:
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
        batches=len(victim.batches),
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
