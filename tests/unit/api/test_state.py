"""Keyed state: a dictionary that knows what changed. Compared with a plain dictionary under random operations."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elastic import KeyedState, StatefulBolt
from elastic.api.state import StateMap

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


@given(before=st.dictionaries(keys, st.integers()), ops=operations)
def test_a_copy_and_its_changes_give_the_present_state(
    before: dict[int, int], ops: list[tuple[str, int, int]]
) -> None:
    state: StateMap[int, int] = StateMap(int, before)
    model = dict(before)
    state.track()
    copied = dict(before)  # what a copy ahead would have carried away
    for op, key, value in ops:
        if op == "take":
            present, removed = state.take_changes()
            copied.update(present)
            for k in removed:
                copied.pop(k, None)
            assert copied == model
        else:
            apply(state, op, key, value)
            apply(model, op, key, value)
    assert dict(state) == model
    present, removed = state.take_changes()
    copied.update(present)
    for k in removed:
        copied.pop(k, None)
    assert copied == model


def test_a_mutable_value_that_was_handed_out_counts_as_changed() -> None:
    state: StateMap[str, list[int]] = StateMap(list)
    state["a"].append(1)
    state.track()
    state["a"].append(2)
    assert state.take_changes() == ({"a": [1, 2]}, set())
    for values in state.values():
        values.append(3)
    assert state.take_changes() == ({"a": [1, 2, 3]}, set())
    assert state.take_changes() == ({}, set())


def test_tracking_is_switched_in_place() -> None:
    state: StateMap[str, int] = StateMap(int)
    held = state
    state.track()
    held["a"] += 1
    assert state.tracking
    state.untrack()
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
