"""Services that many tests share: started at most once in a run, when the first test asks for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from elastic.cluster.zookeeper_server import EmbeddedZooKeeper

_roots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real ZooKeeper server on a free port."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zookeeper_address(zookeeper_server: EmbeddedZooKeeper) -> str:
    """An address on that server with a root of its own: "host:port/root"."""
    return f"{zookeeper_server.address}/test-{next(_roots)}"
