"""`attack`: run attacks on a model, one row per example, and continue what was interrupted.

Everything that can be wrong with the command is found before the model is loaded. Rows are written as they finish; the
same command again skips what has a row, and ends with the same file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import isthmus
from isthmus.core import catalog
from isthmus.core.errors import RunError, UnknownName, UsageError, VictimTimeout
from isthmus.core.files import make_folder, write_json
from isthmus.runs.detection import Detector, choose_threshold, detect, make_detector
from isthmus.runs.folder import SCHEMA, AttackFile, ModelRecord, RunFolder, RunRecord, default_path
from isthmus.runs.goals import GoalRequest, make_goal
from isthmus.runs.journal import Journal
from isthmus.runs.labelcheck import check_labels
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.settings import plain, short_hash
from isthmus.runs.sources import DataRequest, ModelSource, chosen
from isthmus.runs.summary import summarise

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack
    from isthmus.core.types import Victim
    from isthmus.data import Dataset, Splits

Row = Mapping[str, Any]


class Observer(Protocol):
    """Told how an attack comes along; the command line shows a bar."""

    def note(self, message: str) -> None:
        """Something worth knowing happened."""

    def begin(self, key: str, total: int, rows: Sequence[Row]) -> None:
        """An attack begins; `rows` are those of an earlier, interrupted run."""

    def row(self, key: str, row: Row) -> None:
        """An example is finished."""

    def end(self, key: str) -> None:
        """The attack is finished."""


class Silent:
    """An observer that says nothing."""

    def note(self, message: str) -> None: ...  # noqa: D102
    def begin(self, key: str, total: int, rows: Sequence[Row]) -> None: ...  # noqa: D102
    def row(self, key: str, row: Row) -> None: ...  # noqa: D102
    def end(self, key: str) -> None: ...  # noqa: D102


@dataclass(frozen=True)
class AttackRequest:
    """Everything the command says."""

    model: str
    attacks: tuple[str, ...]
    data: DataRequest | None = None
    """None: the data the run was made with."""
    split: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """``key`` for every attack that has it, ``attack.key`` for one."""
    n: int | None = 200
    seed: int = 0
    out: Path | None = None
    labels: tuple[str, ...] | None = None
    """What the data calls the model's outputs, in the order of the outputs."""
    goal: GoalRequest = field(default_factory=GoalRequest)
    protect: tuple[str, ...] | None = None
    protect_pattern: str | None = None
    budget: int | None = None
    budget_per_word: int | None = None
    time_limit: float | None = None
    in_flight: int | None = None
    precision: str = "fp32"
    device: str | None = None
    label_check: bool = True
    retry_errors: bool = False
    command: str | None = None


@dataclass(frozen=True)
class AttackOutcome:
    """Rows of one attack on the sample that was asked for."""

    file: AttackFile
    rows: tuple[Row, ...]
    header: Mapping[str, Any]
    attacked: int
    """Examples attacked now; the others had their rows."""


@dataclass(frozen=True)
class AttackReport:
    """What the command did."""

    folder: RunFolder
    outcomes: tuple[AttackOutcome, ...]


def attack(request: AttackRequest, observer: Observer | None = None) -> AttackReport:
    """Run every attack of the request."""
    session = _Session(request, observer or Silent())
    session.check()
    return AttackReport(session.folder, tuple(session.run(name) for name in session.methods))


