"""What a Hazelcast member says: kept within bounds, and understood."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from statestore.hazelcast import member
from statestore.hazelcast.member import HazelcastMember, MemberOptions


def test_its_log_has_a_bound_and_what_it_says_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "_LOG", 2000)
    one = HazelcastMember(MemberOptions(), tmp_path, java=Path("java"))
    settled = threading.Event()
    words = [f"{n:04} {'x' * 95}\n".encode() for n in range(50)]
    words += [b"Members {size:3, ver:7} [\n", b"127.0.0.1:1 is STARTED\n"]
    one._read(io.BytesIO(b"".join(words)), settled)
    assert settled.is_set() and one.wait_size(3, 0)
    kept = [tmp_path / "hazelcast.log.1", tmp_path / "hazelcast.log"]
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert all(file.stat().st_size <= 2200 for file in kept)
    assert b"".join(words).endswith(b"".join(file.read_bytes() for file in kept))
