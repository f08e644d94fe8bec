"""Sentences about a run: what it is, what it found, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.attacks.options import RESTARTS
from isthmus.core import catalog
from isthmus.core.errors import UnknownName
from isthmus.core.records import part_of
from isthmus.report.attack.balance import constants
from isthmus.report.attack.detector import false_positives, figures_of, is_evasion, vocabulary
from isthmus.report.attack.view import AttackView
from isthmus.report.numerals import percent
from isthmus.report.training.sentences import describe_collapse, hardly_trained
from isthmus.report.view import RunView
from isthmus.summaries.attack import Summary

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

LARGE = 0.05
"""Share of examples without candidates from which a warning is shown."""

ABSTAINED = (
    "Abstained: texts on which the model abstained, clean (so not attacked) or after the attack (correct before). They "
    "are neither correct nor fooled: the first count in no accuracy, the second only in clean accuracy."
)


def subtitle(run: RunView) -> str:
    """Model, defence and data on one line."""
    record = run.record
    parts = [record.model.spec]
    if record.defence is not None and record.defence.name != "standard":
        parts.append(record.defence.name)
    splits = {str(part_of(view.settings, "data").get("split")) for view in run.attacks} - {"None"}
    parts.append(record.data.name + (f" ({', '.join(sorted(splits))})" if splits else ""))
    if record.data.labels:
        shown = ", ".join(record.data.labels[:6]) + (", …" if len(record.data.labels) > 6 else "")
        parts.append(shown)
    return " · ".join(parts)


def settings_line(view: AttackView) -> str:
    """The settings that distinguish this attack, in a few words."""
    parts = [f"{key} {value}" for key, value in _unusual(view).items() if _is_short(value)]
    if view.preset:
        parts.insert(0, f"limits {view.preset}")
    goal = _describe_goal(view)
    if goal:
        parts.append(goal)
    for key, name in (("budget", "at most {} queries"), ("time_limit", "at most {} s")):
        value = part_of(view.settings, "limits").get(key)
        if value is not None:
            parts.append(name.format(value))
    return ", ".join([*parts[:4], *describe_search(view), *describe_options(view)])


def describe_search(view: AttackView) -> list[str]:
    """How the attack searched, for a randomised model."""
    how = part_of(view.settings, "randomised")
    if draws := how.get("search_draws"):
        return [f"search over {draws} shared draws"]
    if draws := how.get("draws"):
        return [f"gradients over {draws} shared draws"] if any(result.fresh for result in view.results) else []
    if not view.is_randomised and not how:
        return []
    restarts = how.get("restarts", RESTARTS)
    return [f"another draw for every query, {restarts} restart{'' if restarts == 1 else 's'}"]


def describe_options(view: AttackView) -> list[str]:
    """Inference options (``-V``) that differ from the model's own: they define another model."""
    options = dict(part_of(view.settings, "victim"))
    version = options.pop("version", None)
    given = ", ".join(f"{key}={str(value).lower()}" for key, value in sorted(options.items()))
    asked_with = [f"inference options {given}"] if given else []
    return asked_with if version is None else [f"version {version} of the model", *asked_with]


def _unusual(view: AttackView) -> dict[str, Any]:
    """Parameters that are not at their defaults, and the variant of the algorithm."""
    given = part_of(view.settings, "parameters")
    try:
        entry = catalog.find("attacks", view.attack)
    except UnknownName:  # the folder of somebody who has more attacks
        return dict(given)
    defaults = {parameter.name: (parameter.default or "").strip("'\"") for parameter in entry.parameters}
    return {key: value for key, value in given.items() if key == "semantics" or str(value) != defaults.get(key)}


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) <= 16


def _describe_goal(view: AttackView) -> str:
    kind = view.goal.get("kind")
    if kind == "targeted":
        return f"towards {view.label(view.goal.get('target'))}"
    if kind == "evasion" and view.threshold is not None:
        return f"score under {view.threshold:.4g}"
    return ""


