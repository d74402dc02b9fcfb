"""What the page's server answers: a WSGI application."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from elastic.control.ui.exposition import CONTENT_TYPE, exposition
from elastic.control.ui.pages import Pages
from elastic.control.ui.watching import Watcher

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_HTML = "text/html; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_STATIC = "/static/"
_LIVE = "/live"
HEARTBEAT_SECONDS = 10.0
"""How often a browser hears something when nothing changes, so that one that has gone is noticed."""
_BETWEEN_SECONDS = 0.25
"""The least time between two messages to a browser."""
_SAFE = [
    ("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]  # fmt: skip
LOOPBACK = ("localhost", "127.0.0.1")


class Web:
    """The application.

    Args:
        watcher: What it shows.
        hosts: By which names it may be asked for; others are refused, as a page of somebody else's that has its own name lead
            here could read along in the browser of whoever opens it. None: by any.
    """

    def __init__(self, watcher: Watcher, hosts: Iterable[str] | None = LOOPBACK) -> None:
        self._watcher = watcher
        self._hosts = None if hosts is None else frozenset(hosts)
        self._pages = Pages()

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "") or "/"
        # WSGI hands bytes over as if they were Latin-1.
        path = path.encode("latin-1", "replace").decode("utf-8", "replace")
        query = environ.get("QUERY_STRING", "")

        def answer(status: HTTPStatus, kind: str, body: bytes) -> Iterable[bytes]:
            headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *_SAFE]
            start(f"{status.value} {status.phrase}", headers)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

        def text(status: HTTPStatus, said: str) -> Iterable[bytes]:
            return answer(status, _PLAIN, f"{said}\n".encode())

        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "This page only shows: GET it.")
        host = environ.get("HTTP_HOST", "").rpartition(":")[0] or environ.get("HTTP_HOST", "")
        if self._hosts is not None and host not in self._hosts:
            names = " or ".join(sorted(self._hosts))
            return text(HTTPStatus.FORBIDDEN, f"This page answers by the name {names}, not by {host!r}.")
        if path == "/metrics":
            return answer(HTTPStatus.OK, CONTENT_TYPE, exposition(self._watcher.shown()))
        if path.startswith(_STATIC):
            return self._static(path.removeprefix(_STATIC), answer, text)
        if path == _LIVE:
            start("200 OK", [("Content-Type", "text/event-stream"), *_SAFE])
            only_asks = environ["REQUEST_METHOD"] == "HEAD"
            return [] if only_asks else self._live((parse_qs(query).get("page") or ["/"])[0])
        address = quote(path) + (f"?{query}" if query else "")
        page = self._pages.page(address, self._watcher.shown())
        document = self._pages.whole(page, f"{_LIVE}?page={quote(address, safe='')}")
        return answer(HTTPStatus.OK if page.found else HTTPStatus.NOT_FOUND, _HTML, document.encode())

    def _static(
        self,
        name: str,
        answer: Callable[[HTTPStatus, str, bytes], Iterable[bytes]],
        text: Callable[[HTTPStatus, str], Iterable[bytes]],
    ) -> Iterable[bytes]:
        known = {file.name: file for file in files("elastic.control.ui").joinpath("static").iterdir()}
        if name not in known:
            return text(HTTPStatus.NOT_FOUND, "There is no such file.")
        return answer(HTTPStatus.OK, mimetypes.guess_type(name)[0] or _PLAIN, known[name].read_bytes())

    def _live(self, address: str) -> Iterator[bytes]:
        """Server-sent events: the sections of a page that have changed, for as long as somebody listens."""
        seen, sent = -1, dict[str, str]()
        while not self._watcher.ended:
            now = self._watcher.wait(seen, HEARTBEAT_SECONDS)
            if now == seen:
                yield b": nothing new\n\n"
                continue
            seen = now
            sections = self._pages.page(address, self._watcher.shown()).sections
            changed = {name: html for name, html in sections.items() if sent.get(name) != html}
            sent.update(changed)
            if changed:
                yield f"data: {json.dumps(changed)}\n\n".encode()
            self._watcher.pause(_BETWEEN_SECONDS)
