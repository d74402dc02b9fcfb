"""Domain values to JSON and back: what lies in ZooKeeper and the node-local store, readable by people.

One codec for all: a value that was written by one version and lacks a newer field reads with that field's default.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_encoder = msgspec.json.Encoder(order="sorted")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_first = threading.Lock()
"""For the first value of a kind: what msgspec notes of a type is not safe from threads that make it note the same type at once."""


def encode(value: object) -> bytes:
    """A value of the model as JSON bytes; the same value always gives the same bytes."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """The value that `encode` was given.

    Raises:
        msgspec.DecodeError: The bytes do not describe a value of that kind.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        with _first:
            decoder = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        value: T = decoder.decode(data)
    except UnicodeDecodeError as error:  # msgspec's own errors are of one kind, but it lets this one through
        raise msgspec.DecodeError(str(error)) from error
    return value
