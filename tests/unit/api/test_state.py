"""Keyed state: a dictionary that knows what changed. Compared with a plain dictionary under random operations."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic import KeyedState, StatefulBolt
from elastic.api import tracking
from elastic.api.state import StateMap, declared_states

keys = st.integers(0, 5)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers()),
        st.tuples(st.just("add"), keys, st.integers()),
        st.tuples(st.just("del"), keys, st.just(0)),
        st.tuples(st.just("pop"), keys, st.just(0)),
        st.tuples(st.just("setdefault"), keys, st.integers()),
        st.tuples(st.just("update"), keys, st.integers()),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("get"), keys, st.just(0)),
    )
)


def apply(d: Any, op: str, key: int, value: int) -> None:
    if op == "set":
        d[key] = value
    elif op == "add":
        d[key] = d.get(key, 0) + value
    elif op == "del" and key in d:
        del d[key]
    elif op == "pop":
        d.pop(key, None)
    elif op == "setdefault":
        d.setdefault(key, value)
    elif op == "update":
        d.update({key: value})
    elif op == "clear":
        d.clear()


def catch_up(copied: dict[Any, Any], state: StateMap[Any, Any]) -> None:
    """What a copy has to be told to be the present state."""
    changed = tracking.take_changes(state)
    assert changed == {k: dict.__getitem__(state, k) for k in changed}, "with their present values"
    copied.update(changed)
    for key in tracking.removed(state):
        if key not in state:
            copied.pop(key, None)


@given(before=st.dictionaries(keys, st.integers()), ops=operations, reads=st.booleans())
def test_a_copy_and_its_changes_give_the_present_state(
    before: dict[int, int], ops: list[tuple[str, int, int]], reads: bool
) -> None:
    state: StateMap[int, int] = StateMap(int, before)
    model = dict(before)
    tracking.track(state, reads=reads)
    copied = dict(before)  # what a copy ahead would have carried away
    for op, key, value in ops:
        if op == "take":
            catch_up(copied, state)
            assert copied == model
        else:
            apply(state, op, key, value)
            apply(model, op, key, value)
    assert dict(state) == model
    catch_up(copied, state)
    assert copied == model


def handed_out(state: StateMap[str, list[int]]) -> dict[str, Any]:
    """All the ways to a value."""
    return {
        "getitem": lambda: state["a"],
        "get": lambda: state.get("a"),
        "setdefault": lambda: state.setdefault("a", []),
        "values": lambda: list(state.values()),
        "items": lambda: list(state.items()),
        "dict": lambda: dict(state),
        "stars": lambda: {**state},
        "copy": lambda: state.copy(),
        "or": lambda: state | {},
        "ror": lambda: {} | state,
        "into another": lambda: {}.update(state),
        "copy.copy": lambda: copy.copy(state),
        "match": lambda: _matched(state),
    }


def _matched(state: Any) -> Any:
    match state:
        case {"a": value}:
            return value


@pytest.mark.parametrize("way", sorted(handed_out(StateMap(list))))
def test_a_mutable_value_that_was_handed_out_counts_as_changed(way: str) -> None:
    state: StateMap[str, list[int]] = StateMap(list)
    state["a"].append(1)
    tracking.track(state, reads=True)
    assert handed_out(state)[way]() is not False
    assert list(tracking.take_changes(state)) == ["a"]
    assert tracking.take_changes(state) == {}


@pytest.mark.parametrize("reads", [None, False, True])
def test_what_is_made_of_a_state_is_a_plain_one_also_while_it_is_copied(reads: bool | None) -> None:
    ways: list[tuple[Callable[[StateMap[Any, Any]], Any], dict[Any, int]]] = [
        (lambda s: s | {"b": 2}, {"a": 1, "b": 2, "c": 0}),
        (lambda s: {"b": 2} | s, {"a": 1, "b": 2, "c": 0}),
        (lambda s: s.copy(), {"a": 1, "c": 0}),
        (lambda s: type(s)(int, {"b": 2}), {"b": 2, "c": 0}),
        (lambda s: s.fromkeys("bc", 2), {"b": 2, "c": 2}),
    ]
    for make, expected in ways:
        state: StateMap[str, int] = StateMap(int, {"a": 1})
        if reads is not None:
            tracking.track(state, reads=reads)
        made = make(state)
        made["d"] = made["c"]
        del made["d"]
        assert (type(made), made, state) == (StateMap, expected, {"a": 1})


def test_a_value_that_cannot_be_changed_may_be_read() -> None:
    state: StateMap[str, int] = StateMap(int, {"a": 1})
    tracking.track(state, reads=True)
    assert [state["a"], state.get("a"), *state.values(), *dict(state).values()] == [1] * 4
    assert tracking.take_changes(state) == {}


def test_the_first_removal_is_told_before_it_happens() -> None:
    for remove in (
        lambda s: s.pop("a"),
        lambda s: s.__delitem__("a"),
        lambda s: s.popitem(),
        lambda s: s.clear(),
    ):
        state: StateMap[str, int] = StateMap(int, {"a": 1})
        seen: list[dict[str, int]] = []
        tracking.track(state, reads=False, first_removal=lambda s=state, seen=seen: seen.append(dict(s)))  # type: ignore[misc]
        assert state.pop("b", 7) == 7
        with pytest.raises(KeyError):
            del state["b"]
        assert seen == []
        remove(state)
        state["a"] = 2
        remove(state)
        assert seen == [{"a": 1}]
        assert tracking.removed(state) == {"a"}


def test_tracking_is_switched_in_place() -> None:
    state: StateMap[str, int] = StateMap(int)
    held = state
    tracking.track(state, reads=False)
    held["a"] += 1
    assert tracking.is_tracking(state)
    tracking.track_reads(state)
    assert tracking.is_tracking(state)
    tracking.untrack(state)
    assert type(held) is StateMap
    held["a"] += 1
    assert dict(held) == {"a": 2}


class Counts(StatefulBolt):
    counts = KeyedState[str, int](int)
    seen = KeyedState[str, list[int]](list)

    def execute(self, tup: Any) -> None:
        pass


def test_state_is_each_instances_own_and_travels() -> None:
    a, b = Counts(), Counts()
    a.counts["x"] += 3
    a.seen["y"].append(1)
    assert dict(b.counts) == {}
    b.set_state(pickle.loads(pickle.dumps(a.get_state())))
    assert (dict(b.counts), dict(b.seen)) == ({"x": 3}, {"y": [1]})
    b.counts["z"] += 1  # the default survives
    assert pickle.loads(pickle.dumps(a)).counts == {"x": 3}


@dataclass
class Sized(StatefulBolt):
    size: int = 3
    counts: KeyedState[str, int] = KeyedState(int)  # noqa: RUF009

    def execute(self, tup: Any) -> None:
        pass


def test_a_declared_state_with_an_annotation_is_no_field_of_a_dataclass() -> None:
    a, b = Sized(), Sized(4)
    a.counts["x"] += 1  # type: ignore[index]
    assert ([f.name for f in fields(Sized)], b.size, a.counts, b.counts) == (["size"], 4, {"x": 1}, {})
    assert declared_states(Sized) == ("counts",)
