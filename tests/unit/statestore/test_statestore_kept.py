"""What the embedded store has confirmed stays, and what it has refused or removed does not come back: after a restart, too."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from statestore import files, memory, pack
from statestore.base import Piece, Ticket
from statestore.checksum import crc32
from statestore.embedded import EmbeddedStore, FileJournal
from statestore.errors import Damaged, Full, Incomplete, Missing, NotFound, Superseded
from statestore.memory import MemoryStore
from statestore.parcel import Parcel
from statestore.writing import Write, read_bytes

TICKET = Ticket("t/k", 1, "w")
SMALL, REST = b"a" * 50_000, b"b" * 70_000


def put(store: MemoryStore, number: int, data: bytes) -> Piece:
    piece = Piece(TICKET.epoch, number, len(data), crc32(data))
    store.put(TICKET, piece, data)
    return piece


def hand_over(store: MemoryStore, directory: Path, number: int, data: bytes) -> Piece:
    """As a process of this machine does: in a file."""
    piece = Piece(TICKET.epoch, number, len(data), crc32(data))
    parcel = Parcel(str(directory))
    offset = parcel.append(data)
    parcel.flush()
    store.adopt(TICKET, parcel.file, [(piece, offset)])
    parcel.close()
    return piece


@pytest.mark.parametrize("handed", [False, True])
@pytest.mark.parametrize("collected", [False, True])
def test_a_version_in_a_pack_and_a_file_outlives_a_newer_write_that_is_given_up(
    tmp_path: Path, handed: bool, collected: bool
) -> None:
    store = EmbeddedStore(tmp_path)
    store.begin(TICKET)
    first = hand_over(store, tmp_path, 1, SMALL) if handed else put(store, 1, SMALL)
    store.commit(TICKET, 1, [first, put(store, 2, REST)])
    newer = Write(store, TICKET.key, 2)
    newer.put(b"x")
    if collected:
        store.collect("t/", keep=[(TICKET.key, 1)], before=2)
    else:
        newer.abort()
    for _ in range(2):
        store.close()
        store = EmbeddedStore(tmp_path)
        head = store.head(TICKET.key)
        assert head is not None and read_bytes(store, head) == SMALL + REST
    with pytest.raises(Superseded):
        Write(store, TICKET.key, 2)
    store.close()


def test_a_commit_is_one_although_the_file_behind_it_cannot_be_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(journal=FileJournal(tmp_path, slack=1000))
    store.begin(TICKET)
    store.commit(TICKET, 1, [hand_over(store, tmp_path, 1, SMALL), put(store, 2, bytes(300_000))])
    third = put(store, 3, b"n")
    really = os.open

    def none_free(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith(".new"):
            raise OSError(errno.EMFILE, "Too many open files")
        return really(path, *args, **options)

    monkeypatch.setattr(os, "open", none_free)
    head = store.commit(TICKET, 2, [third])
    assert read_bytes(store, head) == b"n"
    monkeypatch.undo()
    store.close()
    store = MemoryStore(journal=FileJournal(tmp_path))
    assert store.head(TICKET.key) == head and read_bytes(store, head) == b"n"
    store.close()


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_commit_that_the_disk_does_not_confirm_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    store = EmbeddedStore(tmp_path, sync=True)
    with Write(store, "k", 1) as write:
        write.put(b"old")
        head = write.commit()
    newer = Write(store, "k", 2)
    newer.put(bytes(size))

    def broken(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(Missing, match="does not confirm"):
        newer.commit()
    monkeypatch.undo()
    newer.abort()
    store.close()
    store = EmbeddedStore(tmp_path, sync=True)
    assert store.head("k") == head and read_bytes(store, head) == b"old"
    store.close()


class Disk:
    """Knows of each file of states how much of it has been written, and how much of that the disk has; and which names the disk has."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._written: dict[int, int] = {}
        self._there: dict[int, int] = {}
        self._named: set[str] = set()
        writev, fdatasync, fsync = os.writev, os.fdatasync, os.fsync

        def write(file: int, parts: Any) -> int:
            done = writev(file, parts)
            self._note(self._written, file)
            return done

        def sync(file: int) -> None:
            fdatasync(file)
            self._note(self._there, file)

        def sync_directory(file: int) -> None:
            fsync(file)
            self._named.update(os.listdir(directory))  # noqa: PTH208 - names are enough

        monkeypatch.setattr(os, "writev", write)
        monkeypatch.setattr(os, "fdatasync", sync)
        monkeypatch.setattr(os, "fsync", sync_directory)

    @staticmethod
    def _note(sizes: dict[int, int], file: int) -> None:
        found = os.fstat(file)
        sizes[found.st_ino] = found.st_size

    def lacks(self) -> list[str]:
        files = {
            p.name: p.stat().st_ino for p in self._directory.iterdir() if p.suffix in (".pack", ".state")
        }
        return [
            n
            for n, i in files.items()
            if n not in self._named or self._there.get(i, 0) < self._written.get(i, 0)
        ]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_put_before_a_commit_is_on_the_disk_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(pack, "_FULL", 200_000)
    disk = Disk(tmp_path, monkeypatch)
    store = EmbeddedStore(tmp_path, sync=True)
    write = Write(store, "k", 1, "me")
    first = write.put(b"a" * 1000)
    if restarted:
        store.close()
        store = EmbeddedStore(tmp_path, sync=True)
        write = Write(store, "k", 1, "me")
    else:
        for n in range(5):  # others fill the pack
            Write(store, f"other-{n}", 1).put(b"o" * 60_000)
    assert len(list(tmp_path.glob("*.pack"))) == (1 if restarted else 2)
    write.commit([first])
    assert disk.lacks() == []
    store.close()


