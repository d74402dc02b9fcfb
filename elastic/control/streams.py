"""The followed streams of ControlService: events, moves, and logs out of the nodes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import grpc

from elastic.control.codec import ANSWER, MOVE, QUESTION
from elastic.control.log_merge import LogMerge
from elastic.control.ports import NimbusPort, NodeAccess, Seat
from elastic.control.v1 import control_pb2 as pb
from elastic.errors import ConfigError, ElasticError, NotFound, Refused, Unavailable
from elastic.model.views import MoveView
from elastic.reporting.codec import EVENT
from elastic.rpc.errors import NotLeading
from elastic.rpc.server import Server

_log = logging.getLogger(__name__)
_LOOK = 1.0
"""Seconds after which a stream with nothing to say looks whether its caller is still there; for logs also whether
there are nodes that it doesn't read yet. Only while somebody follows."""

_GONE = "its connection has ended"
_TOGETHER = 0.1
"""Seconds between two messages on moves: a move of many tasks changes with every step of each."""

_PART = 4 << 20
"""Bytes of moves in one message, of which `elastic.rpc.channels.MAX_MESSAGE` is the limit."""


class Streams:
    """The streams; `led` says NotLeading unless this Nimbus leads."""

    def __init__(
        self,
        nimbus: NimbusPort,
        nodes: NodeAccess | None,
        server: Server,
        led: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._nimbus = nimbus
        self._nodes = nodes
        self._server = server
        self._led = led

    def events(
        self, request: pb.StreamEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamEventsResponse]:
        """What is kept, then, when followed, what comes."""
        log = self._nimbus.events
        with self._led(), self._server.stream(context, follows=request.follow) as ended:
            position = request.since
            # Filtered here: the position must also move past what other topologies have to say.
            new = log.since(position)
            kept = [item for item in new if request.topology in ("", item[1].topology)]
            if request.HasField("tail"):
                kept = kept[max(0, len(kept) - max(0, request.tail)) :]
            while True:
                for sequence, event in kept:
                    if ended.is_set():
                        raise self._server.gone()
                    yield pb.StreamEventsResponse(sequence=sequence, event=EVENT.encode(event))
                if not request.follow:
                    return
                position = new[-1][0] if new else position
                self._await_event(position, ended)
                new = log.since(position)
                kept = [item for item in new if request.topology in ("", item[1].topology)]

    def _await_event(self, position: int, ended: threading.Event) -> None:
        """Returns when there is an event after that position; raises when there is nobody left to send it to."""
        log = self._nimbus.events
        while not ended.is_set():
            with self._led():
                if log.wait(position, _LOOK):
                    return
            if log.closed:
                break
        raise self._server.gone()

    def moves(
        self, request: pb.StreamMovesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamMovesResponse]:
        """All moves that are known, then those that change."""
        name = request.topology or None
        with self._led(), self._server.stream(context) as ended:
            if name is not None:
                self._nimbus.describe(name)  # NotFound is said at once
            seen, changed = self._nimbus.changed_moves(0, 0.0, name)
            yield from _messages(changed)
            while not ended.wait(_TOGETHER):
                with self._led():
                    seen, changed = self._nimbus.changed_moves(seen, _LOOK, name)
                if changed:
                    yield from _messages(changed)
            raise self._server.gone()

    def schedules(
        self, requests: Iterator[pb.GenerateSchedulesRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateSchedulesResponse]:
        """A generator's seat for as long as it is connected: questions out, answers in."""
        with self._led(), self._server.stream(context) as ended:
            first = next(requests, None)
            if first is None or not first.name:
                raise ConfigError("a schedule generator says its name first")
            seat = self._nimbus.attach_generator(first.name)
            try:
                if not context.add_callback(lambda: seat.leave(_GONE)):
                    return
                reader = threading.Thread(target=_read, args=(requests, seat), daemon=True)
                reader.start()
                while not ended.is_set() and not seat.gone:
                    question = seat.next(_LOOK)
                    if question is not None:
                        yield pb.GenerateSchedulesResponse(question=QUESTION.encode(question))
            finally:
                why = seat.gone
                seat.leave(_GONE)
            if ended.is_set() or not self._nimbus.leading:
                raise self._server.gone()
            raise Refused(
                f"this schedule generator is not asked any more: {why}",
                remedy="Mend the cause, and start it again.",
            )

    def logs(
        self, request: pb.StreamLogsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamLogsResponse]:
        """The lines of all workers, as they come from their nodes."""
        if self._nodes is None:
            raise Refused("this Nimbus has no way to its nodes")
        if request.worker and "@" not in request.worker:  # the short form: its place
            request.worker = f"{request.topology}@{request.worker}"
        with self._led(), self._server.stream(context) as ended:
            unknown = self._unknown(request.topology)
            if unknown is not None and request.follow:  # nothing comes any more
                raise unknown
            merge = LogMerge(self._nodes, request.topology, request.worker, follow=request.follow)
            context.add_callback(merge.wake)
            try:
                lines = False
                for message in self._merged(merge, request, ended):
                    lines = True
                    yield message
                if unknown is not None and not lines:
                    raise unknown
                if failed := merge.failures():
                    raise Unavailable(
                        f"the logs of {request.topology} are not complete: "
                        + "; ".join(e.message for _, e in sorted(failed.items())),
                        remedy="Look for the nodes with: elastic nodes list",
                    )
            finally:
                merge.close()

    def _merged(
        self, merge: LogMerge, request: pb.StreamLogsRequest, ended: threading.Event
    ) -> Iterator[pb.StreamLogsResponse]:
        tail = request.tail if request.HasField("tail") else None
        self._attach(merge, request.worker, tail)
        looked = time.monotonic()
        while True:
            batch = merge.next(_LOOK)
            if ended.is_set():
                raise self._server.gone()
            if batch is not None:
                node, lines = batch
                yield pb.StreamLogsResponse(
                    lines=[pb.LogLine(worker=worker, node=node, text=text) for worker, text in lines]
                )
            elif not request.follow and merge.done:
                return
            if request.follow and time.monotonic() - looked >= _LOOK:
                for error in merge.failures().values():
                    if not isinstance(error, Unavailable | NotLeading):  # a node that is away may come back
                        raise error
                with self._led():
                    self._attach(merge, request.worker, None)
                looked = time.monotonic()
            if request.follow and not merge.attached:
                ended.wait(_LOOK)

    def _attach(self, merge: LogMerge, worker: str, tail: int | None) -> None:
        """Read all living nodes (that of the worker, if one is named) that are not being read."""
        only = worker.partition("@")[2].rpartition("/")[0]
        for node in self._nimbus.nodes():
            wanted = node.alive and node.address and only in ("", node.id)
            if wanted and node.id not in merge.attached:
                merge.attach(node.id, node.address, tail)

    def _unknown(self, topology: str) -> NotFound | None:
        """The error for a topology that isn't there: its logs may still be, so it is raised only if they aren't."""
        try:
            self._nimbus.describe(topology)
        except NotFound as e:
            return e
        return None


def _messages(moves: Iterable[MoveView]) -> Iterator[pb.StreamMovesResponse]:
    """Moves in messages of some megabytes; one at least, also when there are none."""
    message, size = pb.StreamMovesResponse(), 0
    for move in map(MOVE.encode, moves):
        if message.moves and size + move.ByteSize() > _PART:
            message.more = True
            yield message
            message, size = pb.StreamMovesResponse(), 0
        message.moves.append(move)
        size += move.ByteSize()
    yield message


def _read(requests: Iterator[pb.GenerateSchedulesRequest], seat: Seat) -> None:
    """Take a generator's answers until its connection ends."""
    why = _GONE
    try:
        for message in requests:
            seat.answer(ANSWER.decode(message.answer))
    except grpc.RpcError:
        pass  # that is how a broken connection ends the requests
    except ElasticError as error:
        why = error.message
    except Exception as error:  # noqa: BLE001  whatever gRPC raises when the call is over
        _log.debug("a generator's answers ended: %r", error)
    finally:
        seat.leave(why)
