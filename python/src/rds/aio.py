"""Sockets for asyncio: a reader on the descriptor of librds wakes the tasks that wait."""
from __future__ import annotations

import asyncio
import errno
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Optional, Sequence, TypeVar

from ._rds import lib
from .errors import Congested, Error, WouldBlock, Woken, call, error
from .socket import Condition, Socket, failed
from .types import MAX_MESSAGE, RDMA, AddrLike, Atomic, Completion, Message, Received, Status, Until, UntilKind, from_c, to_c

T = TypeVar("T")

_CALLS = 64  # after so many, a task that need not wait lets the others run


class AsyncSocket:
    """A Socket in the running event loop. Tasks may wait for it at the same time; its poll set is theirs. What does
    not wait is done with sock. For a time limit there is asyncio.timeout. Before Python 3.12 asyncio.wait_for loses a
    cancellation, such as that of ctrl-C, if what it waits for is done at that moment."""

    def __init__(self, sock: Socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[asyncio.Future[None], tuple[bool, tuple[Until, ...]]] = {}
        self._woken: Optional[Woken] = None  # nobody has taken it yet
        self._fd = -1
        self._changed = False
        self._calls = 0

    async def wait(self, *conditions: Condition) -> None:
        """Waits until at least one condition holds."""
        await self._wait(True, *conditions)

    async def _wait(self, wakes: bool, *conditions: Condition) -> None:
        """Is wait. Without wakes it leaves a wake to the other tasks, or to the next that waits."""
        if wakes and self._woken:
            why, self._woken = self._woken, None
            raise why
        waiter, untils = self._loop.create_future(), tuple(map(_polled, conditions))
        self.sock.poll_set(*untils)  # raises what is wrong with them
        self._waiters[waiter] = wakes, untils
        self._change()
        try:
            await waiter
        finally:
            del self._waiters[waiter]
            if waiter.cancelled():
                self._change()

    def _change(self) -> None:
        """Has _watch called once for all tasks that begin or cease to wait now."""
        if not self._changed:
            self._changed = True
            self._loop.call_soon(self._watch)

    def _watch(self) -> None:
        """Makes what tasks wait for the poll set, and reads the descriptor while a task waits."""
        self._changed = False
        wanted = list(dict.fromkeys(u for w, (_, us) in self._waiters.items() if not w.done() for u in us))
        try:
            if wanted:
                self.sock.poll_set(*wanted)
                if self._fd < 0:
                    self._fd = self.sock.fileno()
                    self._loop.add_reader(self._fd, self._readable)
            elif self._fd >= 0:
                self._loop.remove_reader(self._fd)
                self._fd = -1
        except OSError as e:
            self._end(e)

    def _readable(self) -> None:
        try:
            hold = set(self.sock.polled())
            for waiter, (_, us) in self._waiters.items():
                if not waiter.done() and not hold.isdisjoint(us):
                    waiter.set_result(None)
        except Woken as e:
            waiting = [w for w, (wakes, _) in self._waiters.items() if wakes and not w.done()]
            for waiter in waiting:
                waiter.set_exception(e)
            self._woken = None if waiting else e
        except Exception as e:  # an event loop would log it and call again
            self._end(e)
        self._watch()

    def _end(self, why: Exception) -> None:
        """Stops reading, and lets the tasks that wait raise why."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
        self._fd = -1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(why)

    async def _until(self, do: Callable[[], T], *conditions: Condition) -> T:
        self._calls += 1
        if self._calls % _CALLS == 0:
            await asyncio.sleep(0)  # ahead of the call, so that a cancellation loses no message
        while True:
            try:
                return do()
            except (WouldBlock, Congested):
                pass  # a wait in here would show this in the traceback of whatever ends it
            await self.wait(*conditions)

    async def recv(self, size: int = MAX_MESSAGE) -> Received:
        return await self._until(lambda: self.sock.recv(size, dontwait=True), UntilKind.MESSAGE)

    async def recv_batch(self, count: int = 256) -> list[Received]:
        return await self._until(lambda: self.sock.recv_batch(count, dontwait=True), UntilKind.MESSAGE)

    async def send(self, message: Message) -> None:
        to = message.addr or self.sock.remote
        await self._until(lambda: self.sock.send(message, dontwait=True), Until(UntilKind.SEND_TO, to))

    async def send_to(self, payload: Any, to: Optional[AddrLike] = None) -> None:
        await self._until(lambda: self.sock.send_to(payload, to, dontwait=True), Until(UntilKind.SEND_TO, to or self.sock.remote))

    async def send_batch(self, messages: Sequence[Message]) -> None:
        """Queues all messages."""
        sent = 0
        while sent < len(messages):
            rest = messages[sent:]
            sent += await self._until(lambda: self.sock.send_batch(rest, dontwait=True), Until(UntilKind.SEND_TO, rest[0].addr or self.sock.remote))

    async def wait_op(self, to: AddrLike, id: int) -> Completion:
        """Waits for the completion of an operation that asked for one, and takes it."""
        await self.wait(Until(UntilKind.STATUS, to, id))
        return self.sock.wait_op(to, id, 0)

    async def rdma_read(self, to: AddrLike, op: RDMA) -> None:
        """Reads without a message, and waits for the end. Raises OperationFailed, or the error of rds_reach if the host is
        not reached. After a cancellation the operation goes on, and its memory is in use until sock.barrier_all returns."""
        await self._transfer("RDMA read", to, replace(op, write=False))

    async def rdma_write(self, to: AddrLike, op: RDMA) -> None:
        """Writes without a message, and waits for the end, as rdma_read does."""
        await self._transfer("RDMA write", to, replace(op, write=True))

    async def _transfer(self, what: str, to: AddrLike, op: RDMA) -> None:
        await self._run(what, Message(addr=to, op=replace(op, notify=True, report=False, silent=True)), lambda: None)

    async def atomic(self, to: AddrLike, atomic: Atomic) -> int:
        """Runs an atomic operation without a message, and returns the value before. A cancellation is as in rdma_read."""
        client = self.sock.client
        local = atomic.local or client._word()

        def free() -> int:
            old = int.from_bytes(local.buffer.mem[local.off:local.off + 8], sys.byteorder)
            if not atomic.local:
                client._words.append(local)
            return old

        return await self._run("atomic", Message(addr=to, atomic=replace(atomic, local=local, notify=True, report=False, silent=True)), free)

    async def _run(self, what: str, m: Message, free: Callable[[], T]) -> T:
        """Sends m, which has one operation, and waits for its end. It returns what free returns, which is called once the
        operation uses its memory no more, also after a cancellation."""
        assert m.addr is not None
        try:
            self._reach(what, m.addr)
            await self.send(m)
        except BaseException:
            with suppress(Exception):
                free()
            raise
        end = self._loop.create_task(self._settled(what, m, free))
        end.add_done_callback(lambda _: end.cancelled() or end.exception())  # that is no news if this task has gone
        got, done = await asyncio.shield(end)
        if done.status is not Status.SUCCESS:
            raise failed(what, done)
        return got

    def _reach(self, what: str, to: AddrLike) -> None:
        why = lib.rds_reach(self.sock._h, to_c(to))
        if why < 0:
            raise error(what, -why)

    async def _settled(self, what: str, m: Message, free: Callable[[], T]) -> tuple[T, Completion]:
        to, id = m.addr, m.op_id or m.atomic_id
        assert to is not None
        end, why = Until(UntilKind.OP, to, id), None
        while True:
            await self._wait(False, end, Until(UntilKind.UNREACHABLE, to))
            if self.sock.wait(end, timeout=0):
                break
            try:
                self._reach(what, to)  # raises nothing if the host has been reached since, and may be lost again
            except Error as e:
                why = e
                with suppress(Error):  # the status says what became of it
                    call(what, lib.rds_withdraw, self.sock._h, to_c(to), id)
                await self._wait(False, end)
                break
        got = free()
        await self._wait(False, Until(UntilKind.STATUS, to, id))
        done = self.sock.wait_op(to, id, 0)
        if why and done.status is Status.DROPPED:
            raise why
        return got, done

    async def close_wait(self, timeout: Optional[float] = None) -> None:
        """Is Socket.close_wait, in a thread. Tasks that wait raise Closed. After a cancellation the thread goes on until
        all is acknowledged, the timeout has passed or the client is closed."""
        self._end(error("wait", errno.EBADF))
        closed: Future[None] = Future()
        closed.set_running_or_notify_cancel()  # a cancellation of the task leaves it

        def close() -> None:
            try:
                self.sock.close_wait(timeout)
            except BaseException as e:
                closed.set_exception(e)
            else:
                closed.set_result(None)

        threading.Thread(target=close, name="rds close_wait", daemon=True).start()  # the end of the program does not wait for it
        await asyncio.wrap_future(closed)

    def close(self) -> None:
        """Closes the socket. Tasks that wait raise Closed."""
        self._end(error("wait", errno.EBADF))
        self.sock.close()

    async def __aenter__(self) -> AsyncSocket:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end(error("wait", errno.EBADF))
        self.sock.__exit__()


def _polled(u: Condition) -> Until:
    """A condition as Socket.polled returns it."""
    kind, addr, id = u if isinstance(u, Until) else (u, None, 0)
    return Until(UntilKind(kind), None if addr is None else from_c(to_c(addr)), id)
