"""Links, addresses and numbers that an evader must leave as they are."""

from __future__ import annotations

import re
import time

import pytest

from isthmus.attacks.parts.payload import KINDS
from isthmus.attacks.parts.protection import Protection
from isthmus.core.errors import UnknownName
from isthmus.text.words import Words

FOUND = {
    "url": {
        "go to https://evil.example/login?x=1 now": "https://evil.example/login?x=1",
        "see www.getpaid.biz/now today": "www.getpaid.biz/now",
        "claim at prize-draw.co.uk/win or lose": "prize-draw.co.uk/win",
        "visit Example.COM, it is free": "Example.COM",
        "bare bit.is/x1 here": "bit.is/x1",
        "at 10.0.0.1:8080/a": "10.0.0.1:8080/a",
        "hxxp://bad.example/x": "hxxp://bad.example/x",
        "почта.com/вход": "почта.com/вход",
    },
    "email": {"write to j.doe+x@mail.example.org please": "j.doe+x@mail.example.org"},
    "phone": {
        "call 0800 123-4567 now": "0800 123-4567",
        "ring +44 (0)20 7946 0958": "+44 (0)20 7946 0958",
        "text WIN to 87121": "87121",
        "or 0800.123.4567!": "0800.123.4567",
    },
}
NOT_FOUND = {
    "url": ["it was great.it was", "the end.So what", "version 3.14 of it", "e.g. this", "mail me at a@b.com"],
    "email": ["5 @ 3", "a@b"],
    "phone": ["in 1999", "3.14159265", "3.14159265 and on", "room 1234"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, cases in FOUND.items() for text in cases])
def test_a_payload_is_found_whole(kind: str, text: str) -> None:
    assert [match.group() for match in re.finditer(KINDS[kind], text)] == [FOUND[kind][text]]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, cases in NOT_FOUND.items() for text in cases])
def test_ordinary_text_is_left_to_the_attacker(kind: str, text: str) -> None:
    assert re.findall(KINDS[kind], text) == []


def test_every_word_of_a_payload_is_protected_and_no_other() -> None:
    text = "Claim at prize-draw.co.uk/win or call 0800 123 4567 soon"
    mask = Protection(kinds=("url", "phone")).editable({"text": text})
    assert mask is not None
    words = Words.of(text)
    free = [text[start:end] for (start, end), may in zip(words.offsets(), mask, strict=True) if may]
    assert free == ["Claim", "at", "or", "call", "soon"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["a." * 20_000, "1 " * 20_000, "a@" * 20_000, "-" * 20_000, "a" * 20_000])
def test_hostile_texts_take_no_time(kind: str, text: str) -> None:
    began = time.process_time()
    re.findall(KINDS[kind], text)
    assert time.process_time() - began < 5


def test_an_unknown_kind_is_refused_and_old_settings_stay() -> None:
    with pytest.raises(UnknownName, match="url"):
        Protection(kinds=("urls",))
    assert Protection(None, "x").settings == {"columns": None, "pattern": "x"}
    assert Protection(kinds=("url", "email")).settings["kinds"] == ["email", "url"]
