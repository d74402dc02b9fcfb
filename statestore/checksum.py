"""CRC-32 as `zlib.crc32` computes it, by a library that takes a fifth of the time.

Every byte of a state that moves is checked four times: as it is put, in either store, and where it is fetched. With the standard library
that was half a second of processor time for 256 MB, and as much again where a machine is slow.
"""

from __future__ import annotations

from zlib_ng.zlib_ng import crc32

__all__ = ["crc32"]
