"""The settings of the attacks and the severity of the result: what a reader needs before the first figure.

Of a detector the words differ: it flags a text or lets it pass, and what counts is the share of its class that is still
caught at the false-positive rate it runs at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.report.attack.view import AttackView
from isthmus.report.numerals import percent, read_interval
from isthmus.report.view import RunView
from isthmus.summaries.attack import Summary

SEVERITIES = (
    (1 / 3, "severe", "attacks change most correct predictions"),
    (2 / 3, "weak", "attacks change many correct predictions"),
    (math.inf, "holds", "most correct predictions withstand"),
)
"""Below which share of the right answers that withstood, the name of the case, and what it means."""


@dataclass(frozen=True)
class Severity:
    """Severity of a result: a name, which is also a colour of the page, and its meaning."""

    name: str
    meaning: str


def severity(summary: Summary) -> Severity | None:
    """Severity by the share of correct predictions that withstood."""
    clean, robust = summary.sacc.estimate, summary.racc.estimate
    if math.isnan(robust) or not clean > 0:
        return None
    return next(Severity(name, meaning) for least, name, meaning in SEVERITIES if robust / clean < least)


def is_evasion(view: AttackView) -> bool:
    """Whether the goal was to get one class past a detector."""
    kind = view.goal.get("kind")
    return kind == "evasion" or (
        kind != "targeted" and (view.detection is not None or bool(view.goal.get("from_label")))
    )


def name_detected_class(view: AttackView) -> str:
    """The class that the detector looks for."""
    number = _find_detected_number(view)
    return view.label(number) if number is not None else str(view.goal.get("from_label") or "?")


def _find_detected_number(view: AttackView) -> int | None:
    """The number of that class; the header has it once the attack has ended."""
    number = (view.detection or {}).get("label")
    if isinstance(number, int):
        return number
    name = view.goal.get("from_label")
    return view.labels.index(name) if name in view.labels else None


def describe_verdict(view: AttackView, prediction: int | None, scores: Sequence[float]) -> tuple[str, float | None]:
    """The model's prediction for a text, and the score that decides it."""
    number = _find_detected_number(view) if is_evasion(view) else prediction
    score = None
    if number is not None and 0 <= number < len(scores):
        score = float(scores[number])
    if not is_evasion(view):
        return view.label(prediction), score
    if prediction is None or number is None:
        return "no answer", score
    flagged = prediction == number if view.threshold is None or score is None else score >= view.threshold
    return "flagged" if flagged else "passed", score


def terms(run: RunView) -> list[tuple[str, str]]:
    """Goal, threshold, protections and limits of the attacks in the headline."""
    views = run.alike or tuple(view for view in run.attacks if view.results)
    if not views:
        return []
    first = views[0]
    found = [("goal", _describe_goal(first))]
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


def _describe_goal(view: AttackView) -> str:
    if is_evasion(view):
        return f"texts of class {name_detected_class(view)} that are not flagged"
    if view.goal.get("kind") == "targeted":
        return f"texts taken for {view.label(view.goal.get('target'))}"
    return "any wrong class"


def threshold(view: AttackView) -> str:
    """The score from which a text is flagged, and how it was chosen."""
    found = view.detection or {}
    value = found.get("threshold", view.threshold)
    if value is None:
        return f"flagged if {name_detected_class(view)} is the most likely class"
    chosen = found.get("at_fpr")
    why = f", chosen for a false-positive rate of {chosen:.2%} on clean development data" if chosen else ", as given"
    return f"flagged at a score of {float(value):.4g} or more{why}"


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
    return ", ".join(parts) if parts or view.is_of_images else "none beyond the attack's own"


def _limits(view: AttackView) -> str:
    limits = _mapping(view.settings.get("limits"))
    named = {
        "budget": "at most {:,} queries per text",
        "budget_per_word": "at most {:,} queries per word",
        "time_limit": "at most {:g} s per text",
    }
    parts = [f"preset {view.preset}"] if view.preset else []
    for key, words in named.items():
        if isinstance(limits.get(key), int | float):
            parts.append(words.format(limits[key]))
    return ", ".join(parts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def headline_names(run: RunView) -> tuple[str, str]:
    """Names of the two headline figures."""
    views = run.alike or run.attacks
    if views and is_evasion(views[0]):
        return f"{name_detected_class(views[0])} caught, clean", f"{name_detected_class(views[0])} caught, under attack"
    return "clean accuracy", "robust accuracy"


def headline_sentence(run: RunView) -> str:
    """The main finding in words."""
    summary = run.headline
    if summary is None or math.isnan(summary.racc.estimate):
        return ""
    views = [view for view in run.attacks if view.results]
    strongest = min(views, key=lambda view: view.summary.racc.estimate)
    first = run.alike[0] if run.together is not None else strongest
    who = "every attack tried" if run.together is not None else strongest.key
    held, fooled = summary.robust, summary.turned
    if not is_evasion(first):
        return (
            f"The model classifies {summary.correct} of {summary.n} examples correctly. Of these, {held} withstood "
            f"{who}; {fooled} {'was' if fooled == 1 else 'were'} fooled."
        )
    false = read_interval((first.detection or {}).get("fpr"))
    alarms = "" if math.isnan(false.estimate) else f", at a false-positive rate of {percent(false.estimate)}"
    return (
        f"Of {summary.n} texts of class {name_detected_class(first)} the detector flags {summary.correct}{alarms}. "
        f"After {who} it still flags {held}; {fooled} {'passes' if fooled == 1 else 'pass'}."
    )
