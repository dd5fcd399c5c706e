"""Carries out the commands of a script of librds/testdata/conformance with package rds. librds/tests/driver.c does the
same in C, and has the commands' arguments."""
import errno
import fcntl
import os
import select
import sys
import time

import rds
from rds import Option, Until, UntilKind

things = {}  # clients, sockets, buffers and regions of the script
last_inc = 0
refusal = ""
ERRNOS = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}
OPTIONS = {o.name.lower().replace("_", ""): o for o in Option}
CONDITIONS = {k.name.lower().replace("_", ""): k for k in UntilKind} | {"space": UntilKind.SEND_SPACE}
COMMANDS = {}

def command(function):
    COMMANDS[function.__name__.rstrip("_")] = function
    return function

def number(text):
    return min(int(text, 0), 2**63 - 1)  # as strtoll does

def address(text):
    return None if text == "-" else rds.Addr(text)

def addr_text(a):
    return "-" if a is None else str(a)

def host_text(a):
    return addr_text(a and rds.Addr((a.ip, 0)))

def payload(word):
    if not word.startswith("#"):
        return word.encode()
    return bytes(ord("a") + i % 26 for i in range(int(word[1:])))

def bytes_text(b):
    if len(b) <= 64:
        return bytes(b).decode()
    total = 0
    for c in b:
        total = (total * 31 + c) & 0xFFFFFFFF
    return f"{len(b)} bytes {total}"

def msg_text(m):
    n = len(m.payload)
    return (f"[{bytes_text(m.payload)}] from {addr_text(m.addr)} n {n} len {m.len}" + " truncated" * (n < m.len) + " cookie" * bool(m.cookie)
            + " inc" * bool(m.src_inc) + (" of " + m.traceparent if m.traceparent else ""))

def named(words, name):
    return next((w[len(name) + 1:] for w in words if w.startswith(name + "=")), None)

def limits(words):
    inc, ms = named(words, "inc"), named(words, "giveup")
    return {"dst_inc": last_inc if inc == "last" else int(inc or 0), "give_up_after": int(ms) / 1000 if ms else None}

def cookie(word):
    try:
        return int(word, 0)
    except ValueError:
        return things[word].cookie if word in things else 0

def flags(words):
    return {f: f in words or "both" in words and f != "report" for f in ("notify", "report", "silent")}

def keep(name, thing):
    things[name] = thing

@command
def open_(name, path, slots="0"):
    keep(name, rds.Client(path, timeout=10, slots=number(slots)))

@command
def error(name, wait="0"):
    for _ in range(1000 if number(wait) else 1):
        if e := things[name].error():
            raise e
        time.sleep(0.01 if number(wait) else 0)

@command
def closeclient(name):
    things[name].close()

@command
def bind(name, client, addr):
    global refusal
    refusal = ""
    try:
        sock = things[client].bind(addr)
    except rds.Error as e:
        refusal = e.strerror.removeprefix("bind: ")
        raise
    sock.set_option(Option.RCVTIMEO, 10000)  # a message that does not come is an answer, too
    keep(name, sock)

@command
def refusal_():
    return refusal

@command
def addrs(name):
    return "".join(f" {a}" for a in things[name].addrs())

@command
def local(sock):
    return addr_text(things[sock].local)

@command
def connect(sock, to):
    things[sock].connect(to)

@command
def close(sock):
    things[sock].close()

@command
def closewait(sock, ms):
    global refusal
    refusal = ""
    try:
        things[sock].close_wait(int(ms) / 1000)
    except rds.Error as e:
        refusal = e.strerror.removeprefix("close: ")
        raise

@command
def set_(sock, option, value):
    things[sock].set_option(OPTIONS[option], number(value))

@command
def get(sock, option):
    return things[sock].get_option(OPTIONS[option])

@command
def send(sock, to, text, *how):
    data = payload(text)
    things[sock].send_to(data, address(to), dontwait="dontwait" in how)
    return len(data)

@command
def fill(sock, to, text):
    data = payload(text)
    for _ in range(100000):
        try:
            things[sock].send_to(data, to, dontwait=True)
        except rds.WouldBlock:
            time.sleep(0.001)
    return "not congested"

