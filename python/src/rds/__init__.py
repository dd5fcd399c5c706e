"""Reliable, ordered datagrams and RDMA through rdsd, the daemon of this host.

    with rds.Client() as client, client.bind("10.0.0.1:4000") as sock:
        sock.send_to(b"hello", "10.0.0.2:4000")
        message = sock.recv()

It is librds for Python, in the same words: docs/librds.md says what differs between the C library and package rds
of Go, and its headers what each call means. Calls release the GIL. Each error is an Error with an errno.
"""
from .aio import AsyncSocket
from .client import Client
from .errors import (Closed, CompletionsFull, Congested, DaemonGone, Error, Forked, Interrupted, Invalid, MessageTooLong, NoDaemon, OperationFailed,
                     Overrun, SessionEnded, TimedOut, TooManyDestinations, VersionMismatch, Woken, WouldBlock)
from .memory import Buffer, Region
from .socket import Socket, wait
from .types import (MAX_MESSAGE, RDMA, Access, Addr, AddrLike, Atomic, Completion, Message, Notice, NoticeKind, Option, Reason, Received, Segment,
                    Status, Until, UntilKind)

__all__ = [
    "MAX_MESSAGE", "Access", "Addr", "AddrLike", "AsyncSocket", "Atomic", "Buffer", "Client", "Closed", "Completion", "CompletionsFull",
    "Congested", "DaemonGone", "Error", "Forked", "Interrupted", "Invalid", "Message", "MessageTooLong", "NoDaemon", "Notice", "NoticeKind",
    "OperationFailed", "Option", "Overrun", "RDMA", "Reason", "Received", "Region", "Segment", "SessionEnded", "Socket", "Status", "TimedOut",
    "TooManyDestinations", "Until", "UntilKind", "VersionMismatch", "Woken", "WouldBlock", "wait",
]
