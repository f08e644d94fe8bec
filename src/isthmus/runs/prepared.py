"""An attack's command made ready: what it names is checked at once, what is expensive is made when first needed.

A command that only asks for rows that exist already loads no model.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.attacks.parts.randomised import FRESH_DRAWS, RESTARTS
from isthmus.core import catalog
from isthmus.core.errors import RunError, UnknownName, UsageError, VictimTimeout
from isthmus.core.files import make_folder
from isthmus.core.seeds import derive
from isthmus.runs.companions import Companions, Names, names_of
from isthmus.runs.detection import Detector, choose_threshold, make_detector
from isthmus.runs.folder import AttackFile, ModelRecord, RunFolder, RunRecord, default_path
from isthmus.runs.goals import make_goal
from isthmus.runs.labelcheck import check_labels
from isthmus.runs.observer import Observer
from isthmus.runs.request import AttackRequest, name_models, parameters_of
from isthmus.runs.settings import plain
from isthmus.runs.sources import DataRequest, ModelSource, chosen, trainable
from isthmus.runs.victims import (
    check_precision,
    deciding,
    names_in_data,
    numbering,
    open_victim,
    shown_labels,
    suit_fields,
)

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack
    from isthmus.attacks.parts.limits import Limits
    from isthmus.attacks.parts.protection import Protection
    from isthmus.core.types import Example, Victim
    from isthmus.data import Dataset, Splits


class Prepared:
    """One command."""

    def __init__(self, request: AttackRequest, observer: Observer) -> None:
        self.request, self.observer = request, observer
        self._labels_checked = False
        self.unavailable: dict[str, str] = {}
        """Attacks that could not even be made, with the reason."""

    def check(self) -> None:
        """Find everything that is wrong before anything is loaded or written."""
        check_precision(self.request.precision)
        if min(self.request.fresh, self.request.restarts) < 0:
            raise UsageError("--fresh and --restarts count draws and new beginnings: they are at least 0")
        _ = self.preset, self.methods
        self._refuse_questions()
        _ = self.sample
        self.protection.check(self.data.fields)
        self.request.goal.target(self.data)
        if self.request.goal.at_fpr is not None and "dev" not in self.splits:
            raise UsageError(
                f"--at-fpr chooses the threshold on a development split, and {self.splits.name} has none "
                f"(it has {', '.join(self.splits)}): give --threshold instead, or data with a dev split"
            )
        _ = self.folder

    def _refuse_questions(self) -> None:
        run = self.source.run
        if run is not None and run.record().data.options.get("task") == "qa":
            raise UsageError(
                f"{run.path} answers questions, and attacks are on classifiers: they look for another class. To see "
                f"how it does on adversarial questions, evaluate it: isthmus evaluate {run.path} --on addsent.json"
            )

    # ------------------------------------------------------------------ what the command names

    @cached_property
    def methods(self) -> dict[str, WordAttack]:
        """The attacks by name, with their parameters."""
        wanted = catalog.names("attacks") if "all" in self.request.attacks else self.request.attacks
        entries = {entry.name: entry for entry in (catalog.find("attacks", name) for name in wanted)}
        if not entries:
            raise UsageError(f"name at least one attack: --attack {','.join(catalog.names('attacks'))}")
        given = parameters_of(self.request.parameters, entries)
        name_models(self.request, entries, given)
        built: dict[str, WordAttack] = {}
        for name in entries:
            try:
                built[name] = catalog.build("attacks", name, given[name])
            except ImportError as error:
                self.unavailable[name] = f"it cannot be imported here: {error}"
        return built

    @cached_property
    def preset(self) -> Limits:
        """The limits that the command names."""
        from isthmus.attacks.parts.limits import Limits, preset

        return Limits() if self.request.preset is None else preset(self.request.preset)

    def model_names(self, name: str) -> Names:
        """The models an attack needs beside the victim."""
        return names_of(self.methods[name], self.preset, self.request.encoder)

    def limits(self, name: str) -> Limits:
        """The limits of an attack, with its own models."""
        return self.model_names(name).within(self.preset)

    def resources(self, name: str) -> dict[str, str]:
        """What an attack is made with, by name, its limits included."""
        found = {**self.methods[name].resources(), **self.limits(name).resources()}
        if self.request.encoder is not None and not hasattr(self.methods[name], "encoder"):
            found.setdefault("similarity", self.request.encoder)
        return found

    @cached_property
    def source(self) -> ModelSource:
        """The model as the command names it."""
        return ModelSource.of(self.request.model)

    @cached_property
    def data_request(self) -> DataRequest:
        """The data as the command names it, or as the run was made with it."""
        if self.request.data is not None:
            return self.request.data
        if self.source.run is None:
            raise UsageError(f"{self.request.model} is not a run folder: say what to attack it on with --data")
        return DataRequest.from_record(self.source.run.record().data)

    @cached_property
    def splits(self) -> Splits:
        """Every split; of a run's own data, as training cut it."""
        splits = self.data_request.load()
        if self.request.data is None and self.source.run is not None:
            record = self.source.run.record()
            return trainable(splits, record.seed) if record.training is not None else splits
        return splits

    @cached_property
    def data(self) -> Dataset:
        """The split to attack."""
        return chosen(self.splits, self.request.split)

    @cached_property
    def sample(self) -> Dataset:
        """The examples asked for."""
        if self.request.n is not None and self.request.n < 1:
            raise UsageError(f"--n is the number of examples to attack and must be at least 1, not {self.request.n}")
        sample = self.first(self.request.n)
        if not len(sample) and not sample.rejected:
            raise UsageError(f"the {self.data.split} split of {self.data.name} has no examples to attack")
        return sample

    def first(self, n: int | None) -> Dataset:
        """The first `n` examples of the one order that all samples are cut from."""
        return self.data.sample(n, self.request.seed, self.request.goal.attacked(self.data))

    @cached_property
    def protection(self) -> Protection:
        """What no edit may touch."""
        from isthmus.attacks.parts.protection import Protection

        return Protection(self.request.protect, self.request.protect_pattern)

    @cached_property
    def folder(self) -> RunFolder:
        """Where rows go; a folder that holds another model or other data is refused."""
        run, own = self.source.run, self._has_own_data
        if self.request.out is not None:
            folder = RunFolder(self.request.out)
        else:
            folder = run if run is not None and own else RunFolder(default_path(self.source.name, self.data.name))
        if run is not None and folder.path.resolve() == run.path.resolve():
            if not own:
                raise RunError(f"{run.path} was made with other data than {self.data.name}: choose another --out")
            make_folder(folder.attacks_path)
            return folder
        folder.claim(
            RunRecord(
                model=ModelRecord(self.source.shown, self.request.labels or (), self.fingerprint),
                data=self.data_request.record({self.data.split: self.data}),
                command=self.request.command,
            )
        )
        return folder

    @property
    def _has_own_data(self) -> bool:
        """Whether the split is one of those the model's run was made with."""
        if self.source.run is None:
            return False
        return self.source.run.record().data.fingerprints.get(self.data.split) == self.data.fingerprint

    @cached_property
    def fingerprint(self) -> str | None:
        """Of the model's files, where it is local."""
        return self.source.fingerprint()

    # ------------------------------------------------------------------ what has to be loaded

    @cached_property
    def victim(self) -> Victim:
        """The model, loaded."""
        self.observer.note(f"loading {self.source.shown}")
        victim = open_victim(
            self.source,
            self.data.labels,
            labels=self.request.labels,
            options=self.request.victim,
            device=self.request.device,
            precision=self.request.precision,
        )
        suit_fields(victim, self.source, self.data.fields)
        return victim

    @cached_property
    def aligned(self) -> Dataset:
        """The split with labels in the victim's numbering."""
        return self.data.aligned(self.victim.labels)

    @cached_property
    def numbering(self) -> dict[int, int]:
        """Label index of the data -> that of the victim."""
        return numbering(self.data, self.aligned)

    def _in_victims_numbering(self, index: int | None) -> int | None:
        if index is None:
            return None
        if index not in self.numbering:
            raise UnknownName("label of the model", self.data.labels[index], self.victim.labels)
        return self.numbering[index]

    @cached_property
    def threshold(self) -> float | None:
        """The detection threshold, given or chosen."""
        goal = self.request.goal
        if goal.at_fpr is None:
            return goal.threshold
        label = self._in_victims_numbering(goal.attacked(self.data))
        assert label is not None
        return choose_threshold(self.victim, self.splits, label, self.request.seed, goal.at_fpr)

    @cached_property
    def detector(self) -> Detector | None:
        """The decision an evasion is measured against; None for other goals."""
        goal = self.request.goal
        if not goal.is_evasion:
            return None
        label = self._in_victims_numbering(goal.attacked(self.data))
        assert label is not None
        self.observer.note(f"scoring clean examples of other classes than {goal.from_label}")
        return make_detector(
            self.victim, self.aligned, label, self.request.seed, threshold=self.threshold, at_fpr=goal.at_fpr
        )

    def _names_in_data(self) -> list[str]:
        """What the data calls each of the victim's classes."""
        return names_in_data(self.data, self.victim.labels, self.numbering)

    def shown_labels(self) -> list[str]:
        """Class names for people: the victim's own, or the data's where the victim only numbers them."""
        return shown_labels(self.victim.labels, self._names_in_data())

    def check_labels(self) -> None:
        """Stop if the model's labels cannot be those of the data; looked at once."""
        if self.request.label_check and not self._labels_checked:
            try:
                check_labels(self.victim, self.aligned, self.request.seed, self._names_in_data())
            except VictimTimeout as error:
                self.observer.note(f"labels not checked: {error}")
            self._labels_checked = True

    @cached_property
    def companions(self) -> Companions:
        """The models beside the victim."""
        return Companions(self.request.device, self.observer)

    def attack_settings(self, name: str, trace: Any = None) -> AttackSettings:
        """What an attack of the command gets; `trace` is told every query."""
        from isthmus.attacks.base import AttackSettings
        from isthmus.engine.scheduler import EngineSettings

        goal, request = self.request.goal, self.request
        engine = EngineSettings(in_flight=request.in_flight, time_limit=request.time_limit)
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
            limits=self.limits(name),
            engine=engine if trace is None else dataclasses.replace(engine, trace=trace),
            fresh=request.fresh,
            restarts=request.restarts,
        )

    def settings(self, name: str) -> dict[str, Any]:
        """What decides the rows of an attack."""
        request = self.request
        data: dict[str, Any] = {"split": self.data.split, "fingerprint": self.data.fingerprint}
        if request.goal.at_fpr is not None:
            data["dev_fingerprint"] = self.splits.dev.fingerprint
        extra: dict[str, Any] = {}
        if request.preset is not None:
            extra = {"preset": request.preset, "preset_limits": plain(self.limits(name))}
        if (request.fresh, request.restarts) != (FRESH_DRAWS, RESTARTS):
            extra["randomised"] = {"fresh": request.fresh, "restarts": request.restarts}
        return {
            "attack": name,
            "parameters": plain(self.methods[name]),
            "resources": self.resources(name),
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
            "victim": deciding(request.victim),
            # A folder may be moved; its files stay what they are.
            "model": self.fingerprint or self.source.shown,
            **extra,
        }

    def key(self, example: Example) -> int:
        """By which the engine knows an example."""
        return derive(self.request.seed, "victim", example.id)

    def file(self, name: str) -> AttackFile:
        """Where the rows of an attack belong."""
        return self.folder.attack_file(name, self.settings(name))

    def has_work(self, name: str) -> bool:
        """Whether examples of an attack have no row yet, as far as the files tell."""
        file = self.file(name)
        if self.request.trace or self.request.retry_errors or not file.header_path.exists():
            return True
        there = {str(row.get("id")) for row in file.rows()}
        return not (file.header().get("summary") and there.issuperset(ids(self.sample)))


def ids(sample: Dataset) -> list[str]:
    """Ids of all rows of a sample, the unusable ones last."""
    return [example.id for example in sample] + [bad.id for bad in sample.rejected]
