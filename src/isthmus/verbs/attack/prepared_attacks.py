"""A prepared attack command: its methods, constraints and goal, and the settings that determine its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.attacks.options import FRESH_DRAWS, RESTARTS, AttackOptions, SearchOptions
from isthmus.attacks.parts.shared_draws import SEARCH_DRAWS, choose_search_draws
from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.seeds import derive
from isthmus.runs.folder import AttackFile
from isthmus.runs.provenance import hash_named_files
from isthmus.runs.settings import to_plain
from isthmus.verbs.attack.auxiliary_models import Companions, Names, names_of
from isthmus.verbs.attack.detection import Detector, choose_threshold, make_detector
from isthmus.verbs.attack.processes import start_workers
from isthmus.verbs.goal_options import make_goal
from isthmus.verbs.model_loading import check_precision, deciding
from isthmus.verbs.observer import Observer
from isthmus.verbs.prepared_model import PreparedSample, ids
from isthmus.verbs.request import AttackRequest

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack
    from isthmus.attacks.parts.limits import Limits
    from isthmus.attacks.processes import Workers
    from isthmus.core.types import Example


class PreparedAttacks(PreparedSample[AttackRequest]):
    """A prepared attack command."""

    verb = "attack"

    def __init__(self, request: AttackRequest, observer: Observer) -> None:
        super().__init__(request, observer)
        self.unavailable: dict[str, str] = {}
        """Attacks that could not be built, with the reason."""

    def check(self) -> None:
        """Find all errors before anything is loaded or written."""
        check_precision(self.request.precision)
        _ = self.preset, self.methods
        self._refuse_questions()
        _ = self.sample
        self.protection.check(self.data.fields)
        self.protection.try_on(example.texts for example in self.sample)
        self.request.goal.target(self.data)
        self.request.goal.check_positive(self.data)
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
                f"{run.path} answers questions, and attacks are for classifiers. To see "
                f"how it does on adversarial questions, evaluate it: isthmus evaluate {run.path} --on addsent.json"
            )

    @cached_property
    def methods(self) -> dict[str, WordAttack]:
        """The attacks by name, with their parameters."""
        named = [catalog.find("attacks", name) for name in self.request.attacks if name != "all"]
        if "all" in self.request.attacks:
            named = [entry for entry in catalog.entries("attacks") if entry.kind == "words"]
        entries = {entry.name: entry for entry in named}
        if not entries:
            known = [entry.name for entry in catalog.entries("attacks") if entry.kind == "words"]
            raise UsageError(f"name at least one attack: --attack {','.join(known)}")
        for entry in entries.values():
            if entry.kind != "words":
                raise UsageError(f"{entry.name} moves pixels or embeddings: it does not edit words")
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
        """The preset that the command names."""
        from isthmus.attacks.parts.limits import Limits, preset

        return Limits() if self.request.preset is None else preset(self.request.preset)

    def model_names(self, name: str) -> Names:
        """Names of the auxiliary models of an attack."""
        return names_of(self.methods[name], self.preset, self.request.encoder)

    def limits(self, name: str) -> Limits:
        """The limits of an attack, with its own models."""
        return self.model_names(name).within(self.preset)

    def resources(self, name: str) -> dict[str, str]:
        """Resources of an attack, by name, including those of its constraints."""
        found = {**self.methods[name].resources(), **self.limits(name).resources()}
        if self.request.encoder is not None and not hasattr(self.methods[name], "encoder"):
            found.setdefault("similarity", self.request.encoder)
        return found

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
        label = self._in_victims_numbering(self.only_label)
        assert label is not None
        return choose_threshold(self.victim, self.splits, label, self.request.seed, goal.at_fpr)

    @cached_property
    def detector(self) -> Detector | None:
        """The decision rule that an evasion is measured against; None for other goals."""
        goal = self.request.goal
        if not goal.is_evasion:
            return None
        label = self._in_victims_numbering(self.only_label)
        assert label is not None
        self.observer.note(f"scoring clean examples of other classes than {goal.from_label}")
        return make_detector(
            self.victim, self.aligned, label, self.request.seed, threshold=self.threshold, at_fpr=goal.at_fpr
        )

    @property
    def only_label(self) -> int | None:
        """The class the goal attacks."""
        return self.request.goal.find_attacked_class(self.data)

    @cached_property
    def search_draws(self) -> int:
        """Number of fixed draws of the searches; 0 if there are none. Loads the model if needed."""
        asked, known = self.request.search_draws, "stochastic" in self.request.victim
        if asked in (0, 1) or (asked is None and not (SEARCH_DRAWS and (known or self.source.may_draw))):
            return 0
        return choose_search_draws(asked, randomised=self.victim.stochastic)

    @cached_property
    def companions(self) -> Companions:
        """The auxiliary models."""
        return Companions(self.request.device, self.observer)

    @cached_property
    def workers(self) -> Workers:
        """The processes of the command, which end with it."""
        return self._held.enter_context(start_workers(self))

    @property
    def searches(self) -> tuple[int, ...]:
        """How each attack searches: number of fixed draws, or 0. For a randomised model ``all`` does both."""
        both = self.search_draws and self.request.search_draws is None and "all" in self.request.attacks
        return (self.search_draws, 0) if both else (self.search_draws,)

    def attack_settings(self, name: str, search_draws: int, trace: Any = None) -> AttackSettings:
        """The settings of an attack; `trace` receives every query."""
        from isthmus.attacks.base import AttackSettings
        from isthmus.engine.scheduler import EngineSettings

        goal, request = self.request.goal, self.request
        engine = EngineSettings(in_flight=request.in_flight, time_limit=request.time_limit)
        return AttackSettings(
            goal=make_goal(
                self._in_victims_numbering(goal.target(self.data)),
                self._in_victims_numbering(self.only_label),
                self.threshold,
            ),
            protection=self.protection,
            seed=request.seed,
            limits=self.limits(name),
            engine=engine if trace is None else dataclasses.replace(engine, trace=trace),
            **{**request.values(SearchOptions), "search_draws": search_draws},
        )

    def settings(self, name: str, search_draws: int) -> dict[str, Any]:
        """The settings that determine the rows of an attack."""
        request = self.request
        data: dict[str, Any] = {"split": self.data.split, "fingerprint": self.data.fingerprint}
        if request.goal.at_fpr is not None:
            data["dev_fingerprint"] = self.splits.dev.fingerprint
        extra: dict[str, Any] = {}
        if request.preset is not None:
            # What is not asked for is left out: rows from before there was such a limit still belong to the command.
            limits = {key: value for key, value in to_plain(self.limits(name)).items() if value is not False}
            extra = {"preset": request.preset, "preset_limits": limits}
        if files := hash_named_files(self.methods[name], request.encoder, request.masked_lm):
            extra["files"] = files
        if search_draws:
            extra["randomised"] = {"fresh": request.fresh, "search_draws": search_draws}
        elif (request.fresh, request.restarts) != (FRESH_DRAWS, RESTARTS):
            extra["randomised"] = {"fresh": request.fresh, "restarts": request.restarts}
        return {
            "attack": name,
            "parameters": to_plain(self.methods[name]),
            "resources": self.resources(name),
            "goal": request.goal.settings(),
            "seed": request.seed,
            "limits": {
                "budget": request.budget,
                "budget_per_word": request.budget_per_word,
                "time_limit": request.time_limit,
            },
            "protection": self.protection.settings,
            "precision": request.precision,
            "labels": request.labels,
            "data": data,
            "victim": deciding(request.victim),
            # A folder may be moved; its files stay what they are.
            "model": self.identity,
            **extra,
        }

    def key(self, example: Example) -> int:
        """The engine's key of an example."""
        return derive(self.request.seed, "victim", example.id)

    def file(self, name: str, settings: Mapping[str, Any]) -> AttackFile:
        """The file for rows of an attack with these settings."""
        return self.folder.attack_file(name, settings)

    def has_work(self, name: str) -> bool:
        """Whether examples of an attack have no row yet, as far as the files tell."""
        for search_draws in self.searches:
            file = self.file(name, self.settings(name, search_draws))
            if self.request.trace or self.request.retry_errors or not file.header_path.exists():
                return True
            there = {str(row.get("id")) for row in file.rows()}
            if not (file.header().get("summary") and there.issuperset(ids(self.sample))):
                return True
        return False


