"""Every domain value that crosses the network comes back as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic.control import codec as control
from elastic.control.v1 import topology_pb2
from elastic.errors import ConfigError, ElasticError
from elastic.model.assignment import Assignment
from elastic.model.events import Event
from elastic.model.load import WorkerReport
from elastic.model.records import TopologyState
from elastic.model.topology import TopologySpec
from elastic.model.views import MoveView, NodeSummary, TopologyDetail, TopologySummary
from elastic.reporting import codec as reporting
from elastic.rpc.mirror import Mirror, decode_value, encode_value

# What UTF-8 can say; what it cannot is tested apart.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
INT = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False)
VALUE = st.recursive(
    st.one_of(st.none(), TEXT, st.booleans(), INT, FLOAT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, all fields of dataclasses filled, so that none is missed."""
    hint = getattr(hint, "__supertype__", hint)  # a NewType
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, arguments))
    if origin is Mapping:
        return st.dictionaries(TEXT, of(arguments[1]), max_size=2)
    if origin in (Union, UnionType):
        return st.one_of(*map(of, arguments))
    if hint in BASIC:
        return BASIC[hint]
    if issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint)
    names = [f.name for f in fields(hint)] if is_dataclass(hint) else hint._fields
    return st.builds(hint, **{name: of(hints[name]) for name in names})


BASIC: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INT,
    float: FLOAT,
    bool: st.booleans(),
    type(None): st.none(),
    Any: VALUE,
}
CASES: dict[type[Any], Mirror[Any, Any]] = {
    Event: reporting.EVENT,
    WorkerReport: reporting.REPORT,
    TopologySpec: control.SPEC,
    TopologyState: control.STATE,
    Assignment: control.ASSIGNMENT,
    TopologySummary: control.SUMMARY,
    TopologyDetail: control.DETAIL,
    NodeSummary: control.NODE,
    MoveView: control.MOVE,
}


@pytest.mark.parametrize("kind", CASES, ids=lambda k: k.__name__)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_goes_in_comes_out(kind: type[Any], data: st.DataObject) -> None:
    mirror, value = CASES[kind], data.draw(of(kind))
    message = mirror.encode(value)
    again = type(message).FromString(message.SerializeToString())
    assert mirror.decode(again) == value


@settings(max_examples=100)
@given(VALUE)
def test_settings_keep_their_types(value: Any) -> None:
    again = decode_value(encode_value(value))
    assert again == value
    assert type(again) is type(value)


def test_integers_stay_integers_and_truth_stays_truth() -> None:
    assert [type(decode_value(encode_value(v))) for v in (1, 1.0, True)] == [int, float, bool]


@pytest.mark.parametrize("value", [2**63, object(), {"a": [b"bytes"]}])
def test_a_setting_that_cannot_be_sent_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        encode_value(value)


def test_text_that_utf8_cannot_say_does_not_stop_a_report() -> None:
    event = Event(1.0, "error", "no file caf\udce9.txt", details={"path": "caf\udce9"})
    again = reporting.EVENT.decode(reporting.EVENT.encode(event))
    assert (again.message, again.details["path"]) == ("no file caf?.txt", "caf?")


def test_a_number_that_does_not_fit_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="TopologySpec cannot be sent"):
        control.SPEC.encode(TopologySpec(name="t", components=(), workers=2**70))  # type: ignore[arg-type]


def test_a_status_of_a_newer_version_is_a_clear_error() -> None:
    message = topology_pb2.TopologyState(status=77)  # type: ignore[arg-type]
    with pytest.raises(ElasticError, match=r"TopologyStatus number 77.*\n.*same version"):
        control.STATE.decode(message)


class _Color(StrEnum):
    SHUFFLE = "shuffle"


@dataclass
class _Fewer:
    node: str


@dataclass
class _More:
    node: str
    slot: int
    rack: str = ""


@dataclass
class _OtherEnum:
    kind: _Color
    fields: tuple[str, ...] = ()
    name: str = ""


@pytest.mark.parametrize("kind", [_Fewer, _More])
def test_fields_that_only_one_side_has_are_noticed(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=r"slot|rack"):
        Mirror(kind, topology_pb2.WorkerSlot)


def test_members_that_only_one_side_has_are_noticed() -> None:
    with pytest.raises(TypeError, match="_Color"):
        Mirror(_OtherEnum, topology_pb2.Grouping)
