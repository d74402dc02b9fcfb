"""What nobody can read is one sort of error, whatever is wrong with it."""

from __future__ import annotations

import msgspec
import pytest

from elastic.model.codec import decode
from elastic.model.records import WantedNode


@pytest.mark.parametrize(
    "data", [b"of another version", b"[]", b'{"slots": "many"}', b'{"host": "\xff"}', b'{"\xff": 1}']
)
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(data, WantedNode)
