"""A spout of numbers that does what its argument says."""

import json
import sys

from client import begin, command, emit, say

mode, most = sys.argv[1], int(sys.argv[2])
begin()
n = 0
pending = set()
heard = []
while True:
    message = command()
    what = message["command"]
    if what == "next":
        if n == most and not pending:
            if mode == "heard":
                emit(json.dumps(heard))
            if mode == "fails":
                say(command="error", msg="broken")
            sys.exit(5 if mode == "dies" else 0)
        if mode == "waits" and len(pending) >= 2:
            pass  # as many do: nothing until something is acknowledged
        elif mode == "refused" and n == 0:
            emit("too", "many", id="odd")
            n += 1
        elif n < most:
            if mode in ("waits", "heard"):
                pending.add(n)
                emit(str(n), id=n)
            else:
                emit(str(n))
            n += 1
    elif what == "fail":
        emit(f"failed {message['id']}")
    elif what == "ack":
        pending.discard(message["id"])
        heard.append(["ack", message["id"]])
    else:
        if mode == "nothing":
            sys.exit(0)
        if mode == "odd-beginning":
            emit("too", "many")
        heard.append([what])
        if mode == "deaf":
            continue
    say(command="sync")
