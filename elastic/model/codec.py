"""Domain values to JSON and back: what lies in ZooKeeper and the node-local store, readable by people.

One codec for all: a value that was written by one version and lacks a newer field reads with that field's default.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")
_encoder = msgspec.json.Encoder(order="sorted")


def encode(value: object) -> bytes:
    """A value of the model as JSON bytes; the same value always gives the same bytes."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """The value that `encode` was given.

    Raises:
        msgspec.ValidationError: The bytes do not describe a value of that kind.
    """
    return msgspec.json.decode(data, type=kind)
