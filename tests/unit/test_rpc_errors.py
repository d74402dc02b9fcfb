"""Errors cross the network: same class, message and remedy at the other end."""

from __future__ import annotations

import pickle
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from grpc_status import rpc_status

from elastic import errors
from elastic.errors import ElasticError, NotFound, Refused, Unavailable
from elastic.rpc import errors as rpc
from elastic.rpc.errors import NotLeading, Unanswered, Unreachable, classes, from_call, to_status


class Call(grpc.RpcError):
    """The client's end of a call that failed with a status."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status.code

    def details(self) -> str:
        return self._status.details

    def trailing_metadata(self) -> Any:
        return self._status.trailing_metadata


def across(error: ElasticError) -> ElasticError:
    return from_call(Call(to_status(error)), doing="x", address="h:1")


def tree() -> list[str]:
    return sorted(k for k, v in vars(errors).items() if isinstance(v, type) and issubclass(v, ElasticError))


@pytest.mark.parametrize("name", tree())
def test_every_class_comes_back_as_itself(name: str) -> None:
    kind = getattr(errors, name)
    for remedy in ("", "do — that"):
        again = across(kind(f"what happened to tópology {name}", remedy=remedy))
        assert type(again) is kind
        assert (again.message, again.remedy) == (f"what happened to tópology {name}", remedy)
        assert again.exit_code == kind.exit_code


def test_all_classes_are_known() -> None:
    assert sorted(classes()) == tree()


def test_codes_are_the_nearest_ones() -> None:
    assert rpc.code_of(errors.SessionExpired("x")) == code_pb2.UNAVAILABLE
    assert rpc.code_of(errors.Superseded("x")) == code_pb2.ABORTED
    assert rpc.code_of(errors.UnknownField("x")) == code_pb2.INVALID_ARGUMENT
    assert rpc.code_of(NotFound("x")) == code_pb2.NOT_FOUND
    assert rpc.code_of(NotLeading("x")) == code_pb2.FAILED_PRECONDITION


def test_a_subclass_from_elsewhere_travels_as_its_nearest_public_class() -> None:
    class Special(NotFound):
        pass

    assert type(across(Special("no such thing"))) is NotFound


def test_who_leads_travels_along() -> None:
    again = across(NotLeading("I don't lead", remedy="Ask h:2.", leader="h:2"))
    assert isinstance(again, NotLeading)
    assert again.leader == "h:2"
    assert pickle.loads(pickle.dumps(again)).leader == "h:2"
    assert isinstance(across(NotLeading("nobody leads")), NotLeading)


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    text = "Traceback:\n" + "  frame é\n" * 200 + "ValueError: the end"
    assert across(ElasticError(text)).message == text
    huge = across(ElasticError("start " + "é" * 100_000 + " end")).message
    assert huge.startswith("start ")
    assert huge.endswith(" end")
    assert "[...]" in huge
    status = to_status(ElasticError(huge, remedy="r" * 10_000))
    size = len(status.details) * 3 + sum(len(v) for _, v in status.trailing_metadata) * 4 // 3
    assert size < rpc.METADATA_LIMIT


class Plain:
    """A status without details, as gRPC itself or a proxy gives it."""

    trailing_metadata = ()

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code, self.details = code, details


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unreachable),
        (grpc.StatusCode.CANCELLED, Unreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Unanswered),
        (grpc.StatusCode.UNIMPLEMENTED, ElasticError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Refused),
        (grpc.StatusCode.INTERNAL, ElasticError),
    ],
)
def test_a_status_without_details_says_what_and_whom(code: grpc.StatusCode, kind: type[ElasticError]) -> None:
    error = from_call(Call(Plain(code, "socket closed")), doing="kill t", address="127.0.0.1:9")
    assert type(error) is kind
    assert "kill t" in error.message
    assert "127.0.0.1:9" in error.message
    assert isinstance(Unreachable("x"), Unavailable)


def test_details_of_others_are_not_taken_for_ours() -> None:
    from google.rpc import error_details_pb2, status_pb2

    status = status_pb2.Status(code=code_pb2.NOT_FOUND, message="gone")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="NotFound", domain="example.org"))
    error = from_call(Call(rpc_status.to_status(status)), doing="x", address="h:1")
    assert type(error) is ElasticError
    unknown = status_pb2.Status(code=code_pb2.NOT_FOUND, message="gone")
    unknown.details.add().Pack(error_details_pb2.ErrorInfo(reason="FromTheFuture", domain="elastic"))
    error = from_call(Call(rpc_status.to_status(unknown)), doing="x", address="h:1")
    assert (type(error), error.message) == (ElasticError, "gone")
