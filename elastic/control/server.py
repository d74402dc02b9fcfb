"""What listens on Nimbus: control and reporting, health and reflection."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from elastic.control.ports import NimbusPort, NodeAccess
from elastic.control.reporting_service import ReportingService
from elastic.control.service import ControlService
from elastic.control.v1 import control_pb2
from elastic.control.v1.control_pb2_grpc import add_ControlServiceServicer_to_server
from elastic.errors import Refused
from elastic.reporting.v1 import reporting_pb2
from elastic.reporting.v1.reporting_pb2_grpc import add_ReportingServiceServicer_to_server
from elastic.rpc.server import Server

CONTROL = control_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name
REPORTING = reporting_pb2.DESCRIPTOR.services_by_name["ReportingService"].full_name
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class ControlServer:
    """The gRPC server of one Nimbus.

    Args:
        nimbus: Who answers.
        listen: `host:port`; port 0 takes a free one. Or a server that listens already: Nimbus wants to know its
            address before it exists.
        nodes: How to reach the nodes, for logs and stacks.
        cluster: The cluster's name.
        allow_remote: Whether it may be reached from other machines; there is no authentication.
        max_bundle: Bytes of the largest code bundle.

    Raises:
        ConfigError: `listen` is not loopback, and `allow_remote` not given.
        EnvironmentProblem: The port is taken.
    """

    def __init__(
        self,
        nimbus: NimbusPort,
        listen: str | Server = "127.0.0.1:0",
        *,
        nodes: NodeAccess | None = None,
        cluster: str = "default",
        allow_remote: bool = False,
        max_bundle: int = 512 << 20,
    ) -> None:
        if isinstance(listen, str):
            listen = Server(listen, name="nimbus", allow_remote=allow_remote)
        self._server = listen
        server = self._server.grpc
        control = ControlService(nimbus, nodes, self._server, cluster=cluster, max_bundle=max_bundle)
        add_ControlServiceServicer_to_server(control, server)
        add_ReportingServiceServicer_to_server(ReportingService(nimbus, self._server), server)
        health_pb2_grpc.add_HealthServicer_to_server(_Health(nimbus, self._server), server)
        reflection.enable_server_reflection((CONTROL, REPORTING, HEALTH, reflection.SERVICE_NAME), server)

    @property
    def address(self) -> str:
        """`host:port` where it listens; known before it is started."""
        return self._server.address

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._server.start()

    def close(self, grace: float = 1.0) -> None:
        """End the streams, give other calls `grace` seconds. Its threads have ended when it returns."""
        self._server.close(grace)


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The process as a whole serves while it lives; control and reporting, while this Nimbus leads."""

    def __init__(self, nimbus: NimbusPort, server: Server) -> None:
        self._nimbus = nimbus
        self._server = server

    def _status(self, service: str) -> int | None:
        answer = health_pb2.HealthCheckResponse
        if service in ("", HEALTH, reflection.SERVICE_NAME):
            return int(answer.SERVING)
        if service in (CONTROL, REPORTING):
            return int(answer.SERVING if self._nimbus.leading else answer.NOT_SERVING)
        return None

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service}")
        return health_pb2.HealthCheckResponse(status=status)

    def Watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Looks once a second, only while somebody watches."""
        try:
            with self._server.stream(context) as ended:
                yield from self._changes(request.service, ended)
        except Refused as e:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, e.message)

    def _changes(self, service: str, ended: threading.Event) -> Iterator[health_pb2.HealthCheckResponse]:
        said: int | None = None
        while not ended.is_set():
            status = self._status(service)
            if status is None:
                status = int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != said:
                said = status
                yield health_pb2.HealthCheckResponse(status=status)
            ended.wait(1.0)
