"""What the page's server answers, over a real socket."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from cli_fake import invoke, move
from prometheus_client.parser import text_string_to_metric_families
from ui_fake import Living, Somewhere

from elastic.control.ui import serving, web
from elastic.control.ui.serving import Server
from elastic.control.ui.watching import Watcher
from elastic.control.ui.web import LOOPBACK, Web
from elastic.errors import EnvironmentProblem

LIMIT = 30.0


class Site:
    """The page of a cluster, served."""

    def __init__(self, watcher: Watcher, server: Server, client: Somewhere) -> None:
        self.watcher, self.server, self.somewhere = watcher, server, client

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.server.address, timeout=LIMIT)

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
        with closing(self.connection()) as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response, response.read().decode()


@pytest.fixture
def site() -> Iterator[Site]:
    before = set(threading.enumerate())
    here = Somewhere(lambda: Living(moved=[move(3)]))
    watcher = Watcher(here.connect, interval=0.01)
    watcher.open()
    with Server(Web(watcher, LOOPBACK), "127.0.0.1", 0) as server, closing(watcher):
        yield Site(watcher, server, here)
    assert set(threading.enumerate()) <= before, "no thread is left"


def test_pages_are_html_that_loads_nothing_from_elsewhere(site: Site) -> None:
    response, body = site.ask("/topologies/word-count")
    assert response.status == 200 and response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "count[2-3]" in body and "http://" not in body and "https://" not in body
    assert "default-src 'self'" in response.headers["Content-Security-Policy"]
    assert response.headers["Cache-Control"] == "no-store"


def test_head_is_the_same_without_a_body(site: Site) -> None:
    response, body = site.ask("/", "HEAD")
    assert response.status == 200 and body == "" and int(response.headers["Content-Length"]) > 100
    assert site.ask("/live?page=/", "HEAD")[1] == "", "and has an end"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    assert site.ask("/", method)[0].status == 405


def test_what_is_not_there_is_404(site: Site) -> None:
    for path in (
        "/nothing",
        "/topologies/none",
        "/static/none.js",
        "/static/../web.py",
        "/static/%2e%2e/web.py",
    ):
        assert site.ask(path)[0].status == 404, path


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_by_another_name_it_does_not_answer(site: Site, host: str) -> None:
    for path in ("/", "/metrics", "/live", "/static/page.js"):
        response, body = site.ask(path, Host=host)
        assert response.status == 403 and "127.0.0.1 or localhost" in body


def test_static_files_have_their_kinds(site: Site) -> None:
    for name, kind in {"page.css": "text/css", "page.js": "javascript", "icon.svg": "image/svg+xml"}.items():
        assert kind in site.ask(f"/static/{name}")[0].headers["Content-Type"]


def test_the_board_names_metrics_that_there_are(site: Site) -> None:
    board = site.ask("/static/grafana.json")[1]
    there = {
        sample.name for f in text_string_to_metric_families(site.ask("/metrics")[1]) for sample in f.samples
    }
    # Of counters and histograms that have nothing yet there are no samples of their own.
    there |= {f"{f.name}_total" for f in text_string_to_metric_families(site.ask("/metrics")[1])}
    expressions = [t["expr"] for p in json.loads(board)["panels"] for t in p["targets"]]
    expressions += [a["expr"] for a in json.loads(board)["annotations"]["list"]]
    named = {word for e in expressions for word in _words(e) if word.startswith("elastic_")}
    assert len(named) > 15 and named <= there, named - there


def _words(expression: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in expression).split()


def test_metrics_are_in_the_format_of_prometheus(site: Site) -> None:
    response, body = site.ask("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'elastic_component_emitted_total{component="lines",topology="word-count"} 5000.0' in body


def messages(response: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    while line := response.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def test_a_browser_is_sent_what_changes_and_nothing_else(site: Site) -> None:
    with closing(site.connection()) as connection:
        connection.request("GET", "/live?page=/topologies/word-count/moves/3")
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "text/event-stream"
        sent = messages(response)
        first = next(sent)
        while "2 tasks moved" not in first.get("move", ""):  # before moves are followed there are none
            first = next(sent)
        for client in site.somewhere.made:
            client.changed.put(move(3, why="for another reason"))
        changed = next(sent)
        assert changed.keys() == {"move"} and "for another reason" in changed["move"]


def test_who_still_looks_on_is_no_reason_to_stay(site: Site) -> None:
    connection = site.connection()
    connection.request("GET", "/live?page=/")
    next(messages(connection.getresponse()))
    site.watcher.close()
    site.server.close()  # and the fixture sees that no thread is left
    connection.close()


def test_who_sends_nothing_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving._Handler, "timeout", 0.05)
    connection = site.connection()
    connection.connect()
    assert connection.sock.recv(1) == b"", "the server has closed it"
    connection.close()


def test_who_takes_nothing_has_gone() -> None:
    here, there = socket.socketpair()
    here.settimeout(0.01)
    with here, there, pytest.raises(BrokenPipeError):
        while True:
            serving.Writer(here).write(b"x" * 65536)


def test_there_are_no_more_connections_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 1)
    watcher = Watcher(Somewhere().connect)
    watcher.open()
    with Server(Web(watcher), "127.0.0.1", 0) as server, closing(watcher):
        site = Site(watcher, server, Somewhere())
        first = site.connection()
        first.request("GET", "/live?page=/")
        response = first.getresponse()
        next(messages(response))
        assert site.ask("/")[0].status == 503
        response.close()
        first.close()


def test_a_port_that_is_taken_is_said(site: Site) -> None:
    port = site.server.address[1]
    with pytest.raises(EnvironmentProblem, match=rf"cannot listen on 127\.0\.0\.1:{port}") as raised:
        Server(Web(site.watcher), "127.0.0.1", port)
    assert "--port" in raised.value.remedy
    client = Living()
    result = invoke(client, "ui", "--port", str(port))
    assert result.exit_code == 11 and "cannot listen" in result.stderr and client.closed


@pytest.mark.parametrize(
    "words", [("--bind", "localhost"), ("--bind", "::1"), ("--port", "70000"), ("--interval", "x")]
)
def test_what_is_no_address_is_an_error_of_usage(words: tuple[str, str]) -> None:
    assert invoke(Living(), "ui", *words).exit_code == 2


def test_bound_elsewhere_it_answers_by_any_name() -> None:
    watcher = Watcher(Somewhere().connect)
    watcher.open()
    with Server(Web(watcher, None), "127.0.0.1", 0) as server, closing(watcher):
        assert Site(watcher, server, Somewhere()).ask("/", Host="cluster.internal")[0].status == 200


def test_a_path_that_is_not_utf8_is_a_page_that_is_not_there(site: Site) -> None:
    assert site.ask("/topologies/%ff%fe")[0].status == 404


def test_the_heartbeat_comes_when_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HEARTBEAT_SECONDS", 0.01)
    watcher = Watcher(Somewhere().connect, interval=3600)
    watcher.open()
    lines: Any = Web(watcher)._live("/")
    with closing(watcher):
        assert any(line.startswith(b": ") for line in (next(lines) for _ in range(10)))
