"""The attachment of this process to the daemon."""
from __future__ import annotations

import errno
import fcntl
import mmap
import os
from typing import Any, Optional

from ._rds import ffi, lib
from .errors import Error, call, error, milliseconds, timed
from .memory import Buffer
from .socket import Socket
from .types import Addr, AddrLike, Segment, from_c, to_c

WAYS = {"auto": lib.RDS_WAIT_AUTO, "block": lib.RDS_WAIT_BLOCK, "yield": lib.RDS_WAIT_YIELD, "spin": lib.RDS_WAIT_SPIN}


class Client:
    """An attachment to the daemon. path is that of the control socket; without it the usual ones are tried.
    wait is one of WAYS, and params are those of struct rds_params. Any thread may use it."""

    def __init__(self, path: Optional[str] = None, *, name: Optional[str] = None, timeout: Optional[float] = None, call_timeout: Optional[float] = None,
                 wait: str = "auto", spin: float = 0, **params: int) -> None:
        texts = [ffi.NULL if t is None else ffi.new("char[]", os.fsencode(t)) for t in (path, name)]
        if wait not in WAYS:
            raise ValueError(f"wait {wait!r}: want one of {', '.join(WAYS)}")
        limits = [0 if t is None else max(1, milliseconds(t)) for t in (timeout, call_timeout)]
        o = ffi.new("struct rds_options *", {"path": texts[0], "name": texts[1], "timeout_ms": limits[0], "call_timeout_ms": limits[1],
                                             "wait": WAYS[wait], "spin_ns": int(spin * 1e9), "interrupt_ms": 100})
        for key, value in params.items():
            if key not in {field for field, _ in ffi.typeof("struct rds_params").fields}:
                raise TypeError(f"Client has no option {key!r}")
            setattr(o.params, key, value)
        handle = ffi.new("rds_client **")
        call("open", lib.rds_open, o, handle)
        self._take(handle[0])

    def _take(self, handle: Any) -> None:
        self._h = ffi.gc(handle, lib.rds_client_free)
        self._buffers: set[Buffer] = set()
        self._words: list[Segment] = []  # local memory for atomic operations, which no operation uses

    def reopen(self, timeout: Optional[float] = None) -> Client:
        """A new client with the options of this one, whose daemon has ended. Socket.rebind makes the sockets again."""
        handle = ffi.new("rds_client **")
        timed("reopen", timeout, lambda ms: int(lib.rds_reopen(self._h, ms, handle)))
        client = Client.__new__(Client)
        client._take(handle[0])
        return client

    def error(self) -> Optional[Error]:
        """Why the client works no longer, or None. It looks for an end that nothing else has noticed yet."""
        text = ffi.new("char[]", 512)
        err = -lib.rds_client_error(self._h, text, len(text))
        if not err:
            return None
        e = error("client", err)
        return type(e)(err, ffi.string(text).decode(errors="replace") or e.strerror)

    def addrs(self) -> list[Addr]:
        """The addresses of the daemon, at which sockets can be bound. Their ports are 0."""
        c = ffi.new("struct rds_addr[]", 64)
        n = call("addresses", lib.rds_addrs, self._h, c, len(c))
        return [a for a in map(from_c, c[0:n]) if a]

    def bind(self, addr: AddrLike) -> Socket:
        """A socket at an address and port. Port 0 takes a free one; 0.0.0.0 is the daemon's one IPv4 address."""
        handle = ffi.new("rds_socket **")
        call("bind", lib.rds_bind, self._h, to_c(addr), handle)
        return Socket(self, handle[0])

    def rebind(self, old: Socket) -> Socket:
        """A socket where old was, whose client has ended, with its options and connected destination."""
        if not isinstance(old, Socket):
            raise TypeError(f"a Socket is bound again, not {type(old).__name__}")
        handle = ffi.new("rds_socket **")
        call("bind", lib.rds_rebind, self._h, old._h, handle)
        return Socket(self, handle[0])

    def alloc(self, size: int) -> Buffer:
        """A buffer of size bytes, page aligned and zeroed: a memory file that Python maps, and that is imported."""
        if not 0 < size <= 1 << 40:
            raise error("alloc", errno.EINVAL)
        fd = os.memfd_create("rds-buffer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return self._import("alloc", fd, 0, size)
        finally:
            os.close(fd)

    def _word(self) -> Segment:
        """8 bytes for an atomic operation. They go back to _words when it is locally complete, and never if that is not known."""
        try:
            return self._words.pop()
        except IndexError:
            page = self.alloc(mmap.PAGESIZE)
            first, *rest = (Segment(page, off, 8) for off in range(0, mmap.PAGESIZE, 8))
            self._words += rest
            return first

    def import_(self, fd: int, off: int, size: int) -> Buffer:
        """A buffer of size bytes at off of a memory file: see rds_import."""
        return self._import("import", fd, off, size)

    def _import(self, what: str, fd: int, off: int, size: int) -> Buffer:
        # The program's views are of a mapping of its own, which no close of librds unmaps.
        handle = ffi.new("rds_buffer **")
        call(what, lib.rds_import, self._h, fd, off, size, handle)
        try:
            mapping = mmap.mmap(fd, size, offset=off)
        except BaseException:
            lib.rds_buffer_close(handle[0])
            lib.rds_buffer_free(handle[0])
            raise
        return Buffer(self, handle[0], mapping, False)

    def adopt(self, memory: Any) -> Buffer:
        """A buffer of the memory of an object, in place: a numpy array, a bytearray. The object is kept, and cannot
        be resized, until the buffer is closed. rds_adopt says which memory can be adopted."""
        view = ffi.from_buffer("char[]", memory, require_writable=True)
        handle = ffi.new("rds_buffer **")
        call("adopt", lib.rds_adopt, self._h, view, len(view), handle)
        return Buffer(self, handle[0], view, True)

    def import_at(self, memory: Any, fd: int, off: int) -> Buffer:
        """A buffer of the memory of an object, in place, that is a shared mapping of the file fd from off on: an mmap, the
        buf of a SharedMemory, a numpy array in one. The object is kept as by adopt. See rds_import_at."""
        view = ffi.from_buffer("char[]", memory, require_writable=True)
        handle = ffi.new("rds_buffer **")
        call("import", lib.rds_import_at, self._h, view, fd, off, len(view), handle)
        return Buffer(self, handle[0], view, True)

    def wake(self) -> None:
        """Has a wait at whichever socket of the client raise Woken: see Socket.wake."""
        call("wake", lib.rds_client_wake, self._h)

    def close(self) -> None:
        """Ends the client with its sockets, regions and buffers. Calls that wait raise Closed."""
        call("close client", lib.rds_client_close, self._h)
        while self._buffers:
            self._buffers.pop()._end()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if lib.rds_client_error(self._h, ffi.NULL, 0) != -errno.EBADF:
            self.close()

    def __del__(self, close: Any = lib.rds_client_close) -> None:
        # Ahead of the objects whose memory was adopted, which go when nothing names them.
        if hasattr(self, "_h"):
            close(self._h)
