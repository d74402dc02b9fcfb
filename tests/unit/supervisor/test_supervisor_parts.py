"""The supervisor's smaller parts: messages, bundles, numbers of lives, options."""

from __future__ import annotations

import errno
import hashlib
import io
import struct
import threading
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.errors import ConfigError
from elastic.model.events import Event
from elastic.model.ids import Incarnation, NodeId, TopologyName, WorkerId
from elastic.model.load import WorkerReport
from elastic.nodestore import memory
from elastic.supervisor import bundles
from elastic.supervisor.bundles import BadBundle, Bundles, BundleState, unpack
from elastic.supervisor.decide import Life
from elastic.supervisor.happenings import Happenings, last_line
from elastic.supervisor.incarnations import Incarnations
from elastic.supervisor.messages import Malformed, Messages, Stacks, encode
from elastic.supervisor.options import SupervisorOptions
from elastic.supervisor.ports import CANNOT_LOAD, WORKER_SESSION_LOST, WorkerExit
from elastic.supervisor.repeated import Repeated

W = WorkerId("t@n/0")


# -- messages


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_messages_arrive_whole_whatever_the_pieces(kinds: list[int], pieces: list[int]) -> None:
    given_ = [
        (Event(1.5, "kind", "ü" * n), WorkerReport("t", "w", "w#1", 0.0, n), Stacks("ü" * n))[kind]
        for n, kind in enumerate(kinds)
    ]
    data = b"".join(encode(m) for m in given_)
    parser, found, at, n = Messages(), [], 0, 0
    while at < len(data):
        size = pieces[n % len(pieces)]
        found += parser.feed(data[at : at + size])
        at, n = at + size, n + 1
    assert found == given_


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"{}",
        b"[]",
        b'{"event": {}}',
        b'{"event": null}',
        b'{"other": 1}',
        b"\xff\xfe",
        b"[" * 5000,
    ],
)
def test_what_is_no_message_does_not_hide_the_next(body: bytes) -> None:
    good = Event(0.0, "k", "m")
    found = Messages().feed(struct.pack(">I", len(body)) + body + encode(good))
    assert isinstance(found[0], Malformed) and not found[0].fatal
    assert found[1:] == [good]


def test_an_impossible_length_ends_the_reading() -> None:
    parser = Messages(limit=200)
    found = parser.feed(encode(Event(0.0, "k", "m")) + struct.pack(">I", 201) + b"x" * 50)
    assert isinstance(found[0], Event)
    assert isinstance(found[1], Malformed) and found[1].fatal
    assert parser.feed(encode(Event(0.0, "k", "m"))) == []
    assert not parser._rest


# -- bundles


def archive(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return content.getvalue()


def test_a_bundle_is_unpacked_whole_and_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(archive({"bundle.json": "{}", "code/pkg/mod.py": "x = 1"}))
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("")
    unpack(tmp_path / "a.zip", target)
    assert sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()) == [
        "bundle.json",
        "code/pkg/mod.py",
    ]


def _link() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        made.writestr(entry, "/etc/passwd")
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        archive({"ok": "1", "../evil": "x"}),
        archive({"a/../../evil": "x"}),
        archive({"/evil": "x"}),
        archive({"..\\evil": "x"}),
        _link(),
        b"no archive",
        archive({"a": "x" * 1000})[:-30],
        archive({"a": "hello hello"}).replace(b"hello hello", b"hellO hello"),
    ],
)
def test_a_bundle_that_is_damaged_or_leads_elsewhere_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.zip").write_bytes(content)
    with pytest.raises(BadBundle):
        unpack(tmp_path / "in" / "a.zip", tmp_path / "in" / "out")
    assert [p.name for p in tmp_path.rglob("*")] == ["in", "a.zip"]


