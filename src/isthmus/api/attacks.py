"""`attack`: one attack or several, on a model by name or at hand."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments, check_count, check_seed
from isthmus.api.given import (
    Data,
    as_names,
    as_path,
    data_request,
    find_victim,
    is_named,
    open_data,
    refuse_out,
    take_sample,
    warn_of_errors,
)
from isthmus.api.goals import choose_goal, find_aim, name_goal
from isthmus.api.rows import make_attack_results
from isthmus.attacks.options import AttackOptions, SearchOptions
from isthmus.core import catalog
from isthmus.core.errors import IsthmusWarning, UsageError
from isthmus.results import AttackResults

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack
    from isthmus.attacks.parts.goals import Goal
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Victim
    from isthmus.data import Dataset
    from isthmus.verbs.goal_options import GoalRequest
    from isthmus.verbs.observer import Observer
    from isthmus.verbs.request import AttackRequest
    from isthmus.verbs.rows_file import RowsDone

ALL = "all"


def attack(
    model: Any,
    attack: str | WordAttack | Sequence[str | WordAttack] = "textfooler",
    data: Data = None,
    *,
    n: int | None = 200,
    split: str | None = None,
    seed: int = 0,
    goal: Goal | GoalRequest | None = None,
    settings: AttackSettings | None = None,
    options: AttackOptions | None = None,
    labels: Sequence[str] | None = None,
    victim: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    label_check: bool = True,
    retry_errors: bool = False,
    out: str | Path | None = None,
    device: str | None = None,
    progress: Observer | None = None,
    **parameters: Any,
) -> AttackResults:
    """Attack a model on examples, and return one result for each.

    Several attacks (a list, ``"deepwordbug,pwws"``, or ``"all"``) give their union, the result of an attacker who
    tries each of them; its `attacks` are the results of each.

    Args:
        model: a run folder, a model by name, or an object: a classifier, a pipeline, a function of a list of texts.
        attack: a name (`isthmus list attacks`), ``package.module:Class``, an attack with its parameters, or several.
        data: what to attack it on; None takes the run's own. Test data, else development data.
        n: examples, the first of a seeded stratified order; None takes all.
        split: another split of the data.
        seed: of the sample and of every draw.
        goal: a class to reach, or a class that must not be detected; by default any wrong class.
        settings: budget, protection, limits and the rest; its own seed is not used.
        options: what the command line says besides: preset, time limit, auxiliary models, trace, processes.
        labels: class names of the model, in its order.
        victim: inference options (``-V``): ``timeout``, ``requests_per_second``, ``headers`` of a service, ``version``.
        precision: fp32, or bf16 with successes confirmed in fp32.
        label_check: whether a run stops if clean accuracy is no better than chance.
        retry_errors: whether a run tries examples again that ended in an error or a time-out.
        out: where the rows go, if not into the run itself.
        device: ``cpu`` or ``cuda``.
        progress: told about every example (`isthmus.Observer`).
        parameters: of the attacks that are given by name; of one of several as ``**{"pwws.top": 5}``.

    >>> from isthmus import attack
    >>> def classify(texts):
    ...     return [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts]
    >>> rows = [("a dull plot", "bad"), ("a fine film", "good")]
    >>> found = attack(classify, "deepwordbug", rows, labels=("bad", "good"))
    >>> [result.outcome for result in found]
    ['succeeded', 'failed']
    >>> found.summary().racc.estimate
    0.5
    >>> both = attack(classify, ["deepwordbug", "badchars"], rows, labels=("bad", "good"))
    >>> [len(results) for results in both.attacks.values()], both.summary().racc.estimate
    ([2, 2], 0.5)
    """
    from isthmus.attacks.base import AttackSettings

    check_arguments(
        split=split, labels=labels, victim=victim, label_check=label_check, retry_errors=retry_errors, out=out,
        device=device, progress=progress, precision=precision,
    )  # fmt: skip
    n, seed = check_count("n", n), check_seed(seed)
    methods = _read_attacks(attack)
    if parameters and not any(isinstance(each, str) for each in methods):
        raise UsageError("parameters belong to the attack: give them where it is made, or name the attack instead")
    _refuse_options(parameters, methods)
    if settings is not None and not isinstance(settings, AttackSettings):
        raise UsageError(f"settings takes isthmus.AttackSettings(…), not {settings!r:.80}")
    if settings is not None:
        _check_parts(settings)
    call = _Call(
        model, methods, len(methods) > 1 or ALL in methods or isinstance(attack, list | tuple), data, n, split, seed,
        choose_goal(goal, settings), settings, options, labels, victim or {}, precision, label_check, retry_errors,
        out, device, progress, parameters,
    )  # fmt: skip
    _ = call.own_options  # Refuses what is said twice.
    request = call.as_request()
    return _attack_run(request, call) if request is not None else _attack_at_hand(call)


def _check_parts(settings: AttackSettings) -> None:
    from isthmus.attacks.parts.limits import Limits
    from isthmus.attacks.parts.protection import Protection
    from isthmus.engine.settings import EngineSettings

    for name, kind in (("protection", Protection), ("limits", Limits), ("engine", EngineSettings)):
        if not isinstance(given := getattr(settings, name), kind):
            raise UsageError(f"settings.{name} takes {kind.__name__}(…), not {given!r:.80}")


def _refuse_options(parameters: Mapping[str, Any], methods: Sequence[str | WordAttack]) -> None:
    """Refuse options of every attack among the parameters of one, and say where they belong."""
    options = {each.name for each in dataclasses.fields(AttackOptions)}
    named = [catalog.find("attacks", each) for each in methods if isinstance(each, str) and each != ALL]
    known = {parameter.name for entry in named for parameter in entry.parameters}
    for name in parameters:
        if name in options - known:
            raise UsageError(f"{name} is an option of every attack: pass options=AttackOptions({name}=…)")


def _read_attacks(given: Any) -> tuple[str | WordAttack, ...]:
    """The attacks that a caller names or hands over, one by one."""
    from isthmus.attacks.base import WordAttack
    from isthmus.attacks.gradient.base import GradientAttack

    if isinstance(given, str):
        found: tuple[str | WordAttack, ...] = tuple(part.strip() for part in given.split(",") if part.strip())
    elif isinstance(given, WordAttack):
        found = (given,)
    elif isinstance(given, list | tuple):
        found = tuple(one for part in given for one in _read_attacks(part))
    elif isinstance(given, GradientAttack):
        name = catalog.name_of(given, "attacks")
        raise UsageError(f'{name} moves embeddings or pixels: name it, attack("runs/demo", "{name}", steps=…)')
    elif isinstance(given, type) and issubclass(given, WordAttack):
        raise UsageError(f"{given.__name__} is a class: pass an attack, {given.__name__}(), or its name")
    else:
        raise UsageError(
            f"attack takes a name ('deepwordbug'), several ('deepwordbug,pwws', ['deepwordbug', 'pwws'], 'all') or an "
            f"attack with its parameters (isthmus.attacks.DeepWordBug()), not {given!r:.80}"
        )
    if not found:
        raise UsageError("name at least one attack: isthmus list attacks shows them")
    return found


@dataclass(frozen=True)
class _Call:
    """Everything that a caller says."""

    model: Any
    attacks: tuple[str | WordAttack, ...]
    is_union: bool
    data: Data
    n: int | None
    split: str | None
    seed: int
    goal: Goal | GoalRequest
    settings: AttackSettings | None
    options: AttackOptions | None
    labels: Sequence[str] | None
    victim: Mapping[str, Any]
    precision: str
    label_check: bool
    retry_errors: bool
    out: str | Path | None
    device: str | None
    progress: Observer | None
    parameters: Mapping[str, Any]

    @property
    def own_options(self) -> AttackOptions:
        """`options`, with what `settings` say of the search; what is said by both is refused."""
        from isthmus.attacks.base import AttackSettings
        from isthmus.attacks.parts.limits import PRESETS, Limits

        if self.options is not None and not isinstance(self.options, AttackOptions):
            raise UsageError(f"options takes isthmus.AttackOptions(…), not {self.options!r:.80}")
        options, settings = self.options or AttackOptions(), self.settings or AttackSettings()
        told: dict[str, Any] = settings.values(SearchOptions)
        engine = settings.engine
        told |= {"in_flight": engine.in_flight, "time_limit": engine.time_limit}
        if settings.limits != Limits():
            told["preset"] = next((name for name, known in PRESETS.items() if known == settings.limits), None)
        usual = AttackOptions()
        for name, value in told.items():
            plain = getattr(usual, name)
            if value == plain and (name != "preset" or options.preset is None):
                told[name] = getattr(options, name)
            elif getattr(options, name) != plain:
                raise UsageError(f"{name} is given by `settings` and by `options`: give it once")
        return dataclasses.replace(options, **told)

    @property
    def obstacle(self) -> str | None:
        """Why this cannot be written into a run; None if it can."""
        from isthmus.attacks.base import AttackSettings
        from isthmus.attacks.parts.limits import PRESETS, Limits
        from isthmus.engine.settings import EngineSettings

        settings = self.settings or AttackSettings()
        plain = EngineSettings(in_flight=settings.engine.in_flight, time_limit=settings.engine.time_limit)
        if not is_named(self.model):
            return "the model is an object"
        if data_request(self.data) is False:
            return "the data are objects"
        if not all(isinstance(each, str) for each in self.attacks):
            return "the attack is an object"
        if settings.limits != Limits() and settings.limits not in PRESETS.values():
            return "settings.limits is none of the presets"
        if settings.engine != plain or settings.engine.trace is not None:
            return "settings.engine says more than in_flight and time_limit"
        return None

    def as_request(self) -> AttackRequest | None:
        """The call as a command line would say it; None for objects at hand."""
        if self.obstacle is not None:
            return None
        goal = name_goal(self.goal, str(self.model), self.labels)
        if goal is None:
            return None
        from isthmus.attacks.base import AttackSettings
        from isthmus.verbs.attack import AttackRequest

        protection = (self.settings or AttackSettings()).protection
        return AttackRequest(
            str(self.model), tuple(map(str, self.attacks)), n=self.n, seed=self.seed, out=as_path(self.out),
            labels=as_names(self.labels), victim=self.victim, precision=self.precision, device=self.device,
            label_check=self.label_check, retry_errors=self.retry_errors, data=data_request(self.data),
            split=self.split, parameters=self.parameters, goal=goal, protect=protection.columns,
            protect_pattern=protection.pattern, protect_kinds=protection.kinds,
            **self.own_options.values(AttackOptions),
        )  # fmt: skip


# ------------------------------------------------------------------ into a run


def _attack_run(request: AttackRequest, call: _Call) -> AttackResults:
    """Attack by the command's own code; rows go into the run."""
    from isthmus.verbs.attack import attack as run

    report = run(request, call.progress)

    def parts(outcomes: Sequence[RowsDone[AttackResult]]) -> dict[str, AttackResults]:
        return {
            done.file.key: make_attack_results(done.file.key, done.header, done.results, report.folder)
            for done in outcomes
        }

    words, embeddings = parts(report.outcomes), parts(report.embeddings)
    if not call.is_union:
        return next(iter({**words, **embeddings}.values()))
    suites = [done.header.get("suite") or {} for done in report.outcomes]
    return AttackResults.union(words, embeddings, suites[0].get("left_out") if suites else None)


