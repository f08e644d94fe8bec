"""The result of one example, and the differences between its two texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from operator import attrgetter
from typing import Any, Literal, get_args

from isthmus.core.errors import RunError
from isthmus.core.statistics import clopper_pearson
from isthmus.text.draft import Draft
from isthmus.text.words import Words

Outcome = Literal["succeeded", "failed", "skipped", "error", "timed_out", "abstained"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed place; offsets count characters of the field, in the original and in the perturbed text."""

    field: str
    position: int  # word index in the original field (for an insertion: the word before which it stands)
    kind: Literal["replace", "insert", "delete"]
    original: str
    replacement: str
    start: int
    end: int
    new_start: int
    new_end: int

    def __reduce__(self) -> tuple[type[Edit], tuple[Any, ...]]:
        """Pickle as a call, which takes a third of the time of a state."""
        return Edit, _EDIT_VALUES(self)


@dataclass(frozen=True, slots=True)
class Fresh:
    """How often the final text fools a randomised model, on fresh draws that the attack never saw.

    reached / draws estimates the probability that it fools the model; `low` and `high` are its 95 % Clopper-Pearson
    interval.
    """

    draws: int
    reached: int
    abstained: int
    low: float
    high: float
    claimed: bool = True
    """Whether the attack took it for a success; otherwise it had given up."""

    @classmethod
    def of(cls, draws: int, reached: int, abstained: int, claimed: bool = True) -> Fresh:
        """Store the counts with their interval."""
        interval = clopper_pearson(reached, draws)
        return cls(draws, reached, abstained, round(interval.low, 6), round(interval.high, 6), claimed)


@dataclass(frozen=True, slots=True)
class Clean:
    """How often a randomised model is right about the unattacked text, on fresh draws.

    right / draws estimates the probability that the model is right about it; `low` and `high` are its 95 %
    Clopper-Pearson interval.
    """

    draws: int
    right: int
    abstained: int
    low: float
    high: float

    @classmethod
    def of(cls, draws: int, right: int, abstained: int) -> Clean:
        """Store the counts with their interval."""
        interval = clopper_pearson(right, draws)
        return cls(draws, right, abstained, round(interval.low, 6), round(interval.high, 6))


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One example's result. `failed` means that the attack failed: the model withstood it.

    Against a randomised model a success counts if more than half of the fresh draws confirm it; where they do not, but
    with those on which the model declines to answer they are more than half, the outcome is `abstained`.

    >>> from isthmus import attack
    >>> found = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                "deepwordbug", [("a dull plot", 0)], labels=("bad", "good"))
    >>> found[0].outcome, found[0].edits[0].original
    ('succeeded', 'dull')
    """

    id: str
    outcome: Outcome
    label: int | None
    original: Mapping[str, str]
    perturbed: Mapping[str, str]
    prediction_before: int | None = None
    prediction_after: int | None = None
    score_before: tuple[float, ...] = ()
    score_after: tuple[float, ...] = ()
    logical_queries: int = 0
    physical_queries: int = 0
    words: int = 0
    edits: tuple[Edit, ...] = ()
    words_changed: float = 0.0
    candidates: int = 0
    similarity: float | None = None
    budget_spent: bool = False
    seed: int = 0
    reason: str = ""
    fresh: Fresh | None = None
    clean: Clean | None = None
    l2: float | None = None
    """Of a gradient attack: how far it moved the pixels, or the embeddings of the words."""
    linf: float | None = None
    """The largest change of a pixel, or of a coordinate of an embedding."""
    blind: bool | None = None
    """Whether the gradient was zero at the first step."""
    tokens: int | None = None
    """Of an attack on embeddings: how many of them it could move."""

    @property
    def is_changed(self) -> bool:
        """Whether the final text differs from the original."""
        return self.perturbed != self.original

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready record; it holds no clock times, so that equal runs give equal files."""
        # Field by field: `asdict` copies whatever it meets, which took longer than an attack on a fast model.
        row = {name: getattr(self, name) for name in _FIELDS}
        row["original"], row["perturbed"] = dict(self.original), dict(self.perturbed)
        if row["perturbed"] == row["original"]:
            row["perturbed"] = None
        row["edits"] = [{name: getattr(edit, name) for name in _EDIT_FIELDS} for edit in self.edits]
        row["score_before"], row["score_after"] = list(self.score_before), list(self.score_after)
        for name in ("fresh", "clean"):
            if row[name] is not None:
                row[name] = asdict(row[name])
        # Fresh draws are of a randomised model, distances of what gradients moved; of others there is nothing to say.
        for name in ("fresh", "clean", "l2", "linf", "blind", "tokens"):
            if row[name] is None:
                del row[name]
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> AttackResult:
        """Read a record; keys of newer versions are ignored, keys that older versions lack get defaults.

        Rows from before candidates were counted do not say that there were none.
        """
        try:
            known = {field.name: row[field.name] for field in fields(cls) if row.get(field.name) is not None}
            if not isinstance(row["outcome"], str) or not isinstance(row["original"], Mapping):
                raise TypeError("its outcome must be a word, and its original a mapping of texts")
            known |= {"id": str(row.get("id")), "label": row.get("label"), "original": row["original"]}
            known["perturbed"] = row.get("perturbed") or row["original"]
            known["edits"] = tuple(edit for edit in map(_read_edit, row.get("edits") or ()) if edit is not None)
            known["score_before"], known["score_after"] = (
                tuple(row.get(name) or ()) for name in ("score_before", "score_after")
            )
            known.setdefault("candidates", 1)
            for name, kind in (("fresh", Fresh), ("clean", Clean)):
                if name in known:
                    members = {field.name for field in fields(kind)}
                    known[name] = kind(**{key: value for key, value in known[name].items() if key in members})
            return cls(**known)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"this is not a record of an attack: {error}") from error

    def __reduce__(self) -> tuple[type[AttackResult], tuple[Any, ...]]:
        """Pickle as a call, which takes a third of the time of a state."""
        return AttackResult, _VALUES(self)

    def __str__(self) -> str:
        if self.outcome == "error":
            return f"{self.id}: error ({self.reason})"
        changed = ", ".join(f"{edit.original} -> {edit.replacement}" for edit in self.edits)
        return f"{self.id}: {self.outcome} after {self.logical_queries} queries" + (f" ({changed})" if changed else "")


