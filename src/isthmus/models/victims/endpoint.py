"""An HTTP service that takes and returns JSON, as a victim.

    POST {"texts": ["...", ...]}                                     one field
    POST {"texts": [{"premise": "...", "hypothesis": "..."}, ...]}   several fields
    200  {"scores": [[0.9, 0.1], ...]}                               one row per text, as `answers` lists them

The names of both keys can be set, as can headers (for a token). A bare JSON list is understood as well.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError, VictimError, VictimTimeout
from isthmus.core.types import Floats, Texts
from isthmus.models.victims.answers import Outputs, Reader
from isthmus.models.victims.functions import plain

_LONGEST_ANSWER = 64 * 1024 * 1024
_PASSING = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which asking again may help."""


class HttpVictim:
    """A service behind an address.

    Args:
        url: http:// or https://.
        labels: class names; without them the service is asked once, and may answer with "labels" beside the scores.
        batch_size: most texts in one request.
        requests_per_second: the service is asked no more often; None asks as fast as it answers.
        timeout: seconds to wait for one answer.
        retries: how often a request is sent again after 408, 425, 429, 5xx, a lost connection or a time-out.
        backoff: seconds before the first repetition; each further one waits twice as long, or as long as the service
            asks for by ``Retry-After``, a minute at most.
    """

    def __init__(
        self,
        url: str,
        labels: Sequence[str] | None = None,
        *,
        batch_size: int = 32,
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
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"an address starts with http:// or https://, {url!r} does not")
        if (
            batch_size < 1
            or retries < 0
            or timeout <= 0
            or (requests_per_second is not None and requests_per_second <= 0)
        ):
            raise UsageError("batch_size, timeout and requests_per_second are positive, retries is not negative")
        self.url, self.batch_size, self.timeout = url, batch_size, timeout
        self.retries, self.backoff = retries, backoff
        self.headers = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        self.texts_key, self.scores_key = texts_key, scores_key
        self._pause = 0.0 if requests_per_second is None else 1.0 / requests_per_second
        self._next = 0.0
        self._stochastic = stochastic
        self._reader = Reader(f"the service {url}", labels, outputs)

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names: as given, as the service names them, or counted."""
        return self._reader.names(self.scores)

    @property
    def stochastic(self) -> bool:
        """As declared."""
        return self._stochastic

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; a service has no use for `keys`."""
        rows = [
            self._ask(plain(texts[start : start + self.batch_size])) for start in range(0, len(texts), self.batch_size)
        ]
        return np.concatenate(rows) if rows else np.empty((0, len(self.labels)), dtype=np.float32)

    def _ask(self, texts: list[Any]) -> Floats:
        body = json.dumps({self.texts_key: texts}).encode()
        answer = self._answer(body)
        if isinstance(answer, Mapping):
            if self._reader.labels is None and isinstance(answer.get("labels"), list):
                self._reader.labels = tuple(str(name) for name in answer["labels"])
            if self.scores_key not in answer:
                raise VictimError(
                    f"the service {self.url} answered without {self.scores_key!r}; it has {', '.join(map(str, answer))}"
                )
            answer = answer[self.scores_key]
        return self._reader.read(answer, len(texts))

    def _answer(self, body: bytes) -> Any:
        for attempt in range(self.retries + 1):
            self._wait_for_turn()
            try:
                return self._send(body)
            except _Passing as passing:
                if attempt == self.retries:
                    raise passing.error from passing.__cause__
                time.sleep(min(passing.wait or self.backoff * 2.0**attempt, 60.0))
        raise AssertionError("unreachable")

    def _wait_for_turn(self) -> None:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._pause

    def _send(self, body: bytes) -> Any:
        request = urllib.request.Request(self.url, data=body, headers=self.headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                content = response.read(_LONGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            shown = error.read(200).decode("utf-8", "replace").strip()
            refusal = VictimError(f"the service {self.url} answered {error.code} {error.reason}: {shown}")
            if error.code in _PASSING:
                raise _Passing(refusal, _seconds(error.headers.get("Retry-After"))) from error
            raise refusal from error
        except (TimeoutError, OSError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, TimeoutError):
                late = VictimTimeout(f"the service {self.url} did not answer within {self.timeout:g} s")
                raise _Passing(late) from error
            raise _Passing(VictimError(f"the service {self.url} cannot be reached: {reason}")) from error
        if len(content) > _LONGEST_ANSWER:
            raise VictimError(f"the service {self.url} answered with more than {_LONGEST_ANSWER >> 20} MB")
        try:
            return json.loads(content)
        except ValueError as error:
            raise VictimError(f"the service {self.url} did not answer with JSON: {content[:80]!r}") from error


class _Passing(Exception):
    """A failure that may pass."""

    def __init__(self, error: VictimError, wait: float | None = None) -> None:
        self.error, self.wait = error, wait


def _seconds(header: str | None) -> float | None:
    try:
        return max(float(header), 0.0) if header else None
    except ValueError:
        return None