def warnings(run: RunView) -> list[str]:
    """Warnings that a reader needs before trusting the figures."""
    found = []
    for view in run.attacks:
        summary = view.summary
        if not view.is_complete:
            found.append(
                f"{view.key} is not finished: {len(view.results)} of {view.header.get('n')} examples. "
                "Run the same command to resume."
            )
        if is_large(summary.no_candidates, summary):
            found.append(nothing_tried(view))
        if summary.blind:
            found.append(
                f"{view.key}: {summary.blind} images had no gradient at the first step: gradients are probably "
                "masked, so robust accuracy on these images means nothing."
            )
    if weak := hardly_trained(run.log):
        found.append(
            f"{', '.join(weak)} of the loss had less than a thousandth of the task's gradient: the defence "
            "had hardly any effect on training."
        )
    if nothing := describe_collapse(run.log):
        found.append(nothing)
    found += constants(run)
    found += _false_alarms(run)
    few = {view.key: view.summary.n for view in run.attacks if view.is_answered and view.summary.n < 50}
    if few:
        counts = " to ".join(str(count) for count in sorted({min(few.values()), max(few.values())}))
        found.append(f"{', '.join(few)}: only {counts} examples; the intervals are wide. Attack more with --n.")
    return found


def _false_alarms(run: RunView) -> list[str]:
    """Detectors whose false-positive rate is above the one that their threshold was chosen for."""
    found: dict[str, list[str]] = {}
    for view in run.attacks:
        figures = figures_of(view)
        if figures is not None and figures.at_fpr is not None and figures.fpr.low > figures.at_fpr:
            warning = (
                f"the false-positive rate on these texts is {false_positives(view)}, above the "
                f"{percent(figures.at_fpr)} that the threshold was chosen for."
            )
            found.setdefault(warning, []).append(view.key)
    return [f"{', '.join(keys)}: {warning}" for warning, keys in found.items()]


def is_large(no_candidates: int, summary: Summary) -> bool:
    """Whether the examples without candidates are too many for robust accuracy to mean much."""
    return no_candidates > LARGE * summary.attacked


def nothing_tried(view: AttackView) -> str:
    """The number of examples without candidates, and why."""
    counts, summary, words = view.without_candidates(), view.summary, vocabulary([view])
    rate = "the share caught after the attack" if is_evasion(view) else words.after
    texts = {
        "candidates": "{}: no word is in the word list, or the constraints rejected every candidate",
        "no words": "{}: no word may be edited",
        "budget": "{}: the query budget ended before the first candidate",
    }
    why = "; ".join(text.format(_count_texts(counts[key])) for key, text in texts.items() if counts[key])
    return (
        f"{view.key}: {summary.no_candidates} of {summary.attacked} attacked texts had no candidates; counted as "
        f"{words.kept} ({why}). Without them {rate} is {100 * summary.proven.estimate:.1f} %."
    )


def _count_texts(count: int) -> str:
    return "1 text" if count == 1 else f"{count} texts"


@dataclass(frozen=True)
class Resource:
    """A word list or a model that attacks used."""

    role: str
    name: str
    attacks: tuple[str, ...]

    @property
    def is_stand_in(self) -> bool:
        """Whether it replaces a published resource, so that figures cannot be compared with the paper's."""
        return any(sign in self.name.lower() for sign in ("stand-in", "substitute", "in place of"))

    def __str__(self) -> str:
        return f"{self.role}: {self.name}, used by {', '.join(self.attacks)}"


def describe_resources(run: RunView, keys: Sequence[str] | None = None) -> list[Resource]:
    """Resources that the attacks used, each once."""
    found: dict[tuple[str, str], list[str]] = {}
    for view in run.attacks:
        if view.results and (keys is None or view.key in keys):
            for role, name in view.resources.items():
                found.setdefault((role, name), []).append(view.key)
    return [Resource(role, name, tuple(attacks)) for (role, name), attacks in found.items()]


def coverage(run: RunView) -> str:
    """Which attacks the first line of the table covers."""
    covered = [view.key for view in run.alike]
    others = [view.key for view in run.attacks if view.results and view.key not in covered]
    left = f"; without {', '.join(others)}, which has another goal, model or data" if others else ""
    return f"All together: {', '.join(covered)}{left}."


def describe_unbounded(run: RunView, views: Sequence[AttackView]) -> str:
    """Attacks on images without a bound on the distance; empty if there is none."""
    free = [view.key for view in views if view.is_of_images and "epsilon" not in part_of(view.settings, "parameters")]
    if not free:
        return ""
    many = len(free) > 1
    told = f"{', '.join(free)} {'search' if many else 'searches'} for the nearest image that fools the model, at any "
    told += "distance: the success rate says little; the distance says how robust the model is."
    if run.together is not None and any(view.key in free for view in run.alike) and len(views) > len(free):
        told += f" The line all together counts {'them' if many else 'it'} too."
    return told


