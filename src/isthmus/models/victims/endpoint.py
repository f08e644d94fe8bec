"""An HTTP service that takes and returns JSON, as a victim.

    POST {"texts": ["...", ...]}                                     one field
    POST {"texts": [{"premise": "...", "hypothesis": "..."}, ...]}   several fields
    200  {"scores": [[0.9, 0.1], ...]}                               one row per text, as `answer_parsing` lists them

The names of both keys can be set, as can headers (for a token). A bare JSON list is understood as well. docs/victims.md
has the whole contract.
"""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import VictimError, VictimTimeout, VictimUnreachable
from isthmus.core.types import Floats, Texts
from isthmus.models.victims._side_by_side import Pace, side_by_side
from isthmus.models.victims._transport import LONGEST_ANSWER, LONGEST_REFUSAL, Address, Reply, post
from isthmus.models.victims.answer_parsing import AnswerReader, Outputs
from isthmus.models.victims.functions import make_plain
from isthmus.models.victims.options import check_flag, check_name, check_number, check_whole_number

_PASSING = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which asking again may help."""
_ASKED_AT_ONCE = 64
"""Texts that one call should hold at least."""
_SHOWN = 240
"""Characters of a service's own words in an error."""
_LONGEST_WAIT = 60.0
"""Seconds between two tries, whatever the service asks for."""