@command
def sendmsgs(sock, to, *texts):
    return things[sock].send_batch_to([payload(t) for t in texts], address(to))

@command
def recv(sock, size="0", *how):
    global last_inc
    if size in ("dontwait", "peek"):
        size, how = "0", (size, *how)
    m = things[sock].recv(number(size) or rds.MAX_MESSAGE, dontwait="dontwait" in how, peek="peek" in how)
    last_inc = m.src_inc
    return msg_text(m)

@command
def recvall(sock, count):
    text, want = "", int(count)
    while want > 0:
        got = things[sock].recv_batch(want)
        want -= len(got)
        text += "".join(map(msg_text, got))
    return text

@command
def drain(sock):
    while things[sock].wait(UntilKind.MESSAGE, timeout=0.1):
        things[sock].recv(dontwait=True)

@command
def cancel(sock, to):
    things[sock].cancel(to)

@command
def closedest(sock, to):
    things[sock].close_dest(to)

@command
def alloc(name, client, size):
    keep(name, things[client].alloc(number(size)))

@command
def import_(name, client, size, seals, off, length):
    if seals == "file":
        fd = os.open("/dev/null", os.O_RDWR)
    else:
        fd = os.memfd_create("conformance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, number(size))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, number(seals))
    try:
        keep(name, things[client].import_(fd, number(off) & 2**64 - 1, number(length)))
    finally:
        os.close(fd)

@command
def poke(name, off, text):
    try:
        mem = things[name].mem
    except rds.Closed:
        return "gone"
    data = payload(text)
    mem[number(off):number(off) + len(data)] = data

@command
def show(name, off, length):
    try:
        return bytes_text(things[name].mem[number(off):number(off) + number(length)])
    except rds.Closed:
        return "gone"

@command
def free(name):
    things[name].close()

@command
def freewait(name, ms):
    things[name].close(wait=True, timeout=int(ms) / 1000)

@command
def register(name, sock, buf, off, size, rights):
    keep(name, things[sock].register(things[buf], number(rights), number(off), number(size)))

@command
def expose(region, peer):
    if peer == "-":
        things[region].expose_to_all()
    else:
        things[region].expose(peer)

@command
def release(region):
    things[region].release(10)

@command
def sendcookie(sock, to, region, text):
    things[sock].send(rds.Message(text.encode(), address(to), cookie=cookie(region)))

@command
def sendfrom(sock, to, buf, off, size, zc):
    things[sock].send(rds.Message(addr=address(to), from_=rds.Segment(things[buf], number(off), number(size)), zero_copy_cookie=number(zc)))

@command
def zcdone(sock):
    c = things[sock].zero_copy_done(16)
    return " ".join([f"{len(c)}:", *map(str, c)])

@command
def rdma(sock, to, kind, region, roff, buf, off, size, count, text, *how):
    off, size, count = number(off), number(size), number(count)
    each = size // count if count else 0
    local = [rds.Segment(things[buf], off + i * each, each if i + 1 < count else size - i * each) for i in range(count)]
    op = rds.RDMA(cookie(region), local, number(roff), kind != "read", 77, owner_only="owner" in how, **flags(how))
    m = rds.Message(b"" if text == "-" else text.encode(), address(to), op=op)
    things[sock].send(m)
    return f"op {m.op_id}"

def atomic_of(kind, region, roff, a, b="0"):
    a, b = number(a) & 2**64 - 1, number(b) & 2**64 - 1
    if kind == "fadd":
        return rds.Atomic(cookie(region), number(roff), add=a, token=88)
    return rds.Atomic(cookie(region), number(roff), cmp_swap=True, compare=a, swap=b, token=88)

@command
def atomic(sock, to, kind, region, roff, a, b, buf, off, size, *how):
    op = atomic_of(kind, region, roff, a, b)
    op.local = rds.Segment(things[buf], number(off), number(size))
    for flag, on in flags(how).items():
        setattr(op, flag, on)
    m = rds.Message(addr=address(to), atomic=op)
    things[sock].send(m)
    return f"op {m.atomic_id}"

@command
def transfer(sock, to, kind, region, roff, buf, off, size, *how):
    op = rds.RDMA(cookie(region), [rds.Segment(things[buf], number(off), number(size))], number(roff), owner_only="owner" in how)
    (things[sock].rdma_read if kind == "read" else things[sock].rdma_write)(to, op, 10)

@command
def fadd(sock, to, _, *words):
    return f"old {things[sock].atomic(to, atomic_of('fadd', *words), 10)}"

@command
def cas(sock, to, _, *words):
    return f"old {things[sock].atomic(to, atomic_of('cas', *words), 10)}"

@command
def masked(sock, to, kind, region, roff, a, b, m1, m2):
    op = atomic_of(kind, region, roff, a, b)
    setattr(op, "no_carry" if kind == "fadd" else "compare_mask", int(m1, 0))
    if m2 != "-":
        op.masked, op.swap_mask = True, int(m2, 0)
    return f"old {things[sock].atomic(to, op, 10):#x}"

@command
def two(sock, to, region, roff, buf, off, size, aoff, add, text, write_flag, atomic_flag, *how):
    op = rds.RDMA(cookie(region), [rds.Segment(things[buf], number(off), number(size))], number(roff), True, 1, **flags([write_flag]))
    a = rds.Atomic(cookie(region), number(aoff), rds.Segment(things[buf], 0, 8), add=number(add), token=2, **flags([atomic_flag]))
    m = rds.Message(b"" if text == "-" else text.encode(), address(to), op=op, atomic=a, **limits(how))
    things[sock].send(m)
    return f"op {m.op_id} atomic {m.atomic_id}"

@command
def sendmsg(sock, to, text, *how):
    token, region = named(how, "notify"), named(how, "cookie")
    things[sock].send(rds.Message(payload(text), address(to), **limits(how), cookie=cookie(region) if region else 0, notify=token is not None,
                                  token=int(token or "0", 0), traceparent=named(how, "trace") or ""), dontwait="dontwait" in how)

@command
def hwm(sock, to):
    return things[sock].hwm(to)

@command
def barrier(sock, to, id):
    things[sock].barrier(to, number(id), 10)

@command
def barrierall(sock):
    things[sock].barrier_all(10)

def completion_text(c):
    return f"token {c.token} id {c.id} {host_text(c.to)} {c.status.name.lower().replace('_', ' ')} {ERRNOS[c.errno] if c.errno else '-'}"

@command
def waitop(sock, to, id):
    return completion_text(things[sock].wait_op(to, number(id), 10))

@command
def completions(sock):
    c = things[sock].completions(16)
    return " ".join([f"{len(c)}:", *map(completion_text, c)])

@command
def notices(sock):
    ns = things[sock].notices(16)
    return " ".join([f"{len(ns)}:", *(f"{n.kind.name.lower().replace('_', ' ')} {addr_text(n.to)} {n.count} reason {int(n.reason)}" for n in ns)])

@command
def cong(sock):
    return hex(things[sock].cong_updates())

def untils(words):
    for w in words:
        name, _, arg = w.partition("=")
        at, _, id = arg.partition("/")
        yield Until(CONDITIONS[name], address(at) if at else None, int(id or "0", 0))

def ready(us):
    names = {k: n for n, k in CONDITIONS.items() if n != "sendspace"}
    return " ".join(["ready:", *(names[u.kind] for u in us)])

@command
def wait(sock, ms, *conditions):
    return ready(things[sock].wait(*untils(conditions), timeout=int(ms) / 1000))

@command
def pollset(sock, *conditions):
    things[sock].poll_set(*untils(conditions))

@command
def polled(sock):
    return ready(things[sock].polled())

@command
def fd(sock, ms):
    return "readable" if select.select([things[sock]], [], [], int(ms) / 1000)[0] else "not readable"

@command
def reopen(new, old, ms):
    keep(new, things[old].reopen(int(ms) / 1000))

@command
def rebind(new, client, old):
    keep(new, things[client].rebind(things[old]))


for line in sys.stdin:
    name, *words = line.split()
    try:
        answer = COMMANDS[name](*words) if name in COMMANDS else f"no command {name}"
    except OSError as e:
        answer = f"error {ERRNOS.get(e.errno, e.errno)}"
    print("ok" if answer is None else answer, flush=True)
