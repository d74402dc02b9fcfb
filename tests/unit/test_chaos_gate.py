"""The gate at which the job waits: who has said nothing yet keeps nobody else waiting."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from chaos.gate import Gate, Reached
from chaos.job import tell


def test_who_is_frozen_before_it_has_said_anything_keeps_nobody_waiting(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    told: list[Reached] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.settimeout(60.0)
        silent.connect(str(tmp_path / "steps"))
        tell(str(tmp_path), "get_state", "sink", 16)
        gate.hold(["set_state"], [17], lambda _: True, told.append)
        silent.sendall(b"set_state sink 18 7\n")
        assert silent.recv(1) == b"g", "when it goes on, it is let on"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        held.settimeout(60.0)
        held.connect(str(tmp_path / "steps"))
        held.sendall(f"set_state sink 17 {os.getpid()}\n".encode())
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(str(tmp_path / "steps"))
        tell(str(tmp_path), "get_state", "sink", 16)
        assert told == [Reached("set_state", "sink", 17, os.getpid())]
        assert gate.release() == 1 and held.recv(1) == b"g"
    gate.close()
    assert not gate._thread.is_alive() and not (tmp_path / "steps").exists()
