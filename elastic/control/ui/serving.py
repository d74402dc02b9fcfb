"""The page's server: a thread for each browser that looks, and no more of them than are allowed."""

from __future__ import annotations

import io
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from elastic.errors import EnvironmentProblem

if TYPE_CHECKING:
    from elastic.control.ui.web import Web

MOST_CONNECTIONS = 64
PATIENCE_SECONDS = 15.0
"""For how long a browser may send nothing of its request, or take nothing of what it is sent."""
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Serves the page until it is closed.

    Args:
        web: What answers.
        bind: The IPv4 address to listen on.
        port: 0 for a free one.

    Raises:
        EnvironmentProblem: It cannot listen there.
    """

    def __init__(self, web: Web, bind: str, port: int) -> None:
        try:
            self._server = _Listening((bind, port), _Handler)
        except (OSError, OverflowError) as error:
            raise EnvironmentProblem(
                f"The page cannot listen on {bind}:{port}: {getattr(error, 'strerror', None) or error}.",
                remedy="Name another port with --port, 0 for a free one, and with --bind an address of this machine.",
            ) from error
        self._server.set_app(web)
        self._thread = threading.Thread(target=self._server.serve_forever, name="ui-server", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and wait for what is being sent: close the watcher first, which ends what would have no end."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # waits for the threads of all connections


class _Listening(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: Callable[..., Any]) -> None:
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # That of HTTPServer asks for the full name of the host, which can take half a minute.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            request.settimeout(1.0)
            with suppress(OSError):
                request.sendall(_FULL)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def setup(self) -> None:
        super().setup()
        self.wfile = Writer(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Who looks is nobody's news."""

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # the browser has gone
            super().handle()


class Writer(io.BufferedIOBase):
    """To a browser. One that takes nothing has gone, which is no fault of the application: it is not told as one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self._connection.sendall(data)
        except TimeoutError as error:
            raise BrokenPipeError("the browser takes nothing") from error
        return len(data)
