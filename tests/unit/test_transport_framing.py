"""However the stream is cut into pieces, the same frames and requests come out; what is no frame is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.model.ids import Incarnation
from elastic.transport import framing, handshake
from elastic.transport.framing import (
    ALL_TARGETS,
    HEADER,
    TOTALS,
    ProtocolError,
    ReportReader,
    Request,
    Splitter,
)

targets = st.integers(0, ALL_TARGETS)
frame = st.tuples(st.just("frame"), targets, st.binary(max_size=400))
ask = st.tuples(st.just("ask"), targets, st.binary(min_size=TOTALS.size, max_size=TOTALS.size))
bye = st.tuples(st.just("bye"), st.just(0), st.just(b""))
stream = st.lists(st.one_of(frame, frame, frame, ask, bye), max_size=30)


def encode(items: list[tuple[str, int, bytes]]) -> bytes:
    parts = []
    for kind, target, body in items:
        if kind == "frame":
            parts.append(HEADER.pack(len(body), target) + body)
        else:
            parts.append(framing.request(Request[kind.upper()], target, body))
    return b"".join(parts)


def split_in(splitter: Splitter, data: bytes, pieces: list[int]) -> list[tuple[int, bytes]]:
    found: list[tuple[int, memoryview]] = []
    at = 0
    for piece in [*pieces, len(data)]:
        space = splitter.space
        part = data[at : at + piece]
        if space is not None:
            part = part[: len(space)]
            space[: len(part)] = part
            found += splitter.filled(len(part))
        else:
            found += splitter.feed(part)
        at += len(part)
    while at < len(data):
        found += splitter.feed(data[at:])
        at = len(data)
    return [(target, bytes(payload)) for target, payload in found]


@given(stream, st.lists(st.integers(0, 300), max_size=60), st.sampled_from([1, 64, framing.DIRECT]))
def test_any_chunking_gives_the_same_frames(
    items: list[tuple[str, int, bytes]], pieces: list[int], direct: int
) -> None:
    before = framing.DIRECT
    framing.DIRECT = direct  # small: the path of large frames is taken too
    try:
        splitter = Splitter(400)
        data = encode(items)
        assert split_in(splitter, data, pieces) == [(t, b) for k, t, b in items if k == "frame"]
        assert splitter.requests == [(Request[k.upper()], t, b) for k, t, b in items if k != "frame"]
    finally:
        framing.DIRECT = before


@given(st.integers(401, 2**32 - 1))
def test_a_giant_length_or_unknown_request_is_refused(word: int) -> None:
    splitter = Splitter(400)
    known = (framing.request(Request.ASK, 0, bytes(16))[:4], framing.request(Request.BYE)[:4])
    data = HEADER.pack(word, 1)
    for pieces in ([8], [3, 5]):
        splitter = Splitter(400)
        if data[:4] in known:
            continue
        with pytest.raises(ProtocolError):
            for piece in pieces:
                splitter.feed(data[:piece])
                data = data[piece:]
        data = HEADER.pack(word, 1)


@given(
    st.lists(st.tuples(targets, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=20),
    st.lists(st.integers(0, 40), max_size=20),
)
def test_reports_come_out_as_they_went_in(entries: list[tuple[int, int, int]], pieces: list[int]) -> None:
    data = framing.reports(entries)
    reader = ReportReader()
    found: list[tuple[int, int, int]] = []
    for piece in [*pieces, len(data)]:
        found += reader.feed(data[:piece])
        data = data[piece:]
    assert found == entries


names = st.text(min_size=1, max_size=50).map(Incarnation)
hellos = st.builds(
    handshake.Hello,
    session=st.integers(0, 2**64 - 1),
    attempt=st.integers(0, 2**32 - 1),
    resuming=st.booleans(),
    window=st.integers(1, 2**62),
    in_flight=st.integers(1, 2**62),
    max_frame=st.integers(1, framing.LARGEST_FRAME),
    window_rows=st.integers(0, 2**62),
    sender=names,
    receiver=names,
)
welcomes = st.builds(
    handshake.Welcome,
    verdict=st.sampled_from(handshake.Verdict),
    received=st.integers(0, 2**63),
    incarnation=names,
)


@given(hellos, st.binary(max_size=20), st.integers(0, 60))
def test_a_hello_comes_back_whole(hello: handshake.Hello, rest: bytes, cut: int) -> None:
    data = hello.encode()
    assert handshake.split(data[: min(cut, len(data) - 1)]) is None
    body, after = handshake.split(data + rest) or (b"", b"")
    assert (handshake.parse_hello(body), after) == (hello, rest)


@given(welcomes)
def test_a_welcome_comes_back_whole(welcome: handshake.Welcome) -> None:
    body, rest = handshake.split(welcome.encode()) or (b"", b"")
    assert (handshake.parse_welcome(body), rest) == (welcome, b"")


@given(st.binary(max_size=200))
def test_garbage_is_a_protocol_error_or_incomplete(data: bytes) -> None:
    for read in (handshake.split, handshake.parse_hello, handshake.parse_welcome):
        with suppress(ProtocolError):
            read(data)


@given(hellos, st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_hello_is_refused_or_readable(hello: handshake.Hello, at: int, value: int) -> None:
    data = bytearray(hello.encode())
    data[at % len(data)] = value
    with suppress(ProtocolError):
        greeting = handshake.split(bytes(data))
        if greeting is not None:
            handshake.parse_hello(greeting.body)


def test_another_version_is_named() -> None:
    with pytest.raises(handshake.WrongVersion, match="version 7"):
        handshake.split(handshake.MAGIC + b"\0\7\0\0")


def test_a_greeting_is_bounded_before_it_has_come() -> None:
    begun = handshake.MAGIC + handshake.VERSION.to_bytes(2, "big")
    assert handshake.split(begun + (4096).to_bytes(2, "big")) is None, "the rest is to come"
    with pytest.raises(ProtocolError, match="a greeting of 4097 bytes, where at most 4096 are allowed"):
        handshake.split(begun + (4097).to_bytes(2, "big"))
