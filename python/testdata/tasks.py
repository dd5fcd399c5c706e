"""What tasks of an event loop do with sockets, and what goes wrong for them.

    python3 tasks.py SOCKET ADDRESS
"""
import asyncio
import errno
import gc
import os
import sys
import threading

import rds
import rds.aio
from rds import Access, Message, RDMA, Segment, Until, UntilKind

path, host = sys.argv[1:]
os.environ["RDSD_SOCKET"] = path


async def many_waits():
    """Tasks wait for more conditions than one look returns, and for addresses as a program writes them."""
    with rds.Client() as c, c.bind(f"{host}:0") as sock:
        sock.poll_set(*(Until(UntilKind.SEND_TO, (host, port)) for port in range(1, 101)))
        assert len(sock.polled()) == 64 and len(sock.polled(200)) == 100
        looks, polled, s = [], sock.polled, rds.AsyncSocket(sock)

        def look():
            looks.append(1)
            if len(looks) > 3:
                raise AssertionError("the event loop is kept busy")
            return polled()

        sock.polled = look
        chosen, poll_set = [], sock.poll_set
        sock.poll_set = lambda *conditions: (chosen.extend(conditions), poll_set(*conditions))
        await asyncio.gather(*(s.wait(Until(UntilKind.SEND_TO, (host, port))) for port in range(1, 101)))
        assert len(chosen) < 400, "each wait tells the library of all others"
        for to in (f"::ffff:{host}", f"[::ffff:{host}]:5", "[2001:DB8:0::1]:5"):
            looks.clear()
            await s.wait(Until(UntilKind.SEND_TO, to))


async def tasks():
    with rds.Client() as c:
        async with rds.AsyncSocket(c.bind(f"{host}:0")) as s, rds.AsyncSocket(c.bind(f"{host}:0")) as t:
            async def echo():
                while True:
                    m = await t.recv()
                    await t.send_to(m.payload, m.addr)

            server = asyncio.create_task(echo())
            for size in (3, 100_000):
                sends = asyncio.create_task(s.send_batch([Message(bytes(size), t.sock.local) for _ in range(60)]))
                got = []
                while len(got) < 60:
                    got += await s.recv_batch()
                await sends
                assert all(len(m.payload) == size for m in got)
            try:
                await asyncio.wait_for(s.recv(), 0.01)
                raise AssertionError("received nothing")
            except asyncio.TimeoutError as e:
                while e:
                    assert not isinstance(e, rds.WouldBlock), "a time-out shows how a task waits"
                    e = e.__cause__ or e.__context__
            ran = []
            asyncio.get_running_loop().call_soon(ran.append, 1)
            for _ in range(64):
                await s.send_to(b"", s.sock.local)
            assert ran, "a task that sends keeps the loop"
            b = c.alloc(4096)
            r = t.sock.register(b, Access.WRITE)
            r.expose(s.sock.local)
            m = Message(addr=t.sock.local, op=RDMA(r.cookie, [Segment(c.alloc(64), 0, 64)], write=True, notify=True, silent=True))
            await s.send(m)
            assert (await s.wait_op(t.sock.local, m.op_id)).status is rds.Status.SUCCESS
            for _ in range(64):
                await s.recv()
            task = asyncio.create_task(s.recv())
            await asyncio.sleep(0)
            s.sock.wake()
            try:
                await task
                raise AssertionError("a task was not woken")
            except rds.Woken:
                pass
            two = [asyncio.create_task(s.recv()), asyncio.create_task(s.wait(Until(UntilKind.NOTICE)))]
            await asyncio.sleep(0)
            s.close()
            for task in two:
                try:
                    await task
                    raise AssertionError("a wait survived the close")
                except rds.Closed:
                    pass
            server.cancel()


async def raises(kind, awaitable):
    try:
        await awaitable
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


async def withdrawn(u, nobody, op):
    """A host that is reached when a task looks, and not any more after that; a signal during the withdrawal."""
    lib, reach, looks, withdrawals = rds.aio.lib, u._reach, [], []

    class Interrupted:
        def __getattr__(self, name):
            return getattr(lib, name)

        def rds_withdraw(self, *args):
            withdrawals.append(1)
            return lib.rds_withdraw(*args) if len(withdrawals) > 1 else -errno.EINTR

    def reached(*args):
        looks.append(1)
        if len(looks) > 2:
            reach(*args)

    rds.aio.lib, u._reach = Interrupted(), reached
    try:
        e = await raises(rds.Error, asyncio.wait_for(u.rdma_read(nobody, op), 60))
        assert e.errno == errno.ECONNREFUSED and len(withdrawals) == 2, (e, looks, withdrawals)
    finally:
        rds.aio.lib, u._reach = lib, reach


