"""Reports and events as protobuf messages, and back."""

from __future__ import annotations

from elastic.model.events import Event
from elastic.model.load import NodeReport, WorkerReport
from elastic.reporting.v1 import measurements_pb2 as pb
from elastic.rpc.mirror import Mirror

EVENT: Mirror[Event, pb.Event] = Mirror(Event, pb.Event)
NODE_REPORT: Mirror[NodeReport, pb.NodeReport] = Mirror(NodeReport, pb.NodeReport)
REPORT: Mirror[WorkerReport, pb.WorkerReport] = Mirror(WorkerReport, pb.WorkerReport)
