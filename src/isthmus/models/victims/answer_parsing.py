"""Parse the answers of a foreign victim into one row of probabilities per text.

    [n, classes] numbers      probabilities, or logits (softmax makes them probabilities)
    [n] or [n, 1] fractions   the probability of the second of two classes
    [n] whole numbers         class indices: one-hot rows
    [n] names                 class names: one-hot rows
    [n] or [n, k] records     ``{"label": ..., "score": ...}`` as transformers pipelines return them

Rows that contain NaN pass through: whoever asked decides what becomes of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import IsthmusWarning, UsageError, VictimError
from isthmus.core.types import Floats, Texts

Outputs = Literal["auto", "probabilities", "logits"]

TOLERANCE = 1e-2
"""How far a row of probabilities may be from a sum of one (services round)."""


class AnswerReader:
    """Reads the answers of one victim.

    With ``outputs="auto"`` the first answer decides whether the numbers are probabilities or logits, and every later
    one must agree. What an error quotes of an answer goes through `hide` first, which takes keys out.
    """

    def __init__(
        self,
        name: str,
        labels: Sequence[str] | None,
        outputs: Outputs = "auto",
        hide: Callable[[str], str] = str,
    ) -> None:
        if outputs not in get_args(Outputs):
            raise UsageError(f"outputs is one of {', '.join(get_args(Outputs))}, not {outputs!r}")
        self.name, self.outputs, self._hide = name, outputs, hide
        self.labels = None if labels is None else tuple(labels)

    def names(self, ask: Callable[[Sequence[Texts]], object]) -> tuple[str, ...]:
        """The class names; if nobody gave them, the victim is asked once and they are numbered."""
        if self.labels is None:
            ask([{"text": "a text"}])
        assert self.labels is not None
        return self.labels

    def read(self, answer: Any, count: int) -> Floats:
        """Parse an answer into probabilities [count, classes]."""
        rows = self._table(answer, count)
        if self.labels is None:
            self.labels = tuple(f"LABEL_{index}" for index in range(rows.shape[1]))
        if rows.shape != (count, len(self.labels)):
            raise VictimError(
                f"{self.name} answered {count} texts with an array of shape {rows.shape}; "
                f"expected ({count}, {len(self.labels)}): one column per label ({', '.join(self.labels)})"
            )
        return self._probabilities(rows)

    def _table(self, answer: Any, count: int) -> NDArray[np.float64]:
        if isinstance(answer, (list, tuple)) and answer and _is_record(answer[0]):
            return self._from_records(answer)
        if hasattr(answer, "detach"):
            answer = answer.detach().cpu()
        try:
            array = np.asarray(answer)
        except (ValueError, TypeError) as error:
            raise VictimError(f"{self.name} answered with rows of unequal length: {error}") from error
        if array.dtype.kind in "USO":
            return self._one_hot([self._position(name) for name in array.reshape(-1).tolist()])
        if array.dtype.kind not in "fiub":
            raise VictimError(f"{self.name} answered with {array.dtype} values; expected numbers or label names")
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim == 1 and len(array) == count:
            return self._from_column(array)
        if array.ndim != 2:
            raise VictimError(f"{self.name} answered {count} texts with an array of shape {array.shape}")
        return array.astype(np.float64)

    def _from_column(self, column: NDArray[Any]) -> NDArray[np.float64]:
        if column.dtype.kind in "iub":
            return self._one_hot(column.tolist())
        if len(self._names()) != 2:
            raise VictimError(
                f"{self.name} answered with one number per text, but there are {len(self._names())} labels: "
                "expected one column per label, or class indices as whole numbers"
            )
        if np.any((column < 0) | (column > 1)):
            raise VictimError(f"{self.name} answered with one number per text, not all of them between 0 and 1")
        second = column.astype(np.float64)
        return np.stack([1.0 - second, second], axis=1)

    def _from_records(self, answer: Sequence[Any]) -> NDArray[np.float64]:
        rows = np.zeros((len(answer), len(self._names())))
        for row, records in zip(rows, answer, strict=True):
            listed = [records] if isinstance(records, Mapping) else records
            if not isinstance(listed, (list, tuple)) or not all(
                isinstance(record, Mapping) and {"label", "score"} <= set(record) for record in listed
            ):
                raise VictimError(
                    f"{self.name} answered with {self._quote(records)}; expected records of label and score"
                )
            for record in listed:
                row[self._position(record["label"])] = self._score(record["score"])
            missing = len(row) - len(listed)
            if missing > 0:  # Only the most likely was returned: the others share what is left.
                named = [self._position(record["label"]) for record in listed]
                row[[index for index in range(len(row)) if index not in named]] = (1.0 - row.sum()) / missing
        return rows

    def _names(self) -> tuple[str, ...]:
        if self.labels is None:
            raise VictimError(
                f"{self.name} answers with labels or single numbers: say which labels there are (labels=)"
            )
        return self.labels

    def _quote(self, value: Any) -> str:
        """The beginning of an answer, without keys; they are removed first, since half a key is not recognised."""
        return self._hide(repr(value))[:80]

    def _score(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise VictimError(f"{self.name} answered with the score {self._quote(value)}; expected a number") from None

    def _position(self, name: Any) -> int:
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            classes = len(self._names())
            if not 0 <= name < classes:
                raise VictimError(f"{self.name} answered with class {name}; there are {classes} classes, from 0")
            return int(name)
        if str(name) not in self._names():
            known = ", ".join(self._names())
            raise VictimError(f"{self.name} answered with the label {self._quote(name)}; known: {known}")
        return self._names().index(str(name))

    def _one_hot(self, indices: Sequence[int]) -> NDArray[np.float64]:
        classes = len(self._names())
        wrong = next((index for index in indices if not 0 <= index < classes), None)
        if wrong is not None:
            raise VictimError(f"{self.name} answered with class {wrong}; there are {classes} classes, from 0")
        return np.eye(classes)[np.asarray(indices, dtype=np.int64)]

    def _probabilities(self, rows: NDArray[np.float64]) -> Floats:
        whole = rows[np.isfinite(rows).all(axis=1)]
        fits = bool(np.all(whole >= -1e-6) and np.all(np.abs(whole.sum(axis=1) - 1.0) <= TOLERANCE))
        if self.outputs == "auto" and len(whole):
            self.outputs = "probabilities" if fits else "logits"
            if not fits:
                worst = np.round(whole[int(np.argmax(np.abs(whole.sum(axis=1) - 1.0)))], 4).tolist()
                warnings.warn(
                    f"the scores of {self.name} are no probabilities (one row is {worst}): taken as logits, a softmax "
                    "makes them probabilities. Say so with outputs=logits (-V outputs=logits) if they are",
                    IsthmusWarning,
                    stacklevel=4,
                )
        if self.outputs == "logits":
            return softmax(rows)
        if not fits:
            sums = whole.sum(axis=1)
            worst = whole[int(np.argmax(np.abs(sums - 1.0)))]
            raise VictimError(f"{self.name} answered with a row that is no distribution: {np.round(worst, 4).tolist()}")
        return rows.astype(np.float32)


def _is_record(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)
    )


def softmax(rows: NDArray[np.floating[Any]]) -> Floats:
    """Probabilities of logits, in float32."""
    shifted = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float32)
