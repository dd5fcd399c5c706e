"""What is sent, received and reported. The names are those of package rds of Go and of librds."""
from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Union

from ._rds import ffi, lib
from .errors import Invalid

if TYPE_CHECKING:
    from .memory import Buffer

MAX_MESSAGE: int = lib.RDS_MAX_MESSAGE


class Addr:
    """An address and a port: of "10.0.0.1:4000", "[fd00::1]:4000", an address alone, or ("10.0.0.1", 4000)."""

    __slots__ = ("_c", "_key")
    _c: Any
    _key: bytes  # the struct rds_addr

    def __init__(self, text: str | tuple[str, int]) -> None:
        port = None
        if isinstance(text, tuple):
            text, port = text
        if not isinstance(text, str):
            raise TypeError(f"an address is a str or (str, int), not {type(text).__name__}")
        self._c = ffi.new("struct rds_addr *")
        if lib.rds_addr_parse(text.encode(), self._c):
            raise Invalid(errno.EINVAL, f"address {text!r}: want an IP address with or without a port; names are not looked up")
        if port is not None:
            self._c.port = port
        self._key = bytes(ffi.buffer(self._c))

    @property
    def port(self) -> int:
        return int(self._c.port)

    @property
    def ip(self) -> str:
        ip = IPv6Address(self._key[:16])
        return str(ip.ipv4_mapped or ip)

    def __str__(self) -> str:
        text = ffi.new("char[]", lib.RDS_ADDR_TEXT)
        return str(ffi.string(lib.rds_addr_format(self._c, text, lib.RDS_ADDR_TEXT)).decode())

    def __repr__(self) -> str:
        return f"Addr({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Addr) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


AddrLike = Union[Addr, str, tuple[str, int]]


@lru_cache(maxsize=4096)
def _addr(key: bytes) -> Optional[Addr]:
    """The Addr of a struct rds_addr, or None for no address."""
    if not any(key[:16]):
        return None
    addr = Addr.__new__(Addr)
    addr._c = ffi.new("struct rds_addr *")
    ffi.buffer(addr._c)[:] = addr._key = key
    return addr


def from_c(c: Any) -> Optional[Addr]:
    return _addr(bytes(ffi.buffer(c if ffi.typeof(c).kind == "pointer" else ffi.addressof(c))))


_parsed = lru_cache(maxsize=4096)(Addr)


def to_c(addr: Optional[AddrLike]) -> Any:
    """The struct rds_addr of an address, or NULL of None."""
    if addr is None:
        return ffi.NULL
    return (addr if isinstance(addr, Addr) else _parsed(addr))._c


class Access(IntFlag):
    """What peers may do with a region. At least one of the first three is needed."""

    READ = lib.RDS_ALLOW_READ
    WRITE = lib.RDS_ALLOW_WRITE
    ATOMIC = lib.RDS_ALLOW_ATOMIC
    USE_ONCE = lib.RDS_USE_ONCE
    OPEN = lib.RDS_OPEN


class Status(IntEnum):
    """How an operation, or a message with notify, ended."""

    SUCCESS = lib.RDS_SUCCESS
    REMOTE_ERROR = lib.RDS_REMOTE_ERROR
    CANCELED = lib.RDS_CANCELED
    DROPPED = lib.RDS_DROPPED
    OTHER_ERROR = lib.RDS_OTHER_ERROR
    UNKNOWN = lib.RDS_UNKNOWN


class NoticeKind(IntEnum):
    LOST = lib.RDS_LOST
    NO_SOCKET = lib.RDS_NO_SOCKET
    PEER_DOWN = lib.RDS_PEER_DOWN
    PEER_UP = lib.RDS_PEER_UP
    GAVE_UP = lib.RDS_GAVE_UP
    UNREACHABLE = lib.RDS_UNREACHABLE
    NOT_GRANTED = lib.RDS_NOT_GRANTED


class Reason(IntEnum):
    """Why a host is not reached."""

    NONE = 0
    FORBIDDEN = lib.RDS_REASON_FORBIDDEN
    NO_ROUTE = lib.RDS_REASON_NO_ROUTE
    REFUSED = lib.RDS_REASON_REFUSED
    TIMEOUT = lib.RDS_REASON_TIMEOUT
    REJECTED = lib.RDS_REASON_REJECTED
    OTHER = lib.RDS_REASON_OTHER


