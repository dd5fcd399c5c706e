package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// pair is an out whose client is the other end.
func pair(t *testing.T) (*out, net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return newOut(a), b
}

// TestOutOrder: replies of all kinds come whole and in order, more than a socket
// takes at once, flushed between them or not.
func TestOutOrder(t *testing.T) {
	o, client := pair(t)
	var want bytes.Buffer
	var sent atomic.Int32
	const replies = 600
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(client)
		got <- b
	}()
	for i := range replies {
		data := noise(1 + i*31%9000)
		r := reply{cookie: uint64(i), chunk: uint16(i % 2), offset: 5} // simple and structured ones
		want.Write(r.append(nil, len(data)))
		want.Write(data)
		if i%3 == 0 {
			o.replyPieces(r, [][]byte{data[:len(data)/2], data[len(data)/2:]}, func() { sent.Add(1) })
		} else {
			o.reply(r, data, func() { sent.Add(1) })
		}
		if i%7 == 0 {
			o.flush()
		}
	}
	o.drain()
	o.conn.Close()
	if !bytes.Equal(<-got, want.Bytes()) {
		t.Error("the client got other bytes")
	}
	if n := sent.Load(); n != replies {
		t.Errorf("%d replies were reported as sent, want %d", n, replies)
	}
}

// TestOutClientGone: everything is reported as sent, so that nothing stays with a
// client that is gone.
func TestOutClientGone(t *testing.T) {
	o, client := pair(t)
	client.Close()
	sent := 0
	for range 10 {
		o.reply(reply{cookie: 1}, noise(4096), func() { sent++ })
		o.replyPieces(reply{cookie: 2}, [][]byte{noise(100)}, func() { sent++ })
		o.drain()
	}
	if sent != 20 || len(o.pending) != 0 {
		t.Errorf("%d replies were reported as sent, %d pieces are pending; want 20, 0", sent, len(o.pending))
	}
	if _, err := o.conn.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is open: %v", err)
	}
}
