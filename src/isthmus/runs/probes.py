"""Recognises a model without files of its own by its answers to eight texts of the data.

A function, a pipeline, a service or a hub name can be retrained under the same name. When it first enters a run folder
it is asked for eight texts twice, and its scores are kept in ``probes.json``, rounded to 1e-3. Every later command asks
for the same texts again:

    every score within 1e-3 of what is kept      the same model: rows that are there count
    otherwise                                    refused: the rows that are there are another model's
    no answer at all                             the model's own error
    two askings in a row differ by over 5e-4     it answers at random: only ``-V version=…`` tells two models apart

What is kept lies within 5e-4 of a score, so noise of less than 5e-4 never makes a model another one, on whichever side
of a rounding boundary a score lies. Of ``module:attribute`` the source counts as well: the
module and the modules beside it that it imports.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import RunError, UsageError, VictimError, VictimUnreachable
from isthmus.core.files import read_json, write_atomic
from isthmus.core.lock import serialise
from isthmus.core.seeds import derive
from isthmus.runs.settings import short_hash

if TYPE_CHECKING:
    from isthmus.core.types import Texts, Victim
    from isthmus.data import Dataset

PROBES = 8
TOLERANCE = 1e-3
"""A score further than this from the one that is kept is another score."""
REPEATABLE = 5e-4
"""Two askings in a row that differ by more are answered at random."""
_DIGITS = 3
_INSTALLED = {"site-packages", "dist-packages"}

ProbeScores = tuple[tuple[float, ...] | None, ...]
"""One row per probe; None where the model had no answer."""


def choose_probes(data: Dataset) -> tuple[Texts, ...]:
    """Choose eight texts of a split: classes in turn, each in the order of its texts' hashes.

    They depend on the texts and labels alone: not on the order of the file, on a seed, or on how many are asked for.
    """
    classes: dict[str, dict[str, Texts]] = {}
    for example in data:
        inputs = example.texts or {name: np.asarray(value).tolist() for name, value in example.fields.items()}
        code = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        classes.setdefault(str(example.label), {})[code] = inputs
    queues = [[texts[code] for code in sorted(texts)] for _, texts in sorted(classes.items())]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    return tuple(itertools.islice((texts for texts in turns if texts is not None), PROBES))


@dataclass(frozen=True)
class ProbeAnswers:
    """A model's answers to the probes."""

    scores: ProbeScores
    queries: int
    reason: str | None = None
    """Why it had no answer, where there is a text without one."""


