"""One unit of the plan: train, answer the whole test split, attack; every finished cell goes to the ledger at once."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.shared_draws import choose_search_draws
from isthmus.attacks.result import AttackResult
from isthmus.core.errors import RunError
from isthmus.core.files import make_folder
from isthmus.core.seeds import derive
from isthmus.data import Dataset, load_data
from isthmus.measures.base import Asked as AskedOfMeasure
from isthmus.runs.folder import RunFolder
from isthmus.verbs.measure import MeasureRequest, measure
from isthmus.verbs.request import AttackRequest
from isthmus.verbs.rows_file import RowsDone
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.train import TrainRequest, train
from ledger import Cell, Key, Ledger, attack_key, data_key, measure_key, method_key, provenance, training_key
from proof.plan import Explained, Unit, Way

_AT_ONCE = 4096
MEASURE = "interpretation_consistency"


@dataclass(frozen=True)
class Place:
    """Where data, runs and results are, and what is changed for a quick look."""

    data: Path
    runs: Path
    results: Path
    backbone: str = "minilm"
    source: str | None = None
    """Folder of the backbone; None where it goes by its name."""
    limit: int | None = None
    epochs: int | None = None
    n: int | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    """Options of the search against a randomised model that differ from the defaults."""
    precision: str = "fp32"
    """In which a randomised model is attacked; its successes are confirmed in fp32 in any case."""
    device: str | None = None

    def fitted(self, unit: Unit) -> Unit:
        """The unit as it is run here."""
        epochs: dict[str, Any] = {} if self.epochs is None else {"epochs": self.epochs}
        encoder, pairs_of = (None if other is None else self.fitted(other) for other in (unit.encoder, unit.pairs_of))
        settings = dataclasses.replace(unit.settings, **epochs)
        return dataclasses.replace(
            unit, settings=settings, n=self.n or unit.n, encoder=encoder, pairs_of=pairs_of
        )  # fmt: skip

    def backbone_of(self, unit: Unit) -> str:
        """What the ledger calls the network of a unit."""
        return unit.backbone or self.backbone


@dataclass(frozen=True)
class Asked:
    """A cell that a unit is to fill."""

    key: Key
    row: str
    split: str
    way: Way
    attack: str | None
    explained: Explained | None = None


def search_options(place: Place) -> dict[str, Any]:
    """How a randomised model is searched: what is given, and the defaults of this version, spelled out.

    A search over shared draws does not restart.
    """
    usual = {entry.name: entry.default for entry in dataclasses.fields(AttackRequest)}
    known = {name: usual[name] for name in ("restarts", "fresh", "search_draws")}
    if unknown := sorted(place.search.keys() - known.keys()):
        raise RunError(f"attacks of this version have no option {', '.join(unknown)}; they have {', '.join(known)}")
    found = {**known, **place.search}
    found["search_draws"] = choose_search_draws(found["search_draws"], randomised=True)
    return found if not found["search_draws"] else {name: found[name] for name in ("fresh", "search_draws")}


def asked(unit: Unit, place: Place) -> list[Asked]:
    """The cells of a unit: first the accuracy in every way, then the attacks, then what is explained."""
    clean = [_asked(unit, place, split, way, None) for split in unit.tests for way in unit.ways]
    attacked = [_asked(unit, place, unit.tests[0], way, attack) for attack in unit.attacks for way in unit.ways]
    explained = [_asked(unit, place, unit.tests[0], Way(), each.attack, each) for each in unit.explained]
    return [*clean, *attacked, *explained]


def _asked(
    unit: Unit, place: Place, split: str, way: Way, attack: str | None, explained: Explained | None = None
) -> Asked:
    data = loaded(place.data / unit.data, split)
    trained_on = loaded(place.data / unit.data, "train")
    search = {**search_options(place), "precision": place.precision} if way.draws else {}
    key = Key(
        data=data_key(data, trained_on=trained_on),
        backbone=place.backbone_of(unit),
        method=method_key(unit.method.defence, unit.method.parameters),
        training=_training(unit, place),
        seed=unit.seed,
        n=len(data) if attack is None else min(unit.n, len(data)),
        way=way.options,
        attack=None if attack is None else _attack(attack, tuple(search.items())),
        limits={} if attack is None or unit.preset is None else {"preset": unit.preset},
        measure={} if explained is None else _measure(explained),
    )
    row = "-".join(part for part in (unit.method.name, way.name) if part)
    return Asked(key, row, split, way, attack, explained)


def _measure(explained: Explained) -> dict[str, Any]:
    given = {"method": explained.method, "controls": explained.controls}
    # With or without controls the values are the same; what is asked for is part of the key all the same.
    return measure_key(MEASURE, given, pairs=explained.pairs, most=explained.n)


def _training(unit: Unit, place: Place) -> dict[str, Any]:
    own = training_key(unit.settings, place.limit)
    if unit.encoder is None:
        return own
    other = unit.encoder
    return {**own, "encoder": {"method": other.method.name, "seed": other.seed, **_training(other, place)}}


@functools.cache
def loaded(folder: Path, split: str) -> Dataset:
    """A split, read once in a process."""
    return load_data(folder, split)


@functools.cache
def _attack(name: str, search: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return attack_key(name, **dict(search))


def do(unit: Unit, place: Place, may_begin: Callable[[], bool] = lambda: True) -> str:
    """Fill the cells of a unit that the ledger does not have; what came out, in a line."""
    book = Ledger(place.results / f"{unit.page}.jsonl")
    there = book.cells()
    missing = [each for each in asked(unit, place) if each.key.id not in there]
    if not missing:
        return "in the ledger"
    began = time.monotonic()
    run = trained(unit, place)
    told = [f"trained in {time.monotonic() - began:.0f} s"]
    for each in missing:
        if not may_begin():
            told.append("cut at the deadline")
            break
        began = time.monotonic()
        cell = _filled(unit, place, run, each)
        seconds = time.monotonic() - began
        book.append(dataclasses.replace(cell, provenance=provenance(_device(place), seconds=seconds)))
        name = " ".join(part for part in (each.way.name, each.attack or each.split) if part)
        if each.explained is None:
            told.append(f"{name} {100 * cell.right.mean():.1f} ({seconds:.0f} s)")
        else:
            tau = np.nanmean(cell.values["tau"])
            told.append(f"{each.explained.method} on {each.explained.pairs} pairs {tau:.2f} ({seconds:.0f} s)")
    return ", ".join(told)


def _filled(unit: Unit, place: Place, run: RunFolder, each: Asked) -> Cell:
    if each.explained is not None:
        return explained(unit, place, run, each)
    return answered(unit, place, run, each) if each.attack is None else attacked(unit, place, run, each)


def trained(unit: Unit, place: Place) -> RunFolder:
    """The run of a unit, trained now unless that was done; several processes may ask for one."""
    backbone = unit.backbone or place.source or place.backbone
    if unit.encoder is not None:
        backbone = str(trained(unit.encoder, place).model_path)
    folder = make_folder(place.runs) / unit.folder
    with _alone(folder):
        report = train(
            TrainRequest(
                DataRequest(str(place.data / unit.data)),
                backbone=backbone,
                defence=unit.method.defence,
                parameters={name: str(value) for name, value in unit.method.parameters.items()},
                settings=unit.settings,
                limit=place.limit,
                seed=unit.seed,
                out=folder,
                device=place.device,
            )
        )
    return report.folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def answered(unit: Unit, place: Place, run: RunFolder, wanted: Asked) -> Cell:
    """Whether each text of the whole split is answered correctly, by one answer of the model as it is asked."""
    from isthmus.models.victims import load_victim
    from isthmus.verbs.clean_scores import score_batch

    victim = load_victim(run.path, device=_device(place), **wanted.way.options)
    data = loaded(place.data / unit.data, wanted.split).align_labels(victim.labels)
    right: list[NDArray[np.bool_]] = []
    for at in range(0, len(data), _AT_ONCE):
        part = data[at : at + _AT_ONCE]
        keys = [derive(0, "evaluate", example.id, 0) for example in part]
        found = score_batch(victim, part.texts(), np.array(keys, np.uint64) if victim.stochastic else None)
        right.append(found.scores.argmax(axis=1) == part.label_indices())
    return Cell.of_answers(wanted.key, np.concatenate(right), row=wanted.row, **_logged(unit, run))


def attacked(unit: Unit, place: Place, run: RunFolder, wanted: Asked) -> Cell:
    """The outcome of every attacked text."""
    by_id = {result.id: result for result in _outcome(unit, place, run, wanted).results}
    sample = loaded(place.data / unit.data, wanted.split).sample(wanted.key.n)
    return Cell.of_attack(wanted.key, [by_id[example.id] for example in sample], row=wanted.row)


def _outcome(unit: Unit, place: Place, run: RunFolder, wanted: Asked) -> RowsDone[AttackResult]:
    """The attack on a run, made now unless that was done; several processes may ask for one."""
    from isthmus.verbs.attack import attack

    search = {**search_options(place), "precision": place.precision} if wanted.way.draws else {}
    with _alone(run.path.with_name(f"{run.path.name}-{wanted.attack}-{unit.preset or 'free'}")):
        report = attack(
            AttackRequest(
                str(run.path),
                (str(wanted.attack),),
                data=DataRequest(str(place.data / unit.data)),
                split=wanted.split,
                n=wanted.key.n,
                victim=wanted.way.options,
                preset=unit.preset,
                device=place.device,
                label_check=False,
                retry_errors=True,
                **search,
            )
        )
    return report.outcomes[0]


def explained(unit: Unit, place: Place, run: RunFolder, wanted: Asked) -> Cell:
    """Whether the words of this model weigh the same before and after an attack on it, or on another."""
    asks = wanted.explained
    assert asks is not None
    if asks.pairs == "own":
        outcome = _outcome(unit, place, run, dataclasses.replace(wanted, explained=None))
    else:
        if unit.pairs_of is None or unit.pairs_of.method.name != asks.pairs:
            raise RunError(f"{unit.title}: pairs of {asks.pairs} are asked for, and no unit makes them")
        other = _asked(unit.pairs_of, place, wanted.split, Way(), asks.attack)
        outcome = _outcome(unit.pairs_of, place, trained(unit.pairs_of, place), other)
    (found,) = measure(
        MeasureRequest(
            (str(run.path),),
            (MEASURE,),
            {"attack": str(outcome.file.rows_path), "method": asks.method, "controls": str(asks.controls).lower()},
            AskedOfMeasure(n=asks.n),
            device=place.device,
        )
    )
    figures: dict[str, Any] = {
        figure.name: [
            None if value is None else round(value, 4) for value in (figure.estimate, figure.low, figure.high)
        ]
        for figure in found.measurement.figures
    }
    ids = [example.id for example in loaded(place.data / unit.data, wanted.split).sample(wanted.key.n)]
    texts = found.measurement.details["runs"][0]["texts"]
    return Cell.of_pairs(wanted.key, ids, texts, row=wanted.row, **figures)


def _logged(unit: Unit, run: RunFolder) -> dict[str, Any]:
    """What the training says of itself: its rounds of attacks, the size of its terms, or InfoBERT's bound."""
    return {**_rounds(run), **_shares(run), **_infonce(unit, run)}


