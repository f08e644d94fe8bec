import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.redaction import bare_url, is_url, redact, redact_url, secret_name, shell_word, url_parts


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/classify", "https://host/classify"),
        ("https://host:8000/a?api_key=abc", "https://host:8000/a?api_key=$API_KEY"),
        ("https://ann:pw@host/a", "https://$USER_NAME:$PASSWORD@host/a"),
        ("https://ann:p/w?x@host/a", "https://$USER_NAME:$PASSWORD@host/a"),
        ("https://token@host/a#part", "https://$USER_NAME@host/a"),
        ("https://host/a?abc", "https://host/a?$QUERY"),
        ("https://host/a?key=b&key=c;x-y=d", "https://host/a?key=$KEY&key=$KEY_2;x-y=$X_Y"),
        ("https://host:8000/inbox/@me?", "https://host:8000/inbox/@me?"),
        ("http://[::1]:80/a?1=2", "http://[::1]:80/a?1=$_1"),
        # The shell has these already, with another value.
        ("http://host/?path=abc&user=b", "http://host/?path=$PATH_VALUE&user=$USER_VALUE"),
    ],
)
def test_an_address_names_its_secrets(url, shown):
    assert redact_url(url) == shown
    assert redact_url(shown) == shown


def test_every_address_inside_a_text():
    text = "the service http://h/x?key=abc: 404 (see 'https://u:pw@h/?a=b'). Cannot POST /x?key=abc, why?so=it is"
    assert redact(text) == (
        "the service http://h/x?key=$KEY: 404 (see 'https://$USER_NAME:$PASSWORD@h/?a=$A'). "
        "Cannot POST /x?key=$KEY, why?so=it is"
    )
    assert redact("no address: a/b?, c://") == "no address: a/b?, c://"


@given(st.text("abc123-_.~%+!*", min_size=8, max_size=20), st.text("abc123-_~%+", min_size=8, max_size=20))
def test_no_secret_is_left(password, key):
    for shown in (
        redact_url(f"https://me:{password}@host/a?k={key}"),
        redact(f"at https://me:{password}@host/a?k={key}"),
    ):
        assert password not in shown
        assert key not in shown


def test_the_name_of_a_service():
    assert bare_url("https://user:key@host:8000/classify?token=abc#x") == "https://host:8000/classify"
    assert bare_url("some/folder") == "some/folder"
    assert bare_url("https://host:port/a?b=c") == "https://host:port/a"  # refused elsewhere, and no fault here


def test_what_is_an_address():
    assert is_url("https://host")
    assert is_url("HTTP://me@host/?a=b")
    assert not any(map(is_url, [r"https?://\S+", r"https://\S+", "https://", "a https://host", "https://host and"]))


def test_a_shell_fills_the_placeholders_in():
    url = "https://me:pw@host/$a`b`\\\"c?api_key=it's&flag"
    word = shell_word(url_parts(url))
    filled = {**os.environ, "USER_NAME": "me", "PASSWORD": "pw", "API_KEY": "it's", "QUERY": "flag"}
    shown = subprocess.run(["sh", "-c", f"printf %s {word}"], env=filled, capture_output=True, text=True, check=True)
    assert shown.stdout == url
    assert shell_word(["it's $HOME"]) == shlex.quote("it's $HOME")


def test_names_are_variables():
    assert [secret_name(name) for name in ("x-api-key", "2fa", "¿?", "home")] == [
        "X_API_KEY",
        "_2FA",
        "SECRET",
        "HOME_VALUE",
    ]
