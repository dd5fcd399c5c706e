package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// wantCongestion is the congestion control that the daemons use where it is permitted. The raw
// connections use the same.
const wantCongestion = "cubic"

// socketBuffer is the size of socket buffers for UDP and unix sockets, where the system permits
// it. The default holds few datagrams.
const socketBuffer = 4 << 20

// congestion sets cubic on c, unless that is refused. It returns what c uses then.
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

// tune sets the options on c that the daemons set on their connections.
func tune(c net.Conn) {
	switch c := c.(type) {
	case *net.TCPConn:
		if raw, err := c.SyscallConn(); err == nil {
			_, _ = congestion(raw)
		}
	case interface {
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
	}:
		_ = c.SetReadBuffer(socketBuffer)
		_ = c.SetWriteBuffer(socketBuffer)
	}
}

// accept accepts the server's connection, by TCP or at a unix socket in dir.
func accept(w *worker.Worker) (net.Conn, error) {
	network, addr := "tcp", "127.0.0.1:0"
	if w.Get("net") == "unixpacket" {
		network, addr = "unixpacket", filepath.Join(w.Get("dir"), "seq"+strconv.Itoa(os.Getpid()))
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	if err := w.Ready(ln.Addr().String()); err != nil {
		return nil, err
	}
	c, err := ln.Accept()
	if err == nil {
		tune(c)
	}
	return c, err
}

// dialNet makes the client's connection.
func dialNet(w *worker.Worker) (net.Conn, error) {
	if err := w.Ready("-"); err != nil {
		return nil, err
	}
	network := w.Get("net")
	if network == "" {
		network = "tcp"
	}
	c, err := net.Dial(network, w.Get("addr"))
	if err == nil {
		tune(c)
		ballast(w)
	}
	return c, err
}

func netEcho(w *worker.Worker) error {
	c, err := accept(w)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.Int("size"))
	return w.Each(w.Serve, func() (int, error) {
		if _, err := io.ReadFull(c, b); err != nil {
			return 0, err
		}
		_, err := c.Write(b)
		return 2, err
	})
}

func netPing(w *worker.Worker) error {
	c, err := dialNet(w)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.Int("size"))
	return w.Trips(2, func() error {
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	})
}

// netSink counts messages as they arrive, however the stream is cut.
func netSink(w *worker.Worker) error { return netRead(w, make([]byte, 64<<10), 64<<10) }

// netBulkSink reads into a region of the footprint, piece by piece.
func netBulkSink(w *worker.Worker) error {
	return netRead(w, make([]byte, w.Int("footprint")<<20), bulkWrite)
}

func netRead(w *worker.Worker, mem []byte, piece int) error {
	c, err := accept(w)
	if err != nil {
		return err
	}
	defer c.Close()
	size := uint64(w.Int("size"))
	return w.Count(func() error {
		total, off := uint64(0), 0
		for {
			n, err := c.Read(mem[off:min(off+piece, len(mem))])
			if err != nil {
				return err
			}
			total += uint64(n)
			if off += n; off == len(mem) || w.Get("net") == "unixpacket" { // with unixpacket, a short buffer would cut the message
				off = 0
			}
			w.Msgs.Store(total / size)
		}
	})
}

// netSource writes one message at a time.
func netSource(w *worker.Worker) error {
	return netWrite(w, make([]byte, w.Int("size")), w.Int("size"))
}

// netBatch writes many messages at a time.
func netBatch(w *worker.Worker) error { return netWrite(w, make([]byte, 64<<10), 64<<10) }

// netBulk writes from a region of the footprint, piece by piece.
func netBulk(w *worker.Worker) error {
	return netWrite(w, make([]byte, w.Int("footprint")<<20), bulkWrite)
}

func netWrite(w *worker.Worker, mem []byte, piece int) error {
	c, err := dialNet(w)
	if err != nil {
		return err
	}
	defer c.Close()
	fill(mem)
	per, off := max(piece/w.Int("size"), 1), 0
	return w.Each(w.Serve, func() (int, error) {
		_, err := c.Write(mem[off : off+piece])
		off = (off + piece) % len(mem)
		return per, err
	})
}
