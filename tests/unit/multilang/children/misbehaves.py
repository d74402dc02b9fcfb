"""A bolt that goes wrong at each tuple whose value says how; it echoes others."""

import os
import signal
import sys
import time

from client import begin, command, emit, say

begin()
while True:
    tup = command()
    how = tup["tuple"][0]
    print("at", how, file=sys.stderr, flush=True)
    if how == "dies":
        sys.exit(3)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "junk":
        print("what is that", flush=True)
        print("end", flush=True)
    elif how == "no-object":
        print("[1, 2]\nend", flush=True)
    elif how == "unknown":
        say(command="dance")
    elif how == "huge":
        while True:
            sys.stdout.write("x" * (1 << 20))
    elif how == "silent":
        time.sleep(600)
    elif how == "closes":
        sys.stdout.close()
        os.close(1)
        time.sleep(600)
    elif how == "half":
        sys.stdout.write('{"command": "em')
        sys.stdout.flush()
        sys.exit(0)
    elif how == "error":
        say(command="error", msg="lost my way")
        sys.exit(0)
    elif how == "deep":
        print("[" * 100_000 + "]" * 100_000, flush=True)
        print("end", flush=True)
    elif how == "wrong-number":
        emit("one", "two")
    elif how == "wrong-stream":
        emit("one", stream="nowhere")
    elif how == "fails":
        say(command="fail", id=tup["id"])
        continue
    else:
        emit(how)
    say(command="ack", id=tup["id"])
