"""A node's state store in a Hazelcast cluster: the node's own member, or those of somebody else, and the store's process in front."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from elastic import procs
from elastic.cluster.grid_members import GridMembers
from elastic.cluster.java import find_java
from elastic.cluster.store_service import DIRECTORY, StoreService
from elastic.errors import ElasticError, EnvironmentProblem
from elastic.handles import readable
from statestore.errors import Lost, StateStoreError, Unavailable
from statestore.hazelcast.jar import find_jar, obtain_jar
from statestore.hazelcast.member import HazelcastMember, class_archive, make_class_archive
from statestore.server import EXIT_LOST

_LOOK = 0.2
_TURN = 60.0


class GridService:
    """See `Service`. The member outlives the store's process, and not the other way round.

    Args:
        store: The store's process; told here where the members are.
        arguments: Of the store, without members.
        cluster: Name of the Hazelcast cluster.
        directory: The node's own.
        member: The node's member; None: the members are those of `external`.
        members: Agrees with the other nodes.
        external: Members that somebody else runs.
        leaving: Whether others go on, so that what the member holds is worth moving to them.
        grace: Seconds for that.
    """

    def __init__(
        self,
        store: StoreService,
        arguments: Sequence[str],
        cluster: str,
        directory: Path,
        *,
        member: HazelcastMember | None,
        members: GridMembers | None,
        external: tuple[str, ...] = (),
        leaving: Callable[[], bool] = lambda: False,
        grace: float = 6.0,
    ) -> None:
        self._store = store
        self._arguments = list(arguments)
        self._cluster = cluster
        self._known = directory / DIRECTORY / "incarnation"
        self._member = member
        self._members = members
        self._external = external
        self._leaving = leaving
        self._grace = grace
        self._lock = threading.Lock()
        self._closed = False

    def start(self, timeout: float) -> str:
        self._store.end()  # one whose member has ended is of no use
        try:
            members, local, anew = self._joined(timeout)
        except ElasticError as error:
            raise Unavailable(error.message, remedy=error.remedy) from error
        arguments = [*self._arguments, "--cluster", self._cluster, "--members", ",".join(members)]
        self._store.arguments = [*arguments, *(("--local", local) if local else ())]
        try:
            return self._store.start(timeout)
        except StateStoreError as error:
            if self._store.exit_code != EXIT_LOST:
                raise
            if self._member is not None and not anew and self._others():
                # They may well have it: then it is this member that is not with them any more, and has lost what it had.
                self._member.kill()
                self._gone()
                raise Unavailable(
                    f"the node's Hazelcast member has lost the others, and joins them anew: {error.message}"
                ) from error
            # Every member has been started anew: what there was is gone, and was said to be by the stores that looked for it.
            self._known.unlink(missing_ok=True)
            raise Lost(
                f"all members of the Hazelcast cluster had gone, and the states with them: {error.message}"
            ) from error

    def wait(self) -> str:
        member = self._member.process if self._member is not None else None
        store = self._store.process
        assert store is not None
        ended = _first([p for p in (store, member) if p is not None])
        if ended is store:
            return self._store.wait()
        assert member is not None
        self._gone()
        code = member.returncode
        return (
            f"its Hazelcast member was ended by signal {-code}"
            if code < 0
            else f"its Hazelcast member ended with {code}"
        )

    def terminate(self) -> None:
        with self._lock:
            self._closed = True
        self._store.terminate()
        if self._members is not None:
            self._members.close()

    def kill(self) -> None:
        self.terminate()
        self._store.kill()
        if self._member is not None and self._member.process is not None:
            if self._leaving():
                self._member.stop(self._grace)
            self._member.kill()
            self._gone()

    def _joined(self, timeout: float) -> tuple[tuple[str, ...], str, bool]:
        """Addresses of members, that of the node's own, and whether that one has only just been started."""
        member, members = self._member, self._members
        if member is None or members is None:
            return self._external, "", False
        anew = member.process is None or member.process.poll() is not None
        if anew:
            self._gone()
            member.prepare()  # without the lock: the first time it takes as long as Maven does
            others = members.turn(max(timeout, _TURN))
            with self._lock:
                if self._closed:
                    raise Unavailable("the state store is being ended")
                member.launch(others)
            member.wait_ready(timeout)
            if others and member.size < 2:
                # Two clusters that both take writes: what one store has confirmed, another would not find.
                member.kill()
                self._gone()
                raise Unavailable(
                    f"the node's Hazelcast member reaches none of those that serve ({', '.join(others)})",
                    remedy=f"It would be a cluster of its own. Can {member.address} reach them? Its log: {member.log}",
                )
        members.tell_ready(member.address)
        return (member.address, *members.ready()), member.address, anew

    def _others(self) -> bool:
        """Whether members of other nodes serve, or may."""
        try:
            return self._members is not None and bool(self._members.ready())
        except ElasticError:
            return True

    def _gone(self) -> None:
        if self._members is not None:
            self._members.leave()


def _first(processes: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Wait until one of some children ends."""
    handles: dict[int, subprocess.Popen[bytes]] = {}
    try:
        if hasattr(os, "pidfd_open"):
            for process in processes:
                if process.poll() is not None:
                    return process
                handles[os.pidfd_open(process.pid)] = process
            ended = handles[readable(handles, None)[0]]
            ended.wait()
            return ended
        while True:  # nothing to wait on here
            for process in processes:
                if process.poll() is not None:
                    return process
            time.sleep(_LOOK)
    finally:
        for handle in handles:
            os.close(handle)


def prepare(directory: Path, tell: Callable[[str], None]) -> None:
    """Get what members need on this machine, so that nodes start them at once; the first time it takes a while.

    Args:
        directory: For temporary files; made when missing, and left empty.
        tell: Told what takes a while.

    Raises:
        EnvironmentProblem: There is no Java, no Maven, or no jar to be had; it says what to do.
    """
    java = find_java()
    try:
        jar = find_jar()
        if jar is None:
            tell("fetching the Hazelcast server with Maven (once)")
            jar = obtain_jar(spawn=procs.spawn)
        if not class_archive(java, jar).is_file():
            tell("preparing the Hazelcast server for fast starts (once)")
            make_class_archive(java, directory / "hazelcast", spawn=procs.spawn)
    except StateStoreError as error:
        raise EnvironmentProblem(
            f"--store hazelcast: {error.message}",
            remedy=f"{error.remedy} Or leave --store out.".strip(),
        ) from error


def cluster_name(zookeeper: str) -> str:
    """Of the Hazelcast cluster that belongs to the cluster with that root in ZooKeeper."""
    return f"elastic-{hashlib.blake2b(zookeeper.encode(), digest_size=6).hexdigest()}"
