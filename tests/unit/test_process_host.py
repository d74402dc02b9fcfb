"""The host of child processes, as far as it can be seen without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastic.hosts import process


def test_nodes_that_take_no_notice_have_one_grace_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now, graces = [100.0], []
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now[0]), raising=False)

    def stop(grace: float) -> None:
        graces.append(grace)
        now[0] += max(grace, 0.0)

    deaf: Any = SimpleNamespace(ask=lambda: None, stop=stop)
    host = process.ProcessHost(grace=3.0)
    host._nodes = [deaf] * 4
    host.close()
    assert graces[0] == 3.0 and now == [103.0]
