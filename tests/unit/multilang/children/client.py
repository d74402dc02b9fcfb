"""The least that a process needs to speak the protocol; nothing of elastic."""

import json
import os
import sys
from collections import deque
from pathlib import Path

waiting = deque()  # tuples and commands that came while task ids were waited for


def read():
    lines = []
    while True:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)


def say(**message):
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


def begin():
    setup = read()
    say(pid=os.getpid())
    Path(setup["pidDir"], str(os.getpid())).touch()
    return setup


def command():
    """The next tuple or command; heartbeats are answered, and task ids that nobody waits for left out."""
    while True:
        message = waiting.popleft() if waiting else read()
        if isinstance(message, dict) and message.get("stream") == "__heartbeat":
            say(command="sync")
        elif isinstance(message, dict):
            return message


def emit(*values, **more):
    """Emit, and read the task ids."""
    say(command="emit", tuple=values, **more)
    if "task" in more or more.get("need_task_ids") is False:
        return None
    while isinstance(message := read(), dict):
        waiting.append(message)
    return message
