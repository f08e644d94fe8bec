"""`gate`: rates of results, judged by limits and their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments
from isthmus.api.run import Run, open_run
from isthmus.core.errors import UsageError
from isthmus.report.gate import ATTACKED, CEILINGS, CERTIFIED, EVALUATED, Gate, Judged, Verdict
from isthmus.results import AttackResults, CertificateResults, EvaluationResults, QuestionResults

if TYPE_CHECKING:
    from isthmus.report.evaluation.view import EvaluationView

Limits = Mapping[str, float] | str


def gate(
    found: Any,
    *,
    fail_under: Limits | None = None,
    fail_over: Limits | None = None,
    positive: str | None = None,
    at: float | None = None,
) -> Verdict:
    """Judge rates by limits, as ``--fail-under`` and ``--fail-over`` of the command line do.

    A rate passes where its whole interval is on the right side of its limit, and fails where the whole interval is on
    the wrong side; between the two it is inconclusive. Several attacks are also judged together.

    Args:
        found: results of `attack`, `evaluate` or `certify`; or a run, all of whose results are judged.
        fail_under: minima. Of attacks ``racc``, ``sacc``, ``balanced_racc``, ``balanced_sacc``, ``tpr``; of evaluations
            ``accuracy``, ``balanced_accuracy``, ``tpr``, ``exact_match``, ``f1``; of certificates ``certified``,
            ``clean``. A mapping, or ``"racc=0.4,sacc=0.85"``.
        fail_over: maxima, of attacks only: ``asr``, ``fpr``.
        positive: the class whose ``tpr`` is judged.
        at: strength at which ``certified`` is judged: a radius, or a number of words; by default any radius above 0,
            and all words.

    >>> from isthmus import evaluate, gate
    >>> rows = [("a dull plot", 0), ("a fine film", 1)] * 20
    >>> found = evaluate(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], rows,
    ...                  labels=("bad", "good"))
    >>> verdict = gate(found, fail_under={"accuracy": 0.8})
    >>> verdict.passed, int(verdict.exit_code)
    (True, 0)
    """
    check_arguments(positive=positive)
    if at is not None and not isinstance(found, str | Path | Run | CertificateResults):
        raise UsageError("`at` is the strength at which certificates are judged: remove it")
    under, over = _as_text(fail_under), _as_text(fail_over)
    if under is None and over is None:
        raise UsageError("give a limit: fail_under={'racc': 0.4}, or fail_over={'asr': 0.6}")
    if isinstance(found, str | Path):
        found = open_run(found)
    if isinstance(found, Run):
        return Verdict(tuple(_judge_run(found, under, over, positive, at)))
    return Verdict(tuple(_judge(found, under, over, positive, at)))


def _as_text(limits: Limits | None) -> str | None:
    if limits is None or isinstance(limits, str):
        return limits
    if not isinstance(limits, Mapping):
        raise UsageError(f"limits are a mapping such as {{'racc': 0.4}}, or 'racc=0.4', not {limits!r:.80}")
    return ",".join(f"{name}={value}" for name, value in limits.items()) or None


def _judge(found: Any, under: str | None, over: str | None, positive: str | None, at: float | None) -> list[Judged]:
    if isinstance(found, AttackResults):
        return _judge_attacks(found, under, over, positive)
    kinds = {CertificateResults: CERTIFIED, EvaluationResults: EVALUATED, QuestionResults: EVALUATED}
    rates = next((names for kind, names in kinds.items() if isinstance(found, kind)), None)
    if rates is None:
        raise UsageError(f"gate takes results of attack, evaluate or certify, or a run, not {found!r:.80}")
    if over is not None:
        raise UsageError(f"fail_over is for rates of attacks: {', '.join(CEILINGS)}")
    bar = Gate.parse(under, rates, positive=positive)
    assert bar is not None
    if isinstance(found, CertificateResults):
        return _judge_certificate(found, bar, at)
    return bar.judge_evaluations([_view_evaluation(part) for part in found.sets.values()])


def _judge_attacks(found: AttackResults, under: str | None, over: str | None, positive: str | None) -> list[Judged]:
    from isthmus.report.attack.view import AttackView

    bar = Gate.parse(under, ATTACKED, over=over, positive=positive)
    assert bar is not None
    views = []
    for name, part in found.attacks.items():
        header = {**_read_header(part, "attacks"), "labels": list(part.labels), "threshold": part.threshold}
        views.append(AttackView(name, {**header, "n": len(part)}, part.results))
    if not views:
        raise UsageError("attacks on embeddings are part of no gate: nobody can send an embedding")
    goals = {view.goal.get("from_label") for view in views}
    own = next(iter(goals)) if len(goals) == 1 else None
    if "fpr" in bar.most and not all(view.detection for view in views):
        raise UsageError("fpr is of a detector that was evaded: attack a run with goal=GoalRequest(from_label=…)")
    bar.check_goal(own or ("of one class" if found.threshold is not None or "fpr" in bar.most else None))
    return bar.judge_attacks(views, found.summary() if found.parts else None, views[0])


def _read_header(part: AttackResults, folder: str) -> Mapping[str, Any]:
    """What the run says of these results; nothing of those at hand."""
    from isthmus.runs.folder import AttackFile

    if part.folder is None:
        return {}
    file = AttackFile(part.folder.path / folder, part.name)
    return file.header() if file.header_path.is_file() else {}


def _judge_certificate(found: CertificateResults, bar: Gate, at: float | None) -> list[Judged]:
    from isthmus.report.certificate.view import format_strength
    from isthmus.summaries.certificate import accuracy_at

    if at is not None and (isinstance(at, bool) or not isinstance(at, int | float)):
        raise UsageError(f"`at` is a radius or a number of words, not {at!r:.80}")
    strength = at if at is not None else 0.0 if found.unit == "radius" else math.inf
    if not strength >= 0:
        raise UsageError(f"`at` is a radius or a number of words, not {at!r}")
    rates = {"certified": accuracy_at(found.results, strength), "clean": found.summary().clean}
    return bar.judge_rates(f"{found.name} at {format_strength(strength, found.unit)}", rates)


def _view_evaluation(found: EvaluationResults | QuestionResults) -> EvaluationView:
    from isthmus.report.evaluation.view import EvaluationView

    summary = found.summary()
    header: dict[str, Any] = {"headline": summary.headline, "summary": summary.to_json()}
    if isinstance(found, QuestionResults):
        return EvaluationView(found.name, {**header, "task": "qa"})
    return EvaluationView(found.name, {**header, "labels": list(found.labels)})


def _judge_run(run: Run, under: str | None, over: str | None, positive: str | None, at: float | None) -> list[Judged]:
    """Each limit goes to the results that have such a rate."""
    from isthmus.report.view import read_run

    parts = [part.strip() for part in (under or "").split(",") if part.strip()]
    named = {part.partition("=")[0].strip(): part for part in parts}
    has_attacks = bool(run.attacks)
    of_attacks = [part for name, part in named.items() if name in ATTACKED and (name != "tpr" or has_attacks)]
    of_sets = [part for name, part in named.items() if name in EVALUATED and (name != "tpr" or not has_attacks)]
    of_proofs = [part for name, part in named.items() if name in CERTIFIED]
    if under is not None and not parts:
        raise UsageError(f"fail_under={under!r} names no rate: give one, such as {{'racc': 0.4}}")
    others = [part for name, part in named.items() if name not in {*ATTACKED, *EVALUATED, *CERTIFIED}]
    if others:
        Gate.parse(",".join(others), (*ATTACKED, *EVALUATED, *CERTIFIED), over=over)  # Says which rates there are.
    judged: list[Judged] = []
    if of_attacks or over is not None:
        bar = Gate.parse(",".join(of_attacks) or None, ATTACKED, over=over, positive=positive)
        assert bar is not None
        view = read_run(run.folder)
        _require(view.attacks, "attack results", run)
        bar.check_goal(next((each.goal.get("from_label") for each in view.attacks), None))
        judged += bar.judge_attacks(view.attacks, view.together, next(iter(view.alike), None))
    for limits, results, what in (
        (of_sets, run.evaluations, "evaluations"), (of_proofs, run.certificates, "certificates"),
    ):  # fmt: skip
        if limits:
            _require(results, what, run)
            for each in results.values():
                judged += _judge(each, ",".join(limits), None, positive, at)
    return judged


def _require(found: Any, what: str, run: Run) -> None:
    if not found:
        raise UsageError(f"{run.folder.path} has no {what} to judge")
