"""Which metrics there are for Prometheus, by what they are of. Counters get `_total` behind their names when they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from elastic.control.present import node_status

Kind = type[GaugeMetricFamily] | type[CounterMetricFamily]
GAUGE, COUNTER = GaugeMetricFamily, CounterMetricFamily
Table = Sequence[tuple[Kind, str, str, str | Callable[[Any], float]]]
"""What it is, its name, what it says, and where it is in the view."""

OF_NODES: Table = (
    (GAUGE, "elastic_node_up", "Whether the node is there, and takes work: 1 or 0.", lambda n: node_status(n) == "alive"),
    (GAUGE, "elastic_node_draining", "Whether the node is being emptied: 1 or 0.", "draining"),
    (GAUGE, "elastic_node_slots", "Workers that the node may run.", "slots"),
    (GAUGE, "elastic_node_slots_used", "Workers that are assigned to the node.", "used"),
    (GAUGE, "elastic_node_cores", "CPUs that the node's workers may use.", "cores"),
    (GAUGE, "elastic_node_cpu_cores", "CPUs of these that are in use.", "cpu"),
    (GAUGE, "elastic_node_memory_bytes", "Memory that the node's workers use.", "memory"),
)  # fmt: skip

OF_TOPOLOGIES: Table = (
    (GAUGE, "elastic_topology_uptime_seconds", "Since the topology was submitted.", "summary.uptime"),
    (GAUGE, "elastic_topology_tasks", "Tasks of the topology.", "summary.tasks"),
    (GAUGE, "elastic_topology_executors", "Executors that are assigned.", "summary.executors"),
    (GAUGE, "elastic_topology_workers", "Workers that are assigned.", "summary.workers"),
    (GAUGE, "elastic_topology_unassigned_executors", "Executors that wait for a slot.", "summary.unassigned"),
    (GAUGE, "elastic_topology_epoch", "The number of the assignment in force.", "assignment.epoch"),
    (GAUGE, "elastic_topology_waits", "How much does not run, or is not carried out yet.", lambda d: len(d.waits)),
    (GAUGE, "elastic_topology_checkpoint", "The number of the newest complete checkpoint.", "checkpoints.number"),
    (GAUGE, "elastic_topology_checkpoint_began_seconds", "When that began, in seconds since 1970.", "checkpoints.began"),
    (GAUGE, "elastic_topology_checkpoint_took_seconds", "How long that took.", "checkpoints.seconds"),
    (GAUGE, "elastic_topology_checkpoint_bytes", "Bytes of its snapshots, without copies.", "checkpoints.size"),
    (COUNTER, "elastic_topology_went_back", "How often the topology has gone back to a checkpoint.", "checkpoints.back"),
    (GAUGE, "elastic_topology_traffic_tuples", "Tuples per second between executors.", "traffic.tuples"),
    (GAUGE, "elastic_topology_traffic_between_workers_tuples", "Tuples per second to another worker.", "traffic.between_workers"),
    (GAUGE, "elastic_topology_traffic_between_nodes_tuples", "Tuples per second to another node.", "traffic.between_nodes"),
    (GAUGE, "elastic_topology_traffic_bytes", "Bytes per second to another worker.", "traffic.bytes"),
    (GAUGE, "elastic_moves_under_way", "Moves that have not ended.", lambda d: len(d.moves)),
)  # fmt: skip

OF_COMPONENTS: Table = (
    (COUNTER, "elastic_component_executed", "Tuples executed without an error, since the workers' present lives began.", "executed"),
    (COUNTER, "elastic_component_emitted", "Tuples emitted, one for each receiver.", "emitted"),
    (COUNTER, "elastic_component_failed", "Tuples whose execution raised.", "failed"),
    (GAUGE, "elastic_component_executed_rate", "Tuples executed per second.", "executed_rate"),
    (GAUGE, "elastic_component_emitted_rate", "Tuples emitted per second.", "emitted_rate"),
    (GAUGE, "elastic_component_queued_tuples", "Tuples that wait in the tasks' queues.", "queued"),
    (GAUGE, "elastic_component_held_tuples", "Tuples that the tasks hold for others that stand still.", "held"),
    (GAUGE, "elastic_component_busy_ratio", "Mean share of time in user code and the work for it.", "busy"),
    (GAUGE, "elastic_component_blocked_ratio", "Mean share of time waiting for room further down.", "blocked"),
    (GAUGE, "elastic_component_state_bytes", "State that the tasks own, about.", "state"),
    (GAUGE, "elastic_component_tasks", "Tasks of the component.", "tasks"),
    (GAUGE, "elastic_component_executors", "Executors of the component.", "executors"),
    (GAUGE, "elastic_component_finished_tasks", "Tasks that have worked off all they will ever get.", "finished"),
)  # fmt: skip

OF_EXECUTORS: Table = (
    (GAUGE, "elastic_executor_executed_rate", "Tuples executed per second.", "executed_rate"),
    (GAUGE, "elastic_executor_emitted_rate", "Tuples emitted per second.", "emitted_rate"),
    (GAUGE, "elastic_executor_queued_tuples", "Tuples that wait in its tasks' queues.", "queued"),
    (GAUGE, "elastic_executor_held_tuples", "Tuples that its tasks hold for others that stand still.", "held"),
    (GAUGE, "elastic_executor_busy_ratio", "Share of time in user code and the work for it.", "busy"),
    (GAUGE, "elastic_executor_blocked_ratio", "Share of time waiting for room further down.", "blocked"),
    (GAUGE, "elastic_executor_cpu_ratio", "CPU seconds of its thread per second.", "cpu"),
    (GAUGE, "elastic_executor_state_bytes", "State that its tasks own, about.", "state"),
)  # fmt: skip

OF_WORKERS: Table = (
    (GAUGE, "elastic_worker_up", "Whether the worker's process is there: 1 or 0.", "alive"),
    (GAUGE, "elastic_worker_uptime_seconds", "Since its present life was first seen.", "uptime"),
    (COUNTER, "elastic_worker_restarts", "Lives that came after its first.", "restarts"),
    (GAUGE, "elastic_worker_executors", "Executors that are assigned to it.", "executors"),
    (GAUGE, "elastic_worker_memory_bytes", "Resident memory.", "rss"),
    (GAUGE, "elastic_worker_cpu_cores", "CPU seconds per second.", "cpu"),
)  # fmt: skip

OF_MOVES: Table = (
    (COUNTER, "elastic_moves", "Moves that have ended, since this Nimbus leads.", "moves"),
    (COUNTER, "elastic_moved_bytes", "What was saved of tasks that run at their new place.", "size"),
    (GAUGE, "elastic_move_longest_pause_seconds", "The longest pause, since this Nimbus leads.", "pause_max"),
    (GAUGE, "elastic_move_longest_gap_seconds", "The longest gap behind a task, since this Nimbus leads.", "gap_max"),
)  # fmt: skip
