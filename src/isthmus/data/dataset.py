"""A data set in memory: labelled examples, unusable rows, and splits."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from isthmus.core.answer_scores import base_ids
from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.core.strata import grouped_order, link_rows, stratified_order
from isthmus.core.types import ABSTAINS, Classification, Example, Field, Ints, Task

SPLIT_ALIASES = {"validation": "dev", "valid": "dev", "val": "dev", "development": "dev", "training": "train"}
_REJECTED = -1
"""Stratum of the rows that could not be used; labels are never negative."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row without usable text or label. An attack writes it as a row whose outcome is `error`."""

    id: str
    reason: str


@dataclass(frozen=True)
class Dataset:
    """Examples of one split, in the order of the source.

    >>> from isthmus import load_data
    >>> rows = load_data([("a lovely film", 1), ("a dull plot", 0)], "all")
    >>> len(rows), rows[0].label, rows.labels
    (2, 1, ('0', '1'))
    """

    name: str
    split: str
    task: Task
    examples: tuple[Example, ...]
    rejected: tuple[Rejected, ...] = ()

    def __post_init__(self) -> None:
        # What a defence notes about an example that it made lies in further fields.
        _check_fields(self.examples, self.fields)

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Example | Dataset:
        """One example, or the examples of a slice as a data set (without rejected rows)."""
        if isinstance(index, slice):
            return replace(self, examples=self.examples[index], rejected=())
        return self.examples[index]

    def __repr__(self) -> str:
        rejected = f", {len(self.rejected)} rejected" if self.rejected else ""
        labels = ", ".join(self.labels[:6]) + (", …" if len(self.labels) > 6 else "")
        kind = f"labels {labels}" if labels else self.task.name
        return f"<Dataset {self.name}/{self.split}: {len(self)} examples{rejected}, {kind}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names; an example's label is an index into them. Empty for questions."""
        return self.task.labels

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the text fields, in reading order."""
        return self.task.fields

    def label_indices(self) -> Ints:
        """The label of every example."""
        return np.array([_index_of(example) for example in self.examples], dtype=np.int64)

    def texts(self) -> list[dict[str, str]]:
        """The text fields of every example."""
        return [example.texts for example in self.examples]

    def inputs(self) -> list[dict[str, Any]]:
        """The victim's input for every example: its texts, or its array."""
        return [example.inputs for example in self.examples]

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hex digits that change when any text, label, label name or rejected row changes, or their order."""
        digest = hashlib.sha256()
        _update(digest, *self.labels, "|", *self.fields)
        for example in self.examples:
            _update(digest, *(part for item in example.fields.items() for part in item), str(example.label))
            if not self.labels:
                _update(digest, example.id)  # It says which questions are variants of one.
        for row in self.rejected:
            _update(digest, "rejected", row.id)
        return digest.hexdigest()[:16]

    def sample(self, n: int | None, seed: int = 0, only_label: int | str | None = None) -> Dataset:
        """The first `n` rows of one seeded stratified order; all rows if `n` is None or larger than the data set.

        Samples are nested: a larger `n` starts with the rows of a smaller one. Rejected rows take their share of the
        `n`, so that the rate of errors is estimated like any other; with `only_label` there are none. Of questions,
        variants of the same one follow each other.
        """
        if n is not None and n < 0:
            raise UsageError(f"the number of examples to sample must be at least 0, not {n}")
        examples, rejected = self.examples, self.rejected
        if only_label is not None:
            wanted = self.label_index(only_label)
            examples, rejected = tuple(example for example in examples if example.label == wanted), ()
        chosen = self._order(examples, rejected, seed)[:n]
        return replace(
            self,
            examples=tuple(examples[row] for row in chosen if row < len(examples)),
            rejected=tuple(rejected[row - len(examples)] for row in chosen if row >= len(examples)),
        )

    def _order(self, examples: Sequence[Example], rejected: Sequence[Rejected], seed: int) -> list[int]:
        if isinstance(self.task, Classification):
            strata = [_index_of(example) for example in examples] + [_REJECTED] * len(rejected)
            return stratified_order(strata, seed, "sample")
        return grouped_order(base_ids([*(row.id for row in examples), *(row.id for row in rejected)]), seed, "sample")

    def split_order(self, seed: int, purpose: str) -> list[list[int]]:
        """Groups of row numbers in the seeded order of splitting; one group never falls into two parts.

        Classes are spread evenly. Questions about the same text, and variants of one question, stay together: a model
        must not be chosen by questions about texts it was trained on.
        """
        if isinstance(self.task, Classification):
            return [[row] for row in stratified_order([_index_of(example) for example in self], seed, purpose)]
        contexts = [example.texts.get(self.fields[-1]) for example in self]
        groups = link_rows(contexts, base_ids([example.id for example in self]))
        together: dict[int, list[int]] = {}
        for row in grouped_order(groups, seed, purpose):
            together.setdefault(groups[row], []).append(row)
        return list(together.values())

    def label_index(self, label: int | str) -> int:
        """The index of a label, given by name or index."""
        if not self.labels:
            raise UsageError(f"{self.name} holds questions, which have no labels such as {label!r}")
        if isinstance(label, int):
            if not 0 <= label < len(self.labels):
                raise UsageError(f"label {label} is outside 0 … {len(self.labels) - 1} of {self.name}")
            return label
        found = _match(label, self.labels)
        if found is None:
            raise UnknownName(f"label in {self.name}", label, self.labels)
        return found

    def align_labels(self, labels: Sequence[str]) -> Dataset:
        """The same examples with labels renumbered to the order of `labels` (such as a victim's), matched by name.

        Case does not matter. Where one side has only numbers (``0``, ``LABEL_1``) they are positions on the other.
        """
        if tuple(labels) == self.labels:
            return self
        if not self.labels or not labels:
            raise DataError(
                f"{self.name} holds {_kind_of(self.labels)}, and the model is one for {_kind_of(labels)}: "
                "choose data that fit the model"
            )
        answers = tuple(name for name in labels if name != ABSTAINS)
        order = _alignment(self.labels, answers, {_index_of(example) for example in self.examples})
        if order is None:
            raise DataError(
                f"the labels of {self.name} ({', '.join(self.labels)}) do not match {', '.join(labels)}. "
                "Give the label names in the order the data numbers them."
            )
        examples = tuple(replace(example, label=order[_index_of(example)]) for example in self.examples)
        assert isinstance(self.task, Classification)
        return replace(self, task=replace(self.task, labels=tuple(labels)), examples=examples)


class Splits(Mapping[str, Dataset]):
    """The splits of one data set by name. Validation splits are called ``dev`` whatever their name in the source.

    >>> from isthmus import load_data
    >>> found = load_data({"train": [("a lovely film", 1), ("a dull plot", 0)], "validation": [("a fine film", 1)]})
    >>> list(found), len(found.train)
    (['train', 'dev'], 2)
    """

    def __init__(self, name: str, splits: Mapping[str, Dataset], origin: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._splits = dict(splits)
        self.origin = origin
        """How to load the same again, as arguments of `load_data`; None for data that a program made."""

    def __getitem__(self, split: str) -> Dataset:
        return self._splits[split if split in self._splits else SPLIT_ALIASES.get(split, split)]

    def __contains__(self, split: object) -> bool:
        return split in self._splits or (isinstance(split, str) and SPLIT_ALIASES.get(split) in self._splits)

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def __repr__(self) -> str:
        return f"<Splits {self.name}: " + ", ".join(f"{split} {len(data)}" for split, data in self.items()) + ">"

    @property
    def train(self) -> Dataset:
        """The training split."""
        return self.find_split("train")

    @property
    def dev(self) -> Dataset:
        """The development split."""
        return self.find_split("dev")

    @property
    def test(self) -> Dataset:
        """The test split."""
        return self.find_split("test")

    @property
    def task(self) -> Task:
        """The task of the training split, or of the first one."""
        return self._splits["train" if "train" in self._splits else next(iter(self._splits))].task

    def find_split(self, split: str) -> Dataset:
        """The split called `split`; an unknown name is an error that suggests the nearest."""
        if split not in self:
            raise UnknownName(f"split in {self.name}", split, self)
        return self[split]

    def evaluation(self) -> Dataset:
        """The split for attacks and evaluation: test, else dev, else the only one."""
        for split in ("test", "dev"):
            if split in self._splits:
                return self._splits[split]
        if len(self) != 1:
            raise UsageError(f"{self.name} has neither test nor dev: choose one of its splits ({', '.join(self)})")
        return next(iter(self.values()))

    @property
    def is_one_file(self) -> bool:
        """Whether this is one unsplit file: its name says nothing about train, dev or test."""
        return len(self) == 1 and not {"train", "dev", "test"} & set(self)

    def for_training(self, seed: int = 0) -> Splits:
        """The splits for training: one file is cut into train, dev and test; if only dev is missing, see `with_dev`.

        The file is cut 8 : 1 : 1, stratified, so that the model is attacked on texts it has not seen.
        """
        if not self.is_one_file:
            if "train" not in self:
                raise UsageError(
                    f"{self.name} has no train split (it has {', '.join(self)}). To train on what it has, give one "
                    "file under a name that is not a split's, such as texts.jsonl: it is cut into train, dev and test"
                )
            return self.with_dev(seed)
        (whole,) = self.values()
        tenth = max(1, len(whole) // 10)
        place: dict[str, str] = {}
        for together in whole.split_order(seed, "sample"):
            part = "dev" if len(place) < tenth else "test" if len(place) < 2 * tenth else "train"
            place |= {whole[row].id: part for row in together}
        if "train" not in place.values():
            raise DataError(f"{self.name} has {len(whole)} examples: too few to train on{_unusable(whole)}")
        parts = {
            part: replace(whole, split=part, rejected=(), examples=tuple(e for e in whole if place[e.id] == part))
            for part in ("train", "dev", "test")
        }
        return Splits(self.name, parts)

    def with_dev(self, seed: int = 0, share: float = 0.1) -> Splits:
        """These splits; if dev is missing, it is a seeded stratified `share` of train."""
        if "dev" in self._splits:
            return self
        train = self.train
        size = max(1, round(share * len(train)))
        held_out: set[int] = set()
        for together in train.split_order(seed, "dev"):
            if len(held_out) < size:
                held_out |= set(together)
        if len(held_out) >= len(train):
            raise DataError(f"{self.name} has {_too_few(train)}: too few to take a dev split from")
        parts = {
            "train": replace(train, examples=tuple(e for row, e in enumerate(train) if row not in held_out)),
            "dev": Dataset(train.name, "dev", train.task, tuple(e for row, e in enumerate(train) if row in held_out)),
        }
        return Splits(self.name, {**parts, **{split: data for split, data in self.items() if split != "train"}})


def _check_fields(examples: Iterable[Example], names: Collection[str]) -> None:
    """Refuse examples of which some have more of the fields than others: no model reads single texts and pairs."""
    first, count = None, 0
    for example in examples:
        if isinstance(example, Example) and isinstance(example.fields, Mapping) and example.fields:
            own = sum(name in names for name in example.fields)
            if first is None:
                first, count = example, own
            elif own != count:
                raise DataError(
                    f"example {first.id} has the fields {', '.join(first.fields)}, and example {example.id} has "
                    f"{', '.join(example.fields)}; this data set has {', '.join(names)}: make two data sets of them"
                )


def _unusable(data: Dataset) -> str:
    """The number of unusable rows, and why the first of them is unusable."""
    count = len(data.rejected)
    return f" ({count} more could not be used: {data.rejected[0].reason})" if count else ""


def _too_few(data: Dataset) -> str:
    if data.labels or len(data) < 2:
        return f"{len(data)} training examples"
    return f"{len(data)} training questions, all about the same text"


def _kind_of(labels: Sequence[str]) -> str:
    return f"examples with the labels {', '.join(labels)}" if labels else "questions"


def _index_of(example: Example) -> int:
    if not isinstance(example.label, int):
        raise DataError(f"example {example.id} has no class label")
    return example.label


def _match(name: str, names: Sequence[str]) -> int | None:
    if name in names:
        return list(names).index(name)
    folded = [known.casefold() for known in names]
    return folded.index(name.casefold()) if folded.count(name.casefold()) == 1 else None


def _alignment(ours: tuple[str, ...], theirs: tuple[str, ...], used: set[int]) -> dict[int, int] | None:
    """Their label index for each of ours that is used; None if the names do not match."""
    by_name = {index: _match(name, theirs) for index, name in enumerate(ours) if index in used}
    found = {index: place for index, place in by_name.items() if place is not None}
    if len(found) == len(by_name):
        return found
    positions = [_position(name) for name in ours]
    if all(place is not None and place < len(theirs) for place in positions):
        return {index: place for index, place in enumerate(positions) if place is not None}
    if len(ours) == len(theirs) and sorted(_position(name) or 0 for name in theirs) == list(range(len(ours))):
        return {index: theirs.index(name) for index, name in enumerate(sorted(theirs, key=lambda n: _position(n) or 0))}
    return None


def _position(name: str) -> int | None:
    digits = name.removeprefix("LABEL_").removeprefix("label_")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _update(digest: hashlib._Hash, *parts: Field) -> None:
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part.tobytes()
        kind = "text" if isinstance(part, str) else f"{part.dtype} {part.shape}"
        # Lengths keep ("ab", "c") and ("a", "bc") apart.
        digest.update(f"{kind} {len(data)}:".encode() + data)
