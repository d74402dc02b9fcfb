"""Members that somebody else runs, and has set as he likes: a store looks before it stores anything."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from foreign_members import KEPT, ForeignMember
from hazelcast_here import hazelcast_java
from test_statestore import put

from elastic.cluster.grid_external import External, check_external
from elastic.errors import EnvironmentProblem
from elastic.errors import Unavailable as NotThere
from statestore.errors import Missing
from statestore.hazelcast import grid
from statestore.hazelcast.connection import connect
from statestore.hazelcast.grid import HEADS
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.store import HazelcastStore
from statestore.process import StoreProcess
from statestore.writing import read_bytes

DROPS = """\
  map:
    "statestore.heads":
      backup-count: 1
      eviction:
        eviction-policy: LRU
        max-size-policy: PER_NODE
        size: 10000
    "statestore.*":
      backup-count: 1
      time-to-live-seconds: 60
      max-idle-seconds: 30
"""
SILENT = """\
  management-center:
    trusted-interfaces: ["10.9.9.9"]
"""


@pytest.fixture
def foreign(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., ForeignMember]:
    def start(maps: str = "", more: str = "") -> ForeignMember:
        member = ForeignMember("cache", tmp_path / "member", hazelcast_java(), maps, more)
        request.addfinalizer(member.kill)
        member.start()
        return member

    return start


def of(member: ForeignMember, backups: int = 1, *, foreign: bool = True) -> HazelcastOptions:
    return HazelcastOptions((member.address,), "cache", backups=backups, foreign=foreign)


def test_members_as_hazelcast_comes_are_taken_and_what_they_may_cost_is_said(
    foreign: Callable[..., ForeignMember], caplog: pytest.LogCaptureFixture
) -> None:
    member = foreign()
    there = External("cache", (member.address,))
    with pytest.raises(
        Missing, match=r"statestore\.heads has 1 synchronous backup, and 2 are wanted"
    ) as refused:
        HazelcastStore(of(member, 2))
    assert "backup-count 2" in refused.value.remedy
    with pytest.raises(EnvironmentProblem, match=r"--store hazelcast: the members .* 2 are wanted") as told:
        check_external(there, 2, lambda _: None)
    assert "--store-backups" in told.value.remedy
    with pytest.raises(NotThere, match="wrong at") as wrong:
        check_external(External("wrong", there.members), 1, lambda _: None, seconds=1.0)
    assert "NAME@HOST:PORT" in wrong.value.remedy
    client = connect(there.members, "cache")
    assert client.get_map(HEADS).size().result() == 0, "something was stored with what was refused"
    client.shutdown()
    said: list[str] = []
    check_external(there, 1, said.append)
    assert ["only 1" in said[0], "PutIfAbsentMergePolicy" in said[1]] == [True, True]
    with caplog.at_level(logging.WARNING, "statestore"):
        store = HazelcastStore(of(member))
    assert [line for line in said if line in caplog.text] == said
    head = put(store, "foreign", 1, b"kept")
    assert read_bytes(store, head) == b"kept"
    store.close()


def test_members_that_would_drop_states_are_refused(
    foreign: Callable[..., ForeignMember], tmp_path: Path
) -> None:
    member = foreign(DROPS)
    with pytest.raises(Missing) as refused:
        HazelcastStore(of(member, 0))
    for what in ("statestore.heads evicts entries (LRU)", "pieces drops entries after 60 s", "for 30 s"):
        assert what in refused.value.message
    arguments = ["--backend", "hazelcast", "--members", member.address, "--cluster", "cache", "--foreign"]
    process = StoreProcess(arguments, tmp_path / "store.log")
    with pytest.raises(Missing, match=r"evicts entries \(LRU\)[\s\S]*without eviction"):  # as a node tells it
        process.start()
    process.stop()
    HazelcastStore(of(member, foreign=False)).close()  # the planted fault: nobody looks


def test_members_that_do_not_tell_are_taken_and_that_is_said(foreign: Callable[..., ForeignMember]) -> None:
    member = foreign(KEPT.format(backups=1), SILENT)
    said: list[str] = []
    check_external(External("cache", (member.address,)), 1, said.append)
    (line,) = said
    assert "cannot be read" in line and "1 synchronous backup" in line


def test_a_store_that_reaches_no_member_for_too_long_says_so(
    foreign: Callable[..., ForeignMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gives up for good then: all members may be back, and no call of that store would ever succeed again."""
    monkeypatch.setattr(grid, "connect", partial(connect, patience=0.1))
    member = foreign(KEPT.format(backups=1))
    cut_off, closed = threading.Event(), threading.Event()
    HazelcastStore(of(member), on_cut_off=closed.set).close()
    store = HazelcastStore(of(member), on_cut_off=cut_off.set)
    member.kill()
    assert cut_off.wait(60)
    store.close()
    assert not closed.is_set()
