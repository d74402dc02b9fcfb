"""What the suites here share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from coordination_harness import Memory, Real, Service
from leaks import held, left_since
from move_harness import Moving
from nimbus_harness import Cluster
from statestore_harness import Hazelcast
from transport_harness import World


@pytest.fixture(params=["memory", "zookeeper"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    service = Memory() if request.param == "memory" else Real(request.getfixturevalue("zookeeper_address"))
    yield service
    service.close()


@pytest.fixture
def cluster(service: Service, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(service, tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def moving(cluster: Cluster) -> Moving:
    return Moving(cluster)


@pytest.fixture
def moving_in_memory(tmp_path: Path) -> Iterator[Moving]:
    """The same without a real service: for what does not depend on it."""
    service = Memory()
    cluster = Cluster(service, tmp_path)
    yield Moving(cluster)
    cluster.close()
    service.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def hazelcast_members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hazelcast]:
    """Two members of a Hazelcast cluster; skips where they cannot be had."""
    service = Hazelcast(tmp_path_factory.mktemp("hazelcast"))
    yield service
    service.close()


@pytest.fixture(scope="module")
def hazelcast_service(hazelcast_members: Hazelcast) -> Iterator[Hazelcast]:
    """The same, with clients that end with the module of tests: they have threads and sockets of their own."""
    yield hazelcast_members
    hazelcast_members.disconnect()


@pytest.fixture(params=["memory", "tcp", "unix"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    before = held()
    directory = tmp_path_factory.mktemp("run")
    world = World(request.param, directory)
    yield world
    world.close()
    assert left_since(before) == []
    assert list(directory.iterdir()) == []
