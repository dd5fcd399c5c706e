"""Buffers and regions: memory that the daemon, and peers that are allowed to, read and write."""
from __future__ import annotations

import errno
import mmap
from typing import TYPE_CHECKING, Any, Optional

from ._rds import ffi, lib
from .errors import call, error, timed
from .types import AddrLike, to_c

if TYPE_CHECKING:
    from .client import Client


class Buffer:
    """Memory shared with the daemon, of Client.alloc, import_, import_at or adopt. It lasts until it or its client is closed.

    mem and what is made of it, such as numpy arrays, are good for ever: they keep the memory, which
    after the close is shared with nobody."""

    def __init__(self, client: Client, handle: Any, owner: mmap.mmap | Any, in_place: bool) -> None:
        self.client = client
        self._h = ffi.gc(handle, lib.rds_buffer_free)
        self._owner: Any = owner  # the mapping, or the cdata that keeps an object's memory
        self._in_place = in_place
        client._buffers.add(self)

    @property
    def mem(self) -> memoryview:
        """The memory. Raises Closed after the close."""
        owner = self._owner
        if owner is None or lib.rds_buffer_mem(self._h) == ffi.NULL:
            raise error("buffer", errno.EBADF)
        return memoryview(ffi.buffer(owner)) if self._in_place else memoryview(owner)

    def __buffer__(self, flags: int) -> memoryview:  # from Python 3.12 on
        return self.mem

    def __len__(self) -> int:
        return int(lib.rds_buffer_size(self._h))

    @property
    def adopted(self) -> bool:
        """Whether this is memory of adopt that is where it was: see rds_adopted."""
        return self._in_place and bool(lib.rds_adopted(self._h))

    def close(self, wait: bool = False, timeout: Optional[float] = None) -> None:
        """Ends the buffer. While something uses it that is EBUSY, or with wait waited for. After a
        TimedOut the buffer ends with its last use, and adopted memory is kept until the client's close."""
        if wait:
            timed("close buffer", timeout, lambda ms: int(lib.rds_buffer_close_wait(self._h, ms)))
        else:
            call("close buffer", lib.rds_buffer_close, self._h)
        self.client._buffers.discard(self)
        self._end()

    def _end(self) -> None:
        # Views of an object in place keep the cdata, which keeps the object.
        self._owner = None

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owner is not None:
            self.close(wait=True)


class Region:
    """A part of a buffer that peers may use, of Socket.register."""

    def __init__(self, handle: Any, buffer: Buffer) -> None:
        self._h = ffi.gc(handle, lib.rds_region_free)
        self.buffer = buffer
        self._released = False

    @property
    def cookie(self) -> int:
        """What names the region to peers."""
        return int(lib.rds_region_cookie(self._h))

    def expose(self, peer: AddrLike) -> None:
        """Grants the region to a socket, or with port 0 to all of a host. A message with the cookie needs none."""
        call("expose", lib.rds_expose, self._h, to_c(peer))

    def expose_to_all(self) -> None:
        """Grants the region to everybody who shows its cookie, on every host that the daemon allows, now or later."""
        call("expose", lib.rds_expose, self._h, ffi.NULL)

    def release(self, timeout: Optional[float] = None) -> None:
        """Takes the region back from everybody. Then nobody can touch the memory through it."""
        timed("release", timeout, lambda ms: int(lib.rds_release(self._h, ms)))
        self._released = True

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._released:
            self.release()