class _Session:
    """One command. What is expensive is made when it is first needed, and a finished attack needs none of it."""

    def __init__(self, request: AttackRequest, observer: Observer) -> None:
        self.request, self.observer = request, observer

    def check(self) -> None:
        """Find everything that is wrong before anything is loaded or written."""
        _ = self.methods, self.source, self.sample
        self.protection.check(self.data.fields)
        self.request.goal.target(self.data)
        if self.request.goal.at_fpr is not None and "dev" not in self.splits:
            raise UsageError(
                f"--at-fpr chooses the threshold on a development split, and {self.splits.name} has none "
                f"(it has {', '.join(self.splits)}): give --threshold instead, or data with a dev split"
            )
        _ = self.folder

    # ------------------------------------------------------------------ what the command names

    @cached_property
    def methods(self) -> dict[str, WordAttack]:
        wanted = catalog.names("attacks") if "all" in self.request.attacks else self.request.attacks
        entries = {entry.name: entry for entry in (catalog.find("attacks", name) for name in wanted)}
        if not entries:
            raise UsageError(f"name at least one attack: --attack {','.join(catalog.names('attacks'))}")
        given = _parameters_of(self.request.parameters, entries)
        return {name: catalog.build("attacks", name, given[name]) for name in entries}

    @cached_property
    def source(self) -> ModelSource:
        return ModelSource.of(self.request.model)

    @cached_property
    def data_request(self) -> DataRequest:
        if self.request.data is not None:
            return self.request.data
        if self.source.run is None:
            raise UsageError(f"{self.request.model} is not a run folder: say what to attack it on with --data")
        return DataRequest.from_record(self.source.run.record().data)

    @cached_property
    def splits(self) -> Splits:
        return self.data_request.load()

    @cached_property
    def data(self) -> Dataset:
        return chosen(self.splits, self.request.split)

    @cached_property
    def sample(self) -> Dataset:
        if self.request.n is not None and self.request.n < 1:
            raise UsageError(f"--n is the number of examples to attack and must be at least 1, not {self.request.n}")
        sample = self._first(self.request.n)
        if not len(sample) and not sample.rejected:
            raise UsageError(f"the {self.data.split} split of {self.data.name} has no examples to attack")
        return sample

    def _first(self, n: int | None) -> Dataset:
        return self.data.sample(n, self.request.seed, self.request.goal.attacked(self.data))

    @cached_property
    def protection(self) -> Any:
        from isthmus.attacks.parts.protection import Protection

        return Protection(self.request.protect, self.request.protect_pattern)

    @cached_property
    def folder(self) -> RunFolder:
        """Where rows go; a folder that holds something else is refused."""
        run, data = self.source.run, self.data_request.record({self.data.split: self.data})
        if self.request.out is not None:
            folder = RunFolder(self.request.out)
        elif run is not None and self._is_own_data(run):
            folder = run
        else:
            folder = RunFolder(default_path(self.source.name, self.data.name))
        if run is not None and folder.path.resolve() == run.path.resolve():
            if not self._is_own_data(run):
                raise RunError(f"{run.path} was made with other data than {self.data.name}: choose another --out")
            make_folder(folder.attacks_path)
            return folder
        model = ModelRecord(self.source.shown, self.request.labels or (), self.fingerprint)
        folder.claim(RunRecord(model=model, data=data, command=self.request.command, seed=self.request.seed))
        return folder

    def _is_own_data(self, run: RunFolder) -> bool:
        known = run.record().data.fingerprints.get(self.data.split)
        return known == self.data.fingerprint

    @cached_property
    def fingerprint(self) -> str | None:
        return self.source.fingerprint()

    # ------------------------------------------------------------------ what has to be loaded

    @cached_property
    def victim(self) -> Victim:
        from isthmus.models.victims import load_victim

        self.observer.note(f"loading {self.source.shown}")
        return load_victim(
            self.source.spec,
            labels=self.request.labels,
            device=self.request.device,
            precision=self.request.precision,
        )

    @cached_property
    def aligned(self) -> Dataset:
        """The split with labels in the victim's numbering."""
        return self.data.aligned(self.victim.labels)

    @cached_property
    def numbering(self) -> dict[int, int]:
        """Label index of the data -> that of the victim."""
        found = {int(ours.label): int(theirs.label) for ours, theirs in zip(self.data, self.aligned, strict=True)}  # type: ignore[arg-type]
        for index, name in enumerate(self.data.labels):
            if index not in found and name in self.victim.labels:
                found[index] = self.victim.labels.index(name)
        return found

    def _in_victims_numbering(self, index: int | None) -> int | None:
        if index is None:
            return None
        if index not in self.numbering:
            raise UnknownName("label of the model", self.data.labels[index], self.victim.labels)
        return self.numbering[index]

    @cached_property
    def threshold(self) -> float | None:
        goal = self.request.goal
        if goal.at_fpr is None:
            return goal.threshold
        label = self._in_victims_numbering(goal.attacked(self.data))
        assert label is not None
        return choose_threshold(self.victim, self.splits, label, self.request.seed, goal.at_fpr)

    @cached_property
    def detector(self) -> Detector | None:
        goal = self.request.goal
        if not goal.is_evasion:
            return None
        label = self._in_victims_numbering(goal.attacked(self.data))
        assert label is not None
        self.observer.note(f"scoring clean examples of other classes than {goal.from_label}")
        return make_detector(
            self.victim, self.aligned, label, self.request.seed, threshold=self.threshold, at_fpr=goal.at_fpr
        )

    @cached_property
    def checked(self) -> bool:
        """Whether the labels were looked at; they are wrong only by raising."""
        names = list(self.victim.labels)
        for ours, theirs in self.numbering.items():
            names[theirs] = self.data.labels[ours]
        try:
            check_labels(self.victim, self.aligned, self.request.seed, names)
        except VictimTimeout as error:
            self.observer.note(f"labels not checked: {error}")
            return False
        return True

    @cached_property
    def attack_settings(self) -> AttackSettings:
        from isthmus.attacks.base import AttackSettings
        from isthmus.engine.scheduler import EngineSettings

        goal, request = self.request.goal, self.request
        return AttackSettings(
            goal=make_goal(
                self._in_victims_numbering(goal.target(self.data)),
                self._in_victims_numbering(goal.attacked(self.data)),
                self.threshold,
            ),
            protection=self.protection,
            seed=request.seed,
            budget=request.budget,
            budget_per_word=request.budget_per_word,
            engine=EngineSettings(in_flight=request.in_flight, time_limit=request.time_limit),
        )

    # ------------------------------------------------------------------ one attack

    def settings(self, name: str) -> dict[str, Any]:
        """What decides the rows of an attack."""
        request = self.request
        data: dict[str, Any] = {"split": self.data.split, "fingerprint": self.data.fingerprint}
        if request.goal.at_fpr is not None:
            data["dev_fingerprint"] = self.splits.dev.fingerprint
        return {
            "attack": name,
            "parameters": plain(self.methods[name]),
            "resources": dict(self.methods[name].resources()),
            "goal": request.goal.settings(),
            "seed": request.seed,
            "limits": {
                "budget": request.budget,
                "budget_per_word": request.budget_per_word,
                "time_limit": request.time_limit,
            },
            "protection": {"columns": request.protect, "pattern": request.protect_pattern},
            "precision": request.precision,
            "labels": request.labels,
            "data": data,
            # A folder may be moved; its files stay what they are.
            "model": self.fingerprint or self.source.shown,
        }

    def run(self, name: str) -> AttackOutcome:
        """Attack what has no row yet, and put the rows in order."""
        settings = self.settings(name)
        file = self.folder.attack_file(name, settings)
        asked = _ids(self.sample)
        with Journal(file.rows_path) as journal:
            known = file.header() if file.header_path.exists() else {}
            if self.request.retry_errors:
                journal.forget([key for key, row in journal.rows.items() if row.get("outcome") == "error"])
            missing = [key for key in asked if key not in journal.rows]
            if not missing and known.get("summary"):
                return AttackOutcome(file, tuple(journal.rows[key] for key in asked), known, 0)
            header = self._header(name, settings, known, len(asked))
            write_json(file.header_path, header)
            effort = self._attack(name, file.key, journal, set(missing))
            journal.finish(_ids(self._first(header["n"])))
            rows = tuple(journal.rows[key] for key in asked)
            every = list(journal.rows.values())
        header |= {
            "threshold": self.threshold,
            "detection": detect(self.detector, every).to_json() if self.detector is not None else None,
            "effort": _sum(known.get("effort"), effort),
            "summary": summarise(every, self.threshold).to_json(),
        }
        write_json(file.header_path, header)
        return AttackOutcome(file, rows, header, len(missing))

    def _header(self, name: str, settings: dict[str, Any], known: Mapping[str, Any], asked: int) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "attack": name,
            "hash": short_hash(settings),
            "n": max(asked, int(known.get("n") or 0)),
            "settings": plain(settings),
            "labels": list(self.victim.labels),
            "data": {"name": self.data.name, "split": self.data.split, "fingerprint": self.data.fingerprint},
            "model": self.source.shown,
            "created": known.get("created") or now(),
            "command": self.request.command,
            "versions": versions(),
            "machine": machine(getattr(self.victim, "device_type", None)),
        }

    def _attack(self, name: str, key: str, journal: Journal, missing: set[str]) -> dict[str, float]:
        from isthmus.attacks.result import AttackResult

        self.observer.begin(key, len(missing) + len(journal), list(journal.rows.values()))
        for bad in self.sample.rejected:
            if bad.id in missing:
                row = AttackResult(bad.id, "error", None, {}, {}, seed=self.request.seed, reason=bad.reason).to_row()
                journal.append(row)
                self.observer.row(key, row)
        examples = [example for example in self.sample.aligned(self.victim.labels) if example.id in missing]
        if (
            examples
            and self.request.label_check
            and not any(row["outcome"] != "error" for row in journal.rows.values())
        ):
            _ = self.checked
        effort: dict[str, float] = {"examples": len(examples)}
        if examples:
            runner = self.methods[name](self.victim, examples, self.attack_settings)
            with _measured(effort):
                for result in runner:
                    row = result.to_row()
                    journal.append(row)
                    self.observer.row(key, row)
            effort |= _numbers(runner.statistics)
        self.observer.end(key)
        return effort


