"""The embedded store's files: what is torn is cut off, what is damaged is said, and what is dead does not pile up."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from statestore import embedded, files, pack, records
from statestore.base import Head, Piece, Ticket
from statestore.embedded import EmbeddedStore, FileJournal
from statestore.errors import Damaged, Full, Missing, NotFound, StateStoreError, Superseded, Unavailable
from statestore.memory import MemoryStore
from statestore.parcel import Parcel
from statestore.writing import Write, read_bytes


@pytest.fixture(autouse=True, params=["state", "pack"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which files small writes go to: their own, or common ones."""
    if request.param == "state":
        monkeypatch.setattr(embedded, "SMALL", 0)
    return str(request.param)


def state_files(directory: Path) -> list[Path]:
    return [p for p in directory.iterdir() if p.suffix in (".state", ".pack")]


def state_file(directory: Path) -> Path:
    (found,) = state_files(directory)
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
        for old in state_files(tmp_path):
            old.unlink()
        path.write_bytes(data[:length])
        store = EmbeddedStore(tmp_path)
        head = store.head("k")
        again = False
        if length == len(data):
            assert head is not None and read_bytes(store, head) == EXPECTED
        else:
            assert head is None
            if path.exists():  # and the writer can go on behind what is whole
                again = True
                write = Write(store, "k", 1, "w")
                assert read_bytes(store, write.commit([write.put(b"again")])) == b"again"
        store.close()
        if again:
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


def test_a_damaged_version_can_be_replaced(tmp_path: Path, kind: str) -> None:
    data, _ = fill(tmp_path)
    at = data.index(b"piece 1")
    state_file(tmp_path).write_bytes(data[:at] + b"PIECE" + data[at + 5 :])
    if kind == "pack":
        with pytest.raises(Missing, match=r"00000001\.pack: it is damaged at byte \d+, before a commit"):
            EmbeddedStore(tmp_path)
        return
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


@pytest.mark.parametrize("handed", [False, True])
def test_what_a_writer_commits_over_damage_of_its_own_is_kept(
    tmp_path: Path, kind: str, handed: bool
) -> None:
    """The answer was lost with the store's process, and it does all of it again."""
    if kind == "pack":  # is not begun with at all
        return
    data, _ = fill(tmp_path)
    at = data.index(b"piece 1") - 10
    state_file(tmp_path).write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    store = EmbeddedStore(tmp_path)
    write = Write(store, "k", 1, "w")
    pieces = [write.put(b"again")]
    if handed:
        parcel = Parcel(str(tmp_path))
        pieces.append(Piece(1, 99, 4, zlib.crc32(b"more")))
        placed = [(pieces[1], parcel.append(b"more"))]
        parcel.flush()
        store.adopt(write.ticket, parcel.file, placed)
        parcel.close()
    head = write.commit(pieces)
    for _ in range(2):
        assert store.head("k") == head and read_bytes(store, head) == b"again" + b"more" * handed
        store.close()
        store = EmbeddedStore(tmp_path)
    more = write.ticket
    store.put(more, Piece(1, 100, 1, zlib.crc32(b"x")), b"x")
    head = store.commit(more, 2, [*pieces, Piece(1, 100, 1, zlib.crc32(b"x"))])
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") == head
    store.close()


@pytest.mark.parametrize("way", ["delete", "collect", "abort"])
def test_what_is_gone_is_not_damaged_any_more(tmp_path: Path, kind: str, way: str) -> None:
    if kind == "pack":  # is not begun with at all
        return
    data, _ = fill(tmp_path)
    at = data.index(b"piece 1") - 10  # from its header on nothing can be read, also not the commit
    state_file(tmp_path).write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Damaged, match="before a commit"):
        store.head("k")
    if way == "delete":
        store.delete("k", 1)
    elif way == "collect":
        store.collect("k", keep=(), before=1)
    else:
        store.abort(Ticket("k", 1, "w"))
    (found,) = store.fetch([("k", 1)])
    assert store.head("k") is None and isinstance(found, NotFound)
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") is None
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


def test_many_versions_of_one_epoch_do_not_pile_up(tmp_path: Path, kind: str) -> None:
    journal = FileJournal(tmp_path, slack=10_000)
    store = MemoryStore(journal=journal)
    write = Write(store, "k", 1)
    base = [write.put(bytes([n]) * 1000) for n in range(10)]
    largest = 0
    for round_ in range(100):
        base[round_ % 10] = write.put(bytes([round_]) * 1000)
        write.commit(base)
        largest = max(largest, sum(path.stat().st_size for path in state_files(tmp_path)))
    assert largest < 40_000 + (2 * embedded.SMALL if kind == "pack" else 0)
    assert len(list(tmp_path.glob("*.state"))) == 1
    expected = b"".join(bytes([90 + n]) * 1000 for n in range(10))
    store.close()
    store = EmbeddedStore(tmp_path)
    head = store.head("k")
    assert head is not None and head.sequence == 100 and read_bytes(store, head) == expected
    store.close()