def test_a_commit_in_a_file_of_its_own_is_on_the_disk_with_what_was_in_a_pack_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    store = EmbeddedStore(tmp_path, sync=True)
    store.begin(TICKET)
    store.commit(TICKET, 1, [put(store, 1, SMALL), put(store, 2, REST)])
    assert len(list(tmp_path.glob("*.pack"))) == len(list(tmp_path.glob("*.state"))) == 1
    assert disk.lacks() == []
    store.commit(TICKET, 2, [put(store, 3, REST)])
    assert disk.lacks() == []
    store.close()


@pytest.mark.parametrize(("slack", "rewritten"), [(10_000, [3, 6]), (100_000, [])])
def test_a_file_is_written_anew_when_more_than_half_of_it_is_dead_and_more_than_a_little(
    tmp_path: Path, slack: int, rewritten: list[int]
) -> None:
    store = MemoryStore(journal=FileJournal(tmp_path, slack=slack, small=0))
    write = Write(store, "k", 1)
    pieces = [write.put(bytes(10_000)) for _ in range(3)]
    write.commit(pieces)
    (path,) = tmp_path.glob("*.state")
    anew, was = [], path.stat().st_ino
    for n in range(1, 7):
        pieces[n % 3] = write.put(bytes(10_000))
        write.commit(pieces)
        if (now := path.stat().st_ino) != was:
            anew.append(n)
        was = now
    assert anew == rewritten, "30,000 bytes live, 10,000 more are dead each time"
    store.close()


