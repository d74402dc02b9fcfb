"""Where a node's store answers, as text that others can keep: for everybody, and for those on the same machine."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from pathlib import Path

from statestore.errors import Invalid


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The ways to a store.

    Attributes:
        tcp: `host:port`.
        unix: Path of its Unix socket (`statestore.near`); "" when it has none.
        boot: Of the machine that the socket is on; see `boot_id`.
    """

    tcp: str
    unix: str = ""
    boot: str = ""

    def __str__(self) -> str:
        return f"{self.tcp} {self.boot} {self.unix}" if self.unix else self.tcp

    @property
    def near(self) -> bool:
        """Whether this process can reach it by the Unix socket: then `NearStore` is the way, else `GrpcStore`."""
        return bool(self.unix) and self.boot == boot_id()

    @classmethod
    def parse(cls, text: str) -> StoreAddress:
        """What `str` made.

        Raises:
            Invalid: It is something else.
        """
        tcp, _, rest = text.partition(" ")
        boot, _, unix = rest.partition(" ")
        host, _, port = tcp.rpartition(":")
        if not host or not port.isdigit() or bool(boot) != bool(unix):
            raise Invalid(f"{text!r} is no address of a state store", remedy="It begins with host:port.")
        return cls(tcp, unix, boot)


@functools.cache
def boot_id() -> str:
    """Tells this machine since it was booted, and its view of files: where two are equal, a path means the same file."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/mnt').readlink()}"
    except OSError:
        return platform.node() or "unknown"
