package rds

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// recording has the daemon take nothing but in step, and note what it takes.
func (d *fakeDaemon) recording(t testing.TB) {
	t.Cleanup(d.pause()) // goes before the client's close
	d.record = true
}

// tookIn is what the daemon takes in now: how many datagrams each run has, and 0 for a
// message that is no run.
func (d *fakeDaemon) tookIn() []int {
	d.step()
	taken := d.taken
	d.taken = nil
	return taken
}

// releaseAll finishes what is held. mu is held.
func (d *fakeDaemon) releaseAll() {
	d.release(func(*fakeMsg) bool { return true }, d.finish)
	d.step()
}

// wantTaken checks what the daemon takes in now.
func wantTaken(t testing.TB, d *fakeDaemon, want ...int) {
	t.Helper()
	if got := d.tookIn(); !slices.Equal(got, want) {
		t.Errorf("the daemon took runs of %v datagrams, want %v", got, want)
	}
}

// wantIdle checks that nothing is charged to the sockets of a client, and that all of its
// message ids and send memory are free.
func wantIdle(t testing.TB, c *Client, socks ...*Socket) {
	t.Helper()
	tx := &c.tx
	tx.poll()
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.cur != nil {
		t.Error("frames are uncommitted")
	}
	if n := len(tx.msgs) - len(tx.free); n != 0 || tx.arena.InUse() != 0 {
		t.Errorf("%d message ids and %d bytes of send memory are in use", n, tx.arena.InUse())
	}
	for _, s := range socks {
		if s.queued != 0 || s.parked != 0 || s.msgs != 0 || len(s.busy) != 0 {
			t.Errorf("%d bytes are queued, %d parked, %d datagrams counted, %d destinations busy", s.queued, s.parked, s.msgs, len(s.busy))
		}
		for to, d := range s.dests {
			if d.pending != 0 || d.datagrams != 0 || d.queued != 0 || d.counted != 0 || d.mem != 0 {
				t.Errorf("to %v: %d messages, %d datagrams, %d bytes of payload, %d of memory", to, d.pending, d.datagrams, d.queued, d.mem)
			}
		}
	}
}

// recvAll receives until nothing is left.
func recvAll(t testing.TB, s *Socket) (got []string) {
	t.Helper()
	for {
		m := Received{Payload: make([]byte, 1<<16)}
		if err := s.Recv(DontWait, &m); err != nil {
			if !errors.Is(err, ErrWouldBlock) {
				t.Fatal(err)
			}
			return got
		}
		got = append(got, fmt.Sprintf("%.8s", m.Payload[:m.N]))
	}
}

func wantReceived(t testing.TB, s *Socket, want ...string) {
	t.Helper()
	if got := recvAll(t, s); !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

func batchOf(to netip.AddrPort, payloads ...string) (ms []Message) {
	for _, p := range payloads {
		ms = append(ms, Message{Payload: []byte(p), Addr: to})
	}
	return ms
}
