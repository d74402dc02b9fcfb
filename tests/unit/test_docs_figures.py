"""Figures that the pages name are those that the code goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic.api import context
from elastic.cluster import node_store, worker_main, worker_marks
from elastic.cluster.options import UpOptions
from elastic.hosts import spark_session, spark_settings
from elastic.migration import decide, plan, record
from elastic.nimbus.deciding import dividing, placing
from elastic.nimbus.moves import move_ports, move_stands, move_totals
from elastic.nimbus.options import NimbusOptions
from elastic.nimbus.requests import answers
from elastic.supervisor import logs, messages
from elastic.transport import base, channel, framing, handshake, inlet, link, peer, sockets
from elastic.worker import watchdog
from elastic.worker.executing import task, task_queue
from elastic.worker.moving import along, rests
from statestore import bulk_client, embedded, fences, memory, near, pack, service, upload, wire
from statestore.base import MAX_PIECE
from statestore.hazelcast import heads, options, store, whole

DOCS = Path(__file__).resolve().parents[2] / "docs"
KB, MB = 1 << 10, 1 << 20
NIMBUS, CLUSTER = NimbusOptions(), UpOptions()

SAID = {
    "migration": [
        ("for the one before (0.1 s at most", rests.MOST == 0.1),
        ("when the stream has had 0.1 s to work off", move_ports.SETTLE_FOR == 0.1),
        ("Small states (below 64 KB)", plan.AHEAD == 64 * KB),
        ("(at most 64 KB, and the names of all pieces)", along.MOST == 64 * KB),
        ("saved together if that is at most 256 KB)", along.ALONE == 256 * KB),
        ("in 200 characters that can be written", record.REASON == 200),
        ("are written anew after a second", worker_marks._PAUSE == 1.0),
        ("After the fourth attempt there is a rest before each, of a second at first", decide.AGAIN_AFTER == 1.0),
        ("The first three attempts that fail are followed by the next at once", record.AT_ONCE == 4),
        ("two minutes for both sides to get ready", (NIMBUS.move_prepare, CLUSTER.move_prepare) == (120, 120)),
        ("one from the pause to `saved`", (NIMBUS.move_pause, CLUSTER.move_pause) == (60, 60)),
        ("two for each attempt to restore", (NIMBUS.move_restore, CLUSTER.move_restore) == (120, 120)),
        ("is tried again, three times in all", NIMBUS.move_tries == CLUSTER.move_tries == 3),
        ("whose new worker has not registered within a minute", NIMBUS.move_start == 60),
        ("A task waits for stores two minutes altogether", NIMBUS.move_store == 120),
        ("a batch is one task", NIMBUS.move_at_once == 1),
        ("in moves of more than 64 tasks a 64th of them", dividing.BATCHES == 64),
        ("with at most half of a component", placing.HALF == 0.5),
        ("and 1 MB of state as workers have reported it", dividing.BATCH_SIZE == MB),
        ("a larger state than 256 KB counts as much", dividing.CHANGED == 256 * KB),
    ],
    "events": [
        ("Nimbus keeps the newest 10,000 in memory", NIMBUS.events == 10_000),
        ("and two files of at most 16 MiB", NIMBUS.events_file == 16 * MB),
        ("the newest 200 of each topology", NIMBUS.errors == 200),
        ("a move has waited for five seconds, and each half minute again", (move_stands.AFTER, move_stands.AGAIN) == (5, 30)),
        ("a task has used a hundred kinds of warnings", context._MOST_KINDS == 100),
        ("for the same thing for five seconds, and each half minute again", (watchdog.STANDS, watchdog.AGAIN) == (5, 30)),
    ],
    "settings": [
        ("together, 32 times as many as record batches", task.VECTOR_ROWS == 32),
        ("it may be up to twice as many", task_queue.OVER == 2),
        ("From each task of another worker 8 times as many", worker_main.WINDOW_QUEUES == 8),
    ],
    "metrics": [
        ("the 100 pairs that exchange most", answers._PAIRS == 100),
        ("that its report would be larger than 4 MiB", messages.MAX_MESSAGE == 4 * MB),
        (
            "`0.01`, `0.025`, `0.05`, `0.1`, `0.25`, `0.5`, `1`, `2.5`, `10` seconds",
            move_totals._BOUNDS == (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
        ),
    ],
    "statestore": [
        ("packed into messages of half a megabyte, four under way", (wire.CHUNK, bulk_client._UNDER_WAY) == (512 * KB, 4)),
        ("48 calls are served at a time, 40 of them transfers", (service._THREADS, service._STREAMS) == (48, 40)),
        ("or one larger piece (4 MiB at most)", MAX_PIECE == 4 * MB),
        ("Of a state that lies in more than 64 files", near.FILES == 64),
        ("at most 8 MiB of a write", upload.WINDOW == 8 * MB),
        ("while it is small (64 KiB) goes into common files of 4 MiB", (embedded.SMALL, pack._FULL) == (64 * KB, 4 * MB)),
        ("(and more than 4 MiB), and so is the file of fences", embedded.SLACK == 4 * MB),
        ("At most 65,536 fences are kept", memory.FENCES == 65_536),
        ("A file of 64 KiB keeps room for fences", fences._ROOM == 64 * KB),
        ("one of more than 32 KiB lies apart", heads.INLINE == 32 * KB),
        ("16 are under way at a time (`BackEnd.each`)", store.TOGETHER == 16),
        ("unnamed 180 s after the first one has", whole._OVER == 180),
        ("is waited for, 15 s and at least twice the time of a ZooKeeper session", node_store._HEARTBEAT == 15),
        ("what the store of a node may hold (files", node_store.EMBEDDED == 1 << 30),
        ("of which a quarter is used, backups included | 512 MB", (node_store.HEAP, options.PART) == (512 * MB, 4)),
        ("into the cluster of somebody else | 128 MB", node_store.EXTERNAL == 128 * MB),
    ],
    "transport": [
        ("made again after `reconnect_min` seconds (0.02)", base.TransportOptions().reconnect_min == 0.02),
        ("up to `reconnect_max` (1)", base.TransportOptions().reconnect_max == 1),
        ("up to 1 MiB in, up to 1024 buffers out", (inlet._LARGEST_CHUNK, channel._MOST) == (MB, 1024)),
        ("## The wire, version 3", handshake.VERSION == 3),
        ("`0x80010010`, u32 target", framing.request(framing.Request.ASK, 7, bytes(16))[:4].hex() == "80010010"),
        ("`0x80020000`, u32 0", framing.request(framing.Request.BYE)[:4].hex() == "80020000"),
        ("has 0xFFFFFFFE in place of one", base.SEVERAL == 0xFFFFFFFE),
        ("or 10 ms after a frame that is not confirmed", inlet._CONFIRM_TIME == 0.01),
        ("a Hello | 4 KiB, 5 s", (handshake.LONGEST, peer.GREETING_TIME) == (4 * KB, 5)),
        ("connections without a Hello | 128;", sockets._MOST_GUESTS == 128),
        ("that are not connected | 4096;", sockets._MOST_SOURCES == 4096),
        ("urgent frames in addition | 1 KiB each", base.LARGEST_URGENT == KB),
        ("or for 0.1 s after `on_room` was called", link._TURN_TIME == 0.1),
        ("(less than a sixteenth) is copied", inlet._SHARE == 16),
    ],
    "cli": [
        ("a node keeps those of 100 that have ended", logs.KEPT == 100),
    ],
    "hosts": [
        ("with room for 64 nodes", spark_settings.LOCAL_SLOTS == 64),
        ("(`local[N]` means `local[N,4]` here)", spark_settings.RETRIES == 4),
        ("does not answer for more than 5 s after a job has failed", spark_session._ANSWER == 5),
    ],
}  # fmt: skip


@pytest.mark.parametrize("page", SAID)
def test_figures_are_those_of_the_code(page: str) -> None:
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert [said for said, _ in SAID[page] if said not in text] == [], "no longer on the page"
    assert [said for said, holds in SAID[page] if not holds] == [], "no longer so"
