"""Topologies, placements and views as protobuf messages, and back.

The specification travels typed, not as JSON inside a string: whoever writes a client in another language sees its
components and streams. Only settings, whose types are the user's, are of the open type `Value`.
"""

from __future__ import annotations

from elastic.control.v1 import schedule_pb2, topology_pb2, views_pb2
from elastic.model.assignment import Assignment
from elastic.model.records import TopologyState
from elastic.model.topology import TopologySpec
from elastic.model.views import ElasticityView, MoveView, NodeSummary, TopologyDetail, TopologySummary
from elastic.rpc.mirror import Mirror
from elastic.scheduler.question import Answer, Question

SPEC: Mirror[TopologySpec, topology_pb2.TopologySpec] = Mirror(TopologySpec, topology_pb2.TopologySpec)
STATE: Mirror[TopologyState, topology_pb2.TopologyState] = Mirror(TopologyState, topology_pb2.TopologyState)
ASSIGNMENT: Mirror[Assignment, topology_pb2.Assignment] = Mirror(Assignment, topology_pb2.Assignment)
SUMMARY: Mirror[TopologySummary, views_pb2.TopologySummary] = Mirror(
    TopologySummary, views_pb2.TopologySummary
)
DETAIL: Mirror[TopologyDetail, views_pb2.TopologyDetail] = Mirror(TopologyDetail, views_pb2.TopologyDetail)
NODE: Mirror[NodeSummary, views_pb2.NodeSummary] = Mirror(NodeSummary, views_pb2.NodeSummary)
ELASTICITY: Mirror[ElasticityView, views_pb2.ElasticityView] = Mirror(
    ElasticityView, views_pb2.ElasticityView
)
MOVE: Mirror[MoveView, views_pb2.MoveView] = Mirror(MoveView, views_pb2.MoveView)
QUESTION: Mirror[Question, schedule_pb2.ScheduleQuestion] = Mirror(Question, schedule_pb2.ScheduleQuestion)
ANSWER: Mirror[Answer, schedule_pb2.ScheduleAnswer] = Mirror(Answer, schedule_pb2.ScheduleAnswer)
