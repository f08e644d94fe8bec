"""The settings of the attacks: what a reader needs before the first figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.report.attack.detector import is_evasion, name_detected_class, threshold
from isthmus.report.attack.verdict import strongest
from isthmus.report.attack.view import AttackView
from isthmus.report.view import RunView


def terms(run: RunView) -> list[tuple[str, str]]:
    """Attacks, goal, threshold, protections and limits of the headline."""
    first = strongest(run)
    if first is None:
        return []
    views = run.alike if run.together is not None else (first,)
    found = [("attacks", _describe_attacks(run, views)), ("goal", _describe_goal(first))]
    if is_evasion(first):
        found.append(("threshold", threshold(first)))
    found.append(("protected", _each(views, _describe_protection)))
    found.append(("limits", _each(views, _limits)))
    others = [view.key for view in run.attacks if view.results and view not in views]
    if others:
        found.append(("not counted above", f"{', '.join(others)}: attacks with another goal, model or data"))
    return [(name, text) for name, text in found if text]


def _each(views: Sequence[AttackView], words: Any) -> str:
    """One statement for all attacks, or one per attack."""
    said: dict[str, list[str]] = {}
    for view in views:
        said.setdefault(words(view), []).append(view.key)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{', '.join(keys)}: {text or 'none'}" for text, keys in said.items())


def _describe_attacks(run: RunView, views: Sequence[AttackView]) -> str:
    """``deepwordbug, pwws; 200 texts each``."""
    counts = sorted({view.summary.n for view in views})
    what = _things(views[0], counts[-1])
    if run.together is not None and counts[0] < counts[-1]:
        return f"{', '.join(view.key for view in views)}; {run.together.n} {what} attacked by all of them"
    names = [view.key for view in views]
    return f"{', '.join(names)}; {counts[-1]:,} {what}{' each' if len(names) > 1 else ''}"


def _things(view: AttackView, count: int) -> str:
    thing = "image" if view.is_of_images else "text"
    of_class = f" of class {name_detected_class(view)}" if is_evasion(view) else ""
    return f"{thing}{'' if count == 1 else 's'}{of_class}"


def _describe_goal(view: AttackView) -> str:
    if is_evasion(view):
        return f"{_things(view, 2)} pass the detector"
    if view.goal.get("kind") == "targeted":
        return f"{_things(view, 2)} are classified as {view.label(view.goal.get('target'))}"
    return "any wrong class"


def sentence(words: str) -> str:
    """Words as a sentence."""
    return f"{words[:1].upper()}{words[1:]}."


def _describe_protection(view: AttackView) -> str:
    """What no edit may touch, according to the command."""
    given = _mapping(view.settings.get("protection"))
    parts = [f"column {name}" for name in given.get("columns") or ()]
    parts += [{"url": "links", "email": "mail addresses", "phone": "phone numbers"}.get(str(kind), str(kind))
              for kind in given.get("kinds") or ()]  # fmt: skip
    if given.get("pattern"):
        parts.append(f"what matches {given['pattern']}")
    return ", ".join(parts) if parts or view.is_of_images else "nothing beyond each attack's own rules"


def _limits(view: AttackView) -> str:
    limits, parameters = _mapping(view.settings.get("limits")), _mapping(view.settings.get("parameters"))
    named = {
        "budget": "at most {:,} queries per text",
        "budget_per_word": "at most {:,} queries per word",
        "time_limit": "at most {:g} s per text",
    }
    parts = [f"preset {view.preset}"] if view.preset else []
    if view.is_of_images and isinstance(parameters.get("epsilon"), int | float):
        norm = parameters.get("norm")
        parts.append(f"perturbation of at most {parameters['epsilon']:g}" + (f" in {norm}" if norm else ""))
    for key, words in named.items():
        if isinstance(limits.get(key), int | float):
            parts.append(words.format(limits[key]))
    return ", ".join(parts) if parts or view.is_of_images else "no limit on queries or time"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
