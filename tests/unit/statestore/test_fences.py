"""The file of fences: it is bounded, what is torn in it is cut off, and to keep it short costs a deletion next to nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from statestore import decisions, embedded, memory
from statestore.base import Piece, first_of
from statestore.embedded import EmbeddedStore, FileJournal
from statestore.errors import Full, Superseded
from statestore.fences import Fences
from statestore.memory import MemoryStore
from statestore.records import Fence
from statestore.writing import Write


def test_fences_beyond_their_number_go_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To forget some means to write all others anew: not for each key that is deleted."""
    journal = FileJournal(tmp_path)
    forgotten: list[list[str]] = []
    forget = journal.forget

    def count(keys: Collection[str]) -> None:
        forgotten.append(list(keys))
        forget(keys)

    monkeypatch.setattr(journal, "forget", count)
    store = MemoryStore(journal=journal, fences=80)
    put = Write(store, "kept", 1)
    head = put.commit([put.put(b"kept")])
    for n in range(80):
        store.delete(f"k{n}", 1)
    store.delete("k0", 2)  # the youngest now
    assert forgotten == []
    for n in range(80, 180):
        store.delete(f"k{n}", 1)
    assert [len(keys) for keys in forgotten] == [11] * 10
    assert forgotten[0] == [f"k{n}" for n in range(1, 12)]
    assert 70 <= len(store._bare) <= 80
    store.close()
    store = MemoryStore(journal=FileJournal(tmp_path), fences=80)
    assert store.head("kept") == head and len(store._bare) == len(store._keys) - 1 <= 80
    with pytest.raises(Superseded):
        Write(store, "k179", 1)
    for key in ("k1", "k179"):
        again = Write(store, key, 3)
        again.commit([again.put(b"again")])
    assert "k179" not in store._bare
    store.collect("", keep=(), before=3)
    assert "k179" in store._bare and "kept" in store._bare
    store.close()


def test_what_is_there_is_not_looked_for_among_the_fences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each run of a topology has a name of its own these are tens of thousands, and each move's end has a store looked through."""
    store = MemoryStore(journal=FileJournal(tmp_path))
    for n in range(50):
        store.delete(f"t/{n}", 1)
    for n in (7, 50):
        Write(store, f"t/{n}", 2).commit([])
    Write(store, "t/51", 2)
    store.close()
    store = MemoryStore(journal=FileJournal(tmp_path))
    Write(store, "t/8", 2)
    looked = list[str]()
    collect, size = decisions.collect, memory._size

    def collects(record: decisions.Record, key: str, *more: Any) -> decisions.Record:
        looked.append(key)
        return collect(record, key, *more)

    def sizes(pieces: Any) -> int:
        looked.append("")
        return size(pieces)

    there = ["t/50", "t/51", "t/7", "t/8"]
    monkeypatch.setattr(memory, "_size", sizes)
    assert [entry.key for entry in store.list("t/")] == there and len(looked) == 4
    looked.clear()
    monkeypatch.setattr(decisions, "collect", collects)
    assert store.collect("t/", keep=[("t/51", 2)], before=2).keys == 3
    assert [key for key in looked if key] == there
    assert [entry.key for entry in store.list()] == ["t/51"] and len(store._bare) == 51
    store.close()


def test_a_fence_that_was_let_go_and_is_newer_by_then_stays(tmp_path: Path) -> None:
    """Somebody deletes the key once more between the two: else its old writers would be let in again."""
    fences = Fences(tmp_path)
    for key in ("old", "newer"):
        fences.ended(key, 1, deleted=True)
        fences.let_go(key)
    fences.ended("newer", 2, deleted=True)
    fences.forget(["old", "newer"])
    fences.close()
    fences = Fences(tmp_path)
    assert dict(fences.load()) == {"newer": Fence(2, 2)}
    fences.close()


def test_the_file_of_fences_is_written_anew_with_what_was_deleted_and_what_was_given_up(
    tmp_path: Path,
) -> None:
    store = EmbeddedStore(tmp_path)
    beside = Write(store, "beside", 1)
    head = beside.commit([beside.put(b"beside")])
    old = Write(store, "k", 5)
    old.commit([old.put(b"old")])
    store.delete("k", 5)
    for epoch in range(7, 2007):
        Write(store, "k", epoch).abort()
    assert (tmp_path / "fences").stat().st_size < 40_000, "half of what was written"
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") is None and store.head("beside") == head
    with pytest.raises(Superseded):
        Write(store, "k", 2006)
    Write(store, "k", 2007)
    store.close()


def test_a_fence_that_is_half_written_does_not_stand_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path)
    store.delete("a", 3)
    real = os.writev

    def full(file: int, parts: Any) -> int:
        os.write(file, bytes(parts[0])[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(embedded.os, "writev", full)
    with pytest.raises(Full):
        store.delete("b", 3)
    monkeypatch.setattr(embedded.os, "writev", real)
    store.delete("c", 3)
    store.close()
    store = EmbeddedStore(tmp_path)
    for key in ("a", "c"):
        with pytest.raises(Superseded):
            Write(store, key, 3)
    Write(store, "b", 3)
    store.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room cannot be kept here")
def test_where_the_disk_is_full_there_is_room_to_delete_what_is_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, room = EmbeddedStore(tmp_path), tmp_path / "fences.room"
    for key in ("a", "b", "c"):
        write = Write(store, key, 1, "w")
        write.commit([write.put(bytes(100_000))])
    real, kept = os.writev, room.exists()

    def full(file: int, parts: Any) -> int:
        if room.exists() or not kept:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, parts)

    with monkeypatch.context() as planted:
        planted.setattr(embedded.os, "writev", full)
        with pytest.raises(Full):
            Write(store, "d", 1)
        assert store.delete("a", 1) and not room.exists()
        planted.setattr(embedded.os, "posix_fallocate", _nothing_left)
        assert store.delete("b", 1) and not room.exists()  # what it has given back may be taken by others
    assert store.delete("c", 1) and room.stat().st_size
    store.close()
    store = EmbeddedStore(tmp_path)
    assert not list(store.list()) and room.stat().st_size
    for key in ("a", "b", "c"):
        with pytest.raises(Superseded):
            Write(store, key, 1)
    store.close()


def _nothing_left(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_deletion_is_done_also_where_the_file_of_fences_cannot_get_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full just then; afterwards what could not be removed goes with what is removed next."""
    journal = FileJournal(tmp_path)
    store, fences = MemoryStore(journal=journal, fences=8), journal._fences
    rewrite, full = fences._rewrite, [True]

    def rewrites(left: Any) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "no space left on device")
        rewrite(left)

    monkeypatch.setattr(fences, "_rewrite", rewrites)
    for n in range(12):
        store.delete(f"k{n}", 1)
    assert "k0" not in store._keys and "k0" in fences._fences
    full[0] = False
    for n in range(12, 18):
        store.delete(f"k{n}", 1)
    assert "k0" not in fences._fences and len(fences._fences) <= 9
    store.close()


def test_what_is_empty_does_not_make_a_part_of_the_whole() -> None:
    """Who is told that so many bytes are missing, none, takes what there is for all."""
    pieces = [Piece(n, 1, size, 0) for n, size in enumerate((100, 0, 50, 0))]
    assert first_of(pieces, (), 10) == 2, "as far as something is left"
    assert first_of(pieces[:2], (), 10) == 2 and first_of(pieces, (), 150) == 4
