"""Addresses without their secrets: what is stored or shown has the name of a secret, never its value.

    https://ann:pw@host/classify?api_key=abc   ->   https://$USER_NAME:$PASSWORD@host/classify?api_key=$API_KEY

Every value of a query is taken for a secret: a key cannot be told from a version by its name. A placeholder is the name
of a shell variable, so that a recorded command runs again once its secrets are set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_URL = re.compile(
    r"""(?xs) (?P<scheme> [A-Za-z][A-Za-z0-9+.-]*:// )
    # A password may hold what an address may not, as long as it cannot be a port: http://ann:a/b@host
    (?P<host> [^/?#@:]* : (?!\d*[/?\#]) [^@\s]* @ [^/?\#]* | [^/?\#]* )
    (?P<path> [^?\#]* ) (?P<query> \?[^\#]* )? (?: \#.* )?"""
)
_INSIDE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s<>\"'`]+|(?<![^\s\"'`(=])/[^\s<>\"'`?]*\?[^\s<>\"'`]+")
_TRAILING = ".,;:!?)]}"
_WORD = (
    r"""(?:[\w@%+=:,./-]+|'[^']*'(?:"'"'[^']*')*|"(?:[^\\"`$]|\\[\\"`$]|\$(?:[A-Z_][A-Z0-9_]*|{[A-Z_][A-Z0-9_]*}))*")"""
)
"""A word as `shell_word` writes it."""
_OF_THE_SHELL = {"HOME", "HOSTNAME", "IFS", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "TERM", "UID", "USER"}
"""Variables that every shell has set already: a placeholder of that name would be filled in with the wrong value."""


@dataclass(frozen=True)
class Secret:
    """The place of a secret, by the name of the variable that replaces it."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


Parts = Sequence[str | Secret]


def redact_url(url: str) -> str:
    """An address with ``$NAME`` for its user, its password and every value of its query."""
    return "".join(map(str, url_parts(url)))


def redact(text: str) -> str:
    """A text with every address inside it redacted, also one without a host (``/classify?api_key=abc``)."""
    return _INSIDE.sub(_redact_match, text)


def is_url(text: str) -> bool:
    """Whether the whole text is an address."""
    return re.match(r"(?i)https?://[\w\[@$%]", text) is not None and not re.search(r"\s", text)


def bare_url(url: str) -> str:
    """An address without user, password and query, as the name of a service."""
    match = _URL.fullmatch(url)
    return url if match is None else match["scheme"] + match["host"].rpartition("@")[2] + match["path"]


def url_parts(url: str) -> list[str | Secret]:
    """The pieces of an address, each secret by its name. A text that is no address is one piece."""
    match = _URL.fullmatch(url)
    if match is None:
        path, mark, query = url.partition("?")
        return [path, mark, *_query(query)] if mark else [url]
    user, at, host = match["host"].rpartition("@")
    return [match["scheme"], *_user(user), at, host, match["path"], *_redact_query(match["query"])]


def shell_word(parts: Parts) -> str:
    """Join pieces to one word of a POSIX shell, in which the variables are expanded."""
    if not any(isinstance(part, Secret) for part in parts):
        return shlex.quote("".join(map(str, parts)))
    return '"' + "".join(_in_quotes(parts, place) for place in range(len(parts))) + '"'


def is_command(text: str) -> bool:
    """Whether a recorded text is a single isthmus command and means nothing else to a shell."""
    return re.fullmatch(rf"isthmus(?: {_WORD})+", text, re.ASCII) is not None


def secret_name(name: str) -> str:
    """The shell variable that replaces the secret `name`."""
    found = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") or "SECRET"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_VALUE" if found in _OF_THE_SHELL else found


def _redact_match(match: re.Match[str]) -> str:
    found = match[0].rstrip(_TRAILING)
    return redact_url(found) + match[0][len(found) :]


def _user(user: str) -> Iterator[str | Secret]:
    if user:
        yield Secret("USER_NAME")
        if ":" in user:
            yield ":"
            yield Secret("PASSWORD")


def _redact_query(query: str | None) -> list[str | Secret]:
    return [] if query is None else ["?", *_query(query[1:])]


def _query(query: str) -> Iterator[str | Secret]:
    seen: dict[str, int] = {}
    for place, pair in enumerate(re.split("([&;])", query)):
        if place % 2:
            yield pair
            continue
        key, equals, value = pair.partition("=")
        if equals:
            yield f"{key}="
        if value or (key and not equals):
            name = secret_name(key if equals else "query")
            seen[name] = seen.get(name, 0) + 1
            yield Secret(name if seen[name] == 1 else f"{name}_{seen[name]}")


def _in_quotes(parts: Parts, place: int) -> str:
    """Quote one piece inside double quotes."""
    part = parts[place]
    if isinstance(part, str):
        return re.sub(r'([\\"`$])', r"\\\1", part)
    runs_on = re.match(r"\w", "".join(map(str, parts[place + 1 :])))  # would be read as part of the name
    return f"${{{part.name}}}" if runs_on else str(part)
