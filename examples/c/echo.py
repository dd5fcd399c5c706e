"""The echo example in Python, through ctypes and librds.so.

	python3 echo.py -bind 10.0.0.1:4000
	python3 echo.py -bind 10.0.0.2:0 -to 10.0.0.1:4000 hello again
"""
import argparse
import ctypes
import os

rds = ctypes.CDLL(os.environ.get("LIBRDS", "librds.so.0"))


class Addr(ctypes.Structure):
    """struct rds_addr"""
    _fields_ = [("ip", ctypes.c_uint8 * 16), ("port", ctypes.c_uint16)]

    @classmethod
    def parse(cls, text):
        addr = cls()
        check(rds.rds_addr_parse(text.encode(), ctypes.byref(addr)))
        return addr

    def __str__(self):
        text = ctypes.create_string_buffer(64)
        rds.rds_addr_format(ctypes.byref(self), text, ctypes.c_size_t(64))
        return text.value.decode()


for name in ("rds_send", "rds_recv"):
    getattr(rds, name).restype = ctypes.c_ssize_t
rds.rds_send.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(Addr), ctypes.c_uint]
rds.rds_recv.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(Addr), ctypes.c_uint]


def check(result):
    """Raises OSError for a negative errno."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Socket:
    """A bound socket, with a session of its own."""

    def __init__(self, at):
        client, sock = ctypes.c_void_p(), ctypes.c_void_p()
        check(rds.rds_open(None, ctypes.byref(client)))
        check(rds.rds_bind(client, ctypes.byref(Addr.parse(at)), ctypes.byref(sock)))
        self.client, self.sock = client, sock
        self.buf = ctypes.create_string_buffer(1 << 20)

    def name(self):
        addr = Addr()
        check(rds.rds_local(self.sock, ctypes.byref(addr)))
        return addr

    def send(self, data, to):
        return check(rds.rds_send(self.sock, data, len(data), ctypes.byref(to), 0))

    def recv(self):
        source = Addr()
        n = check(rds.rds_recv(self.sock, self.buf, len(self.buf), ctypes.byref(source), 0))
        return self.buf.raw[:n], source

    def close(self):
        check(rds.rds_close_wait(self.sock, 10000))
        rds.rds_socket_free(self.sock)
        rds.rds_client_free(self.client)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("-bind", default="127.0.0.1:0")
    args.add_argument("-to")
    args.add_argument("words", nargs="*")
    args = args.parse_args()
    sock = Socket(args.bind)
    if args.to is None:
        print("serving", sock.name(), flush=True)
        while True:
            data, source = sock.recv()
            sock.send(data, source)
    for word in args.words:
        sock.send(word.encode(), Addr.parse(args.to))
    for _ in args.words:
        print(sock.recv()[0].decode())
    sock.close()


if __name__ == "__main__":
    main()
