"""Nimbus's options, each documented; `validate` says which one is wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields

from elastic.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NimbusOptions:
    """How Nimbus behaves. Times are seconds.

    Attributes:
        node_slots: Slots of a node that is added without saying how many.
        retention: How long the record of a finished or failed topology stays.
        keep_ended: How many such records stay at most; the oldest go first.
        node_loss_grace: How long a node that has gone keeps its executors. 0: they go elsewhere at once.
        takeover_grace: How long a new leader waits for nodes that have executors and have not registered:
            after a restart of everything they come one by one.
        answer_timeout: Bound on asking one node, and on the coordination's echo of a change.
        stop_timeout: How long a request waits, beyond what the caller gave, for the workers of a topology to
            end.
        events: How many events are kept in memory.
        events_file: Bytes of the event file at which it is rotated; one older file is kept.
        errors: How many errors are kept for each topology.
        max_bundle: Bytes of the largest code bundle.
        bundle_grace: How long a bundle that no topology refers to stays, since it was stored.
        move_prepare: How long both sides of a move may take to get ready.
        move_pause: How long a task may take from being paused until its state is saved.
        move_restore: How long one attempt to restore it may take.
        move_tries: How often a task's move may fail before it is given up.
        move_retry: Pause after the first failure; twice as long after the second, and so on.
        move_start: How long a worker that tasks shall go to may take to register.
        move_store: How long the move of a task waits for state stores that are being started again, altogether.
        move_at_once: So many tasks are moved in one batch, or a 64th of all where that is more, unless a request names a share.
        move_share: Of a component's tasks that may be paused at once, up to 1, unless a request names a share; 0: half of them, when
            there are more than `move_at_once`.
        move_history: How many ended moves are kept in memory for each topology.
        move_linger: How long the end of a move waits for the last measurements before it is told.
    """

    node_slots: int = 2
    retention: float = 600.0
    keep_ended: int = 20
    node_loss_grace: float = 0.0
    takeover_grace: float = 5.0
    answer_timeout: float = 5.0
    stop_timeout: float = 30.0
    events: int = 10_000
    events_file: int = 16 << 20
    errors: int = 200
    max_bundle: int = 1 << 30
    bundle_grace: float = 3600.0
    move_prepare: float = 120.0
    move_pause: float = 60.0
    move_restore: float = 120.0
    move_tries: int = 3
    move_retry: float = 2.0
    move_start: float = 60.0
    move_store: float = 120.0
    move_at_once: int = 1
    move_share: float = 0.0
    move_history: int = 50
    move_linger: float = 2.0

    def validate(self) -> NimbusOptions:
        """Itself.

        Raises:
            ConfigError: A value cannot be.
        """
        positive = (
            "node_slots",
            "answer_timeout",
            "stop_timeout",
            "events",
            "events_file",
            "errors",
            "max_bundle",
            "move_prepare",
            "move_pause",
            "move_restore",
            "move_tries",
            "move_start",
            "move_store",
        )
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (value == 0 and field.name in positive):
                wanted = "more than 0" if field.name in positive else "0 or more"
                raise ConfigError(f"Nimbus's option {field.name} is {value}; it must be {wanted}")
        if not self.move_share <= 1:
            raise ConfigError(f"Nimbus's option move_share is {self.move_share:g}; it must be 1 at most")
        return self