async def operations():
    """Operations of tasks, of tasks that were cancelled too, and closes that wait."""
    logged = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    with rds.Client() as c:
        s, t = rds.AsyncSocket(c.bind(f"{host}:0")), rds.AsyncSocket(c.bind(f"{host}:0"))
        to, b, mine = (host, t.sock.local.port), c.alloc(4096), c.alloc(64)
        b.mem[:8] = b"original"
        r = t.sock.register(b, Access.READ | Access.WRITE | Access.ATOMIC)
        op, add = RDMA(r.cookie, [Segment(mine, 0, 64)]), rds.Atomic(r.cookie, 8, add=1)
        e = await raises(rds.OperationFailed, s.rdma_read(to, op))
        assert "RDMA read: remote error: " in str(e) and "the region is not granted" in str(e) and e.completion.text in str(e)
        r.expose(s.sock.local)
        await s.rdma_read(to, op)
        assert mine.mem[:8] == b"original"
        mine.mem[8:16] = (7).to_bytes(8, sys.byteorder)
        await s.rdma_write(to, op)
        assert sorted(await asyncio.gather(*(s.atomic(to, add) for _ in range(100)))) == list(range(7, 107))
        words = len(c._words)
        assert await s.atomic(to, rds.Atomic(r.cookie, 8, Segment(mine, 0, 8), add=1)) == 107 and mine.mem[0] == 107
        await raises(TypeError, s.atomic(to, rds.Atomic(r.cookie, local=b)))
        await raises(rds.Invalid, s.atomic("nobody", add))
        gone = [asyncio.create_task(s.atomic(to, add)), asyncio.create_task(s.rdma_write(to, op))]
        await asyncio.sleep(0)
        assert [task.cancel() for task in gone] == [True, True] and len(c._words) == words - 1
        await asyncio.wait(gone)
        await s.rdma_read(to, op)  # ends behind them
        assert s.sock.completions() == [] and len(c._words) == words
        nobody = f"{host.rpartition('.')[0]}.250:9"
        run = asyncio.create_task(s.rdma_read(nobody, op))
        waits = asyncio.create_task(s.recv())
        await asyncio.sleep(0)
        s.sock.wake()
        await raises(rds.Woken, waits)
        s.sock.wake()
        await raises(rds.Woken, s.recv())
        s.sock.cancel(nobody)
        assert (await raises(rds.Error, run)).errno in (errno.ECANCELED, errno.ECONNREFUSED)  # whichever comes first
        async with rds.AsyncSocket(c.bind(f"{host}:0")) as u:
            run = asyncio.create_task(u.rdma_read(nobody, op))
            for _ in range(3):
                await asyncio.sleep(0)
            run.cancel()
            await raises(asyncio.CancelledError, run)
            for why, at in ((errno.ECONNREFUSED, nobody), (errno.EACCES, "192.0.2.1:9")):
                for _ in range(3):
                    words = len(c._words)
                    for do in (u.rdma_read(at, op), u.rdma_write(at, op), u.atomic(at, add)):
                        assert (await raises(rds.Error, do)).errno == why
                    assert len(c._words) == words and u.sock.completions() == []
                    for call in (u.sock.rdma_read, u.sock.rdma_write, u.sock.atomic):
                        try:
                            call(at, add if call == u.sock.atomic else op)
                            raise AssertionError("an operation has run")
                        except rds.Error as e:
                            assert e.errno == why, e
        async with rds.AsyncSocket(c.bind(f"{host}:0")) as u:
            await withdrawn(u, nobody, op)
        await s.send_to(b"", f"{host}:9")
        waits = asyncio.create_task(s.recv())
        await asyncio.sleep(0)
        e = await raises(rds.Error, s.close_wait(10))
        assert f"close: not delivered to {host}:9: no socket (messages: 1)" in str(e)
        await raises(rds.Closed, waits)
        await raises(rds.Closed, s.close_wait())
        await raises(rds.Closed, s.rdma_read(to, op))
        closing = asyncio.create_task(t.close_wait())
        await asyncio.sleep(0)
        closing.cancel()
        await raises(asyncio.CancelledError, closing)
    for thread in threading.enumerate():
        assert thread is threading.current_thread() or thread.join(10) or not thread.is_alive()
    gc.collect()
    assert not logged, logged


for test in (many_waits, tasks, operations):
    asyncio.run(test())
print("ok")