def parameters_of(given: Mapping[str, Any], entries: Mapping[str, catalog.Entry]) -> dict[str, dict[str, Any]]:
    """Parameters of each attack: ``key`` goes to every attack that has it, ``attack.key`` to that one."""
    found: dict[str, dict[str, Any]] = {name: {} for name in entries}
    known = {name: {parameter.name for parameter in entry.parameters} for name, entry in entries.items()}
    for key, value in given.items():
        owner, dot, own_key = key.rpartition(".")
        if dot:
            owners = [name for name, entry in entries.items() if owner in (name, entry.address)]
            if not owners:
                raise UnknownName("attack in this command", owner, entries)
            for name in owners:
                found[name][own_key] = value
            continue
        takers = [name for name in entries if key in known[name]]
        if not takers:
            raise UnknownName(f"parameter of {' or '.join(entries)}", key, set().union(*known.values()))
        for name in takers:
            found[name][key] = value
    return found


def name_models(request: AttackOptions, entries: Mapping[str, catalog.Entry], given: dict[str, dict[str, Any]]) -> None:
    """Add the models that the command names to the parameters of attacks that take one."""
    for key, model in (("encoder", request.encoder), ("masked_lm", request.masked_lm)):
        takers = [name for name, entry in entries.items() if key in {each.name for each in entry.parameters}]
        # An encoder is of use to every attack: it measures how similar the texts are.
        if model is not None and not takers and key == "masked_lm":
            raise UsageError(f"--masked-lm {model}: no attack of this command ({', '.join(entries)}) fills blanks")
        for name in takers if model is not None else ():
            given[name].setdefault(key, str(model))
