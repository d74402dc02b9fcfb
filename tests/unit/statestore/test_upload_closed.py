"""A stream of pieces that is closed by one thread while another one uses it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from statestore.base import Opened, Piece, Ticket
from statestore.errors import Unavailable
from statestore.upload import Upload
from statestore.v1 import statestore_pb2 as pb


class Answers:
    """Of the store; before each answer the connection is closed, as by another thread."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self.answers = answers
        self.cancelled = False
        self.upload: Upload | None = None

    def __next__(self) -> Any:
        assert self.upload is not None
        self.upload.close()
        return next(self.answers)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("answered", [1, 0])
def test_whoever_uses_it_is_told_and_never_finds_it_emptied(answered: int) -> None:
    answers = Answers(iter([pb.PutResponse(stored=answered)] * 2))
    stub: Any = SimpleNamespace(Put=lambda *_, **__: answers)
    patience: Any = lambda doing: SimpleNamespace()  # noqa: E731
    upload = Upload(stub, Ticket("k", 1, "w"), 1.0, lambda _: Opened(1, 0, None), patience)
    answers.upload = upload
    data = [b"one", b"two"]
    for number, each in enumerate(data, 1):
        upload.put(Piece(1, number, len(each), zlib.crc32(each)), each)
    with pytest.raises(Unavailable, match="closed"):
        upload.flush()
    assert answers.cancelled
    with pytest.raises(Unavailable, match="closed"):
        upload.flush()