# ------------------------------------------------------------------ at hand


def _attack_at_hand(call: _Call) -> AttackResults:
    """Attack objects; nothing is written."""
    from isthmus.attacks.base import AttackSettings
    from isthmus.attacks.parts.limits import preset
    from isthmus.verbs.attack.auxiliary_models import Companions, names_of
    from isthmus.verbs.observer import Observer
    from isthmus.verbs.sources import choose_split

    refuse_out(call.out, call.obstacle or "the goal is one of your own")
    options, observer = call.own_options, call.progress or Observer()
    for name in ("trace", "processes"):
        if getattr(options, name):
            raise UsageError(f"options.{name} is for runs: name the model (a folder it was saved to) and the data")
    methods, left_out = _build(call, options)
    model = find_victim(call.model, call.labels, call.device, call.victim, call.precision)
    splits = open_data(call.model, call.data)
    aim = find_aim(call.goal, model, splits, choose_split(splits, call.split), call.seed)
    sample = take_sample(splits, call.split, call.n, call.seed, aim.only_label).align_labels(model.labels)
    if not len(sample):
        raise UsageError(f"the {sample.split} split of {sample.name} has no examples to attack")
    given = call.settings or AttackSettings()
    engine = dataclasses.replace(given.engine, in_flight=options.in_flight, time_limit=options.time_limit)
    given.protection.check(sample.fields)
    given.protection.try_on(each.texts for each in sample)
    settings = dataclasses.replace(given, goal=aim.goal, seed=call.seed, engine=engine, **options.values(SearchOptions))
    companions = Companions(call.device, observer)
    parts: dict[str, AttackResults] = {}
    for name, method in methods.items():
        own, models = settings, {}
        if options.preset is not None or options.encoder is not None or options.masked_lm is not None:
            limits = given.limits if options.preset is None else preset(options.preset)
            names = names_of(method, limits, options.encoder)
            own, models = dataclasses.replace(settings, limits=names.within(limits)), companions.of(names)
        if ALL in call.attacks and (why := _find_obstacle(method, sample, own, models, model)) is not None:
            left_out[name] = why
            continue
        observer.begin(name, len(sample), ())
        found: dict[str, AttackResult] = {}
        for result in method(model, sample.examples, own, **models):
            found[result.id] = result
            observer.result(name, result)
        observer.end(name)
        results = tuple(found[each.id] for each in sample)
        warn_of_errors(name, results)
        parts[name] = AttackResults(name, results, tuple(model.labels), None, aim.threshold)
    if left_out:
        shown = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        if not parts:
            raise UsageError(f"no attack can run; {shown}")
        warnings.warn(f"some attacks are left out: {shown}", IsthmusWarning, stacklevel=3)
    return AttackResults.union(parts, left_out=left_out) if call.is_union else next(iter(parts.values()))