def ask(victim: Victim, probes: Sequence[Texts]) -> ProbeAnswers:
    """Ask for the scores of every probe. If the first, the middle and the last fail, the model is down: its error.

    A randomised model draws the same numbers each time, where it takes a key for them.
    """
    keys: NDArray[np.uint64] = np.array([derive(0, "probe", place) for place in range(len(probes))], dtype=np.uint64)

    def scores(places: list[int]) -> NDArray[np.float32]:
        texts = [probes[place] for place in places]
        return np.asarray(victim.scores(texts, keys[places]) if victim.stochastic else victim.scores(texts), np.float32)

    every, found, reason = list(range(len(probes))), {}, None
    asked = len(every)
    try:
        if every:
            found = dict(zip(every, scores(every), strict=True))
    except VictimUnreachable:
        raise
    except VictimError:
        first = sorted({0, len(every) // 2, len(every) - 1})
        for place in [*first, *(place for place in every if place not in first)]:
            asked += 1
            try:
                found[place] = scores([place])[0]
            except VictimError as error:
                if place == first[-1] and not found:
                    raise
                reason = str(error)
    rows: list[tuple[float, ...] | None] = []
    for place in every:
        row = found.get(place)
        if row is not None and not np.isfinite(row).all():
            row, reason = None, "the model answered NaN"
        rows.append(None if row is None else tuple(float(score) for score in row))
    if every and not any(rows):
        raise VictimError(f"no example had an answer: {reason}, for each of the {len(every)} it was asked for")
    return ProbeAnswers(tuple(rows), asked, reason)


def change(before: ProbeScores, after: ProbeScores) -> float:
    """The largest difference of two scores; infinite if one is missing or has other classes."""
    worst = 0.0
    for old, new in itertools.zip_longest(before, after):
        if old is None and new is None:
            continue
        if old is None or new is None or len(old) != len(new):
            return float("inf")
        worst = max(worst, *(abs(a - b) for a, b in zip(old, new, strict=True)))
    return worst


@dataclass(frozen=True)
class Probed:
    """One entry of ``probes.json``: a model with certain inference options."""

    asked: Mapping[str, Any]
    """Fields, class names, options and precision: other ones are another way of asking, with an entry of its own."""
    texts: tuple[Texts, ...]
    scores: ProbeScores
    repeats: bool = True
    """Whether it gives the same answer twice."""
    source: str | None = None
    """Hash of the module that a ``module:attribute`` lies in, and of what it imports from beside it."""

    @property
    def is_labels_only(self) -> bool:
        """Whether it answers with labels instead of scores; labels hide most changes."""
        rows = [row for row in self.scores if row is not None]
        return bool(rows) and all(set(row) <= {0.0, 1.0} for row in rows)

    @property
    def key(self) -> str:
        """Names the inference options."""
        return short_hash(self.asked)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that identify the model in the settings of its results."""
        known = [self.asked, self.source, self.texts, self.scores if self.repeats else None]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read an entry."""
        return cls(
            dict(value["asked"]),
            tuple(dict(text) for text in value["texts"]),
            tuple(None if row is None else tuple(float(score) for score in row) for row in value["scores"]),
            bool(value["repeats"]),
            value["source"],
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for `from_json`."""
        return {
            "asked": self.asked,
            "texts": self.texts,
            "scores": self.scores,
            "repeats": self.repeats,
            "source": self.source,
        }


def round_scores(scores: ProbeScores) -> ProbeScores:
    """Round scores as they are stored."""
    return tuple(None if row is None else tuple(round(score, _DIGITS) for score in row) for row in scores)


def read_probes(path: Path) -> dict[str, Probed]:
    """The entries of a ``probes.json`` by their keys; empty if there is no file."""
    if not path.is_file():
        return {}
    try:
        entries = [Probed.from_json(entry) for entry in read_json(path)["models"]]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{path} is damaged ({error}), so the model of the rows beside it is unknown: choose another --out"
        ) from error
    return {entry.key: entry for entry in entries}


def keep(path: Path, entry: Probed) -> Probed:
    """Write an entry; if another process has just written one for the same model, that one stays."""
    with serialise(path, "probes"):
        known = read_probes(path)
        there = known.get(entry.key)
        if there is not None and is_same(there, entry):
            return there
        if there is not None:
            raise RunError(f"{path.parent} is in use by another process with another model: choose another --out")
        entries = [*known.values(), entry]
        content = json.dumps({"models": [each.to_json() for each in entries]}, indent=1)  # ASCII: any text can be kept.
        write_atomic(path, content + "\n")
    return entry


def is_same(kept: Probed, now: Probed) -> bool:
    """Whether two rounded entries belong to the same model."""
    alike = kept.source == now.source and kept.repeats == now.repeats and kept.texts == now.texts
    return alike and (not kept.repeats or change(kept.scores, now.scores) < 1.5 * TOLERANCE)


def source_hash(given: str) -> str | None:
    """Hash of the module of a ``module:attribute`` and of its imports from the same folder; None for anything else."""
    from isthmus.models.victims import names_python_object

    top, sources = given.split(":")[0].split(".")[0], dict(_sources())
    if not names_python_object(given) or top not in sources:
        return None
    file = sources[top]
    root = file.parent.parent if file.name == "__init__.py" else file.parent
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        package = name.split(".")[0]
        is_beside = path.is_relative_to(root) and not _INSTALLED.intersection(path.relative_to(root).parts)
        if package == top or (is_beside and not _INSTALLED.intersection(root.parts) and package != "isthmus"):
            with contextlib.suppress(OSError):  # It was deleted after it was read.
                digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[tuple[str, Path]]:
    """Every module that was read from a Python file."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # Some modules import more when they are asked.
        if isinstance(file, str) and file.endswith(".py"):
            yield name, Path(file)


@dataclass(frozen=True)
class Recognised:
    """The model's entry, which `keep` writes, and the number of queries for it."""

    entry: Probed
    queries: int


@dataclass(frozen=True)
class Stranger:
    """A model that a folder may know or not."""

    shown: str
    victim: Victim
    asked: Mapping[str, Any]
    """See `Probed.asked`; holds the version, where one was given."""
    source: Callable[[], str | None] = lambda: None
    """Hash of its source, as far as it is known once the model has answered."""
    version: str | None = None
    is_random: bool = False
    """Whether the command says that it answers at random."""

    def recognise(self, path: Path, data: Dataset) -> Recognised:
        """The entry of the model in the ``probes.json`` at `path`, or a new one with probes from `data`."""
        kept = read_probes(path).get(short_hash(self.asked))
        return self._meet(choose_probes(data)) if kept is None else self._meet_again(kept, path.parent)

    def _meet(self, texts: tuple[Texts, ...]) -> Recognised:
        first, second = ask(self.victim, texts), ask(self.victim, texts)
        differ = change(first.scores, second.scores)
        repeats = differ <= REPEATABLE and not self.is_random
        if not repeats and self.version is None:
            raise self._random(differ, second.reason or first.reason)
        # A version stands for the module as well.
        source = self.source() if self.version is None else None
        entry = Probed(self.asked, texts, round_scores(first.scores), repeats, source)
        return Recognised(entry, first.queries + second.queries)

    def _meet_again(self, kept: Probed, folder: Path) -> Recognised:
        now = ask(self.victim, kept.texts)
        queries = now.queries
        if kept.repeats and change(kept.scores, now.scores) > TOLERANCE:
            again = ask(self.victim, kept.texts)
            queries += again.queries
            differ = change(now.scores, again.scores)
            if differ <= REPEATABLE:
                raise self._make_changed_error(folder, _what_changed(kept.scores, now))
            if self.version is None:
                raise self._random(differ, again.reason or now.reason)
        elif self.version is None and kept.source != self.source():
            raise self._make_changed_error(folder, "the source of its module, or of one that it imports, has changed")
        return Recognised(kept, queries)

    def _random(self, differ: float, reason: str | None) -> UsageError:
        how = (
            f"two queries of the same {PROBES} texts differ by up to {differ:.3g}"
            if np.isfinite(differ)
            else f"asked twice for the same {PROBES} texts, it had no answer to one of them only once ({reason})"
        )
        if differ <= REPEATABLE:
            how = "as -V stochastic=true says"
        return UsageError(
            f"{self.shown} has random predictions: {how}. So its scores cannot show whether it has changed. Say which "
            "version of it this is, such as -V version=1, and give another version when it changes"
        )

    def _make_changed_error(self, folder: Path, what: str) -> RunError:
        remedy = (
            "Choose another --out for the new one, or mark it with -V version=…"
            if self.version is None
            else "Give the new one another -V version=…"
        )
        return RunError(
            f"{self.shown} is not the model of the results in {folder}: {what}. {remedy}; "
            f"isthmus report {folder} shows the old results"
        )


def _what_changed(before: ProbeScores, now: ProbeAnswers) -> str:
    pairs = list(zip(before, now.scores, strict=True))
    lost = sum(old is not None and new is None for old, new in pairs)
    if lost:
        return f"{lost} of {len(pairs)} probe texts had an answer and have none now ({now.reason})"
    moved = [change((old,), (new,)) for old, new in pairs]
    count = sum(each > TOLERANCE for each in moved)
    known = [each for each in moved if np.isfinite(each)]
    by = f", by up to {max(known):.3f}" if len(known) == len(moved) else ""
    return f"its scores on {count} of {len(pairs)} probe texts have changed{by}"
