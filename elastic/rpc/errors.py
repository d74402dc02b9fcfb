"""elastic's errors as gRPC statuses, and back to the same class at the other end.

A status carries `google.rpc.ErrorInfo` (domain "elastic", reason: the class's name, metadata) and, when there is a
remedy, `google.rpc.Help` with the remedy as the description of its only link. Long messages (a user's traceback)
travel whole in `google.rpc.LocalizedMessage`; the status itself has their beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from elastic import errors
from elastic.errors import DeadlineExceeded, ElasticError, Refused, Unavailable

DOMAIN = "elastic"
METADATA_LIMIT = 64 << 10
"""Bytes of HTTP/2 headers that both sides accept; the default of 8 KiB is too little for a traceback."""

_SHORT = 500
_LONG = 16_000

_CODES: dict[type[ElasticError], int] = {
    errors.ElasticError: code_pb2.UNKNOWN,
    errors.TopologyError: code_pb2.INVALID_ARGUMENT,
    errors.ConfigError: code_pb2.INVALID_ARGUMENT,
    errors.ExecutionError: code_pb2.INTERNAL,
    errors.TupleTooLarge: code_pb2.OUT_OF_RANGE,
    errors.RequestError: code_pb2.FAILED_PRECONDITION,
    errors.NotFound: code_pb2.NOT_FOUND,
    errors.AlreadyExists: code_pb2.ALREADY_EXISTS,
    errors.Refused: code_pb2.FAILED_PRECONDITION,
    errors.DeadlineExceeded: code_pb2.DEADLINE_EXCEEDED,
    errors.Unavailable: code_pb2.UNAVAILABLE,
    errors.Conflict: code_pb2.ABORTED,
    errors.EnvironmentProblem: code_pb2.FAILED_PRECONDITION,
}


class NotLeading(Refused):
    """The Nimbus that was asked is not the leader.

    Attributes:
        leader: `host:port` of the one that is, or "" while there is none.
    """

    def __init__(self, message: str, *, remedy: str = "", leader: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.leader = leader

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_not_leading, (self.message, self.remedy, self.leader)


def _rebuild_not_leading(message: str, remedy: str, leader: str) -> NotLeading:
    return NotLeading(message, remedy=remedy, leader=leader)


class Unreachable(Unavailable):
    """The connection could not be made, or broke under way: not an answer of whoever was asked."""


class Unanswered(DeadlineExceeded):
    """No answer came in the time given: not what whoever was asked says, who may hang."""


def classes() -> dict[str, type[ElasticError]]:
    """Every class of the tree in `elastic/errors.py`, by name."""

    def below(kind: type[ElasticError]) -> Iterator[type[ElasticError]]:
        yield kind
        for sub in kind.__subclasses__():
            yield from below(sub)

    return {k.__name__: k for k in below(ElasticError) if k.__module__ == errors.__name__}


def code_of(error: ElasticError) -> int:
    """The google.rpc.Code of an error: that of the nearest class that has one."""
    return next(_CODES[k] for k in type(error).__mro__ if k in _CODES)


def to_status(error: ElasticError) -> grpc.Status:
    """What `context.abort_with_status` takes to raise that error at the other end."""
    reason = next(k.__name__ for k in type(error).__mro__ if k.__module__ == errors.__name__)
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)
    if isinstance(error, NotLeading):
        info.metadata["leader"] = error.leader
    message = _utf8(error.message)
    status = status_pb2.Status(code=code_of(error), message=_clip(message, _SHORT))
    status.details.add().Pack(info)
    if error.remedy:
        help_ = error_details_pb2.Help()
        help_.links.add(description=_clip(_utf8(error.remedy), 2 * _SHORT))
        status.details.add().Pack(help_)
    if status.message != message:
        whole = error_details_pb2.LocalizedMessage(locale="en", message=_clip(message, _LONG))
        status.details.add().Pack(whole)
    return rpc_status.to_status(status)


def from_call(error: grpc.RpcError, *, doing: str, address: str) -> ElasticError:
    """The error that the other end raised, or one that says what gRPC says.

    Args:
        doing: What was asked, for the message: "submit word-count".
        address: Whom it was asked of.
    """
    call = cast(Any, error)
    try:
        status = rpc_status.from_call(call)
    except ValueError:  # somebody in between changed the code: what it says now counts
        status = None
    if status is not None:
        found = _from_details(status)
        if found is not None:
            return found
    return _from_code(call.code(), str(call.details() or ""), doing, address)


def _from_details(status: status_pb2.Status) -> ElasticError | None:
    info = error_details_pb2.ErrorInfo()
    help_ = error_details_pb2.Help()
    whole = error_details_pb2.LocalizedMessage(message=status.message)
    for detail in status.details:
        for known in (info, help_, whole):
            if detail.Is(known.DESCRIPTOR):
                detail.Unpack(known)
    if info.domain != DOMAIN:
        return None
    remedy = help_.links[0].description if help_.links else ""
    metadata: Mapping[str, str] = info.metadata
    if "leader" in metadata:
        return NotLeading(whole.message, remedy=remedy, leader=metadata["leader"])
    kind = classes().get(info.reason, ElasticError)
    return kind(whole.message, remedy=remedy)


def _from_code(code: grpc.StatusCode, details: str, doing: str, address: str) -> ElasticError:
    if code == grpc.StatusCode.UNAVAILABLE:
        if "last error: " in details:  # of many words only the last ones say something: "Connection refused"
            details = details.rpartition(": ")[2]
        return Unreachable(f"cannot {doing}: no answer from {address} ({details})")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unanswered(f"cannot {doing}: {address} did not answer in the time given")
    if code == grpc.StatusCode.CANCELLED:
        return Unreachable(f"cannot {doing}: the call to {address} was cancelled ({details})")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return ElasticError(
            f"cannot {doing}: what listens at {address} does not know this request",
            remedy="Use the same version of elastic here as in the cluster, and check the address.",
        )
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Refused(f"cannot {doing}: {address} has no room for it ({details})")
    return ElasticError(f"cannot {doing}: {address} answered {code.name}: {details}")


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _clip(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8: the beginning and the end, where a traceback says what it was."""
    data = text.encode("utf-8")
    if len(data) <= limit:
        return text
    mark = " [...] "
    tail = limit // 2
    head = limit - tail - len(mark)
    return data[:head].decode("utf-8", "ignore") + mark + data[-tail:].decode("utf-8", "ignore")
