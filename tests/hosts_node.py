"""What tests of hosts run as a node: it says who it is on a Unix socket, has a child, and waits for SIGTERM.

python hosts_node.py SOCKET [--generation N] [--exit CODE] [--stubborn] [--stray]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys

from elastic import procs

SLEEPER = "import signal; signal.pause()"


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("socket")
    options.add_argument("--generation", type=int, default=0)
    options.add_argument("--exit", type=int)
    options.add_argument("--stubborn", action="store_true", help="take no notice of SIGTERM")
    options.add_argument(
        "--stray", action="store_true", help="leave a process that nobody ends: what hosts must not do"
    )
    asked = options.parse_args()
    stop = signal.SIG_IGN if asked.stubborn else lambda number, frame: os.write(1, b"asked\n") and os._exit(0)
    signal.signal(signal.SIGTERM, stop)
    sleeper = [sys.executable, "-c", SLEEPER]
    untied = {"start_new_session": True, "stdin": subprocess.DEVNULL}
    child = subprocess.Popen(sleeper, **untied) if asked.stray else procs.spawn(sleeper)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(asked.socket)
        said = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "child": child.pid,
            "generation": asked.generation,
            "executable": sys.executable,
            "environment": dict(os.environ),
        }
        connection.sendall(json.dumps(said).encode())
    if asked.exit is not None:
        return asked.exit
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
