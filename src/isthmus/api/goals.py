"""The goal of an attack, as a run names it and as an attack at hand takes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.core.errors import UnknownName, UsageError
from isthmus.verbs.goal_options import GoalRequest, make_goal

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings
    from isthmus.attacks.parts.goals import Goal
    from isthmus.core.types import Victim
    from isthmus.data import Dataset, Splits


class Aim(NamedTuple):
    """A goal in the victim's numbering, and what follows from it for the sample and the figures."""

    goal: Goal
    only_label: int | None = None
    """The class of the data that examples are taken from; None for all."""
    threshold: float | None = None


def choose_goal(goal: Goal | GoalRequest | None, settings: AttackSettings | None) -> Goal | GoalRequest:
    """The goal that a caller gave, by itself or within the settings."""
    from isthmus.attacks.parts.goals import Untargeted

    own = Untargeted() if settings is None else settings.goal
    if goal is None:
        return own
    if own != Untargeted():
        raise UsageError("`goal` and `settings.goal` are both given: give one of them")
    if not isinstance(goal, GoalRequest) and (isinstance(goal, type) or not hasattr(goal, "is_reached")):
        raise UsageError(
            f"goal={goal!r:.80} is no goal: pass isthmus.GoalRequest(target_label=…), or Targeted or Evasion of "
            "isthmus.attacks"
        )
    return goal


def name_goal(goal: Goal | GoalRequest, model: str, labels: Sequence[str] | None) -> GoalRequest | None:
    """The goal as a run names it, with classes by name; None for a goal that is no usual one."""
    from isthmus.attacks.parts.goals import Evasion, Targeted, Untargeted

    if isinstance(goal, GoalRequest):
        return goal
    if goal == Untargeted():
        return GoalRequest()
    if type(goal) is Targeted:
        return GoalRequest(target_label=_name_class(goal.target, model, labels))
    if type(goal) is Evasion and goal.abstains is None:
        return GoalRequest(from_label=_name_class(goal.flagged, model, labels), threshold=goal.threshold)
    return None


def _name_class(given: int | str, model: str, labels: Sequence[str] | None) -> str:
    """The name of a class that is given by its number in the model."""
    if isinstance(given, str):
        return given
    known = tuple(labels or _class_names(model))
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < len(known):
        shown = ", ".join(f"{number} {name}" for number, name in enumerate(known[:20]))
        raise UsageError(f"{given!r} is no class of {model}; it has {shown}")
    return known[given]


def _class_names(model: str) -> Sequence[str]:
    from isthmus.runs.folder import RunFolder

    folder = RunFolder(Path(model))
    if folder.exists and folder.record().training is not None:
        return folder.record().data.labels
    from isthmus.models.victims import load_victim

    return load_victim(model).labels


def find_aim(goal: Goal | GoalRequest, victim: Victim, splits: Splits, data: Dataset, seed: int) -> Aim:
    """The goal for a victim and data at hand."""
    from isthmus.attacks.parts.goals import Evasion, bound
    from isthmus.verbs.model_loading import numbering

    if not isinstance(goal, GoalRequest) and not isinstance(goal, Evasion):
        return Aim(goal)
    places = numbering(data, data.align_labels(victim.labels))
    if isinstance(goal, GoalRequest):
        return _find_requested(goal, victim, splits, data, seed, places)
    found: Any = bound(goal, victim.labels)
    own = next((ours for ours, theirs in places.items() if theirs == found.column), None)
    if own is None:
        raise UsageError(f"{data.name} has no examples of the class {victim.labels[found.column]}, which is attacked")
    return Aim(goal, own, found.threshold)


def _find_requested(
    goal: GoalRequest, victim: Victim, splits: Splits, data: Dataset, seed: int, places: dict[int, int]
) -> Aim:
    from isthmus.verbs.attack.detection import choose_threshold

    target, only = goal.target(data), goal.find_attacked_class(data)
    for each in (target, only):
        if each is not None and each not in places:
            raise UnknownName("label of the model", data.labels[each], victim.labels)
    flagged = None if only is None else places[only]
    threshold = goal.threshold
    if goal.at_fpr is not None:
        assert flagged is not None
        threshold = choose_threshold(victim, splits, flagged, seed, goal.at_fpr)
    return Aim(make_goal(None if target is None else places[target], flagged, threshold), only, threshold)