class Option(IntEnum):
    """Options of a socket. Times are in ms and sizes in bytes, as in librds."""

    NONBLOCK = lib.RDS_OPT_NONBLOCK
    SNDBUF = lib.RDS_OPT_SNDBUF
    RCVBUF = lib.RDS_OPT_RCVBUF
    SNDTIMEO = lib.RDS_OPT_SNDTIMEO
    RCVTIMEO = lib.RDS_OPT_RCVTIMEO
    LANE = lib.RDS_OPT_LANE
    FAIL_UNREACHABLE = lib.RDS_OPT_FAIL_UNREACHABLE
    CONG_MONITOR = lib.RDS_OPT_CONG_MONITOR
    NOTICES = lib.RDS_OPT_NOTICES
    LINGER = lib.RDS_OPT_LINGER
    ANYBODY = lib.RDS_OPT_ANYBODY


class UntilKind(IntEnum):
    MESSAGE = lib.RDS_UNTIL_MESSAGE
    SEND_SPACE = lib.RDS_UNTIL_SEND_SPACE
    SEND_TO = lib.RDS_UNTIL_SEND_TO
    COMPLETION = lib.RDS_UNTIL_COMPLETION
    NOTICE = lib.RDS_UNTIL_NOTICE
    ZERO_COPY = lib.RDS_UNTIL_ZERO_COPY
    CONGESTION = lib.RDS_UNTIL_CONGESTION
    OP = lib.RDS_UNTIL_OP
    STATUS = lib.RDS_UNTIL_STATUS
    RELIEF = lib.RDS_UNTIL_RELIEF
    UNREACHABLE = lib.RDS_UNTIL_UNREACHABLE


class Until(NamedTuple):
    """A condition of a socket. addr and id are for the kinds that name a destination or an operation."""

    kind: UntilKind
    addr: Optional[AddrLike] = None
    id: int = 0


@dataclass
class Segment:
    """A piece of a Buffer. It belongs to an operation until the operation is locally complete."""

    buffer: Buffer
    off: int
    len: int


@dataclass
class RDMA:
    """A read or write that a message carries. In rdma_read and rdma_write the call says which, not write."""

    cookie: int
    local: Sequence[Segment]
    remote_off: int = 0
    write: bool = False
    token: int = 0
    notify: bool = False
    report: bool = False
    silent: bool = False
    owner_only: bool = False


@dataclass
class Atomic:
    """An operation on 8 aligned bytes of remote memory: adds, or with cmp_swap compares and swaps. The
    value before goes to local, which calls of atomic do not need."""

    cookie: int
    remote_off: int = 0
    local: Optional[Segment] = None
    cmp_swap: bool = False
    add: int = 0
    no_carry: int = 0
    compare: int = 0
    swap: int = 0
    masked: bool = False
    compare_mask: int = 0
    swap_mask: int = 0
    token: int = 0
    notify: bool = False
    report: bool = False
    silent: bool = False


@dataclass
class Message:
    """One datagram to send, and what goes with it. Without addr it goes where the socket is connected to.
    A payload is copied. from_ is sent from where it lies; zero_copy_done returns its
    zero_copy_cookie when the memory is the caller's again. With notify, a message without operations gets a
    Completion with its token. traceparent is the trace that the message belongs to, the text of that header of
    W3C Trace Context. A send sets op_id and atomic_id."""

    payload: Any = b""
    addr: Optional[AddrLike] = None
    from_: Optional[Segment] = None
    cookie: int = 0
    op: Optional[RDMA] = None
    atomic: Optional[Atomic] = None
    dst_inc: int = 0
    give_up_after: Optional[float] = None
    zero_copy_cookie: Optional[int] = None
    notify: bool = False
    token: int = 0
    traceparent: str = ""
    op_id: int = 0
    atomic_id: int = 0


class Received(NamedTuple):
    """One datagram that was received. len is more than len(payload) if a size given was too small for it.
    traceparent is the sender's, "" if nothing came."""

    payload: Union[bytes, memoryview]
    addr: Optional[Addr]
    src_inc: int
    len: int
    cookie: int
    time_ns: int
    assembly_ns: int
    traceparent: str = ""


class Completion(NamedTuple):
    """The one status of an operation or message. to is a host: its port is 0. id is 0 of a message. errno is
    ECONNREFUSED of one that was dropped because no socket was there."""

    token: int
    id: int
    to: Optional[Addr]
    status: Status
    errno: int

    @property
    def text(self) -> str:
        """The status in words, with the reason and what to do."""
        c = ffi.new("struct rds_completion *", {"status": self.status, "err": self.errno})
        return str(ffi.string(lib.rds_completion_text(c)).decode(errors="replace"))


@dataclass(frozen=True)
class Notice:
    """What happened at a destination. Without to it is about several."""

    kind: NoticeKind
    to: Optional[Addr]
    count: int
    reason: Reason