def test_versions_of_old_epochs_leave_no_file(tmp_path: Path, kind: str) -> None:
    store = EmbeddedStore(tmp_path)
    for epoch in range(1, 20):
        with Write(store, "k", epoch) as write:
            write.put(b"x")
            write.commit()
    assert len(store._journal._files) == (1 if kind == "state" else 0)  # type: ignore[attr-defined]
    assert state_file(tmp_path).stat().st_size < (500 if kind == "state" else 5000)
    store.delete("k", 19)
    assert sum(path.stat().st_size for path in state_files(tmp_path)) == 0
    assert store._journal._files == {}  # type: ignore[attr-defined]
    store.close()


def test_a_write_may_be_in_common_files_and_its_own(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    write = Write(store, "k", 1)
    pieces = [write.put(bytes([n]) * 20_000) for n in range(7)]
    write.commit(pieces)
    small = Write(store, "other", 1)
    small.commit([small.put(b"small")])
    head = write.commit([*pieces[1:], write.put(b"more")])
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") == head
    assert read_bytes(store, head) == b"".join(bytes([n]) * 20_000 for n in range(1, 7)) + b"more"
    store.delete("k", 1)
    other = store.head("other")
    assert other is not None and read_bytes(store, other) == b"small"
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") is None and store.head("other") == other
    store.close()


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("first", ["put", "handed over"])
@pytest.mark.parametrize("slack", [0, embedded.SLACK])
def test_of_two_pieces_with_one_number_the_later_counts(
    tmp_path: Path, size: int, first: str, slack: int
) -> None:
    """A commit has dropped the other, and the same writer has begun again: in the same file or another one."""
    store = MemoryStore(journal=FileJournal(tmp_path, slack=slack))
    ticket = Ticket("k", 5, "w")
    data = [os.urandom(n) for n in (1000, 1000, size, 3 * size)]
    pieces = [Piece(5, n, len(d), zlib.crc32(d)) for n, d in zip((1, 2, 2, 3), data, strict=True)]
    store.begin(ticket)
    if first == "put":
        for n in range(2):
            store.put(ticket, pieces[n], data[n])
    else:
        parcel = Parcel(str(tmp_path))
        placed = [(pieces[n], parcel.append(data[n])) for n in range(2)]
        parcel.flush()
        store.adopt(ticket, parcel.file, placed)
        parcel.close()
    store.commit(ticket, 1, pieces[:1])
    assert store.begin(ticket).next_number == 2
    for n in (2, 3):
        store.put(ticket, pieces[n], data[n])
    head = store.commit(ticket, 2, [pieces[0], pieces[2]])
    for _ in range(2):
        assert list(store.get(head)) == [data[0], data[2]]
        store.close()
        store = EmbeddedStore(tmp_path)
        assert store.head("k") == head
    assert list(store.get(head)) == [data[0], data[2]]
    store.close()


def test_common_files_go_when_nothing_in_them_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "state":
        return
    monkeypatch.setattr(pack, "_FULL", 2000)
    store = EmbeddedStore(tmp_path)
    for n in range(40):
        write = Write(store, f"k{n}", 1)
        write.commit([write.put(b"x" * 200)])
    assert len(state_files(tmp_path)) > 5
    for n in range(40):
        if n != 17:
            store.delete(f"k{n}", 1)
    assert len(state_files(tmp_path)) <= 2
    store.close()
    store = EmbeddedStore(tmp_path)
    assert [entry.key for entry in store.list()] == ["k17"]
    store.delete("k17", 1)
    store.close()
    assert sum(path.stat().st_size for path in state_files(tmp_path)) == 0


def test_a_file_that_was_handed_over_is_kept_as_it_is(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    parcel = Parcel(str(tmp_path))
    data = [os.urandom(50_000) for _ in range(3)]
    placed = [(Piece(4, n, len(d), zlib.crc32(d)), parcel.append(d)) for n, d in enumerate(data, 1)]
    parcel.flush()
    ticket = Ticket("k", 4, "w")
    store.begin(ticket)
    store.adopt(ticket, parcel.file, placed)
    store.adopt(ticket, parcel.file, placed)  # the answer was lost
    head = store.commit(ticket, 1, [p for p, _ in placed])
    parcel.close()
    assert list(store.get(head)) == data
    assert len(list(tmp_path.glob("*.pieces"))) == 1
    (tmp_path / "orphan-4-1.pieces").write_bytes(b"linked by a process that was then killed")
    store.close()
    store = EmbeddedStore(tmp_path)
    assert list(store.get(head)) == data and store.capacity().used > 150_000
    (file,) = tmp_path.glob("*.pieces")
    content = bytearray(file.read_bytes())
    content[60_000] ^= 1
    file.write_bytes(content)
    with pytest.raises(Damaged, match="piece 2 of epoch 4"):  # the planted fault
        list(store.get(head))
    store.delete("k", 4)
    assert not list(tmp_path.glob("*.pieces")) and store.capacity().used == 0
    store.close()


def test_a_file_that_is_handed_over_after_a_restart_takes_no_ones_place(tmp_path: Path) -> None:
    """The store is killed in the middle of a write, which goes on."""
    ticket, pieces = Ticket("k", 4, "w"), []
    for n in (1, 2, 3):
        store, parcel = EmbeddedStore(tmp_path), Parcel(str(tmp_path))
        data = b"%d" % n * 10
        pieces.append(Piece(4, n, len(data), zlib.crc32(data)))
        place = parcel.append(data)
        parcel.flush()
        store.begin(ticket)
        store.adopt(ticket, parcel.file, [(pieces[-1], place)])
        parcel.close()
        if n < 3:
            store.close()
    head = store.commit(ticket, 1, pieces)
    assert b"".join(store.get(head)) == b"1" * 10 + b"2" * 10 + b"3" * 10
    store.close()


def test_what_was_about_to_be_removed_goes_when_the_store_starts_again(tmp_path: Path) -> None:
    """It was killed between the fence and the removal."""
    fill(tmp_path)
    path = state_file(tmp_path)
    left = path.read_bytes()
    store = EmbeddedStore(tmp_path)
    store.delete("k", 1)
    store.close()
    path.write_bytes(left)
    store = EmbeddedStore(tmp_path)
    assert store.head("k") is None and not path.exists() and not state_files(tmp_path)
    store.close()


def test_a_handed_file_that_is_gone_is_said(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    parcel = Parcel(str(tmp_path))
    piece = Piece(1, 1, 10, zlib.crc32(b"0123456789"))
    parcel.append(b"0123456789")
    parcel.flush()
    ticket = Ticket("k", 1, "w")
    store.begin(ticket)
    store.adopt(ticket, parcel.file, [(piece, 0)])
    store.commit(ticket, 1, [piece])
    store.close()
    (file,) = tmp_path.glob("*.pieces")
    file.unlink()
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Damaged, match="1 of the 1 pieces"):
        store.head("k")
    store.close()


def test_what_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "link", lambda *_: False)
    for store in (EmbeddedStore(tmp_path), MemoryStore()):
        parcel = Parcel()
        parcel.append(b"0123456789")
        parcel.flush()
        ticket = Ticket("k", 1, "w")
        store.begin(ticket)
        piece = Piece(1, 1, 4, zlib.crc32(b"3456"))
        store.adopt(ticket, parcel.file, [(piece, 3)])
        parcel.close()
        assert list(store.get(store.commit(ticket, 1, [piece]))) == [b"3456"]
        with pytest.raises(Damaged):
            wrong = Parcel()
            wrong.append(b"short")
            wrong.flush()
            store.adopt(ticket, wrong.file, [(Piece(1, 2, 40, 0), 0)])
        store.close()
    assert not list(tmp_path.glob("*.pieces"))


def test_fences_are_bounded_and_their_file_too(tmp_path: Path) -> None:
    store = MemoryStore(journal=FileJournal(tmp_path), fences=10)
    for n in range(50):
        store.delete(f"k{n:02}", 1)
    for _ in range(2000):
        Write(store, "again", 2 + _).abort()
    assert len(store._keys) <= 12
    assert (tmp_path / "fences").stat().st_size < 40_000, "of 68,000"
    store.close()
    store = EmbeddedStore(tmp_path)
    with pytest.raises(Superseded):
        Write(store, "k49", 1)
    Write(store, "k00", 1)  # forgotten
    store.close()


def test_what_is_written_in_part_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_AT_ONCE", 3)
    real = os.writev
    monkeypatch.setattr(embedded.os, "writev", lambda file, parts: real(file, [b"".join(parts)[:11]]))
    store = MemoryStore(journal=FileJournal(tmp_path, slack=100))
    write = Write(store, "k", 1)
    write.commit([write.put(bytes(5000))])
    data = [os.urandom(100) for _ in range(5)]
    # Written anew with only this, where it has a file of its own.
    head = write.commit([write.put(d) for d in data])
    store.delete("gone", 1)
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") == head and list(store.get(head)) == data
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


@pytest.mark.parametrize("fault", ["no room", "half written", "no descriptor"])
def test_a_file_that_could_not_be_begun_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fault: str
) -> None:
    """A write that gets a file of its own only now goes on after the disk was full just then."""
    store = EmbeddedStore(tmp_path)
    write = None
    if kind == "pack":
        write = Write(store, "k", 1, "w")
        first = write.put(b"first")

    def full(file: int, parts: Any) -> int:
        if fault == "half written":
            os.write(file, bytes(parts[0])[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    def none_free(*args: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    used = store.capacity().used
    with monkeypatch.context() as planted, pytest.raises((Full, Missing)):
        if fault == "no descriptor":
            planted.setattr(embedded.os, "open", none_free)
        else:
            planted.setattr(embedded.os, "writev", full)
        if write is None:
            Write(store, "k", 1, "w")
        else:
            write.put(bytes(embedded.SMALL))
    assert store.capacity().used == used and not list(tmp_path.glob("*.state"))
    if write is None:
        write = Write(store, "k", 1, "w")
        first = write.put(b"first")
    head = write.commit([first, write.put(bytes(100_000))])
    store.close()
    store = EmbeddedStore(tmp_path)
    assert store.head("k") == head and read_bytes(store, head) == b"first" + bytes(100_000)
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
