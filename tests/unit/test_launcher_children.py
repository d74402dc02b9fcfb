"""A child of the launcher that cannot be started again has ended: nobody waits for it."""

from __future__ import annotations

import subprocess
import threading

from elastic import procs
from elastic.cluster.children import Kept
from elastic.cluster.loop import Loop
from elastic.errors import EnvironmentProblem


def test_one_that_cannot_be_started_again_is_not_waited_for() -> None:
    loop = Loop()
    told: list[str | Exception] = []
    taken = EnvironmentProblem("its port is taken")

    def start() -> subprocess.Popen[bytes]:
        if told:
            raise taken
        return procs.spawn(["true"])

    kept = Kept(loop, "nimbus-1", start, lambda why, _failures: told.append(why))
    kept.start()
    loop.run(lambda: len(told) == 2)
    assert told == ["it ended with exit code 0", taken]
    stopping = threading.Thread(target=kept.stop, args=(0.1,), daemon=True)
    stopping.start()
    stopping.join(10.0)
    assert not stopping.is_alive()
    kept.hand.close()
