"""What lies in coordination and in nodes' stores comes back; what nobody can read is one sort of error, whatever is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from elastic.migration.record import Marks, MoveRecord, decode_marks, encode_marks
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.codec import decode, encode
from elastic.model.events import Event
from elastic.model.records import (
    Allocation,
    ElasticitySettings,
    Progress,
    TopologyState,
    WantedNode,
    WorkerInfo,
)
from elastic.model.topology import TopologySpec
from tests.unit import test_proto_codecs as proto

KINDS = (
    *(Allocation, Assignment, ElasticitySettings, Event, Marks, MoveRecord),
    *(NodeInfo, Progress, TopologySpec, TopologyState, WantedNode, WorkerInfo),
)


@pytest.mark.parametrize(
    "data", [b"of another version", b"[]", b'{"slots": "many"}', b'{"host": "\xff"}', b'{"\xff": 1}']
)
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(data, WantedNode)


def of(hint: Any) -> st.SearchStrategy[Any]:
    """As that one, and with numbers as keys."""
    if get_origin(hint) is Mapping and get_args(hint)[0] is int:
        return st.dictionaries(st.integers(0, 99), of(get_args(hint)[1]), max_size=2)
    return proto.of(hint)


def filled(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: of(hints[f.name]) for f in fields(kind)})


def of_a_newer_version(value: Any, hint: Any) -> Any:
    """What `value`, as JSON has it, may look like there: whatever has fields has one more."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(value, dict):
        hints = get_type_hints(hint)
        return {**{k: of_a_newer_version(v, hints[k]) for k, v in value.items()}, "newer": {"of": [1]}}
    if origin is tuple and isinstance(value, list):
        hints = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return [of_a_newer_version(v, h) for v, h in zip(value, hints, strict=True)]
    if origin is Mapping and isinstance(value, dict):
        return {k: of_a_newer_version(v, arguments[1]) for k, v in value.items()}
    return value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_lies_in_coordination_comes_back_also_from_another_version(
    kind: type[Any], data: st.DataObject
) -> None:
    writes, reads = (encode_marks, decode_marks) if kind is Marks else (encode, lambda d: decode(d, kind))
    value = data.draw(filled(kind))
    assume("inf" not in repr(value))  # JSON has none; no setting may be that
    written = writes(value)
    assert reads(written) == value
    assert writes(reads(written)) == written
    newer = of_a_newer_version(json.loads(written), kind)
    assert reads(json.dumps(newer).encode()) == value
    optional = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}
    older = {k: v for k, v in json.loads(written).items() if k not in optional}
    assert reads(json.dumps(older).encode()) == kind(**{n: getattr(value, n) for n in older})
