"""Whether Hazelcast members can be started on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from elastic.cluster.java import find_java
from elastic.errors import EnvironmentProblem
from statestore.errors import Missing
from statestore.hazelcast.jar import obtain_jar, problem
from statestore.hazelcast.member import make_class_archive


def hazelcast_java() -> Path:
    """Java, when everything that members need can be had; otherwise the test is skipped, and says why."""
    try:
        java = find_java()
        if problem():
            pytest.skip(f"no Hazelcast members: {problem()}")
        obtain_jar()
    except (EnvironmentProblem, Missing) as error:
        pytest.skip(f"no Hazelcast members: {error.message}")
    with tempfile.TemporaryDirectory(prefix="archive-") as directory:
        make_class_archive(java, Path(directory) / "made")
    return java