_FIELDS = tuple(field.name for field in fields(AttackResult))
_EDIT_FIELDS = tuple(field.name for field in fields(Edit))
_VALUES = attrgetter(*_FIELDS)
_EDIT_VALUES = attrgetter(*_EDIT_FIELDS)


def _read_edit(edit: Mapping[str, Any]) -> Edit | None:
    """An edit of a record; None where it does not say where it is."""
    offsets = [edit.get(name) for name in ("start", "end", "new_start", "new_end")]
    if not all(isinstance(each, int) for each in offsets):
        return None
    position, kind = edit.get("position", 0), edit.get("kind", "replace")
    words = str(edit.get("original", "")), str(edit.get("replacement", ""))
    return Edit(str(edit.get("field")), position, kind, *words, *offsets)  # type: ignore[arg-type]


def align_edits(original: Draft, final: Draft) -> tuple[Edit, ...]:
    """The edits that lead from the original text to the final one, in reading order."""
    if final is original:
        return ()
    if final.origin is original.origin:
        return _replacements(original, final)
    edits: list[Edit] = []
    for field, (name, before, after) in enumerate(
        zip(original.structure.fields, original.to_words(), final.to_words(), strict=True)
    ):
        first, last = original.structure.starts[field], original.structure.starts[field + 1]
        start, stop = final.structure.starts[field], final.structure.starts[field + 1]
        origin = [at - first if at >= 0 else None for at in final.origin[start:stop].tolist()]
        edits += _field_edits(name, before, after, origin, last - first)
    return tuple(edits)


def _replacements(original: Draft, final: Draft) -> tuple[Edit, ...]:
    """Words were replaced and nothing else: every edit shifts what follows it by the difference in length."""
    structure, strings = original.structure, original.structure.vocabulary.strings
    starts = structure.starts
    edits: list[Edit] = []
    field, shift = -1, 0
    ends: list[int] = []
    for position in (original.ids != final.ids).nonzero()[0].tolist():
        if not edits or position >= starts[field + 1]:
            field, shift = original.field_of(position), 0
            ends = _ends(original, field)
        local, old, new = position - starts[field], original.word(position), strings[final.ids[position]]
        start, end = ends[2 * local], ends[2 * local + 1]
        name = structure.fields[field]
        edits.append(Edit(name, local, "replace", old, new, start, end, start + shift, start + shift + len(new)))
        shift += len(new) - len(old)
    return tuple(edits)


def _ends(draft: Draft, field: int) -> list[int]:
    """The end of each piece of a field: gap, word, gap, …, word, gap."""
    structure = draft.structure
    strings, gaps = structure.vocabulary.strings, structure.gaps[field]
    sizes = [0] * (2 * len(gaps) - 1)
    sizes[::2] = map(len, gaps)
    own = draft.ids[structure.starts[field] : structure.starts[field + 1]].tolist()
    sizes[1::2] = [len(strings[word]) for word in own]
    return list(accumulate(sizes))


def _field_edits(name: str, before: Words, after: Words, origin: list[int | None], count: int) -> list[Edit]:
    old, new = before.offsets(), after.offsets()
    edits: list[Edit] = []
    next_old = 0
    at_new = 0
    # A word may have been put in front of everything, even of what stands before the first word.
    anchors = [start for start, _ in old] + [len(str(before))]
    if after.gaps[0] != before.gaps[0]:
        anchors[0] = 0
    for place, came_from in enumerate(origin):
        span = new[place]
        if came_from is None:
            anchor = anchors[next_old]
            edits.append(Edit(name, next_old, "insert", "", after[place], anchor, anchor, *span))
        else:
            edits += [
                Edit(name, gone, "delete", before[gone], "", *old[gone], at_new, at_new)
                for gone in range(next_old, came_from)
            ]
            if after[place] != before[came_from]:
                edits.append(Edit(name, came_from, "replace", before[came_from], after[place], *old[came_from], *span))
            next_old = came_from + 1
        at_new = span[1]
    edits += [
        Edit(name, gone, "delete", before[gone], "", *old[gone], at_new, at_new) for gone in range(next_old, count)
    ]
    return edits
