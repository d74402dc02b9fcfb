"""Nodes in two network namespaces joined by a veth pair, and a link that is cut and mended (Linux, root).

Everything runs in the first namespace except the nodes that are `beyond`; those run in the second. Each namespace has its address on its
loopback interface, so that cutting the link leaves everybody able to reach himself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection

from elastic.cluster.launcher import ClusterInfo, UpOptions
from elastic.errors import EnvironmentProblem
from elastic.hosts.base import NodeCommand
from elastic.model.ids import NodeId
from elastic.model.records import WantedNode

HERE, THERE = "10.213.77.1", "10.213.77.2"
_LINK_HERE, _LINK_THERE = "10.213.78.1", "10.213.78.2"
_ENTER = (
    "import os, sys; os.execvp('ip', ['ip', 'netns', 'exec', sys.argv[1], sys.executable, *sys.argv[2:]])"
)


class Namespaces:
    """Two namespaces and the link between them.

    Raises:
        EnvironmentProblem: They cannot be made here.
    """

    def __init__(self) -> None:
        self.here, self.there = f"chaos-a{os.getpid()}", f"chaos-b{os.getpid()}"
        why = why_not()
        if why:
            raise EnvironmentProblem(why)
        try:
            for space in (self.here, self.there):
                _ip("netns", "add", space)
            _ip(
                "-n",
                self.here,
                "link",
                "add",
                "va",
                "type",
                "veth",
                "peer",
                "name",
                "vb",
                "netns",
                self.there,
            )
            for space, own, device, link in (
                (self.here, HERE, "va", _LINK_HERE),
                (self.there, THERE, "vb", _LINK_THERE),
            ):
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "addr", "add", f"{own}/32", "dev", "lo")
                _ip("-n", space, "addr", "add", f"{link}/30", "dev", device)
                _ip("-n", space, "link", "set", device, "up")
            _ip("-n", self.here, "route", "add", THERE, "via", _LINK_THERE, "src", HERE)
            self._route_there()
        except EnvironmentProblem:
            self.close()
            raise

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        _ip("-n", self.there, "link", "set", "vb", "down")

    def mend(self) -> None:
        """It passes again."""
        _ip("-n", self.there, "link", "set", "vb", "up")
        self._route_there()

    def close(self) -> None:
        """Remove them. What still runs in them keeps them until it ends."""
        for space in (self.here, self.there):
            with contextlib.suppress(EnvironmentProblem):
                _ip("netns", "del", space)

    def _route_there(self) -> None:
        _ip("-n", self.there, "route", "replace", HERE, "via", _LINK_HERE, "src", THERE)


def why_not() -> str:
    """Why namespaces cannot be had here; "" when they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "there is no `ip` (iproute2)"
    name = f"chaos-t{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "vt", "type", "veth", "peer", "name", "vu")
    except EnvironmentProblem as e:
        return e.message
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


def starter(
    spaces: Namespaces, beyond: Collection[str]
) -> tuple[Callable[..., ClusterInfo], Callable[[], None]]:
    """What starts a cluster with these nodes in the second namespace, and what ends it. For a process in the first."""
    from elastic.cluster.running import Launcher

    class Split(Launcher):
        def _command(self, node: NodeId, generation: int, wanted: WantedNode) -> NodeCommand:
            command = super()._command(node, generation, wanted)
            if node not in beyond:
                return command
            arguments = ("-c", _ENTER, spaces.there, *command.arguments)
            return NodeCommand(command.node, arguments, command.environment, command.log)

    running: list[tuple[Launcher, threading.Thread]] = []

    def start(options: UpOptions, say: Callable[[str], None]) -> ClusterInfo:
        ready: list[ClusterInfo] = []
        failed: list[BaseException] = []
        told = threading.Event()

        def on_ready(info: ClusterInfo) -> None:
            ready.append(info)
            told.set()

        def run() -> None:
            try:
                launcher.run()
            except BaseException as e:  # noqa: BLE001 - it belongs to whoever waits
                failed.append(e)
            finally:
                told.set()

        launcher = Split(options, say, on_ready)
        thread = threading.Thread(target=run, name="launcher", daemon=True)
        thread.start()
        running.append((launcher, thread))
        told.wait()
        if not ready:
            raise failed[0] if failed else EnvironmentProblem("the cluster did not start")
        return ready[0]

    def end() -> None:
        for launcher, thread in running:
            launcher.ask_stop()
            thread.join(60.0)

    return start, end


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentProblem(f"ip {' '.join(words)}: {done.stderr.strip()}")
