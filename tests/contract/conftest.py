"""What the suites here share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from coordination_harness import Memory, Real, Service
from nimbus_harness import Cluster


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
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool
