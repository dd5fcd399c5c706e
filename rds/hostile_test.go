package rds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestReturnOfUnsent: a message id that comes back before its message was
// submitted ends the session. The sender that has set it aside goes on with it.
func TestReturnOfUnsent(t *testing.T) {
	d, a, _ := pair(t, Options{})
	tx, m := &a.c.tx, outMsg{to: stuckAt(1), id: noID, p: make([]byte, 100)}
	tx.mu.Lock()
	err := tx.prepare(a, &m, false)
	tx.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	d.do(func() { d.seg.SendRetProducer().Put(m.id) })
	tx.poll()
	if err := a.c.Err(); !errors.Is(err, ErrSession) {
		t.Error("the session goes on:", err)
	}
	tx.abandon(&m)
}

// TestHandleOfTwo: a daemon that gives a new socket the handle of an open one
// breaks the contract.
func TestHandleOfTwo(t *testing.T) {
	d := newFakeDaemon(Options{}.Params)
	x := &oneHandle{fakeDaemon: d}
	c, err := Open(attach.Through(bg(), attach.Way{Control: x, Wake: d.client}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bindFake(t, c, "127.0.0.1:4000")
	if s, err := c.Bind(stuckAt(2)); s != nil || !errors.Is(err, ErrSession) {
		t.Errorf("a socket %v, %v", s != nil, err)
	}
}

// oneHandle is a Control that gives all sockets the first one's handle.
type oneHandle struct {
	*fakeDaemon
	first *ipc.BindOK
}

func (x *oneHandle) Call(req ipc.Request, fds []int) (ipc.Response, []int, error) {
	if _, is := req.(*ipc.Bind); is && x.first != nil {
		return x.first, nil, nil
	}
	resp, got, err := x.fakeDaemon.Call(req, fds)
	if ok, is := resp.(*ipc.BindOK); is {
		x.first = ok
	}
	return resp, got, err
}

// TestHostileRun: a run that is not what its event says ends the session, with an error
// that names the run, by whatever call it is received. Datagrams ahead of the lie are
// received.
func TestHostileRun(t *testing.T) {
	run := func(chunk, size, rxid uint32) shm.Event {
		return shm.Event{Kind: shm.EvData, Flags: shm.EventRun, Chunk: chunk, Len: size, RxID: rxid}
	}
	good := []byte{1, 0, 0, 0, 'x', 0, 0, 0}
	for _, tt := range []struct {
		name  string
		mem   []byte
		event shm.Event
		first bool // it begins with a good frame
	}{
		{"no bytes", good, run(0, 0, 0), false},
		{"chunk outside", good, run(1<<31, 8, 0), false},
		{"end outside", good, run(0, shm.WindowSize+1, 0), false},
		{"unknown receive id", good, run(0, 8, tiny.MaxRx), false},
		{"receive id with a flag", good, run(0, 8, shm.RxStep), false},
		{"half a length", good, run(0, 3, 1), false},
		{"frame past the end", []byte{5, 0, 0, 0, 'x', 0, 0, 0}, run(0, 8, 1), false},
		{"padding past the end", good, run(0, 7, 1), false},
		{"the longest length", []byte{0xff, 0xff, 0xff, 0xff, 'x', 0, 0, 0}, run(0, 8, 1), false},
		{"a second frame past the end", append(good, 1, 0, 0, 0), run(0, 12, 1), true},
		{"half a second length", append(good, 1, 0), run(0, 10, 1), true},
	} {
		for call, recv := range map[string]func(s *Socket) (int, error){
			"RecvFrom":  func(s *Socket) (int, error) { n, _, err := s.RecvFrom(make([]byte, 9)); return n, err },
			"Peek":      func(s *Socket) (int, error) { return 0, look(bg(), s, &Received{}) },
			"RecvBatch": func(s *Socket) (int, error) { return s.RecvBatch(context.Background(), make([]Received, 4)) },
		} {
			t.Run(tt.name+"/"+call, func(t *testing.T) {
				d := newHostileDaemon()
				c, err := Open(attach.Through(t.Context(), attach.Way{Control: d, Wake: d.wake}), Options{Params: Params(tiny), Spin: -1})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				s := bindFake(t, c, "127.0.0.1:0")
				copy(d.mem[5], tt.mem)
				*d.seg.EventProducer().Reserve().Event() = tt.event
				d.seg.EventProducer().Publish()
				if n, err := recv(s); tt.first != (err == nil) {
					t.Errorf("first: %d, %v", n, err)
				}
				if tt.first && call == "Peek" {
					mustRecv(t, s, "x")
				}
				for range 2 {
					if _, err := recv(s); !errors.Is(err, ErrSession) || !strings.Contains(err.Error(), fmt.Sprintf("run %d ", tt.event.RxID)) && tt.event.Len > 0 {
						t.Errorf("%v, want ErrSession and what is wrong with the run", err)
					}
				}
				if err := c.Err(); !errors.Is(err, ErrSession) {
					t.Errorf("the client ended with %v, want ErrSession", err)
				}
			})
		}
	}
}

// TestRunRewritten: a daemon that writes to a run while it is read changes what is
// received, and harms nobody.
func TestRunRewritten(t *testing.T) {
	d, a, b := pair(t, Options{})
	sendRun(t, d, a, b, "one", "two", "three")
	mustRecv(t, b, "one")
	d.do(func() {
		mem := d.recv.Bytes(d.rx[b.in.ev.RxID].chunk, int(b.in.ev.Len))
		mem[8], mem[12] = 2, 'T'
	})
	mustRecv(t, b, "Tw")
	d.do(func() { d.recv.Bytes(d.rx[b.in.ev.RxID].chunk, int(b.in.ev.Len))[19] = 1 })
	if _, _, err := b.RecvFrom(nil); !errors.Is(err, ErrSession) || !strings.Contains(err.Error(), "ends within a frame") {
		t.Errorf("a frame that has become too long: %v", err)
	}
}

// TestEmptiedAtEnd: a client whose rings the daemon has emptied behind the end of the session ends
// with the daemon's reason, though it finds the rings before it has read the reason.
func TestEmptiedAtEnd(t *testing.T) {
	x := &ending{fakeDaemon: newFakeDaemon(Options{}.Params)}
	c, err := Open(attach.Through(bg(), attach.Way{Control: x, Wake: x.client}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x.do(func() { x.seg.SendRetProducer().Put(1 << 20) }) // as good as an index of 0
	c.tx.poll()
	if err := c.Err(); !errors.Is(err, ErrSession) || !strings.Contains(err.Error(), "because") {
		t.Error(err)
	}
}

// ending is a Control whose daemon has ended the session. The client reads that only when it looks.
type ending struct{ *fakeDaemon }

func (e *ending) Ending() bool {
	e.die(&ipc.SessionError{Text: "because"})
	return true
}
