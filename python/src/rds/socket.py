"""Sockets: messages, operations and waiting."""
from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from ._rds import ffi, lib
from .errors import OperationFailed, call, error, milliseconds, timed
from .memory import Buffer, Region
from .types import (MAX_MESSAGE, RDMA, Access, Addr, AddrLike, Atomic, Completion, Message, Notice, NoticeKind, Option, Reason, Received, Segment,
                    Status, Until, UntilKind, _addr, from_c, to_c)

if TYPE_CHECKING:
    from .client import Client

Condition = Union[Until, UntilKind]

# A message is always received into as much memory as the longest needs, and a batch ends where less is left.
_BATCH = 1024
_GOT = struct.Struct("=18s2xIIIIIQq55sx")
_idle: list[tuple[Any, Any]] = []  # memory to receive into that no call uses
_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


def _flags(dontwait: bool, peek: bool = False) -> int:
    return int(dontwait and lib.RDS_DONTWAIT) | int(peek and lib.RDS_PEEK)


def _payload(data: Any) -> Any:
    return ffi.from_buffer("char[]", data)


def _segments(local: Sequence[Segment]) -> Any:
    for g in local:
        if not isinstance(g, Segment) or not isinstance(g.buffer, Buffer):
            raise TypeError("local memory is given as Segments of Buffers")
    return ffi.new("struct rds_segment[]", [(g.buffer._h, g.off, g.len) for g in local])


def _op_flags(op: RDMA | Atomic) -> int:
    return int(op.notify and lib.RDS_OP_NOTIFY) | int(op.report and lib.RDS_OP_REPORT) | int(op.silent and lib.RDS_OP_SILENT)


def _rdma(op: RDMA, write: bool) -> tuple[Any, Any]:
    """The struct rds_rdma, and what it points to."""
    if not isinstance(op, RDMA):
        raise TypeError(f"a read or write is an RDMA, not {type(op).__name__}")
    local = _segments(op.local)
    return ffi.new("struct rds_rdma *", {
        "kind": lib.RDS_OP_WRITE if write else lib.RDS_OP_READ, "flags": _op_flags(op) | (lib.RDS_OP_OWNER if op.owner_only else 0), "cookie": op.cookie,
        "remote_off": op.remote_off, "local": local, "segments": len(local), "token": op.token}), local


def _atomic(a: Atomic) -> Any:
    if not isinstance(a, Atomic):
        raise TypeError(f"an atomic operation is an Atomic, not {type(a).__name__}")
    c = ffi.new("struct rds_atomic *", {
        "kind": lib.RDS_OP_CMP_SWAP if a.cmp_swap else lib.RDS_OP_FETCH_ADD, "flags": _op_flags(a), "cookie": a.cookie, "remote_off": a.remote_off,
        "add": a.add, "no_carry": a.no_carry, "compare": a.compare, "swap": a.swap, "masked": a.masked, "compare_mask": a.compare_mask,
        "swap_mask": a.swap_mask, "token": a.token})
    if a.local is not None:
        c.local = _segments([a.local])[0]
    return c


def _fill(c: Any, m: Message, flags: int) -> list[Any]:
    """Fills a struct rds_msg, and returns what it points to."""
    if not isinstance(m, Message):
        raise TypeError(f"a message to send is a Message, not {type(m).__name__}")
    to = to_c(m.addr)
    if to:
        c.addr = to[0]
    data = _payload(m.payload)
    iov = ffi.new("struct iovec *", {"iov_base": ffi.cast("void *", data), "iov_len": len(data)})
    c.iov, c.iovlen, c.flags = iov, 1, flags
    c.cookie, c.dst_inc = m.cookie, m.dst_inc
    keep = [data, iov]
    if m.from_ is not None:
        if len(data):
            raise ValueError("a message has payload or from_, not both")
        setattr(c, "from", _segments([m.from_])[0])
    if m.op is not None:
        keep.append(_rdma(m.op, m.op.write))
        c.op = keep[-1][0]
    if m.atomic is not None:
        keep.append(_atomic(m.atomic))
        c.atomic = keep[-1]
    if m.give_up_after is not None:
        c.give_up_ms = max(1, milliseconds(m.give_up_after))
    if m.zero_copy_cookie is not None:
        c.flags |= lib.RDS_ZERO_COPY
        c.zero_copy_cookie = m.zero_copy_cookie
    if m.notify:
        c.flags |= lib.RDS_NOTIFY
        c.token = m.token
    if m.traceparent:
        keep.append(ffi.new("char[]", m.traceparent.encode()))
        c.traceparent = keep[-1]
    return keep


