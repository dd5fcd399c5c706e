"""What goes wrong in a program: each mistake is an error that names it, and none ends the process.

    python3 bad.py SOCKET ADDRESS
"""
import errno
import gc
import mmap
import os
import signal
import sys
import threading
import weakref
from multiprocessing.shared_memory import SharedMemory

import numpy as np

import rds
from rds import Access, Message, Option, RDMA, Segment, UntilKind

path, host = sys.argv[1:]
os.environ["RDSD_SOCKET"] = path


def fails(kind, function, *args, text="", **kw):
    try:
        function(*args, **kw)
    except kind as e:
        assert text in str(e), (text, str(e))
        if isinstance(e, rds.Error):
            assert e.errno and e.strerror, e
        return e
    raise AssertionError(f"{function} did not raise {kind}")


def open_and_bind():
    fails(rds.NoDaemon, rds.Client, "/does/not/exist", text="open: no RDS daemon answers at /does/not/exist: start rdsd")
    fails(rds.Error, rds.Client, "@", text="open: an argument")
    fails(TypeError, rds.Client, path, slot=3, text="slot")
    fails(TypeError, rds.Client, 7)
    fails(ValueError, rds.Client, wait="never", text="never")
    fails(OverflowError, rds.Client, slots=-1)
    with rds.Client() as c:
        fails(rds.Invalid, c.bind, "localhost:0", text="address 'localhost:0': want an IP address with or without a port; names are not looked up")
        fails(TypeError, c.bind, 4000)
        fails(rds.Error, c.bind, "203.0.113.1:0", text="203.0.113.1")
        s = c.bind((host, 0))
        assert fails(rds.Error, c.bind, s.local).errno == errno.EADDRINUSE
        assert rds.Addr(str(s.local)) == s.local and s.local.ip == host and len({s.local, rds.Addr(str(s.local))}) == 1
        fails(OverflowError, rds.Addr, (host, 70000))
    fails(rds.Closed, c.bind, host)
    fails(rds.Closed, c.close)
    fails(rds.Closed, s.recv)
    assert isinstance(c.error(), rds.Closed)


def messages():
    with rds.Client() as c, c.bind(f"{host}:0") as s, c.bind(f"{host}:0") as t:
        for bad in ("text", 5, None, memoryview(bytes(64))[::2], np.zeros((4, 4))[:, 1]):
            fails((TypeError, BufferError, ValueError), s.send_to, bad, t.local)
        fails(TypeError, s.send, b"not a Message")
        fails(rds.MessageTooLong, s.send_to, bytes(rds.MAX_MESSAGE + 1), t.local)
        fails(rds.Error, s.send_to, b"x")
        fails(rds.WouldBlock, t.recv, dontwait=True)
        fails(BlockingIOError, t.recv, dontwait=True)
        fails(ValueError, t.recv_batch, 0)
        fails(ValueError, t.recv, -1)
        fails(ValueError, t.wait, UntilKind.MESSAGE, timeout=-1)
        fails(ValueError, t.wait, 77)
        fails(TypeError, rds.wait, [("socket", UntilKind.MESSAGE)])
        fails(rds.Invalid, rds.wait, [])
        fails(TypeError, c.rebind, c)
        fails(rds.Invalid, c.rebind, s)
        with rds.Client() as other, other.bind(f"{host}:0") as far:
            fails(rds.Invalid, rds.wait, [(far, UntilKind.MESSAGE), (s, UntilKind.MESSAGE)], 0)
        fails(TypeError, s.send_batch_to, bytes(64), t.local)
        s.send_to(b"x" * 100, t.local)
        fails((TypeError, BufferError), t.recv_into, bytes(100))
        got = bytearray(40)
        m = t.recv_into(got)
        assert (len(m.payload), m.len, m.addr, m.src_inc) == (40, 100, s.local, s.incarnation) and m.payload.obj is got
        s.send_batch_to(np.arange(24, dtype=np.uint16).reshape(3, 8), t.local)
        s.send_batch_to([b"", np.arange(3, dtype=np.float64), bytearray(2)], t.local)
        got = [t.recv().payload for _ in range(6)]
        assert [len(g) for g in got] == [16, 16, 16, 0, 24, 2] and np.frombuffer(got[2], np.uint16)[-1] == 23
        s.set_option(Option.SNDTIMEO, 50)
        fails(rds.TimedOut, lambda: [s.send_to(bytes(100_000), t.local) for _ in range(100)])
        t.set_option(Option.RCVTIMEO, 10)
        fails(TimeoutError, lambda: [t.recv() for _ in range(100)])
        fails(ValueError, t.set_option, 99, 1)
        s.send_to(b"", f"{host}:9")
        e = fails(rds.Error, s.close_wait, 10, text=f"close: not delivered to {host}:9: no socket (messages: 1)")
        fails(rds.Closed, s.close, text="was closed")
        assert e.errno == errno.ECONNREFUSED and s.notices()[0].kind is rds.NoticeKind.NO_SOCKET


