"""Sends one POST: within one deadline, to one origin, and without showing a key to anyone else."""

from __future__ import annotations

import base64
import functools
import html
import http.client
import io
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit, urlunsplit

from isthmus.core.errors import UsageError, VictimError
from isthmus.core.redaction import redact_url

LONGEST_ANSWER = 64 * 1024 * 1024
LONGEST_REFUSAL = 64 * 1024
"""Bytes of an error that are read: more than are shown, so that a key in it is seen as a whole."""
_PORTS = {"http": 80, "https": 443}
_TELLING = 4
"""Characters from which on a value is looked for in what a service says; shorter ones are no secrets."""

Origin = tuple[str, str, int]


@dataclass(frozen=True)
class Address:
    """A service's address, what is sent with every request, and how both may be shown."""

    url: str = field(repr=False)
    """Without user and password, which go into a header."""
    origin: Origin
    headers: Mapping[str, str] = field(repr=False)
    shown: str
    secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str] | None = None) -> Address:
        """Parse a user's address; one that cannot be sent to is a `UsageError`."""
        own = _check_headers(headers or {})
        shown = redact_url(url)
        if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
            raise UsageError(f"an address starts with http:// or https://, {shown!r} does not")
        if re.search(r"[\s\x00-\x1f\x7f]", url):
            raise UsageError(f"the address {shown!r} holds a space or a control character: write %20 for a space")
        try:
            parts = urlsplit(url)
            origin = _origin(url)
            host = origin[1].encode("idna").decode("ascii")
        except ValueError as error:  # Also what IDNA refuses.
            why = "its port is not a number from 0 to 65535" if "ort" in str(error) else "its host is not valid"
            raise UsageError(f"the address {shown!r} cannot be used: {why}") from None
        place = f"[{host}]" if ":" in host else host
        if parts.port is not None:
            place += f":{parts.port}"
        path, query = (quote(part, safe="/%:=&?~+!$,;'@()*[]") for part in (parts.path or "/", parts.query))
        hidden = [value or key for key, _, value in (pair.partition("=") for pair in re.split("[&;]", parts.query))]
        if parts.username is not None and not any(name.lower() == "authorization" for name in own):
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            own["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        hidden += [part for part in (parts.username, parts.password) if part]
        for value in own.values():
            hidden += [value, *value.split()[1:]]
        return cls(
            urlunsplit((parts.scheme, place, path, query, "")),
            origin,
            {"Content-Type": "application/json", "Accept": "application/json", **own},
            shown,
            tuple(sorted({form for value in hidden for form in _spellings(value)}, key=len, reverse=True)),
        )

    def hide(self, said: str) -> str:
        """Remove keys from a service's message; shorten it afterwards, since half a key is not recognised."""
        for secret in self.secrets:
            said = said.replace(secret, "…")
        return said


def _spellings(value: str) -> set[str]:
    """A secret in all forms that a service may repeat: as sent, decoded, encoded, in JSON, in HTML."""
    plain = {value, unquote(value), unquote_plus(value)}
    forms = plain | {form(each, safe="") for each in plain for form in (quote, quote_plus)}
    forms |= {written for each in plain for written in (json.dumps(each)[1:-1], repr(each)[1:-1], html.escape(each))}
    return {form for each in forms for form in (each, each.replace("/", "\\/")) if len(form) >= _TELLING}


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise UsageError("headers are a mapping of names to values; on the command line give --header NAME:VALUE")
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise UsageError(f"the name of a header is made of letters, digits and hyphens, {name!r} is not")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value) or any(ord(character) > 0xFF for character in value):
            raise UsageError(f"the value of the header {name} holds a character that cannot be sent")
    return dict(headers)


def _origin(url: str) -> Origin:
    """Scheme, host and port: a browser's origin."""
    parts = urlsplit(url)
    port = parts.port
    if not parts.hostname:
        raise ValueError("no host")
    return parts.scheme.lower(), parts.hostname.lower(), _PORTS.get(parts.scheme.lower(), 0) if port is None else port


@dataclass(frozen=True)
class Reply:
    """The service's answer."""

    status: int
    reason: str
    content: bytes
    retry_after: str | None = None


def post(address: Address, body: bytes, seconds: float) -> Reply:
    """Send `body` and read the whole answer within `seconds`.

    Raises `TimeoutError` where that takes longer, other kinds of `OSError` where the connection fails.
    """
    deadline = time.monotonic() + seconds
    opener = urllib.request.build_opener(_WithinOrigin(address), _Http(deadline), _Https(deadline))
    request = urllib.request.Request(address.url, data=body, headers=dict(address.headers), method="POST")
    try:
        try:
            with opener.open(request, timeout=seconds) as response:
                content = response.read(LONGEST_ANSWER + 1)
                if response.length and len(content) <= LONGEST_ANSWER:
                    raise ConnectionError("the connection ended in the middle of the answer")
                return Reply(response.status, response.reason, content)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Reply(
                    refusal.code, refusal.reason, refusal.read(LONGEST_REFUSAL), refusal.headers.get("Retry-After")
                )
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else ConnectionError(str(error.reason)) from error
    except http.client.HTTPException as error:
        raise ConnectionError(f"it does not speak HTTP ({type(error).__name__})") from error


class _WithinOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only within the same scheme, host and port: headers and texts are for nobody else."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Send the same POST to another path; 303 asks for a GET, as usual."""
        try:
            target = _origin(newurl)
        except ValueError:
            target = None
        if target != self._address.origin:
            where = self._address.hide(redact_url(newurl))
            raise VictimError(
                f"the service {self._address.shown} redirects to {where}: texts and headers are not sent to another"
                " scheme, host or port. If that is where the service is, give its address"
            )
        if code == 303:
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        return urllib.request.Request(
            newurl.replace(" ", "%20"), data=req.data, headers=dict(req.headers), method="POST", unverifiable=True
        )


class _Http(urllib.request.HTTPHandler):
    """Opens http:// under a deadline."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Connect, send, and read the head of the answer."""
        return self.do_open(functools.partial(_Connection, deadline=self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    """Opens https:// under a deadline."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Connect, send, and read the head of the answer."""
        return self.do_open(functools.partial(_TlsConnection, deadline=self._deadline), req)


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait ends at one deadline; the usual time-out restarts with every byte."""

    def __init__(self, *arguments: Any, deadline: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline = deadline
        self.response_class = functools.partial(_response, deadline)  # type: ignore[assignment]

    def connect(self) -> None:
        """Connect within the remaining time."""
        self.timeout = _left(self.deadline)
        super().connect()

    def send(self, data: Any) -> None:
        """Send within the remaining time."""
        if self.sock is not None:
            self.sock.settimeout(_left(self.deadline))
        super().send(data)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    """The same connection, encrypted."""


def _response(deadline: float, sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Timed(sock, deadline), *arguments, **options)  # type: ignore[arg-type]


class _Timed(io.RawIOBase):
    """Reads a socket until a deadline; it replaces the socket where only its bytes are read."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = sock, deadline
        self._bytes = sock.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        """The file that a response is read from."""
        assert mode == "rb"
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read bytes into `buffer`, but not past the deadline."""
        self._socket.settimeout(_left(self._deadline))
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        """Release the socket."""
        self._bytes.close()
        super().close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
