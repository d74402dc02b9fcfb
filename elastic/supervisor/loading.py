"""Which workers can load their code. What has been loaded on this node once will be again, most likely: what it needs at import may be down
just then, or memory short. To fail the topology for that at once would cost all its states."""

from __future__ import annotations

from collections.abc import Iterable

from elastic.model.ids import WorkerId
from elastic.supervisor.decide import Life, Phase


class Loading:
    """Not thread-safe: the driver's.

    Args:
        tries: See `SupervisorOptions.load_tries`.
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._loaded: set[str] = set()
        self._failed: dict[WorkerId, int] = {}

    def loaded(self, life: Life) -> None:
        """It has run for long enough. That it has registered says less: components are loaded when their first task is made."""
        self._loaded.add(life.bundle)
        self._failed.pop(life.worker, None)

    def hopeless(self, life: Life, lives: Iterable[Life], before: float) -> bool:
        """It has ended because its code bundle could not be loaded. Whether it makes no sense to start it again.

        Args:
            lives: All of this node: others that run with the same bundle have loaded it, too.
            before: Those that were started then or earlier have run for long enough.
        """
        others = (x for x in lives if x.worker != life.worker and x.bundle == life.bundle)
        if any(x.phase is Phase.RUNNING and x.since <= before for x in others):
            self._loaded.add(life.bundle)
        failed = self._failed.pop(life.worker, 0) + 1
        if life.bundle not in self._loaded or failed >= self._tries:
            return True
        self._failed[life.worker] = failed
        return False

    def forget(self, worker: WorkerId) -> None:
        """Nothing is left of it."""
        self._failed.pop(worker, None)

    def drop(self, bundle: str) -> None:
        """Nobody uses it any more."""
        self._loaded.discard(bundle)
