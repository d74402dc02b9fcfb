"""The supervisor's options."""

from __future__ import annotations

from dataclasses import dataclass

from elastic.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """How a supervisor behaves. All times are in seconds.

    Attributes:
        cycle: Look at coordination at this interval instead of being told (T_S of N-Storm 2019, section IV.B);
        0: be
            told.
        worker_cycle: The same for workers and the node's store (T_W); 0: workers are told of new versions.
        kill_delay: How long a worker that lost all its executors may go on at least (N-Storm 2019, section IV.A); a longer
            `kill_delay` of its topology wins.
        grace: How long a worker has after SIGTERM at least, beyond its topology's `stop_grace`.
        start_timeout: A worker that has not registered by then is started again.
        healthy_after: A worker that ran for so long has its failures forgotten.
        restart_pauses: Before the first, second, ... start after a failure; the last one repeats.
        load_tries: So often in a row a worker may end because its code bundle cannot be loaded, where one has run with it on this node for
            `healthy_after` before; otherwise once.
        report_interval: Between two measurements of the node.
        cores: CPUs that its workers may use together; 0.0: all of the machine, shared with whoever else is on it.
        fetch_timeout: For one attempt to fetch a code bundle.
        fetch_pauses: Between such attempts; the last one repeats.
    """

    cycle: float = 0.0
    worker_cycle: float = 0.0
    kill_delay: float = 0.0
    grace: float = 2.0
    start_timeout: float = 120.0
    healthy_after: float = 60.0
    restart_pauses: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
    load_tries: int = 8
    report_interval: float = 1.0
    cores: float = 0.0
    fetch_timeout: float = 60.0
    fetch_pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)

    def __post_init__(self) -> None:
        for name in ("cycle", "worker_cycle", "kill_delay", "grace", "cores"):
            if getattr(self, name) < 0:
                raise ConfigError(f"supervisor option {name} must be 0 or more, not {getattr(self, name):g}")
        for name in ("start_timeout", "healthy_after", "fetch_timeout", "report_interval"):
            if getattr(self, name) <= 0:
                raise ConfigError(
                    f"supervisor option {name} must be more than 0, not {getattr(self, name):g}"
                )
        if not self.restart_pauses or not self.fetch_pauses:
            raise ConfigError("supervisor options restart_pauses and fetch_pauses need at least one pause")

    def restart_pause(self, failures: int) -> float:
        """Seconds to wait before the start that follows the failure number `failures` (from 1)."""
        return self.restart_pauses[min(failures, len(self.restart_pauses)) - 1]

    def fetch_pause(self, failures: int) -> float:
        """Seconds to wait before the attempt that follows the failed one number `failures` (from 1)."""
        return self.fetch_pauses[min(failures, len(self.fetch_pauses)) - 1]
