"""Errors: each is an Error with an errno, and has the name that it has in package rds of Go."""
from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._rds import ffi, lib

if TYPE_CHECKING:
    from .types import Completion


class Error(OSError):
    """A call failed. errno says why; the text says what was tried, why it failed and what to do."""


class Invalid(Error):
    """EINVAL: an argument that no daemon would accept."""


class Closed(Error):
    """EBADF: the socket, buffer, region or client was closed."""


class Forked(Error):
    """ESTALE: the handle was made before a fork, and this is the child."""


class NoDaemon(Error, FileNotFoundError):
    """ENOENT: no daemon answers."""


class VersionMismatch(Error):
    """EPROTONOSUPPORT: client and daemon do not speak a common version."""


class DaemonGone(Error, ConnectionResetError):
    """ECONNRESET: the daemon has ended. What it had delivered can still be received."""


class SessionEnded(Error, ConnectionAbortedError):
    """ECONNABORTED: the daemon has ended this session alone. Client.error has the reason."""


class WouldBlock(Error, BlockingIOError):
    """EAGAIN: the call would have to wait and was told not to."""


class Congested(Error, BlockingIOError):
    """ENOBUFS of a send: the destination is congested."""


class Overrun(Error):
    """ENOBUFS of a receive: a Linux kernel has sent more than the daemon keeps, and the socket lost its port."""


class MessageTooLong(Error):
    """EMSGSIZE: the payload is above the send buffer or 1 MiB."""


class TooManyDestinations(Error):
    """EMLINK: too many destinations are in use."""


class CompletionsFull(Error):
    """ENOSPC: take completions or zero-copy cookies first."""


class TimedOut(Error, TimeoutError):
    """ETIMEDOUT: the time limit has passed."""


class Interrupted(Error, InterruptedError):
    """EINTR: a signal handler ran during rdma_read, rdma_write or atomic. The outcome is unknown, and the
    memory is in use until barrier_all returns."""


class Woken(Error):
    """ECANCELED: Socket.wake or Client.wake ended the wait. The socket works, and nothing was taken."""


class OperationFailed(Error):
    """An operation ended with another status than SUCCESS: EIO, ECANCELED, EPIPE (dropped) or ETIME (unknown)."""

    completion: Optional[Completion] = None


_CLASSES: dict[Any, type[Error]] = {
    errno.EINVAL: Invalid, errno.EBADF: Closed, errno.ESTALE: Forked, errno.ENOENT: NoDaemon,
    errno.EPROTONOSUPPORT: VersionMismatch, errno.ECONNRESET: DaemonGone, errno.ECONNABORTED: SessionEnded,
    errno.EAGAIN: WouldBlock, errno.EMSGSIZE: MessageTooLong, errno.EMLINK: TooManyDestinations,
    errno.ENOSPC: CompletionsFull, errno.ETIMEDOUT: TimedOut, errno.EINTR: Interrupted, errno.ECANCELED: Woken,
    ("send", errno.ENOBUFS): Congested, ("receive", errno.ENOBUFS): Overrun, ("wait", errno.ENOBUFS): Overrun,
}

# The calls that rds_refusal has words about.
_ASKS = {"open", "bind", "alloc", "import", "adopt", "register", "close"}


def error(what: str, number: int) -> Error:
    """The exception for an errno of a call; what names the call."""
    kind = _CLASSES.get((what, number), _CLASSES.get(number, Error))
    words = ffi.string(lib.rds_refusal()) if what in _ASKS else b""
    text = (words or ffi.string(lib.rds_error_text(number))).decode(errors="replace")
    return kind(number, f"{what}: {text}")


def call(what: str, function: Callable[..., int], *args: Any) -> int:
    """Calls librds again after signal handlers that raised nothing. Raises what a negative result means."""
    result = function(*args)
    while result == -errno.EINTR:
        result = function(*args)
    if result < 0:
        raise error(what, -result)
    return result


def milliseconds(timeout: Optional[float]) -> int:
    """A time limit in seconds as librds has it: -1 for None, and rounded up."""
    if timeout is None:
        return -1
    if not timeout >= 0:
        raise ValueError(f"timeout {timeout}: want seconds from 0 on, or None for no limit")
    return min(-int(-timeout * 1000 // 1), 2**31 - 1)


def timed(what: str, timeout: Optional[float], function: Callable[[int], int]) -> int:
    """Is call for a function of the milliseconds that are left."""
    left = milliseconds(timeout)
    end = time.monotonic() + left / 1000
    result = function(left)
    while result == -errno.EINTR:
        result = function(-1 if left < 0 else max(0, int((end - time.monotonic()) * 1000)))
    if result < 0:
        raise error(what, -result)
    return result