def closed_while_waiting():
    with rds.Client() as c:
        s = c.bind(f"{host}:0")
        errors = []
        threads = [threading.Thread(target=lambda: errors.append(fails(rds.Closed, s.recv))) for _ in range(4)]
        for t in threads:
            t.start()
        s.close()
        for t in threads:
            t.join()
        assert len(errors) == 4


def woken():
    with rds.Client() as c, c.bind(f"{host}:0") as s:
        for wake, wait in ((s.wake, s.recv), (c.wake, s.recv), (s.wake, s.polled), (c.wake, lambda: s.wait(UntilKind.MESSAGE))):
            thread = threading.Thread(target=wake)
            thread.start()
            if wait == s.polled:
                thread.join()
            assert fails(rds.Woken, wait).errno == errno.ECANCELED
            thread.join()
        fails(rds.WouldBlock, s.recv, dontwait=True)
        assert s.polled() == []
    fails(rds.Closed, s.wake)
    fails(rds.Closed, c.wake)


def views():
    """A view outlives its buffer, its region, its client and the handles' collection."""
    c = rds.Client()
    s, t = c.bind(f"{host}:0"), c.bind(f"{host}:0")
    fails(rds.Invalid, c.alloc, 0)
    fails(rds.Invalid, c.alloc, 1 << 41)
    b = c.alloc(100_000)
    a = np.frombuffer(b.mem, np.uint64)
    fails((TypeError, ValueError), s.register, "memory", Access.READ)
    assert fails(rds.Invalid, s.register, b, Access.READ, 99_999, 2)
    assert fails(rds.Invalid, s.register, b, 0)
    fails(OverflowError, s.register, b, Access.READ, 100_001)
    r = s.register(b, Access.READ | Access.WRITE | Access.ATOMIC)
    assert fails(rds.Error, b.close).errno == errno.EBUSY
    a[:] = 7
    with r:
        r.expose(s.local)
        other = c.alloc(64)
        assert s.rdma_read(s.local, RDMA(r.cookie, [Segment(other, 0, 64)]), 10) is None
        assert bytes(other.mem) == bytes(a[:8].tobytes())
        assert s.atomic(s.local, rds.Atomic(r.cookie, 8, add=5), 10) == 7 and a[1] == 12
        e = fails(rds.OperationFailed, s.rdma_write, s.local, RDMA(12345, [Segment(other, 0, 64)]), 10, text="RDMA write")
        assert e.completion.status is rds.Status.REMOTE_ERROR
        for sock, cookie, off, text in ((s, 12345, 0, "the cookie is of no region"), (t, r.cookie, 0, "is not granted to this socket's port"),
                                        (s, r.cookie, 100_000, "beyond the end of the region")):
            op = RDMA(cookie, [Segment(other, 0, 64)], off)
            assert str(fails(rds.OperationFailed, sock.rdma_read, s.local, op, 10, text=text)).startswith("[Errno 5] RDMA read: remote error: ")
        fails(TypeError, s.rdma_read, s.local, RDMA(r.cookie, [other]))
        fails(TypeError, s.rdma_read, s.local, "op")
        fails(rds.Invalid, s.rdma_read, s.local, RDMA(r.cookie, [Segment(other, 60, 64)]), 10)
        fails(rds.Invalid, s.rdma_read, s.local, RDMA(r.cookie, []), 10)
    fails(rds.Closed, r.release)
    b.close()
    fails(rds.Closed, lambda: b.mem)
    fails(rds.Closed, b.close)
    a[0] = 1
    keep = c.alloc(4096)
    view = keep.mem
    c.close()
    view[0], a[-1] = 3, 4
    fails(rds.Closed, lambda: keep.mem)
    gone = weakref.ref(c)
    del c, s, t, b, r, other, keep, e, sock, op
    gc.collect()
    assert gone() is None and view[0] == 3 and a[-1] == 4


def adopted():
    with rds.Client() as c, c.bind(f"{host}:0") as s, c.bind(f"{host}:0") as t:
        fails((TypeError, BufferError), c.adopt, b"only to be read")
        fails((TypeError, BufferError, ValueError), c.adopt, np.zeros((8, 8))[:, 1])
        fails(rds.Error, c.adopt, mmap.mmap(-1, 4096))  # shared memory
        fails(rds.Error, c.adopt, bytearray())
        a, small = np.arange(100_000, dtype=np.uint32), bytearray(b"grows not")
        b, g = c.adopt(a), c.adopt(small)
        assert b.adopted and len(b) == a.nbytes
        fails(BufferError, small.extend, b" now")
        r = s.register(b, Access.READ)
        got = np.zeros_like(a)
        with c.adopt(got) as local:
            t.rdma_read(s.local, RDMA(r.cookie, [Segment(local, 0, got.nbytes)]), 10) if r.expose(t.local) is None else None
        assert (got == a).all()
        r.release()
        kept = weakref.ref(a)
        view = b.mem
        del a
        assert kept() is not None
        b.close()
        assert view[4] == 1
        g.close()
        small.extend(b" now")
        left = c.adopt(np.ones(5000))  # never closed
        del left
    assert kept() is not None
    del view, b
    gc.collect()
    assert kept() is None


