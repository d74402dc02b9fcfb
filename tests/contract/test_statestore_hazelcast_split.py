"""A Hazelcast cluster that splits, and becomes one again: a member gets no processor for longer than the others wait for it."""

from __future__ import annotations

import io
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest
from hazelcast_here import hazelcast_java
from test_statestore import noise, put
from test_statestore_hazelcast import orphans

from statestore.hazelcast.member import HazelcastMember, MemberOptions
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.store import HazelcastStore
from statestore.writing import read_bytes

pytestmark = pytest.mark.slow


def test_a_cluster_that_has_split_becomes_one_again(tmp_path: Path) -> None:
    """A member gets no processor for longer than the others wait for it: each part goes on alone, and then they find each other."""
    java = hazelcast_java()
    options = MemberOptions(tmp_path.name, heap=128 << 20, heartbeat=3)
    members = [HazelcastMember(options, tmp_path / f"member{n}", java=java) for n in range(3)]
    try:
        for n, member in enumerate(members):
            member.start([m.address for m in members[:n]])
        stores = [
            HazelcastStore(HazelcastOptions((m.address,), tmp_path.name, local=m.address))
            for m in members[1:]
        ]
        head = put(stores[0], "split", 1, noise(300_000))
        process = members[0].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        assert all(m.wait_size(2) for m in members[1:])
        process.send_signal(signal.SIGCONT)
        assert all(m.wait_size(3) for m in members[1:])
        for store in stores:
            assert store.head("split") == head and read_bytes(store, head) == noise(300_000)
            store.close()
    finally:
        for member in members:
            member.kill()


class Merging(HazelcastMember):
    """A member that tells when it has been taken back into the cluster, and has brought along what it was to bring.

    Args:
        policy: What it brings, and what the others take of it.
    """

    def __init__(self, policy: str, options: MemberOptions, directory: Path, java: Path) -> None:
        super().__init__(options, directory, java=java)
        self.merged = threading.Event()
        self._policy = policy

    def _config(self, others: Sequence[str]) -> str:
        return super()._config(others).replace("DiscardMergePolicy", self._policy)

    def _read(self, output: IO[bytes], settled: threading.Event) -> None:
        merged = self.merged

        class Heard(io.BufferedReader):
            def __next__(self) -> bytes:
                line = super().__next__()
                if b" is MERGED" in line:
                    merged.set()
                return line

        super()._read(Heard(io.FileIO(output.fileno(), closefd=False)), settled)
        output.close()


@pytest.mark.parametrize("policy", ["DiscardMergePolicy", "PutIfAbsentMergePolicy"])
def test_what_is_deleted_while_a_cluster_is_split_does_not_come_back(tmp_path: Path, policy: str) -> None:
    """The part that was left alone has it still. The planted fault: members have Hazelcast's own merge policy."""
    java = hazelcast_java()
    options = MemberOptions(tmp_path.name, heap=128 << 20, heartbeat=3)
    members = [Merging(policy, options, tmp_path / f"member{n}", java) for n in range(3)]
    try:
        for n, member in enumerate(members):
            member.start([m.address for m in members[:n]])
        cut_off, *rest = members
        local = HazelcastStore(HazelcastOptions((cut_off.address,), tmp_path.name, local=cut_off.address))
        keys = [f"split/{n}" for n in range(20)]
        for key in keys:
            put(local, key, 1, noise(1000))  # its pieces lie where `cut_off` has them
        kept = put(local, "kept", 1, noise(1000))
        local.close()
        process = cut_off.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        assert all(m.wait_size(2) for m in rest)
        store = HazelcastStore(HazelcastOptions((rest[0].address,), tmp_path.name, local=rest[0].address))
        for key in keys:
            assert store.delete(key, 1)
            # Also what is left of it, as `collect` does one day.
            store.grid.wait(store.grid._heads.delete(key))
        store.close()  # pieces are removed
        process.send_signal(signal.SIGCONT)
        assert all(m.wait_size(3) for m in rest)
        assert cut_off.merged.wait(60)
        store = HazelcastStore(HazelcastOptions((rest[0].address,), tmp_path.name))
        back = {k for k, _ in store.grid.entries() if k.startswith("split/")}, orphans(store)
        assert store.head("kept") == kept and read_bytes(store, kept) == noise(1000)
        store.close()
        if policy == "DiscardMergePolicy":
            assert back == (set(), set())
        else:
            assert all(back), "the test would not notice"
    finally:
        for member in members:
            member.kill()


def test_a_member_says_how_many_there_are_before_it_serves(tmp_path: Path) -> None:
    """By this a node knows that its member has joined those that it was told of, and not founded a cluster of its own."""
    options = MemberOptions(tmp_path.name, heap=128 << 20)
    members = [HazelcastMember(options, tmp_path / f"member{n}", java=hazelcast_java()) for n in range(3)]
    try:
        first, second, alone = members
        first.start()
        second.start((first.address,))
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            alone.start((f"127.0.0.1:{nobody.getsockname()[1]}",))
        assert (second.size, alone.size) == (2, 1)
    finally:
        for member in members:
            member.kill()
