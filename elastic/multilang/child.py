"""A process with which messages are exchanged by its standard input and output; what it writes to stderr goes to that of this process.

Whoever calls does the reading and the writing, without blocking and both together: a process that writes before it reads is no deadlock.
What is kept of either is bounded. Only stderr has a thread, as a process may write there at any time.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic import procs
from elastic.multilang.messages import NotAMessage, decode, shown

LARGEST = 16 << 20
"""Bytes of a message at most, and of what may wait for a process that does not read."""
LAST = 20
"""Lines of stderr that are told when a process has ended."""
LONGEST_LINE = 2000
GRACE = 2.0
"""Seconds that a process has to end when its input has."""
_CHUNK = 1 << 16
_MOMENT = 2.0
"""Seconds for what the process has left in its pipes, or for its exit code."""


class Lost(Exception):
    """There is nothing more to be had of a process. Says why."""


class Silent(Exception):
    """It has said nothing in the time given."""


class Child:
    """One process.

    Args:
        command: The program (found on PATH, or below the working directory) and its arguments.
        env: Variables over those of this process.
        cwd: Its working directory.
        name: What stands before each line of its stderr.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, name: str) -> None:
        program = command[0]
        if "/" in program:
            program = str(cwd / program)
        self._process = procs.spawn(
            [program, *command[1:]],
            env={**os.environ, **env},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        assert self._process.stderr is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        self._unsent = bytearray()
        self._reads = True  # as far as is known
        self._messages: deque[bytes] = deque()
        self._lines: list[bytes] = []  # of the message that is being read
        self._size = 0
        self._ended = False
        self._errors = _Errors(self._process.stderr.fileno(), name)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def living(self) -> bool:
        """Whether it runs, as far as can be told now."""
        return not self._ended and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None: it runs."""
        return self._process.poll()

    def send(self, data: bytes) -> None:
        """Write something, now or while it is listened to.

        Raises:
            Lost: Too much of it waits already.
        """
        if len(self._unsent) > LARGEST:
            raise Lost(f"has not read for so long that {len(self._unsent):,} bytes wait for it")
        self._unsent += data
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent and self._reads:
                del self._unsent[: os.write(self._to, memoryview(self._unsent)[:_CHUNK].tobytes())]
        except BlockingIOError:
            self._poll.register(self._to, select.POLLOUT)
            return
        except OSError:  # it takes no more; what it has written before is there all the same
            self._reads = False
            self._unsent.clear()
        with suppress(KeyError):
            self._poll.unregister(self._to)

    def receive(self, until: float) -> dict[str, Any]:
        """Its next message.

        Args:
            until: Monotonic seconds.

        Raises:
            Silent: There is none until then.
            Lost: It has ended, or writes what is no message.
        """
        while not self._messages:
            left = until - time.monotonic()
            ready = self._poll.poll(max(0.0, left) * 1000)
            if not ready and left <= 0:
                raise Silent
            for fd, _ in ready:
                if fd == self._to:
                    self._write()
                else:
                    self._read()
        try:
            return decode(self._messages.popleft())
        except NotAMessage as e:
            raise Lost(f"{e}: what it prints for people belongs to stderr") from None

    def _read(self) -> None:
        try:
            data = os.read(self._from, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            left = b"\n".join(self._lines).strip()
            raise Lost(self._how_it_ended() + (f" within a message, {shown(left)}" if left else ""))
        begun = self._lines.pop() if self._lines else b""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = begun + whole[0]
        else:
            rest = begun + rest
        for line in whole:
            if line.rstrip(b"\r") == b"end":
                self._messages.append(b"\n".join(self._lines))
                self._lines.clear()
                self._size = 0
            else:
                self._lines.append(line)
                self._size += len(line) + 1
        self._lines.append(rest)
        if self._size + len(rest) > LARGEST:
            head = b"\n".join(self._lines)[:_CHUNK]
            raise Lost(f"writes a message of more than {LARGEST >> 20} MiB without its end, {shown(head)}")

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):  # its output ends a moment before it does
            self._process.wait(_MOMENT)
        code = self.exit_code
        if code is None:
            return "has closed its output and runs on"
        if code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def last_lines(self) -> list[str]:
        """The last that it wrote to stderr; when it has been ended, with all that it had written by then."""
        return list(self._errors.last)

    def end(self, grace: float = GRACE) -> None:
        """End it: its input ends, and after so many seconds it is killed with what is in its session. Safe to call twice."""
        if self._ended:
            return
        self._ended = True
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        try:
            if grace > 0:
                self._process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        self._errors.close()
        assert self._process.stderr is not None
        self._process.stderr.close()


class _Errors:
    """Passes on what a process writes to stderr, line by line. Its thread ends with the pipe, or by `close`.

    Attributes:
        last: The last lines.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self._name = fd, name
        self.last: deque[str] = deque(maxlen=LAST)
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"stderr-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Have the thread end: what has been written by now is passed on before."""
        self._thread.join(_MOMENT)  # who was killed leaves an end, unless it left processes
        os.close(self._woken)
        self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        begun = b""
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._fd not in ready:
                break
            data = os.read(self._fd, _CHUNK if self._wake not in ready else 0)
            *lines, begun = (begun + data).split(b"\n")
            if len(begun) > _CHUNK or not data:
                lines, begun = [*lines, *([begun] if begun else [])], b""
            for line in lines:
                self._pass_on(line)
            if not data:
                break
        if begun:
            self._pass_on(begun)

    def _pass_on(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if len(text) > LONGEST_LINE:
            text = text[:LONGEST_LINE] + "..."
        self.last.append(text)
        with suppress(OSError, ValueError):  # there may be no stderr
            sys.stderr.write(f"{self._name}: {text}\n")