def in_place():
    """Memory that others have, too: SharedMemory, and a numpy array in an mmap that begins inside a file."""
    size = 4 * mmap.PAGESIZE
    shared = SharedMemory(create=True, size=size)
    fd = os.memfd_create("in-place")
    os.truncate(fd, size)
    with rds.Client() as c, c.bind(f"{host}:0") as s, c.bind(f"{host}:0") as t:
        mapping = mmap.mmap(fd, size - mmap.PAGESIZE, offset=mmap.PAGESIZE)
        a = np.frombuffer(mapping, np.uint32)[5:]
        fails(rds.Error, c.import_at, a, fd, mmap.PAGESIZE)  # it is at 20 bytes more
        fails(rds.Error, c.import_at, a, shared._fd, mmap.PAGESIZE + 20)
        fails(rds.Error, c.import_at, np.zeros(5000), fd, 0)
        fails((TypeError, BufferError), c.import_at, b"only to be read", fd, 0)
        with c.import_at(a, fd, mmap.PAGESIZE + 20) as mine, c.import_at(shared.buf, shared._fd, 0) as theirs:
            assert len(mine) == a.nbytes and not mine.adopted
            shared.buf[7:11] = b"seen"
            r = s.register(theirs, Access.READ)
            r.expose(t.local)
            t.rdma_read(s.local, RDMA(r.cookie, [Segment(mine, 4, 11)]), 10)
            fails(BufferError, mapping.close)
            r.release()
        assert os.pread(fd, 4, mmap.PAGESIZE + 20 + 4 + 7) == b"seen" and a.tobytes()[11:15] == b"seen"
    os.close(fd)
    gc.collect()
    shared.close()
    shared.unlink()


def zero_copy():
    with rds.Client() as c, c.bind(f"{host}:0") as s, c.bind(f"{host}:0") as t:
        b = c.alloc(8192)
        b.mem[:5] = b"whole"
        s.send(Message(addr=t.local, from_=Segment(b, 0, 5), zero_copy_cookie=4))
        fails(ValueError, s.send, Message(b"both", t.local, from_=Segment(b, 0, 5)))
        m = t.recv()
        assert m.payload == b"whole" and m.time_ns > 1e18
        s.wait(UntilKind.ZERO_COPY, timeout=10)
        assert s.zero_copy_done() == [4]


def signals():
    """A handler that raises ends a wait, and one that does not lets it go on."""
    class Alarm(Exception):
        pass

    calls = []

    def handler(*_):
        calls.append(1)
        if len(calls) == 3:
            raise Alarm

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    with rds.Client() as c, c.bind(f"{host}:0") as s:
        fails(Alarm, s.recv)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        assert s.wait(UntilKind.MESSAGE, timeout=0.1) == []
        s.send_to(b"", f"{host.rpartition('.')[0]}.250:9")
        fails(rds.TimedOut, s.close_wait, 0.1)
        fails(rds.Closed, s.close_wait)
        signal.setitimer(signal.ITIMER_REAL, 0)


def signals_ahead():
    """A signal that interrupts no wait, because it came before: here another thread gets it."""
    class Alarm(Exception):
        pass

    def handler(*_):
        raise Alarm

    def other():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        while not stop.wait(0.01):
            os.kill(os.getpid(), signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    with rds.Client() as c, c.bind(f"{host}:0") as s, c.bind(f"{host}:0") as t:
        nowhere = f"{host.rpartition('.')[0]}.250:9"
        s.send_to(b"", nowhere)
        for wait in (t.recv, lambda: t.wait(UntilKind.MESSAGE), lambda: rds.wait([(t, UntilKind.MESSAGE)], timeout=60), s.close_wait):
            stop = threading.Event()
            thread = threading.Thread(target=other)
            try:
                thread.start()
                fails(Alarm, wait)
            finally:
                stop.set()
                while True:
                    try:
                        thread.join()
                        break
                    except Alarm:
                        pass
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def forked():
    with rds.Client() as c, c.bind(f"{host}:0") as s:
        to = s.local
        if (child := os.fork()) == 0:
            code = 1
            try:
                fails(rds.Forked, s.recv)
                fails(rds.Forked, c.alloc, 100)
                with rds.Client() as mine, mine.bind(f"{host}:0") as t:
                    t.send_to(b"from the child", to)
                    t.close_wait(10)
                code = 0
            finally:
                os._exit(code)
        assert s.recv().payload == b"from the child"
        assert os.waitpid(child, 0)[1] == 0


for test in (open_and_bind, messages, closed_while_waiting, woken, views, adopted, in_place, zero_copy, signals, signals_ahead, forked):
    test()
print("ok")
