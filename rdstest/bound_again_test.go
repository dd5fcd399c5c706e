package rdstest_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestBoundAgain: what is sent to a socket that was met, or an answer to the socket
// that asked, never reaches another process that has bound its port since.
func TestBoundAgain(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for name, d := range map[string]*rdstest.Daemon{"two hosts": ds[1], "same host": ds[0]} {
		t.Run(name, func(t *testing.T) { boundAgain(t, ds[0].Bind(t, ds[0].Open(t), 0), d) })
	}
}

func boundAgain(t *testing.T, a *rds.Socket, d *rdstest.Daemon) {
	b := d.Bind(t, d.Open(t), 0)
	at := b.LocalAddrPort()
	send := func(m rds.Message) {
		t.Helper()
		if m.Addr = at; m.Payload == nil {
			m.Payload = []byte("late")
		}
		if _, err := a.Send(context.Background(), &m); err != nil {
			t.Fatal(err)
		}
	}
	send(rds.Message{Payload: []byte("met")})
	receive(t, b, "met")
	if _, err := b.SendTo([]byte("question"), a.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	q := rds.Received{Payload: make([]byte, 8)}
	if err := a.Recv(context.Background(), &q); err != nil || q.SrcInc == 0 {
		t.Fatalf("%v, from incarnation %d", err, q.SrcInc)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := d.Open(t).Bind(at)
	if err != nil {
		t.Fatal(err)
	}
	send(rds.Message{})
	noSocket(t, a)
	send(rds.Message{DstInc: q.SrcInc})
	noSocket(t, a)
	_ = next.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if err := next.Recv(context.Background(), &rds.Received{Payload: make([]byte, 8)}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the port's next owner: %v", err)
	}
	send(rds.Message{Payload: []byte("anew")})
	receive(t, next, "anew")
}

// noSocket waits for one message to be told of as having found no socket.
func noSocket(t *testing.T, s *rds.Socket) {
	t.Helper()
	for {
		if _, err := s.Wait(soon(t), rds.WaitSet{Notice: true}); err != nil {
			t.Fatal(err)
		}
		var n [1]rds.Notice
		if s.Notices(n[:]) == 1 && n[0].Kind == rds.NoSocket && n[0].Count == 1 {
			return
		}
	}
}
