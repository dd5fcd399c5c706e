package main

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// wantCongestion is what the daemons use on their connections where it is
// permitted; the raw connections do the same.
const wantCongestion = "cubic"

// congestion sets cubic on c, unless that is refused, and returns what c uses.
func congestion(c syscall.RawConn) (used string, refused error) {
	err := c.Control(func(fd uintptr) {
		refused = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, wantCongestion)
		used, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if err != nil {
		refused = err
	}
	return used, refused
}

func tune(c net.Conn) {
	if raw, err := c.(*net.TCPConn).SyscallConn(); err == nil {
		congestion(raw)
	}
}

// tcpAccept is a server's connection.
func (w *worker) tcpAccept() (net.Conn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	if err := w.ready(ln.Addr().String()); err != nil {
		return nil, err
	}
	c, err := ln.Accept()
	if err == nil {
		tune(c)
	}
	return c, err
}

// tcpDial is a client's.
func (w *worker) tcpDial() (net.Conn, error) {
	if err := w.ready("-"); err != nil {
		return nil, err
	}
	c, err := net.Dial("tcp", w.args["addr"])
	if err == nil {
		tune(c)
	}
	return c, err
}

func tcpEcho(w *worker) error {
	c, err := w.tcpAccept()
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.int("size"))
	return w.serve(func() error {
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return err
			}
			if _, err := c.Write(b); err != nil {
				return err
			}
			w.msgs.Add(2)
		}
	})
}

func tcpPing(w *worker) error {
	c, err := w.tcpDial()
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.int("size"))
	return w.trips(func() error {
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	})
}

// tcpSink counts messages as they come, however they were cut.
func tcpSink(w *worker) error { return w.tcpRead(make([]byte, 64<<10), 64<<10) }

// tcpBulkSink reads into a region of the footprint, piece by piece.
func tcpBulkSink(w *worker) error {
	return w.tcpRead(make([]byte, w.int("footprint")<<20), bulkWrite)
}

func (w *worker) tcpRead(mem []byte, piece int) error {
	c, err := w.tcpAccept()
	if err != nil {
		return err
	}
	defer c.Close()
	size := uint64(w.int("size"))
	return w.count(func() error {
		total, off := uint64(0), 0
		for {
			n, err := c.Read(mem[off:min(off+piece, len(mem))])
			if err != nil {
				return err
			}
			total += uint64(n)
			if off += n; off == len(mem) {
				off = 0
			}
			w.msgs.Store(total / size)
		}
	})
}

// tcpSource writes one message at a time.
func tcpSource(w *worker) error { return w.tcpWrite(make([]byte, w.int("size")), w.int("size")) }

// tcpBatch writes many messages at a time.
func tcpBatch(w *worker) error { return w.tcpWrite(make([]byte, 64<<10), 64<<10) }

// tcpBulk writes from a region of the footprint, piece by piece.
func tcpBulk(w *worker) error { return w.tcpWrite(make([]byte, w.int("footprint")<<20), bulkWrite) }

func (w *worker) tcpWrite(mem []byte, piece int) error {
	c, err := w.tcpDial()
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range mem {
		mem[i] = byte(i)
	}
	per := uint64(max(piece/w.int("size"), 1))
	return w.serve(func() error {
		for off := 0; ; off = (off + piece) % len(mem) {
			if _, err := c.Write(mem[off : off+piece]); err != nil {
				return err
			}
			w.msgs.Add(per)
		}
	})
}