def _shares(run: RunFolder) -> dict[str, Any]:
    """Of every term beside the task's the median and the smallest share of the task's gradient, once each was there."""
    found: dict[str, list[float]] = {}
    for row in run.train_log():
        for name, share in row.get("gradient_shares", {}).items():
            found.setdefault(name, []).append(float(share))
    sizes = {name: [round(float(np.median(each)), 5), round(min(each), 5)] for name, each in sorted(found.items())}
    return {"gradient_shares": sizes} if sizes else {}


def _rounds(run: RunFolder) -> dict[str, Any]:
    """Of every round of attacks in training: its epoch, texts attacked, fooled, held, and substitutes unknown to it."""
    rounds = {int(row["epoch"]): row["attack"] for row in run.train_log() if isinstance(row.get("attack"), dict)}
    names = {"attacked": "attacked", "fooled": "succeeded", "held": "failed", "unknown": "unknown_share"}
    kept = [
        {"epoch": epoch, **{name: found[theirs] for name, theirs in names.items() if theirs in found}}
        for epoch, found in sorted(rounds.items())
    ]
    return {"rounds": kept} if kept else {}


def _infonce(unit: Unit, run: RunFolder) -> dict[str, float]:
    """Of InfoBERT the InfoNCE N of the anchored words in the last tenth of the training, in nats."""
    alpha = float(unit.method.parameters.get("alpha", 0) or 0)
    terms = [float(row["anchored"]) for row in run.train_log() if row.get("anchored") is not None]
    if not alpha or not terms:
        return {}
    return {"infonce": round(-float(np.mean(terms[-max(1, len(terms) // 10) :])) / alpha, 4)}


def _device(place: Place) -> str:
    import torch

    return place.device or ("cuda" if torch.cuda.is_available() else "cpu")