def _untils(conditions: Iterable[tuple[Socket, Condition]]) -> Any:
    rows = []
    for sock, u in conditions:
        if not isinstance(sock, Socket):
            raise TypeError(f"a condition is of a Socket, not {type(sock).__name__}")
        kind, addr, id = u if isinstance(u, Until) else (UntilKind(u), None, 0)
        rows.append({"socket": sock._h, "kind": kind, "id": id, **({} if addr is None else {"addr": to_c(addr)[0]})})
    return ffi.new("struct rds_until[]", rows)


def wait(conditions: Sequence[tuple[Socket, Condition]], timeout: Optional[float] = None) -> list[tuple[Socket, Condition]]:
    """Waits until at least one condition of sockets of one client holds, and returns those that do. It takes
    nothing. After the timeout, in seconds, it returns none."""
    c = _untils(conditions)
    timed("wait", timeout, lambda ms: int(lib.rds_wait(c, len(c), ms)))
    return [pair for pair, u in zip(conditions, c) if u.ready]


def _completion(c: Any) -> Completion:
    return Completion(c.token, c.id, from_c(c.to), Status(c.status), c.err)


class Socket:
    """A bound socket, of Client.bind. Any thread may use it. Timeouts are in seconds, and None has no limit.
    Calls with dontwait raise WouldBlock or Congested where they would have to wait."""

    def __init__(self, client: Client, handle: Any) -> None:
        self.client = client
        self._h = ffi.gc(handle, lib.rds_socket_free)

    def _addr_of(self, what: str, function: Any) -> Optional[Addr]:
        c = ffi.new("struct rds_addr *")
        call(what, function, self._h, c)
        return from_c(c)

    @property
    def local(self) -> Addr:
        """The address and port of the socket, also of a closed one."""
        addr = self._addr_of("local", lib.rds_local)
        assert addr
        return addr

    @property
    def remote(self) -> Optional[Addr]:
        """Where the socket is connected to."""
        return self._addr_of("remote", lib.rds_remote)

    @property
    def incarnation(self) -> int:
        """The number of this bind of the port, which peers see as Received.src_inc."""
        return int(lib.rds_incarnation(self._h))

    def connect(self, addr: AddrLike) -> None:
        """Sets the destination of sends that name none."""
        call("connect", lib.rds_connect, self._h, to_c(addr))

    def set_option(self, option: Option, value: int) -> None:
        call("set option", lib.rds_set_option, self._h, Option(option), value)

    def get_option(self, option: Option) -> int:
        value = ffi.new("int64_t *")
        call("get option", lib.rds_get_option, self._h, Option(option), value)
        return int(value[0])

    def close(self) -> None:
        """Closes the socket and frees its port. What was not sent is withdrawn."""
        call("close", lib.rds_close, self._h)

    def close_wait(self, timeout: Optional[float] = None) -> None:
        """Closes the socket once all that was sent is acknowledged. Raises what became of messages that nobody
        has taken the news of."""
        timed("close", timeout, lambda ms: int(lib.rds_close_wait(self._h, ms)))

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        lib.rds_close(self._h)

    # Messages.

    def send(self, message: Message, *, dontwait: bool = False) -> None:
        """Queues one message for delivery, and sets its op_id and atomic_id."""
        c = ffi.new("struct rds_msg *")
        keep = _fill(c, message, _flags(dontwait))
        call("send", lib.rds_sendmsg, self._h, c)
        message.op_id, message.atomic_id = c.op_id, c.atomic_id
        del keep

    def send_to(self, payload: Any, to: Optional[AddrLike] = None, *, dontwait: bool = False) -> None:
        """Queues bytes-like payload for delivery."""
        data = _payload(payload)
        call("send", lib.rds_send, self._h, data, len(data), to_c(to), _flags(dontwait))

    def send_batch(self, messages: Sequence[Message], *, dontwait: bool = False) -> int:
        """Queues messages in order, hands them to the daemon together, and returns how many it queued."""
        c = ffi.new("struct rds_msg[]", len(messages))
        keep = [_fill(c[i], m, _flags(dontwait)) for i, m in enumerate(messages)]
        n = call("send", lib.rds_sendmsgs, self._h, c, len(messages))
        for m, sent in zip(messages, c[0:n]):
            m.op_id, m.atomic_id = sent.op_id, sent.atomic_id
        del keep
        return n

    def send_batch_to(self, payloads: Any, to: Optional[AddrLike] = None, *, dontwait: bool = False) -> int:
        """Is send_batch for payloads to one destination, and faster: a list of bytes, or the rows of a
        contiguous array of two dimensions."""
        if isinstance(payloads, (list, tuple)):
            data = b"".join(payloads)
            lens = array("I", map(len, payloads))
            if sum(lens) != len(data):  # of arrays whose items are no bytes
                lens = array("I", [memoryview(p).nbytes for p in payloads])
            return self._send(data, ffi.from_buffer("uint32_t[]", lens), 0, len(lens), to, dontwait)
        view = memoryview(payloads)
        if view.ndim != 2:
            raise TypeError(f"want a list of payloads or an array of two dimensions, not of {view.ndim}")
        rows = view.shape[0] if view.shape else 0
        return self._send(payloads, ffi.NULL, view.nbytes // max(rows, 1), rows, to, dontwait)

    def _send(self, data: Any, lens: Any, len: int, count: int, to: Optional[AddrLike], dontwait: bool) -> int:
        return call("send", lib.rdspy_send, self._h, _payload(data), lens, len, count, to_c(to), _flags(dontwait))

    def recv(self, size: int = MAX_MESSAGE, *, dontwait: bool = False, peek: bool = False) -> Received:
        """Receives one message, and at most size bytes of it: the rest of a longer one is lost. With peek it stays."""
        return self._recv(1, size, _flags(dontwait, peek))[0]

    def recv_batch(self, count: int = 256, *, dontwait: bool = False) -> list[Received]:
        """Receives what is there, at least one message and at most count, or 1024."""
        return self._recv(count, 2 * MAX_MESSAGE, _flags(dontwait))

    def _recv(self, count: int, size: int, flags: int) -> list[Received]:
        if count < 1 or size < 0:
            raise ValueError(f"receive {count} messages of {size} bytes: want one or more, of 0 or more")
        try:
            mem, got = _idle.pop()
        except IndexError:
            mem, got = _uncleared("char[]", 2 * MAX_MESSAGE), _uncleared("struct rdspy_got[]", _BATCH)
        try:
            n = call("receive", lib.rdspy_recv, self._h, mem, min(size, len(mem)), MAX_MESSAGE, got, min(count, _BATCH), flags)
            data, new = ffi.buffer(mem), tuple.__new__  # Received() takes as long as all the rest
            return [new(Received, (data[off:end], _addr(source), inc, length, cookie, time_ns, assembly_ns, trace.decode() if trace[0] else ""))
                    for source, inc, off, end, length, assembly_ns, cookie, time_ns, trace in _GOT.iter_unpack(ffi.buffer(got, n * _GOT.size))]
        finally:
            _idle.append((mem, got))

    def recv_into(self, memory: Any, *, dontwait: bool = False) -> Received:
        """Receives one message into memory, such as a bytearray or an array. Its payload is a view of that."""
        view = memoryview(memory).cast("B")
        data = ffi.from_buffer("char[]", view, require_writable=True)
        got = ffi.new("struct rdspy_got[1]")
        call("receive", lib.rdspy_recv, self._h, data, len(data), 0, got, 1, _flags(dontwait))
        g = got[0]
        return Received(view[:g.end], _addr(ffi.buffer(got)[:18]), g.src_inc, g.len, g.cookie, g.time_ns, g.assembly_ns, ffi.string(g.traceparent).decode())

    def cancel(self, to: AddrLike) -> None:
        """Withdraws everything that was queued or sent to the socket at to."""
        call("cancel", lib.rds_cancel, self._h, to_c(to))

    def close_dest(self, to: AddrLike) -> None:
        """Gives back what the socket keeps for a destination."""
        call("close destination", lib.rds_close_dest, self._h, to_c(to))

    def zero_copy_done(self, count: int = 64) -> list[int]:
        """Takes zero-copy cookies of messages that were acknowledged or withdrawn."""
        c = ffi.new("uint32_t[]", count)
        return list(c[0:call("zero-copy cookies", lib.rds_zero_copy_done, self._h, c, count)])

    def notices(self, count: int = 64) -> list[Notice]:
        """Takes notices. It does not wait."""
        c = ffi.new("struct rds_notice[]", count)
        n = call("notices", lib.rds_notices, self._h, c, count)
        return [Notice(NoticeKind(x.kind), from_c(x.to), x.count, Reason(x.reason)) for x in c[0:n]]

    def cong_updates(self) -> int:
        """Which destinations are no longer congested, a bit for each port modulo 64: see rds_cong_updates."""
        mask = ffi.new("uint64_t *")
        call("congestion", lib.rds_cong_updates, self._h, mask)
        return int(mask[0])

    # Operations.

    def register(self, buffer: Buffer, access: Access, off: int = 0, size: Optional[int] = None) -> Region:
        """Makes size bytes at off of a buffer a region that peers may use."""
        if not isinstance(buffer, Buffer):
            raise TypeError(f"a region is of a Buffer, not {type(buffer).__name__}")
        handle = ffi.new("rds_region **")
        call("register", lib.rds_register, self._h, buffer._h, off, len(buffer) - off if size is None else size, access, handle)
        return Region(handle[0], buffer)

    def completions(self, count: int = 64) -> list[Completion]:
        """Takes completions, in the order in which the operations were settled. It does not wait."""
        c = ffi.new("struct rds_completion[]", count)
        return [_completion(x) for x in c[0:call("completions", lib.rds_completions, self._h, c, count)]]

    def hwm(self, to: AddrLike) -> int:
        """The high-water mark of operations to the host of to: those up to it are locally complete."""
        id = ffi.new("uint64_t *")
        call("high-water mark", lib.rds_hwm, self._h, to_c(to), id)
        return int(id[0])

    def barrier(self, to: AddrLike, id: int, timeout: Optional[float] = None) -> None:
        """Waits until the operations up to id to the host of to are locally complete."""
        timed("barrier", timeout, lambda ms: int(lib.rds_barrier(self._h, to_c(to), id, ms)))

    def barrier_all(self, timeout: Optional[float] = None) -> None:
        """Waits until every operation issued so far is locally complete."""
        timed("barrier", timeout, lambda ms: int(lib.rds_barrier_all(self._h, ms)))

    def wait_op(self, to: AddrLike, id: int, timeout: Optional[float] = None) -> Completion:
        """Waits for the completion of one operation and takes it."""
        c = ffi.new("struct rds_completion *")
        timed("wait for operation", timeout, lambda ms: int(lib.rds_wait_op(self._h, to_c(to), id, c, ms)))
        return _completion(c)

    def rdma_read(self, to: AddrLike, op: RDMA, timeout: Optional[float] = None) -> None:
        """Reads without a message, and waits for the end. Raises OperationFailed, TimedOut,
        Interrupted, or the error of rds_reach if the host is not reached."""
        self._transfer("RDMA read", to, op, False, timeout)

    def rdma_write(self, to: AddrLike, op: RDMA, timeout: Optional[float] = None) -> None:
        """Writes without a message, and waits for the end."""
        self._transfer("RDMA write", to, op, True, timeout)

    def _transfer(self, what: str, to: AddrLike, op: RDMA, write: bool, timeout: Optional[float]) -> None:
        c, keep = _rdma(op, write)
        done = ffi.new("struct rds_completion *")
        _outcome(what, lib.rds_transfer(self._h, to_c(to), c, done, milliseconds(timeout)), done)
        del keep

    def atomic(self, to: AddrLike, atomic: Atomic, timeout: Optional[float] = None) -> int:
        """Runs an atomic operation without a message, and returns the value before."""
        c, old, done = _atomic(atomic), ffi.new("uint64_t *"), ffi.new("struct rds_completion *")
        _outcome("atomic", lib.rds_atomic_op(self._h, to_c(to), c, old, done, milliseconds(timeout)), done)
        return int(old[0])

    # Waiting.

    def wait(self, *conditions: Condition, timeout: Optional[float] = None) -> list[Condition]:
        """Waits until at least one condition holds, and returns those that do, after the timeout none."""
        return [u for _, u in wait([(self, u) for u in conditions], timeout)]

    def wake(self) -> None:
        """Has a wait at the socket, or the next one if nobody waits, raise Woken: recv, wait, polled, wait_op or a
        barrier of another thread, or the tasks of an AsyncSocket. See rds_wake."""
        call("wake", lib.rds_wake, self._h)

    def fileno(self) -> int:
        """A descriptor for select, poll and the like, readable while a condition of the poll set holds. It belongs
        to the socket. See rds_pollfd."""
        return call("poll descriptor", lib.rds_pollfd, self._h)

    def poll_set(self, *conditions: Condition) -> None:
        """Chooses the poll set. That of a new socket is everything that can be taken."""
        c = _untils((self, u) for u in conditions)
        call("poll set", lib.rds_poll_set, self._h, c, len(c))

    def polled(self, count: int = 64) -> list[Until]:
        """Which conditions of the poll set hold, at most count. If none does, the descriptor is unreadable until one does."""
        c = ffi.new("struct rds_until[]", count)
        n = call("polled", lib.rds_polled, self._h, c, count)
        return [Until(UntilKind(u.kind), from_c(u.addr), u.id) for u in c[0:min(n, count)]]


def _outcome(what: str, result: int, done: Any) -> None:
    """Raises what the result of an operation without a message means."""
    if result >= 0:
        return
    if done.status == Status.SUCCESS or -result != -lib.rds_status_error(done.status):
        raise error(what, -result)
    raise failed(what, _completion(done))


def failed(what: str, done: Completion) -> OperationFailed:
    """The exception for another status than SUCCESS."""
    e = OperationFailed(-lib.rds_status_error(done.status), f"{what}: {done.text}")
    e.completion = done
    return e
