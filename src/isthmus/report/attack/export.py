"""Results for other programs.

    textattack-csv   every row, in the columns and with the marks of TextAttack's CSV logger, for tools that read those
    jsonl            the adversarial texts with their true labels, which `isthmus.load_data` reads as a data set

TextAttack's score is how far the goal is reached: 1 - p(true class), or p(target). Changed words stand in [[brackets]],
line breaks and the borders of a pair are written <SPLIT>. It knows no errors, time-outs or abstentions: those rows
have a result type of their own (Error, TimedOut, Abstained), so that nobody counts them as robust.

A text that a spreadsheet would take for a formula stands behind the name of a field, as TextAttack writes the texts of
a pair ([[[[Text]]]]: =1+1); `isthmus.data.adversarial` reads it back as it was.

Rows of a randomised model have in both formats, with their 95 % intervals, the probability that the text the attack
ended with fools it (where it seemed to) and the probability that the clean text is answered correctly.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.files import write_atomic
from isthmus.report.attack.view import AttackView
from isthmus.report.marks import Span, compare_sides

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

Format = Literal["textattack-csv", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)
COLUMNS = (
    "original_text", "perturbed_text", "original_score", "perturbed_score", "original_output", "perturbed_output",
    "ground_truth_output", "num_queries", "result_type",
)  # fmt: skip
RANDOMISED = (
    "success_probability", "success_low", "success_high", "clean_probability", "clean_low", "clean_high",
)  # fmt: skip
_RESULT_TYPES = {
    "succeeded": "Successful",
    "failed": "Failed",
    "skipped": "Skipped",
    "error": "Error",
    "timed_out": "TimedOut",
    "abstained": "Abstained",
}
_BREAK = "<SPLIT>"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""A cell that begins so is a formula to a spreadsheet, which may run programs and send cells elsewhere."""


def format_of(path: Path | str, asked: str | None = None) -> Format:
    """The requested format, or the one of the file extension."""
    if asked is None:
        asked = {".csv": "textattack-csv", ".jsonl": "jsonl"}.get(Path(path).suffix.lower())
        if asked is None:
            raise UsageError(f"cannot tell the format of {str(path)!r}: use the extension .csv or .jsonl")
    for known in FORMATS:
        if asked == known:
            return known
    raise UnknownName("export format", asked, FORMATS)


def export(views: Sequence[AttackView], path: Path | str, form: Format) -> int:
    """Write the results of one or more attacks to a file and return the number of rows written."""
    if any(view.is_of_images for view in views):
        raise UsageError("--export writes texts only; adversarial images are in the run folder, in attacks/<name>.npz")
    if form == "jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for view in views for row in adversarial(view)]
        content = "".join(f"{line}\n" for line in lines)
    else:
        lines, content = _as_csv(views)
    # A text with half a surrogate pair is one that no model read; its row says error, and a mark is all that is lost.
    write_atomic(path, content.encode("utf-8", errors="replace"))
    return len(lines)


def adversarial(view: AttackView) -> Iterator[dict[str, Any]]:
    """The successes as examples: the adversarial fields, the true label by name, and their origin."""
    for result in view.successes:
        yield {
            **result.perturbed,
            "label": view.label(result.label),
            **{f"original_{field}": text for field, text in result.original.items()},
            "id": result.id,
            "attack": view.key,
            **(make_fresh_columns(result) if view.is_randomised else {}),
        }


def make_fresh_columns(result: AttackResult) -> dict[str, float | None]:
    """Results of fresh draws of a randomised model for one example; None if there are none."""
    fresh, clean = result.fresh, result.clean
    values: list[float | None] = [fresh.reached / fresh.draws, fresh.low, fresh.high] if fresh else [None] * 3
    values += [clean.right / clean.draws, clean.low, clean.high] if clean else [None] * 3
    return dict(zip(RANDOMISED, values, strict=True))


def _as_csv(views: Sequence[AttackView]) -> tuple[list[Any], str]:
    several = len(views) > 1  # TextAttack writes one file per attack and needs no column for its name.
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    drawn = any(view.is_randomised for view in views)
    writer.writerow([*COLUMNS, *(RANDOMISED if drawn else ()), *(("attack",) if several else ())])
    lines = [
        [
            *textattack_row(view, result).values(),
            *(make_fresh_columns(result).values() if drawn else ()),
            *((view.key,) if several else ()),
        ]
        for view in views
        for result in view.results
    ]
    writer.writerows(lines)
    return lines, stream.getvalue()


def textattack_row(view: AttackView, result: AttackResult) -> dict[str, Any]:
    """One result as a row of TextAttack's CSV logger."""
    changed = result.outcome in ("succeeded", "failed")
    sides = list(compare_sides(result))
    before = {side.field: _bracket(side.before, side.gone if changed else []) for side in sides}
    after = {side.field: _bracket(side.after, side.new if changed else []) for side in sides}
    values = (
        _print_fields(before), _print_fields(after),
        _score(view, result, result.score_before), _score(view, result, result.score_after),
        result.prediction_before, result.prediction_after, result.label,
        result.logical_queries, _RESULT_TYPES[result.outcome],
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _bracket(text: str, spans: Sequence[Span]) -> str:
    parts, position = [], 0
    for start, end in spans:
        if end > max(start, position):
            parts += [text[position:start], "[[", text[start:end], "]]"]
            position = end
    return "".join([*parts, text[position:]])


def _print_fields(fields: Mapping[str, str]) -> str:
    texts = list(fields.values())
    if len(texts) > 1:
        texts = [f"[[[[{name.capitalize()}]]]]: {text}" for name, text in fields.items()]
    elif texts and texts[0].startswith(_FORMULA):
        texts = [f"[[[[Text]]]]: {texts[0]}"]
    return _BREAK.join(texts).replace("\n", _BREAK)


def _score(view: AttackView, result: AttackResult, scores: Sequence[float]) -> float | None:
    target = view.goal.get("target")
    towards = target is not None and str(target) in view.labels
    index = view.labels.index(str(target)) if towards else result.label
    if index is None or not 0 <= index < len(scores):
        return None
    return float(scores[index]) if towards else 1 - float(scores[index])
