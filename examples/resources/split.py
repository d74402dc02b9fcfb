"""Splits lines into words, as a process that speaks Storm's multilang protocol: nothing of elastic is in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def read() -> Any:
    """The next message: lines of JSON up to one that is `end`."""
    text = ""
    for line in sys.stdin:
        if line == "end\n":
            return json.loads(text)
        text += line
    sys.exit(0)  # the task has ended, or moved


def say(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


setup = read()
say(pid=os.getpid())
Path(setup["pidDir"], str(os.getpid())).touch()
while True:
    message = read()
    if message["stream"] == "__heartbeat":
        say(command="sync")
        continue
    for word in message["tuple"][0].split():
        say(command="emit", tuple=[word], anchors=[message["id"]], need_task_ids=False)
    say(command="ack", id=message["id"])
