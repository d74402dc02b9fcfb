"""Many states at once over gRPC: packed into messages, several of them under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from statestore import wire
from statestore.base import Fetched, Head, Piece, State, StateStore, Ticket, cost, make_head
from statestore.bulk import manifest, save_one
from statestore.errors import Damaged, Invalid, StateStoreError, Unavailable
from statestore.memory import checked
from statestore.patience import Patience
from statestore.v1 import statestore_pb2 as pb
from statestore.v1.statestore_pb2_grpc import StateStoreServiceStub

_UNDER_WAY = 4
_WANTED = 10_000


@dataclass(slots=True)
class _Batch:
    states: list[tuple[State, tuple[Piece, ...]]]
    request: pb.SaveRequest
    future: Any


def save(
    store: StateStore,
    stub: StateStoreServiceStub,
    states: Iterable[State],
    patience: Callable[[str], Patience],
    forget: Callable[[Ticket], None],
) -> Iterator[Head | StateStoreError]:
    """See `StateStore.save`. A large state goes its own way, piece by piece.

    Args:
        forget: Lets go of what was put of it and is not confirmed.
    """
    under_way: deque[_Batch] = deque()
    batch: list[tuple[State, tuple[Piece, ...]]] = []
    size = 0
    for state in states:
        try:
            state.ticket.check()
        except Invalid as error:  # in its turn, as the other back ends do
            if batch:
                under_way.append(_send(stub, batch, patience))
                batch, size = [], 0
            while under_way:
                yield from _answers(stub, under_way.popleft(), patience)
            yield error
            continue
        pieces = manifest(state.ticket, state.pieces)
        mine = sum(cost(len(d)) for d in state.pieces) + len(state.meta)
        if batch and size + mine > wire.CHUNK:
            under_way.append(_send(stub, batch, patience))
            batch, size = [], 0
        if mine > wire.CHUNK:
            while under_way:
                yield from _answers(stub, under_way.popleft(), patience)
            yield _save_large(store, state, pieces, forget)
            continue
        batch.append((state, pieces))
        size += mine
        while len(under_way) >= _UNDER_WAY:
            yield from _answers(stub, under_way.popleft(), patience)
    if batch:
        under_way.append(_send(stub, batch, patience))
    while under_way:
        yield from _answers(stub, under_way.popleft(), patience)


def _save_large(
    store: StateStore, state: State, pieces: Sequence[Piece], forget: Callable[[Ticket], None]
) -> Head | StateStoreError:
    try:
        return save_one(store, state.ticket, pieces, state.pieces, state.meta)
    except StateStoreError as error:
        forget(state.ticket)  # whoever saves it again begins anew
        return error


def _send(
    stub: StateStoreServiceStub,
    batch: list[tuple[State, tuple[Piece, ...]]],
    patience: Callable[[str], Patience],
) -> _Batch:
    request = pb.SaveRequest(
        states=[
            pb.State(
                ticket=wire.ticket_out(state.ticket),
                pieces=[wire.piece_out(p) for p in pieces],
                data=state.pieces,
                meta=state.meta,
            )
            for state, pieces in batch
        ]
    )
    return _Batch(batch, request, _call(stub, request, patience("save states").left()))


def _call(stub: StateStoreServiceStub, request: pb.SaveRequest, timeout: float) -> Any:
    method: Any = stub.Save
    return method.future(request, timeout=timeout, wait_for_ready=True)


def _answers(
    stub: StateStoreServiceStub, batch: _Batch, patience: Callable[[str], Patience]
) -> Iterator[Head | StateStoreError]:
    each = patience(f"save {len(batch.states)} states from {batch.states[0][0].ticket.key} on")
    while True:
        try:
            answer = batch.future.result()
            break
        except grpc.RpcError as error:
            try:
                each.failed(error)
            except StateStoreError as refused:
                yield from [refused] * len(batch.states)
                return
            batch.future = _call(stub, batch.request, each.left())
    if len(answer.outcomes) != len(batch.states):
        raise StateStoreError("the state store answered for another number of states")
    for (state, pieces), outcome in zip(batch.states, answer.outcomes, strict=True):
        if outcome.HasField("error"):
            yield wire.detail_in(outcome.error)
        else:
            yield make_head(state.ticket, outcome.sequence, pieces, state.meta)


def fetch(
    store: StateStore,
    stub: StateStoreServiceStub,
    wanted: Sequence[tuple[str, int]],
    patience: Callable[[str], Patience],
    seconds: float,
) -> Iterator[Fetched | StateStoreError]:
    """See `StateStore.fetch`; resumed where it broke."""
    done = 0
    each = patience(f"fetch {len(wanted)} states")
    while done < len(wanted):
        part = wanted[done : done + _WANTED]
        request = pb.FetchRequest(wanted=[pb.Kept(key=key, epoch=epoch) for key, epoch in part])
        call: Any = stub.Fetch(request, timeout=seconds, wait_for_ready=True)
        try:
            for answer in call:
                for state in answer.states:
                    done += 1
                    yield _fetched(store, state)
                each.progress()
            if not each.moved():
                each.broken(Unavailable("the state store ended its answer too early"))
        except grpc.RpcError as error:
            each.failed(error)
        finally:
            call.cancel()


def _fetched(store: StateStore, state: pb.Fetched) -> Fetched | StateStoreError:
    if state.HasField("error"):
        return wire.detail_in(state.error)
    head = wire.head_in(state.head)
    try:
        if state.large:
            return Fetched(head, tuple(store.get(head)))
        if len(state.data) != len(head.pieces):
            return Damaged(f"{head.key}: {len(state.data)} of {len(head.pieces)} pieces have come")
        pairs = zip(head.pieces, state.data, strict=True)
        return Fetched(head, tuple([checked(head.key, piece, data) for piece, data in pairs]))
    except StateStoreError as error:
        return error
