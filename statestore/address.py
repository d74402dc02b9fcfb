"""Where a node's store answers, as text that others can keep: for everybody, and for those on the same machine."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from pathlib import Path

from statestore.errors import Invalid

_NONE = "-"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The ways to a store.

    Attributes:
        tcp: `host:port`.
        unix: Path of its Unix socket (`statestore.near`); "" when it has none.
        boot: Of the machine that the socket is on; see `boot_id`.
        group: Stores with the same one have the same contents, as they stand before one cluster; "" for a store of its own.
    """

    tcp: str
    unix: str = ""
    boot: str = ""
    group: str = ""

    def __str__(self) -> str:
        if not (self.unix or self.group):
            return self.tcp
        return f"{self.tcp} {self.group or _NONE} {self.boot or _NONE} {self.unix}".rstrip()

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
        words = text.split(" ", 3)
        host, _, port = words[0].rpartition(":")
        if not host or not port.isdigit() or len(words) == 2:
            raise Invalid(f"{text!r} is no address of a state store", remedy="It begins with host:port.")
        group, boot, unix = (*words[1:], "", "", "")[:3]
        return cls(words[0], unix, "" if boot == _NONE else boot, "" if group == _NONE else group)


@functools.cache
def boot_id() -> str:
    """Tells this machine since it was booted, and its view of files: where two are equal, a path means the same file."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/mnt').readlink()}"
    except OSError:
        return platform.node() or "unknown"