def test_what_was_handed_over_has_its_name_on_the_disk_after_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of a large state in a file stands in a pack, which is there for longer."""
    named: set[str] = set()
    synced: set[int] = set()
    fsync, fdatasync = os.fsync, os.fdatasync

    def sync_data(file: int) -> None:
        fdatasync(file)
        synced.add(os.fstat(file).st_ino)

    def sync(file: int) -> None:
        fsync(file)
        named.update(os.listdir(tmp_path))  # noqa: PTH208 - names are enough

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync_data)
    store = EmbeddedStore(tmp_path, sync=True)
    store.begin(TICKET)
    piece = hand_over(store, tmp_path, 1, bytes(100_000))
    store.commit(TICKET, 1, [piece])
    assert {path.name for path in tmp_path.glob("*.p*")} <= named
    assert {path.stat().st_ino for path in tmp_path.glob("*.p*")} <= synced
    store.close()


def test_what_was_deleted_is_gone_as_long_as_a_pack_says_anything_of_it(tmp_path: Path) -> None:
    store = MemoryStore(journal=FileJournal(tmp_path), fences=8)
    for key in ("lives", "gone"):
        with Write(store, key, 1) as write:
            write.put(key.encode())
            write.commit()
    store.delete("gone", 1)
    for n in range(12):  # the oldest fences go
        store.delete(f"other-{n}", 1)
    assert "gone" not in store._keys
    store.close()
    store = MemoryStore(journal=FileJournal(tmp_path), fences=8)
    assert store.head("gone") is None and store.head("lives") is not None
    store.close()


def test_a_fence_that_is_set_while_others_are_forgotten_stays(tmp_path: Path) -> None:
    class Journal(FileJournal):
        again = True

        def forget(self, keys: Collection[str]) -> None:
            if self.again and "k" in keys:
                self.again = False
                Write(store, "k", 1).abort()  # another thread, before the file is written
            super().forget(keys)

    journal = Journal(tmp_path)
    store = MemoryStore(journal=journal, fences=8)
    store.delete("k", 1)
    store._prune()
    for n in range(12):
        store.delete(f"other-{n}", 1)
    assert not journal.again
    store.close()
    store = MemoryStore(journal=FileJournal(tmp_path), fences=8)
    with pytest.raises(Superseded):
        Write(store, "k", 1)
    store.close()


def test_what_is_reserved_for_pieces_in_a_file_stays_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This store keeps no files: pieces are read and put one by one, and somebody else asks for room meanwhile."""
    store = MemoryStore(1 << 20)
    store.begin(TICKET)
    store.reserve(1, {TICKET.key: 700_000})
    really, refused = memory.read_at, []

    def meanwhile(*args: Any) -> bytes:
        with pytest.raises(Full):
            store.reserve(2, {"other": 600_000})
        refused.append(True)
        return really(*args)

    monkeypatch.setattr(memory, "read_at", meanwhile)
    pieces = [hand_over(store, tmp_path, n, bytes(300_000)) for n in (1, 2)]
    assert len(refused) == 2
    store.commit(TICKET, 1, pieces)
    used = store.capacity().used
    with pytest.raises(Full):
        hand_over(store, tmp_path, 3, bytes(700_000))
    assert store.capacity().used == used and store.capacity().reserved == 0


def test_pieces_of_which_one_is_damaged_leave_no_room_taken(tmp_path: Path) -> None:
    store = MemoryStore(1 << 20)
    store.begin(TICKET)
    parcel = Parcel(str(tmp_path))
    offset = parcel.append(bytes(10))
    parcel.flush()
    with pytest.raises(Damaged):
        store.adopt(TICKET, parcel.file, [(Piece(1, 1, 10, 0), offset)])
    parcel.close()
    assert store.capacity().used == 0


def test_whoever_reads_a_version_whose_file_is_gone_is_told_so(tmp_path: Path) -> None:
    """Not another file that has its name by now."""
    store = EmbeddedStore(tmp_path)
    store.begin(TICKET)
    head = store.commit(TICKET, 1, [hand_over(store, tmp_path, 1, SMALL)])
    reading = store.get(head)
    store.commit(TICKET, 2, [put(store, 2, b"x")])
    hand_over(store, tmp_path, 3, SMALL[::-1] + b"c")
    with pytest.raises(NotFound):
        next(reading)
    store.close()


@pytest.mark.parametrize("small", [10_000, 200_000])
def test_what_a_commit_has_dropped_takes_no_room_after_a_restart(tmp_path: Path, small: int) -> None:
    """Its record is still there: in a file of its own, in a common one, or in that from before the write had its own."""
    store = MemoryStore(journal=FileJournal(tmp_path, small=small))
    store.begin(TICKET)
    dropped, kept = put(store, 1, b"d" * 7000), put(store, 2, SMALL)
    file = hand_over(store, tmp_path, 3, REST)
    head = store.commit(TICKET, 1, [kept, file])
    later = put(store, 4, b"later")
    used = store.capacity().used
    store.close()
    store = MemoryStore(journal=FileJournal(tmp_path, small=small))
    assert store.capacity().used == used
    assert store.head(TICKET.key) == head and read_bytes(store, head) == SMALL + REST
    assert store.begin(TICKET).next_number == 5
    with pytest.raises(Incomplete):
        store.commit(TICKET, 2, [dropped, later])
    store.commit(TICKET, 2, [kept, later])
    store.close()


