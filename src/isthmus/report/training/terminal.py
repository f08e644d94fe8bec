"""A training in the terminal: one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.core.statistics import wilson
from isthmus.report.numerals import three, three_bounds
from isthmus.summaries.evaluation import CalibrationSummary


def describe_training(results: Mapping[str, Any]) -> str:
    """How a model was trained, in one line."""
    counts = {what: int(results.get(f"{what}s") or 0) for what in ("example", "step")}
    examples, steps = (f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items())
    parts = [f"trained on {examples} in {steps}"]
    if results.get("wall_s"):
        parts.append(f"{float(results['wall_s']):,.0f} s")
    if results.get("dev_accuracy") is not None:
        n = int(results.get("dev_examples") or 0)
        # The deployed model takes several passes; `isthmus evaluate` measures that one.
        whose = " of a single pass" if results.get("dev_single_pass") else ""
        text = f"development accuracy{whose} {100 * float(results['dev_accuracy']):.1f} %"
        if n:
            interval = wilson(round(float(results["dev_accuracy"]) * n), n)
            text += f" ({100 * interval.low:.1f}–{100 * interval.high:.1f})"
        parts.append(text)
    if results.get("dev_calibration"):
        ece = CalibrationSummary.from_json(results["dev_calibration"]).ece
        parts.append(f"calibration error {three(ece.estimate)} ({three_bounds(ece)})")
    if results.get("dev_f1") is not None:
        parts.append(f"development F1 {100 * float(results['dev_f1']):.1f} %")
        if results.get("dev_exact_match") is not None:
            parts.append(f"exact match {100 * float(results['dev_exact_match']):.1f} %")
    return ", ".join(parts)