class HttpVictim:
    """A service at a URL.

    Results do not depend on `concurrency`: answers are read in the order of the texts. A redirect is followed within
    the same scheme, host and port only.

    Args:
        url: http:// or https://; user and password in it are sent as basic authorisation.
        labels: class names; without them the service is asked once, and may answer with "labels" beside the scores.
        batch_size: maximum texts in one request.
        concurrency: maximum requests at a time.
        requests_per_second: the service is asked no more often, by all threads together; None: no limit.
        timeout: seconds for one request, from connecting to the last byte of the answer.
        retries: how often a request is sent again after 408, 425, 429, 5xx, a lost connection or a time-out.
        backoff: seconds before the first repetition; each further one waits twice as long, or as long as the service
            asks for by ``Retry-After``, which holds every thread; a minute at most.
    """

    def __init__(
        self,
        url: str,
        labels: Sequence[str] | None = None,
        *,
        batch_size: int = 32,
        concurrency: int = 4,
        requests_per_second: float | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        backoff: float = 0.5,
        headers: Mapping[str, str] | None = None,
        texts_key: str = "texts",
        scores_key: str = "scores",
        outputs: Outputs = "auto",
        stochastic: bool = False,
    ) -> None:
        self._address = Address.of(url, headers)
        self.url, self.timeout = url, check_number("timeout", timeout)
        self.batch_size, self.concurrency = (
            check_whole_number("batch_size", batch_size),
            check_whole_number("concurrency", concurrency),
        )
        self.retries, self.backoff = (
            check_whole_number("retries", retries, least=0),
            check_number("backoff", backoff, zero=True),
        )
        self.texts_key, self.scores_key = (
            check_name("texts_key", texts_key),
            check_name("scores_key", scores_key),
        )
        rate = None if requests_per_second is None else check_number("requests_per_second", requests_per_second)
        self._pace = Pace(0.0 if rate is None else 1.0 / rate)
        self._open = threading.BoundedSemaphore(self.concurrency)
        self._stochastic = check_flag("stochastic", stochastic)
        self._name = f"the service {self._address.shown}"
        self._reader = AnswerReader(self._name, labels, outputs, self._address.hide)

    def __repr__(self) -> str:
        return f"HttpVictim({self._address.shown!r})"

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names: given by the user, by the service, or numbered."""
        return self._reader.names(self.scores)

    @property
    def stochastic(self) -> bool:
        """Whether the user declared it stochastic."""
        return self._stochastic

    @property
    def texts_at_once(self) -> int:
        """Number of texts that keeps all requests busy, in whole batches, the same for any concurrency."""
        return self.batch_size * max(self.concurrency, -(-_ASKED_AT_ONCE // self.batch_size))

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; a service does not use `keys`.

        Where requests timed out, the error holds the rows of the others.
        """
        batches = [
            make_plain(texts[start : start + self.batch_size]) for start in range(0, len(texts), self.batch_size)
        ]
        answers = side_by_side(self._answer_or_timeout, batches, self.concurrency)
        rows = [
            None if isinstance(answer, VictimTimeout) else self._read(answer, len(batch))
            for answer, batch in zip(answers, batches, strict=True)
        ]
        late = next((answer for answer in answers if isinstance(answer, VictimTimeout)), None)
        if late is not None:
            raise VictimTimeout(str(late), _with_gaps(rows, [len(batch) for batch in batches])) from late
        whole_rows = [part for part in rows if part is not None]
        return np.concatenate(whole_rows) if whole_rows else np.empty((0, len(self.labels)), dtype=np.float32)

    def _read(self, answer: Any, count: int) -> Floats:
        """Parse the answers in the order of the texts: the first one decides how all are read."""
        if isinstance(answer, Mapping):
            if self._reader.labels is None and isinstance(answer.get("labels"), list):
                self._reader.labels = tuple(str(name) for name in answer["labels"])
            if self.scores_key not in answer:
                found = self._address.hide(", ".join(map(str, answer)))
                raise VictimError(f"{self._name} answered without {self.scores_key!r}; it has {found:.200}")
            answer = answer[self.scores_key]
        return self._reader.read(answer, count)

    def _answer_or_timeout(self, texts: list[Any]) -> Any:
        try:
            return self._answer(json.dumps({self.texts_key: texts}).encode())
        except VictimTimeout as error:
            return error

    def _answer(self, body: bytes) -> Any:
        for attempt in range(self.retries + 1):
            self._pace.wait_for_turn()
            try:
                with self._open:
                    return self._send(body)
            except _Passing as passing:
                if attempt == self.retries:
                    raise passing.error from passing.__cause__
                if passing.wait is not None:
                    self._pace.hold(min(passing.wait, _LONGEST_WAIT))
                else:
                    time.sleep(min(self.backoff * 2.0**attempt, _LONGEST_WAIT))
        raise AssertionError("unreachable")

    def _send(self, body: bytes) -> Any:
        try:
            reply = post(self._address, body, self.timeout)
        except TimeoutError as error:
            late = VictimTimeout(f"{self._name} did not answer within {self.timeout:g} s")
            raise _Passing(late) from error
        except OSError as error:
            # A connection that is lost may be the doing of one text.
            kind = VictimUnreachable if isinstance(error, ConnectionRefusedError | socket.gaierror) else VictimError
            hidden = self._address.hide(str(error))
            raise _Passing(kind(f"{self._name} cannot be reached: {hidden}")) from error
        if not 200 <= reply.status < 300:
            self._refuse(reply)
        if len(reply.content) > LONGEST_ANSWER:
            raise VictimError(f"{self._name} answered with more than {LONGEST_ANSWER >> 20} MB")
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError):
            said = self._address.hide(reply.content[:LONGEST_REFUSAL].decode("utf-8", "replace"))
            raise VictimError(f"{self._name} did not answer with JSON: {said[:80]!r}") from None

    def _refuse(self, reply: Reply) -> None:
        said = self._address.hide(f"{reply.reason}: {reply.content.decode('utf-8', 'replace').strip()}")
        refusal = VictimError(f"{self._name} answered {reply.status} {said:.{_SHOWN}}")
        if reply.status in _PASSING:
            raise _Passing(refusal, _seconds(reply.retry_after))
        raise refusal


class _Passing(Exception):
    """A failure that may be temporary."""

    def __init__(self, error: VictimError, wait: float | None = None) -> None:
        self.error, self.wait = error, wait


def _with_gaps(parts: Sequence[Floats | None], counts: Sequence[int]) -> Floats | None:
    """The rows that were answered, NaN for the others; None if there are none."""
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    gaps = (np.full((count, known.shape[1]), np.nan, dtype=np.float32) for count in counts)
    return np.concatenate([gap if part is None else part for part, gap in zip(parts, gaps, strict=True)])


def _seconds(header: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header: a number, or a date."""
    if not header:
        return None
    try:
        wait = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(wait, 0.0) if math.isfinite(wait) else None
