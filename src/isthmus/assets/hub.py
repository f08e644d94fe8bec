"""Checks once, and quickly, whether the Hugging Face hub can be reached.

Its libraries retry for half a minute before they say that there is no network. `reachable` asks first; inside
`patient_only_if_reachable` they use what they have cached and fail at once otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

_OFFLINE_SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_TIMEOUT = 4.0


def reachable() -> bool:
    """Whether the hub answers; False if the user told the hub's libraries to stay offline."""
    if any(os.environ.get(switch, "").lower() in ("1", "true", "yes", "on") for switch in _OFFLINE_SWITCHES):
        return False
    return _is_reachable()


@functools.cache
def _is_reachable() -> bool:
    from huggingface_hub import constants

    try:
        # urllib follows the proxy settings, as the hub's libraries do.
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=_TIMEOUT).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


@contextlib.contextmanager
def patient_only_if_reachable() -> Iterator[None]:
    """Inside, the hub's libraries are offline if the hub cannot be reached: cached files load, others fail fast."""
    if reachable():
        yield
        return
    import huggingface_hub.constants

    places: list[Any] = [huggingface_hub.constants, *filter(None, [sys.modules.get("datasets.config")])]
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Inside, the hub's library draws no progress bars of its own."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