def of_embeddings(views: Sequence[AttackView]) -> str:
    """How to read attacks on embeddings, and the scale of the radius; empty if there are none."""
    views = [view for view in views if view.results]
    if not views:
        return ""
    lengths = sorted({float(view.header["embedding_length"]) for view in views if view.header.get("embedding_length")})
    shown = " and ".join(f"{length:g}" for length in lengths)
    told = (
        "Gradients moved the word embeddings of the texts, not their words. Nobody can send an embedding, so these "
        "attacks are excluded from the union, the gate and the headline. They show how stable predictions are around a "
        "text. Epsilon, largest change (one coordinate) and l2 (all tokens) are in the unit of the embeddings"
    )
    return told + (f"; the mean length of a token's vector is {shown}." if shown else ".")


def describe_moved_pixels(result: AttackResult, before: str = "") -> str:
    """How far the pixels of an image were moved; empty for texts."""
    if result.linf is None:
        return ""
    return f"{before}pixels moved by at most {result.linf:.3f}, l2 {result.l2 or 0.0:.3f}"


def without_result(view: AttackView) -> str:
    """The number of errors and time-outs, with the reason; empty if there are none."""
    summary = view.summary
    if not summary.errors + summary.timed_out:
        return ""
    counts = [(summary.errors, "error"), (summary.timed_out, "time-out")]
    shown = " and ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count)
    reason, _ = view.reasons()[0]
    kept = vocabulary([view]).kept
    return f"{view.key}: {shown} in {summary.n} examples, never counted as {kept}. Most frequent: {reason[:200]}"


def provenance(run: RunView) -> list[tuple[str, str]]:
    """Where the figures come from, line by line."""
    record = run.record
    lines = [("model", record.model.spec)]
    if record.training is not None and record.defence is not None:
        lines.append(("defence", _method(record.defence.name, record.defence.parameters)))
        lines.append(("training", ", ".join(f"{key} {value}" for key, value in record.training.items())))
        lines.append(("seed", str(record.seed)))
    sizes = ", ".join(f"{size:,} {split}" for split, size in record.data.sizes.items())
    lines.append(("data", record.data.source + (f" ({sizes})" if sizes else "")))
    prints = ", ".join(f"{split} {code}" for split, code in record.data.fingerprints.items())
    if prints:
        lines.append(("fingerprint", prints))
    lines.extend((view.key, _effort(view)) for view in run.attacks)
    lines.append(("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())))
    lines.append(("machine", ", ".join(str(value) for value in _describe_machine(record.machine))))
    lines.append(("begun", record.created.replace("T", " ").replace("+00:00", " UTC")))
    return lines


def _describe_machine(machine: Mapping[str, Any]) -> list[str]:
    shown = [str(machine[key]) for key in ("device", "processor") if machine.get(key)]
    if machine.get("cores"):
        shown.append(f"{machine['cores']} cores")
    if machine.get("memory_gib"):
        shown.append(f"{machine['memory_gib']} GiB")
    return [*shown, str(machine.get("system", ""))]


def _effort(view: AttackView) -> str:
    parts = [_method(view.attack, part_of(view.settings, "parameters")), f"seed {view.settings.get('seed', 0)}"]
    effort = part_of(view.header, "effort")
    if view.preset:
        parts.append(f"limits {view.preset}")
    if effort.get("wall_s"):
        summary = view.summary
        asked = f"{summary.queries:,} queries"
        if not view.is_of_images:
            asked += f", {summary.physical_queries:,} distinct texts"
        if effort.get("probe_queries"):
            asked += f", {int(effort['probe_queries'])} more to check that the model is unchanged"
        parts.append(f"{asked}, in {float(effort['wall_s']):,.1f} s")
    precision = view.settings.get("precision")
    if precision:
        parts.append(str(precision))
    return ", ".join(parts)


def _method(name: str, parameters: Mapping[str, Any]) -> str:
    inside = ", ".join(f"{key}={value}" for key, value in parameters.items())
    return f"{name}({inside})"
