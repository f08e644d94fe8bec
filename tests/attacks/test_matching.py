from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.attacks.parts import _matching
from isthmus.attacks.parts._matching import find_spans
from isthmus.attacks.parts.protection import Protection
from isthmus.core.errors import UsageError

PATTERNS = (r"https?://\S+|\d{5,}", r"(?i)STRASSE|ß", r"(?m)^\w+$", r"\b", r"[^\x00-\x7f]+", r"(?<=a)b*", "")


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=20)
@given(text=st.text())
def test_matches_are_those_of_re(pattern: str, text: str) -> None:
    assert list(find_spans(pattern, text)) == [match.span() for match in re.finditer(pattern, text)]


def test_a_text_with_half_a_surrogate_pair_is_matched_too() -> None:
    assert find_spans("b", "a\ud800b\nb") == ((2, 3), (4, 5))


def test_a_pattern_is_stopped_once_and_refused_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matching, "SECONDS", 0.3)
    protection = Protection(pattern="(a|aa)+$")
    texts = [{"text": "a" * 80 + f"! {number}"} for number in range(50)]
    for text in texts:
        began = time.monotonic()
        with pytest.raises(UsageError, match="repeats inside repeats"):
            protection.editable(text)
        assert text is texts[0] or time.monotonic() - began < 0.1
    assert find_spans("a", "banana") == ((1, 2), (3, 4), (5, 6))


def test_an_attack_with_such_a_pattern_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matching, "SECONDS", 0.3)
    with pytest.raises(UsageError, match="repeats inside repeats"):
        Protection(pattern="(a+)+b$").try_on([{"text": "a" * 60}])
