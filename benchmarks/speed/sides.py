"""The sides that are measured in a process of their own: isthmus, the ideal, the host alone, the GPU."""

from __future__ import annotations

import cProfile
import gc
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agreement.attacks import ATTACKS, Resources, parameters
from isthmus.attacks.base import AttackRun, AttackSettings
from isthmus.attacks.result import AttackResult
from isthmus.core import catalog, compiled
from isthmus.core.types import Example, TokenVictim
from isthmus.data import load_data
from isthmus.engine.scheduler import EngineSettings
from isthmus.models.victims import load_victim
from isthmus.models.victims.classifier import InferencePrecision
from isthmus.runs.journal import Journal
from speed import ideal
from speed.beside import Beside, stock
from speed.record import Clock, Record, card_name, peak_memory_mb
from speed.victims import FreeVictim, NotingVictim


def method(recipe: str, given: Resources) -> Any:
    """The attack of isthmus, with TextAttack's semantics and the resources that both sides get."""
    return catalog.build("attacks", recipe, parameters(ATTACKS[recipe], given))


def examples(data: Path, split: str, n: int | None) -> list[Example]:
    """The first `n` examples of a split, all of them if `n` is None."""
    return list(load_data(str(data), split=split)[:n])


def token_victim(model: str, device: str | None = None, precision: InferencePrecision = "fp32") -> TokenVictim:
    """The model, which has to be one that reads tokens."""
    victim = load_victim(model, device=device, precision=precision)
    if not isinstance(victim, TokenVictim):
        raise SystemExit(f"{model} cannot be spliced: speed is measured with models of isthmus and of transformers")
    return victim


def isthmus_on_cpu(
    model: str, data: Path, attack: Any, precision: InferencePrecision, n: int, in_flight: int | None, rows_to: Path
) -> Record:
    """isthmus with TextAttack's semantics; the rows it forwarded are kept for the ideal."""
    recipe = type(attack).__name__.lower()
    victim = NotingVictim(token_victim(model, "cpu", precision))
    texts = examples(data, "test", n)
    beside = Beside.of(attack, keep=True)
    run = _prepared(attack, victim, texts, AttackSettings(engine=EngineSettings(in_flight=in_flight)), beside)
    with Clock() as clock:
        results = list(run)
    sent = {"victim": victim.sent, "exact": victim.sent_exactly}
    ideal.save_rows(rows_to, sent | {kind: one.sent for kind, one in beside.watched.items()})
    record = _record("isthmus", recipe, precision, _in_order(results, texts), clock, victim)
    record.filled = victim.filled
    record.model_s = victim.cpu_s + sum(one.cpu_s for one in beside.watched.values())
    record.notes["unconfirmed"] = run.statistics.scores.unconfirmed
    record.notes |= {f"{kind} rows": one.rows for kind, one in beside.watched.items()}
    return record


def ideal_on_cpu(model: str, attack: Any, rows: Path, precision: InferencePrecision, repeats: int) -> list[Record]:
    """The rows of `isthmus_on_cpu` in ideal batches, all models; a record for each way of computing products."""
    recipe = type(attack).__name__.lower()
    return ideal.measure_cpu(
        _models(model, attack, precision, "cpu"), ideal.load_rows(rows), recipe, precision, repeats
    )


def _models(model: str, attack: Any, precision: InferencePrecision, device: str) -> ideal.Models:
    beside = {kind: partial(stock, kind, attack) for kind in ("encoder", "masked_lm")}
    # Successes found in bfloat16 are confirmed in float32, so the ideal does that, too.
    exact = partial(ideal.load_stock, model, "fp32", device)
    return {"victim": partial(ideal.load_stock, model, precision, device), "exact": exact, **beside}


def memory(model: str, data: Path, attack: Any, n: int, in_flight: int | None, budget: int) -> Record:
    """isthmus on long texts, with nothing kept beside it: its peak memory, and what the process had before.

    A GPU is used where there is one: the memory counted is the host's, and a CPU would take hours for CLARE.
    """
    texts = examples(data, "test", n)
    victim = token_victim(model)
    beside = Beside.of(attack, keep=False)
    before = peak_memory_mb()
    settings = AttackSettings(engine=EngineSettings(in_flight=in_flight), budget=budget)
    with Clock() as clock:
        results = list(_prepared(attack, victim, texts, settings, beside))
    record = Record("isthmus", type(attack).__name__.lower(), "fp32", len(texts), clock.wall_s, clock.cpu_s)
    record.peak_memory_mb, record.outcomes = peak_memory_mb(), [_outcome(result) for result in results]
    words = [len(next(iter(example.texts.values())).split()) for example in texts]
    record.notes = {"before MB": before, "peak MB": record.peak_memory_mb, "budget": budget}
    record.notes |= {"words, mean": sum(words) / len(words), "words, most": max(words)}
    record.rows = sum(result.physical_queries for result in results)
    record.notes["device"] = victim.device_type
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
            run = _prepared(catalog.build("attacks", "deepwordbug"), victim, texts, settings)
            work = (lambda run=run: list(run.raw())) if side == "bare" else (lambda run=run: _journalled(run, journal))
            with Clock() as clock:
                _profiled(work, profile and profile.with_suffix(f".{side.split()[0]}.prof"))
            record = Record(side, "deepwordbug", "none", len(texts), clock.wall_s, clock.cpu_s, victim.seconds)
            record.rows, record.batches, record.peak_memory_mb = victim.rows, victim.batches, peak_memory_mb()
            record.notes = {"in flight": in_flight, "logical queries": run.statistics.scores.logical}
            record.notes["compiled"] = int(compiled.part is not None)
            records.append(record)
    return records