def test_a_bundle_that_would_fill_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "MAX_UNPACKED", 1000)
    (tmp_path / "a.zip").write_bytes(archive({"a": "x" * 1001}))
    with pytest.raises(BadBundle, match="too large"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


class Source:
    """Where bundles come from: each answer is content, or an error."""

    def __init__(self, directory: Path, answers: list[bytes | Exception], **more: float) -> None:
        self.answers = answers
        self.failures: list[tuple[str, int, float]] = []
        self.ready = threading.Event()
        options = SupervisorOptions(fetch_pauses=(0.01, 0.02))
        self.bundles = Bundles(directory, self.fetch, options, self.ready.set, self.failed, **more)

    def fetch(self, sha256: str, into: Path, timeout: float) -> None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        into.write_bytes(answer)

    def failed(self, sha256: str, reason: str, failures: int, pause: float) -> None:
        self.failures.append((reason, failures, pause))


def test_a_bundle_is_fetched_until_it_is_right(tmp_path: Path) -> None:
    good = archive({"a": "1"})
    name = hashlib.sha256(good).hexdigest()
    source = Source(tmp_path, [OSError("disk"), good[:-1], good])
    source.bundles.want(name)
    source.bundles.want(name)
    assert source.ready.wait(30)
    assert source.bundles.states() == {name: BundleState.READY}
    assert [(n, p) for _, n, p in source.failures] == [(1, 0.01), (2, 0.02)]
    assert "damaged" in source.failures[1][0]
    assert (source.bundles.path(name) / "a").read_text() == "1"
    source.bundles.close()
    # The next supervisor has it already; a damaged archive is fetched again.
    again = Source(tmp_path, [])
    again.bundles.want(name)
    assert again.ready.wait(30)
    again.bundles.close()
    (tmp_path / f"{name}.zip").write_bytes(good + b"x")
    third = Source(tmp_path, [good])
    third.bundles.want(name)
    assert third.ready.wait(30)
    assert third.answers == []
    third.bundles.close()


def test_what_nobody_has_asked_for_after_a_while_is_removed(tmp_path: Path) -> None:
    good, old = archive({"a": "1"}), "0" * 64
    name = hashlib.sha256(good).hexdigest()
    for directory in (old, f"{old}.unpacking"):
        (tmp_path / directory).mkdir()
    for file in (f"{old}/a", f"{old}.zip", f".{old}.part.7-8", f".{name}.part.7-8"):
        (tmp_path / file).write_text("")
    mine = [name, f"{name}.zip"]
    others = [f".{old}.part.7-8", f".{name}.part.7-8", old, f"{old}.unpacking", f"{old}.zip"]
    for left, there in ((3600.0, [*mine, *others]), (0.0, mine)):
        source = Source(tmp_path, [good], left=left)
        source.bundles.want(name)
        assert source.ready.wait(30)
        source.bundles.close()
        assert {path.name for path in tmp_path.iterdir()} == set(there)


def test_a_bundle_that_cannot_be_removed_keeps_nobody_from_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system can only be read for a moment, say."""
    good = archive({"a": "1"})
    name = hashlib.sha256(good).hexdigest()
    source, unlink, refused = Source(tmp_path, [good, good]), Path.unlink, threading.Event()
    source.bundles.want(name)
    assert source.ready.wait(30)
    source.ready.clear()

    def unlinks(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".zip" and not refused.is_set():
            refused.set()
            raise OSError(errno.EROFS, "Read-only file system", str(self))
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlinks)
    source.bundles.drop(name)
    assert refused.wait(30)
    source.bundles.want(name)
    assert source.ready.wait(30)
    source.bundles.close()


def test_what_is_no_hash_is_never_a_path(tmp_path: Path) -> None:
    source = Source(tmp_path / "b", [])
    told = threading.Event()
    source.failed = lambda *a: told.set()  # type: ignore[method-assign, misc]
    source.bundles._failed = source.failed
    source.bundles.want("../../etc")
    assert told.wait(30)
    source.bundles.close()
    assert source.bundles.states() == {"../../etc": BundleState.FETCHING}


# -- the rest


def test_no_number_is_given_twice(tmp_path: Path) -> None:
    store = memory.open_writer(tmp_path)
    first = Incarnations(store, 1)
    assert [first.next(W), first.next(W)] == ["t@n/0#1", "t@n/0#2"]
    assert Incarnations(store, 1).next(W) == "t@n/0#3"
    assert Incarnations(store, 2).next(W) == "t@n/0#1001"
    assert Incarnations(store, 2).next(W) == "t@n/0#1002"
    assert first.lived_here(W, first.next(W))
    assert not first.lived_here(W, "t@n/0#99")  # type: ignore[arg-type]
    store.close()
    memory.drop(tmp_path)
    elsewhere = memory.open_writer(tmp_path)
    assert Incarnations(elsewhere, 3).next(W) == "t@n/0#2001"  # another machine, with nothing to remember
    elsewhere.close()
    memory.drop(tmp_path)


def test_the_last_line_says_why() -> None:
    assert last_line("Traceback\nValueError: x\n\n") == "ValueError: x"
    assert "does not say" in last_line("\n")


def test_what_does_not_change_is_said_at_growing_distances() -> None:
    said = Repeated()
    assert [n for n in range(5000) if said.is_news("a", "full", float(n))][:10] == [
        *(0, 2, 6, 14, 30, 62, 126, 254, 510, 1022)
    ]
    assert said.is_news("a", "another", 5000.0) and not said.is_news("a", "another", 5001.0)
    assert said.is_news("b", "full", 5000.0)
    said.over("a")
    assert said.is_news("a", "another", 5001.0)


@pytest.mark.parametrize("bad", [{"cycle": -1.0}, {"start_timeout": 0.0}, {"restart_pauses": ()}])
def test_impossible_options_are_named(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SupervisorOptions(**bad)  # type: ignore[arg-type]


# -- events


def test_only_exit_codes_of_the_workers_own_are_told_as_what_they_mean() -> None:
    """User code and libraries that end a process give it small numbers."""
    happenings, life = (
        Happenings(NodeId("n")),
        Life(W, TopologyName("t"), "1", "bundle", Incarnation("t@n/0#1"), 0.0),
    )
    for code, why in (
        (1, "(exit code 1)"),
        (3, "(exit code 3)"),
        (4, "(exit code 4)"),
        (WORKER_SESSION_LOST, "it lost its session with coordination)"),
        (CANNOT_LOAD, "its code bundle cannot be loaded)"),
    ):
        assert why in happenings.lost(life, WorkerExit(code), 0.0, 1.0).message