def _ids(sample: Dataset) -> list[str]:
    return [example.id for example in sample] + [bad.id for bad in sample.rejected]


def _parameters_of(given: Mapping[str, str], entries: Mapping[str, catalog.Entry]) -> dict[str, dict[str, str]]:
    """Parameters of each attack: ``key`` goes to every attack that has it, ``attack.key`` to that one."""
    found: dict[str, dict[str, str]] = {name: {} for name in entries}
    known = {name: {parameter.name for parameter in entry.parameters} for name, entry in entries.items()}
    for key, value in given.items():
        attack_name, dot, own_key = key.partition(".")
        if dot:
            if attack_name not in entries:
                raise UnknownName("attack in this command", attack_name, entries)
            found[attack_name][own_key] = value
            continue
        takers = [name for name in entries if key in known[name]]
        if not takers:
            raise UnknownName(f"parameter of {' or '.join(entries)}", key, set().union(*known.values()))
        for name in takers:
            found[name][key] = value
    return found


@contextlib.contextmanager
def _measured(effort: dict[str, float]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    effort["wall_s"] = time.perf_counter() - wall
    effort["cpu_s"] = time.process_time() - cpu


def _numbers(statistics: Any, prefix: str = "") -> dict[str, float]:
    """The counters of the engine, flat."""
    found: dict[str, float] = {}
    for key, value in plain(statistics).items():
        if isinstance(value, Mapping):
            found |= {name: number for name, number in value.items() if isinstance(number, int | float)}
        elif isinstance(value, int | float) and key != "examples":
            found[prefix + key] = value
    return found


def _sum(before: Any, effort: Mapping[str, float]) -> dict[str, float]:
    """Effort of all sessions that ended; one that was killed is not known."""
    total = dict(before) if isinstance(before, Mapping) else {}
    for key, value in effort.items():
        total[key] = round(float(total.get(key, 0)) + value, 4)
    return total