def test_a_file_that_is_written_anew_has_what_its_own_epoch_has_put_and_nothing_else(tmp_path: Path) -> None:
    """Pieces of the version before may have the same numbers."""
    journal = FileJournal(tmp_path, slack=1000, small=0)
    store = MemoryStore(journal=journal)
    before = Write(store, "k", 1)
    before.commit([kept := before.put(b"a" * 1000)])
    write = Write(store, "k", 2)
    own = write.put(b"b" * 1000)
    assert (kept.number, kept.epoch) == (own.number, own.epoch - 1)
    anew, was = 0, None
    for n in range(6):
        write.commit([kept, own, write.put(bytes([n]) * 1000)])
        (path,) = tmp_path.glob("*-2.state")
        now = path.stat()
        assert now.st_size == journal._lengths["k", 2], "behind that it goes on"
        assert b"a" * 1000 not in path.read_bytes()
        anew, was = anew + (was not in (None, now.st_ino)), now.st_ino
    assert anew
    store.close()
    with contextlib.closing(EmbeddedStore(tmp_path)) as store:
        head = store.head("k")
        assert head is not None and read_bytes(store, head) == b"a" * 1000 + b"b" * 1000 + bytes([5]) * 1000


def test_a_file_that_is_written_anew_is_on_the_disk_before_it_takes_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    flush, directory, replace = files.flush, files.flush_directory, Path.replace

    def flushes(file: int, path: Path) -> None:
        flush(file, path)
        done.append(f"flush {path.suffix}")

    def flushes_directory(path: Path) -> None:
        directory(path)
        done.append("names")

    def replaces(self: Path, target: Path) -> Path:
        done.append("replace")
        return replace(self, target)

    monkeypatch.setattr(files, "flush", flushes)
    monkeypatch.setattr(files, "flush_directory", flushes_directory)
    monkeypatch.setattr(Path, "replace", replaces)
    store = MemoryStore(journal=FileJournal(tmp_path, sync=True, slack=1000, small=0))
    write = Write(store, "k", 1)
    for _ in range(6):
        write.commit([write.put(bytes(1000))])
    store.close()
    at = done.index("replace")
    assert done[at - 1 : at + 2] == ["flush .new", "replace", "names"]
    assert done[:2] == ["flush .state", "names"], "a commit, and the name of the file that it is in"


def test_a_file_that_was_handed_over_goes_with_the_last_of_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left() -> int:
        return len(list(tmp_path.glob("*.pieces")))

    store = EmbeddedStore(tmp_path)
    store.begin(TICKET)
    parcel, both = Parcel(str(tmp_path)), []
    for number in (1, 2):
        piece = Piece(TICKET.epoch, number, len(SMALL), crc32(SMALL))
        both.append((piece, parcel.append(SMALL)))
    parcel.flush()
    store.adopt(TICKET, parcel.file, both)
    parcel.close()
    (one, _), (two, _) = both
    store.commit(TICKET, 1, [one, two])
    three = hand_over(store, tmp_path, 3, REST)
    head = store.commit(TICKET, 2, [two, three])
    assert left() == 2 and read_bytes(store, head) == SMALL + REST
    store.commit(TICKET, 3, [three])
    assert left() == 1
    with monkeypatch.context() as full:
        full.setattr(FileJournal, "_record", lambda *_, **__: (_ for _ in ()).throw(Full("no room")))
        with pytest.raises(Full):
            hand_over(store, tmp_path, 4, SMALL)
    assert left() == 1, "what nothing names takes no room"
    store.close()


def test_a_file_that_is_removed_is_closed_and_one_that_was_never_begun_is_removed(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, small=0)
    store = MemoryStore(journal=journal)
    Write(store, "k", 1).put(b"a")
    (file,) = journal._files.values()
    store.delete("k", 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    store.close()
    (tmp_path / "x-1.state").touch()
    EmbeddedStore(tmp_path).close()
    assert not list(tmp_path.glob("*.state"))
