"""Any Python function, and any scikit-learn pipeline, as a victim."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError, VictimError, VictimTimeout
from isthmus.core.types import Floats, Texts
from isthmus.models.victims.answer_parsing import AnswerReader, Outputs
from isthmus.models.victims.options import check_flag, check_number, check_whole_number

TIMEOUT = 120.0
"""Seconds a function may take for one batch before it counts as hung."""


class CallableVictim:
    """A function from texts to scores.

    The function is called with a list of strings, or, for inputs of several fields, with a list of dictionaries
    ``{field: text}``. What it may return is listed in `isthmus.models.victims.answer_parsing`. Without `labels` the
    number of classes is found by asking it once, and they are called LABEL_0, LABEL_1, …

    A call that takes longer than `timeout` seconds is a `VictimTimeout`; the thread it runs in cannot be stopped and is
    left behind. ``timeout=None`` waits for ever and calls the function in the caller's own thread.
    """

    def __init__(
        self,
        function: Callable[[list[Any]], Any],
        labels: Sequence[str] | None = None,
        *,
        outputs: Outputs = "auto",
        stochastic: bool = False,
        timeout: float | None = TIMEOUT,
        batch_size: int = 256,
        name: str | None = None,
    ) -> None:
        if labels is not None and len(labels) < 2:
            raise UsageError(f"a victim needs at least two labels, not {list(labels)}")
        self.function, self.batch_size = function, check_whole_number("batch_size", batch_size)
        self.timeout = None if timeout is None else check_number("timeout", timeout)
        self.name = name or f"the victim {getattr(function, '__name__', type(function).__name__)}"
        self._stochastic = check_flag("stochastic", stochastic)
        self._reader = AnswerReader(self.name, labels, outputs)

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, as given or numbered."""
        return self._reader.names(self.scores)

    @property
    def stochastic(self) -> bool:
        """Whether the user declared it stochastic."""
        return self._stochastic

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; a function does not use `keys`."""
        chunks = [texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size)]
        rows = [self._reader.read(self._call(make_plain(chunk)), len(chunk)) for chunk in chunks]
        return np.concatenate(rows) if rows else np.empty((0, len(self.labels)), dtype=np.float32)

    def _call(self, texts: list[Any]) -> Any:
        try:
            if self.timeout is None:
                return self.function(texts)
            return _within(self.timeout, self.function, texts)
        except TimeoutError as error:
            raise VictimTimeout(f"{self.name} did not answer {len(texts)} texts within {self.timeout:g} s") from error
        except (VictimError, KeyboardInterrupt):
            raise
        except BaseException as error:  # sys.exit(0) would end the command as if all were well.
            raise VictimError(f"{self.name} raised {type(error).__name__}: {error}") from error


def make_plain(texts: Sequence[Texts]) -> list[Any]:
    """Texts in plain form: strings, or dictionaries if there are several fields."""
    return [next(iter(text.values())) if len(text) == 1 else dict(text) for text in texts]


class _WorkerThread:
    """A thread that calls functions one by one; a process may end without waiting for it."""

    idle: ClassVar[list[_WorkerThread]] = []
    """Those that wait for work: starting a thread for every call would cost more than most calls."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[list[Any]], Any], list[Any]]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="isthmus-victim", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._given_up:
            function, texts = self._work.get()
            try:
                answer, failure = function(texts), None
            except BaseException as error:  # Handed to the caller's thread.
                answer, failure = None, error
            self._answers.put((answer, failure))
            del function, texts, answer, failure  # Nothing is kept while it waits.

    def call(self, seconds: float, function: Callable[[list[Any]], Any], texts: list[Any]) -> Any:
        """The function's answer within `seconds`; a call that takes longer is abandoned."""
        self._work.put((function, texts))
        try:
            answer, failure = self._answers.get(timeout=seconds)
        except (Empty, KeyboardInterrupt) as error:
            self._given_up = True
            if isinstance(error, Empty):
                raise TimeoutError from None
            raise
        _WorkerThread.idle.append(self)
        if failure is None:
            return answer
        # The function's own time-out is a failure like any other; only ours means that it hangs.
        if isinstance(failure, TimeoutError):
            raise VictimError(f"the victim raised TimeoutError: {failure}")
        raise failure

    @classmethod
    def take(cls) -> _WorkerThread:
        """An idle thread, or a new one; threads do not survive a fork."""
        while cls.idle:
            worker = cls.idle.pop()
            if worker._thread.is_alive():
                return worker
        return cls()


def _within(seconds: float, function: Callable[[list[Any]], Any], texts: list[Any]) -> Any:
    """Call a function in a thread that the process need not wait for at its end."""
    return _WorkerThread.take().call(seconds, function, texts)


def sklearn_victim(
    pipeline: Any, labels: Sequence[str] | None = None, *, timeout: float | None = TIMEOUT
) -> CallableVictim:
    """A fitted scikit-learn pipeline that takes texts.

    Its probabilities are used where it has them, else the softmax of its decision function, else its decisions.
    `labels` names the classes: in the order of ``classes_`` if those are numbers, in any order if they are names.
    """
    classes = [str(name) for name in _find_classes(pipeline)]
    order = _order_of_classes(classes, labels)
    names = tuple(labels) if labels is not None else tuple(classes)
    function: Callable[[list[Any]], Any]
    outputs: Outputs = "probabilities"
    if hasattr(pipeline, "predict_proba"):
        function = lambda texts: np.asarray(pipeline.predict_proba(texts))[:, order]  # noqa: E731
    elif hasattr(pipeline, "decision_function"):
        outputs = "logits"
        function = lambda texts: _margins(pipeline.decision_function(texts))[:, order]  # noqa: E731
    else:
        column = {classes[index]: place for place, index in enumerate(order)}
        function = lambda texts: [column[str(label)] for label in pipeline.predict(texts)]  # noqa: E731
    return CallableVictim(function, names, outputs=outputs, timeout=timeout, name="the scikit-learn pipeline")


def _find_classes(pipeline: Any) -> Sequence[Any]:
    from importlib.util import find_spec

    try:
        return list(pipeline.classes_)
    except AttributeError as error:
        known = "" if find_spec("sklearn") else " (and scikit-learn is not installed)"
        raise UsageError(
            f"the {type(pipeline).__name__} has no classes_: fit it first, and let it end in a classifier{known}"
        ) from error


def _order_of_classes(classes: Sequence[str], labels: Sequence[str] | None) -> list[int]:
    if labels is None or set(labels) != set(classes):
        if labels is not None and len(labels) != len(classes):
            raise UsageError(
                f"{len(labels)} labels were given ({', '.join(labels)}), but the pipeline has {len(classes)} classes "
                f"({', '.join(classes)})"
            )
        return list(range(len(classes)))
    return [list(classes).index(name) for name in labels]


def _margins(decision: Any) -> NDArray[np.float64]:
    margins = np.asarray(decision, dtype=np.float64)
    # A binary decision is the margin of the second class: half of it each way has the same sigmoid.
    return np.stack([-margins / 2, margins / 2], axis=1) if margins.ndim == 1 else margins
