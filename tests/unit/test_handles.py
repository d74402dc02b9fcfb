"""Waiting for descriptors, of any number."""

from __future__ import annotations

import fcntl
import os
import resource
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.handles import readable
from statestore.process import StoreProcess


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Whose numbers `select.select` does not take."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2048:
        pytest.skip("no so many descriptors here")
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1100) for end in ends]
    for end in ends:
        os.close(end)
    with pytest.raises(ValueError):
        select.select([high[0]], [], [], 0)
    yield high[0], high[1]
    for end in high:
        os.close(end)


def test_what_can_be_read_is_found_and_the_time_is_a_bound(pipe: tuple[int, int]) -> None:
    here, there = pipe
    assert readable([here], 0.01) == [] == readable([here], -1.0)
    os.write(there, b"x")
    assert readable([here], 30.0) == [here] == readable([here], None)


def test_what_the_other_end_has_closed_counts_as_well() -> None:
    here, there = os.pipe()
    os.close(there)
    assert readable([here], 30.0) == [here]
    os.close(here)


def test_a_store_is_started_by_a_process_with_many_files(tmp_path: Path, pipe: tuple[int, int]) -> None:
    held = [os.dup(pipe[0]) for _ in range(1100)]
    try:
        with StoreProcess(["--backend", "memory"], tmp_path / "log") as store:
            assert store.process is not None and store.process.stdout is not None
            assert store.process.stdout.fileno() >= 1024
    finally:
        for each in held:
            os.close(each)
