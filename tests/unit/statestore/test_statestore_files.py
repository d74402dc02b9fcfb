"""The embedded store's files: what is torn is cut off, what is damaged is said, and what is dead does not pile up."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from statestore import embedded, records
from statestore.base import Head, Piece
from statestore.embedded import EmbeddedStore, FileJournal
from statestore.errors import Damaged, Full, Missing, StateStoreError, Superseded, Unavailable
from statestore.memory import MemoryStore
from statestore.writing import Write, read_bytes


def state_file(directory: Path) -> Path:
    (found,) = directory.glob("*.state")
    return found


def fill(directory: Path) -> tuple[bytes, int]:
    """A store with one committed version; the file, and how long it was before the commit."""
    store = EmbeddedStore(directory)
    write = Write(store, "k", 1, "w")
    for n in range(3):
        write.put(f"piece {n} ".encode() * 5)
    before = state_file(directory).stat().st_size
    write.commit(meta=b"meta")
    store.close()
    return state_file(directory).read_bytes(), before


EXPECTED = b"".join(f"piece {n} ".encode() * 5 for n in range(3))


def test_a_file_cut_anywhere_holds_all_or_nothing(tmp_path: Path) -> None:
    data, _ = fill(tmp_path)
    path = state_file(tmp_path)
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        store = EmbeddedStore(tmp_path)
        head = store.head("k")
        if length == len(data):
            assert head is not None and read_bytes(store, head) == EXPECTED
        else:
            assert head is None
            if path.exists():  # and the writer can go on behind what is whole
                write = Write(store, "k", 1, "w")
                assert read_bytes(store, write.commit([write.put(b"again")])) == b"again"
        store.close()
        if length < len(data) and path.exists():
            store = EmbeddedStore(tmp_path)
            head = store.head("k")
            assert head is not None and read_bytes(store, head) == b"again"
            store.close()


def test_a_flipped_bit_is_never_taken_for_state(tmp_path: Path) -> None:
    """The planted fault: each byte of a committed file, one after the other."""
    data, before = fill(tmp_path)
    path = state_file(tmp_path)
    said = lost = 0
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        try:
            store = EmbeddedStore(tmp_path)
        except Missing:
            said += 1
            continue
        try:
            head = store.head("k")
            if head is None:
                assert at >= before  # the commit itself: as good as torn
                lost += 1
            else:
                assert read_bytes(store, head) == EXPECTED
        except Damaged:
            said += 1
        store.close()
    assert said >= before - 30
    assert lost <= len(data) - before


def test_a_damaged_version_can_be_replaced(tmp_path: Path) -> None:
    data, _ = fill(tmp_path)
    at = data.index(b"piece 1")
    state_file(tmp_path).write_bytes(data[:at] + b"PIECE" + data[at + 5 :])
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Damaged, match="k: 1 of the 3 pieces"):
        store.head("k")
    write = Write(store, "k", 2)
    assert write.before is None
    write.put(b"new")
    assert read_bytes(store, write.commit()) == b"new"
    store.close()
    store = EmbeddedStore(tmp_path)
    head = store.head("k")
    assert head is not None and read_bytes(store, head) == b"new"
    store.close()


def test_a_fence_file_that_is_torn_is_cut_and_one_that_is_damaged_is_said(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    for key in ("a", "b"):
        Write(store, key, 3).commit()
        store.delete(key, 3)
    store.close()
    path = tmp_path / "fences"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Superseded):
        Write(store, "a", 3)
    store.delete("b", 3)
    store.close()
    assert path.read_bytes() == data
    path.write_bytes(data[:10] + b"x" + data[11:])
    with pytest.raises(Missing, match="fences"):
        EmbeddedStore(tmp_path)


def test_many_versions_of_one_epoch_do_not_pile_up(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, slack=10_000)
    store = MemoryStore(journal=journal)
    write = Write(store, "k", 1)
    base = [write.put(bytes([n]) * 1000) for n in range(10)]
    largest = 0
    for round_ in range(100):
        base[round_ % 10] = write.put(bytes([round_]) * 1000)
        write.commit(base)
        largest = max(largest, state_file(tmp_path).stat().st_size)
    assert largest < 40_000
    expected = b"".join(bytes([90 + n]) * 1000 for n in range(10))
    store.close()
    store = EmbeddedStore(tmp_path)
    head = store.head("k")
    assert head is not None and head.sequence == 100 and read_bytes(store, head) == expected
    store.close()


def test_versions_of_old_epochs_leave_no_file(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    for epoch in range(1, 20):
        with Write(store, "k", epoch) as write:
            write.put(b"x")
            write.commit()
    assert len(list(tmp_path.glob("*.state"))) == 1
    assert len(store._journal._files) == 1  # type: ignore[attr-defined]
    store.delete("k", 19)
    assert list(tmp_path.glob("*.state")) == []
    assert store._journal._files == {}  # type: ignore[attr-defined]
    store.close()


def test_fences_are_bounded_and_their_file_too(tmp_path: Path) -> None:
    store = MemoryStore(journal=FileJournal(tmp_path), fences=10)
    for n in range(50):
        store.delete(f"k{n:02}", 1)
    for _ in range(2000):
        Write(store, "again", 2 + _).abort()
    assert len(store._keys) <= 12
    assert (tmp_path / "fences").stat().st_size < 100_000
    store.close()
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Superseded):
        Write(store, "k49", 1)
    Write(store, "k00", 1)  # forgotten
    store.close()


def test_two_processes_may_not_share_a_directory(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Missing, match="another process"):
        EmbeddedStore(tmp_path, wait=0)
    store.close()
    store.close()
    with pytest.raises(Unavailable):
        store.head("k")
    EmbeddedStore(tmp_path).close()


def test_a_full_disk_is_said_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path)
    write = Write(store, "k", 1, "w")
    first = write.put(b"first")
    real = os.writev

    def full(file: int, parts: Any) -> int:
        os.write(file, bytes(parts[0])[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    used = store.capacity().used
    monkeypatch.setattr(embedded.os, "writev", full)
    with pytest.raises(Full, match="No space left"):
        write.put(b"second")
    with pytest.raises(Full):
        store.commit(write.ticket, 1, [first])
    monkeypatch.setattr(embedded.os, "writev", real)
    assert store.capacity().used == used
    third = write.put(b"third")
    write.commit([first, third])
    store.close()
    store = EmbeddedStore(tmp_path)
    head = store.head("k")
    assert head is not None and read_bytes(store, head) == b"firstthird"
    store.close()


def test_a_file_of_an_open_write_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_OPEN", 2)
    store = EmbeddedStore(tmp_path, sync=True)
    writes = [Write(store, f"k{n}", 1) for n in range(6)]
    for round_ in range(3):
        for n, write in enumerate(writes):
            write.put(f"{n}{round_}".encode())
    heads = [write.commit() for write in writes]
    store.close()
    store = EmbeddedStore(tmp_path)
    assert [read_bytes(store, h) for h in heads] == [f"{n}0{n}1{n}2".encode() for n in range(6)]
    store.close()


def test_a_manifest_survives_its_encoding() -> None:
    head = Head("k", 3, 2, "w", (Piece(3, 1, 5, 7), Piece(2, 9, 1, 1 << 31)), b"m", 6, "")
    again = records.decode_head(records.encode_head(head))
    assert (again.key, again.pieces, again.meta, again.size) == (head.key, head.pieces, head.meta, 6)
    assert records.scan(b"garbage" * 100) == records.Contents()


def test_errors_travel(tmp_path: Path) -> None:
    import pickle

    from statestore import errors

    for kind in errors.KINDS.values():
        error = kind("message", remedy="remedy")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.message, again.remedy) == (kind, "message", "remedy")
    full = errors.rebuild("Full", "m", "", {"needed": 3, "free": 2, "limit": 1})
    assert isinstance(full, Full) and (full.needed, full.free, full.limit) == (3, 2, 1)
    assert type(errors.rebuild("OfTomorrow", "m", "", {})) is StateStoreError
