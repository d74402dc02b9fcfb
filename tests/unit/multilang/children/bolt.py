"""A bolt that does what its argument says."""

import os
import sys
from pathlib import Path

from client import begin, command, emit, read, say

mode = sys.argv[1]
setup = begin()
print("begun", Path.cwd(), file=sys.stderr, flush=True)
kept = []
count = 0
while True:
    tup = command()
    count += 1
    (value,) = tup["tuple"]
    tick = tup["stream"] == "__tick"
    if mode == "echo":
        emit(value, anchors=[tup["id"]])
    elif mode == "unanswered":  # emits without waiting for task ids, and acknowledges before
        say(command="ack", id=tup["id"])
        emit(value, need_task_ids=False)
        continue
    elif mode == "never-acks":
        emit(value)
        continue
    elif mode == "setup":
        emit(
            {
                **setup,
                **tup,
                "env": os.environ.get("GIVEN"),
                "files": sorted(p.name for p in Path().iterdir()),
            }
        )
    elif mode == "ids":
        emit(str(emit(value)))
    elif mode == "metrics":
        say(command="metrics", name="seen", params=value)
        say(command="log", msg="a log", level=3)
        say(command="error", msg="an error")
    elif mode == "fails":
        say(command="error", msg="cannot do this")
        say(command="fail", id=tup["id"])
        continue
    elif mode == "direct":
        emit(value, task=value)
    elif mode == "stream":
        emit(value, stream="other")
    elif mode == "twice":
        say(command="ack", id=tup["id"])
    elif mode == "counts":
        emit(count)
    elif mode == "batch":  # acknowledges three at once, or all at a tick
        if not tick:
            kept.append(tup)
        if len(kept) == 3 or tick:
            emit([t["tuple"][0] for t in kept])
            for t in kept:
                say(command="ack", id=t["id"])
            kept.clear()
        if not tick:
            continue
    elif mode == "batch-dies":
        kept.append(value)
        if value == "die":
            sys.exit(7)
        emit(list(kept))
        continue
    elif mode == "large-answer":  # writes much before it reads anything
        for _ in range(20_000):
            say(command="emit", tuple=["x" * 20])
    say(command="ack", id=tup["id"])
    if mode == "dies-later":
        read()
        say(command="sync")  # the heartbeat
        sys.exit(9)