def _build(call: _Call, options: AttackOptions) -> tuple[dict[str, WordAttack], dict[str, str]]:
    """The attacks by name, and those of ``all`` that cannot be built, with the reason."""
    from isthmus.verbs.attack.prepared_attacks import name_models, parameters_of

    every = [entry for entry in catalog.entries("attacks") if entry.kind == "words"] if ALL in call.attacks else []
    named = [catalog.find("attacks", each) for each in call.attacks if isinstance(each, str) and each != ALL]
    for entry in named:
        if entry.kind != "words":
            raise UsageError(
                f"{entry.name} moves embeddings or pixels: name the model (a folder it was saved to) and the data (a "
                "file), or call the attack itself (docs/gradient-attacks.md)"
            )
    entries = {entry.name: entry for entry in (*every, *named)}
    given: dict[str, dict[str, Any]] = dict(parameters_of(call.parameters, entries))
    if entries:
        name_models(options, entries, given)
    methods: dict[str, WordAttack] = {}
    left_out: dict[str, str] = {}
    for name in entries:
        try:
            methods[name] = catalog.build("attacks", name, given[name])
        except ImportError as error:
            if name not in {entry.name for entry in every}:
                raise UsageError(f"{name} cannot be imported here: {error}") from error
            left_out[name] = f"it cannot be imported here: {error}"
    for each in call.attacks:
        if not isinstance(each, str):
            name, number = catalog.name_of(each, "attacks"), 1
            while (key := name if number == 1 else f"{name}@{number}") in methods:
                number += 1
            methods[key] = each
    return methods, left_out


def _find_obstacle(
    method: WordAttack, sample: Dataset, settings: AttackSettings, models: Mapping[str, Any], victim: Victim
) -> str | None:
    from isthmus.core.errors import IsthmusError
    from isthmus.verbs.attack.suite import find_obstacle

    try:
        return find_obstacle(method, sample.fields, settings.limits, models, lambda: victim)
    except IsthmusError as error:
        return str(error)