def lengths(tokenizer_folder: str, data: Path, n: int, in_flight: int | None) -> list[Record]:
    """DeepWordBug on a victim that costs nothing and is hardly ever fooled, on texts of 200 and of 2,000 words."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    words = [word for example in examples(data, "train", None) for word in " ".join(example.texts.values()).split()]
    found: list[Record] = []
    for size in (200, 200, 2000):  # What is imported and looked up at first use counts for neither.
        texts = [
            Example(f"{size}:{number}", {"text": " ".join(words[number * size : (number + 1) * size])}, 1)
            for number in range(min(n, len(words) // size))
        ]
        victim = FreeVictim(tokenizer, flipped=0.01, max_tokens=512)
        settings = AttackSettings(engine=EngineSettings(in_flight=in_flight))
        run = _prepared(catalog.build("attacks", "deepwordbug"), victim, texts, settings)
        with Clock() as clock:
            list(run.raw())
        record = Record(f"{size} words", "deepwordbug", "none", len(texts), clock.wall_s, clock.cpu_s, victim.seconds)
        record.rows, record.batches, record.peak_memory_mb = victim.rows, victim.batches, peak_memory_mb()
        logical = run.statistics.scores.logical
        record.notes = {"us a query": 1e6 * clock.cpu_s / logical, "us a row": 1e6 * clock.cpu_s / victim.rows}
        record.notes |= {"logical queries": logical}
        found.append(record)
    return found[1:]


def on_gpu(
    model: str,
    data: Path,
    attack: Any,
    precision: InferencePrecision,
    n: int | None,
    in_flight: int | None,
    profile: Path | None,
) -> list[Record]:
    """isthmus over the training texts, and the raw forward rate of the rows it sent."""
    recipe = type(attack).__name__.lower()
    texts = examples(data, "train", n)
    victim = token_victim(model, "cuda", precision)
    settings = AttackSettings(engine=EngineSettings(in_flight=in_flight))
    # Kernels are chosen and memory is taken at first use.
    list(_prepared(attack, victim, texts[:512], settings, Beside.of(attack, keep=False)))
    noting, beside = NotingVictim(victim), Beside.of(attack, keep=False)
    run = _prepared(attack, noting, texts, settings, beside)
    with Clock() as clock:
        results = _profiled(lambda: list(run), profile)
    record = _record("isthmus", recipe, precision, _in_order(results, texts), clock, noting)
    record.clock, record.model_s = "wall", noting.starting_s + noting.waiting_s
    rows = {"victim": ideal.unpadded(noting.sent)}
    raw = ideal.measure_gpu(_models(model, attack, precision, "cuda"), rows, recipe, precision)
    record.notes = {
        "of the raw rate": record.queries_per_s / raw.queries_per_s,
        "dispatch s": noting.starting_s,
        "waiting for the GPU s": noting.waiting_s,
        "everything else s": clock.wall_s - noting.starting_s - noting.waiting_s,
        "unconfirmed": run.statistics.scores.unconfirmed,
        "exact rows": noting.exact_rows,
    }
    record.notes |= {f"{kind} rows": one.rows for kind, one in beside.watched.items()}
    record.processor = raw.processor = card_name()
    return [record, raw]


def replay_on_gpu(model: str, batches: Path, padded: int, recipe: str) -> Record:
    """TextAttack's batches of a file of `textattack_runner.py`, or a JSON list of lists of row lengths."""
    text = batches.read_text(encoding="utf-8")
    if batches.suffix == ".jsonl":
        found = [batch for line in text.splitlines()[1:] for batch in json.loads(line)["batches"]]
    else:
        found = json.loads(text)
    return ideal.replay_gpu(ideal.load_stock(model, "fp32", "cuda"), found, padded, recipe)


def _prepared(
    attack: Any, victim: TokenVictim, texts: Sequence[Example], settings: AttackSettings, beside: Beside | None = None
) -> AttackRun:
    """A run that has not begun. What exists now is put out of the collector's sight: the engine does the same when it
    begins, and the walk over everything torch imported would count as its work."""
    gc.collect()
    gc.freeze()
    beside = beside or Beside()
    run: AttackRun = attack(victim, texts, settings, encoder=beside.encoder, masked_lm=beside.masked_lm)
    return run


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
    side: str,
    recipe: str,
    precision: InferencePrecision,
    results: Sequence[AttackResult],
    clock: Clock,
    victim: NotingVictim,
) -> Record:
    return Record(
        side,
        recipe,
        precision,
        examples=len(results),
        wall_s=clock.wall_s,
        cpu_s=clock.cpu_s,
        rows=victim.rows,
        batches=len(victim.sent) + len(victim.sent_exactly),
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
