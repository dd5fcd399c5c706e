package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// sumOf is how many datagrams, datagrams with payload, and bytes of payload these are.
func sumOf(sizes []int) (datagrams, nonEmpty, bytes int) {
	for _, n := range sizes {
		nonEmpty += min(n, 1)
		bytes += n
	}
	return len(sizes), nonEmpty, bytes
}

// counts compares counters.
func (w *world) counts(e *Engine, want map[stats.Counter]int) {
	w.t.Helper()
	e.PublishStats(e.wall)
	for c, n := range want {
		if got := e.st.C[c]; got != uint64(n) {
			w.t.Errorf("%v is %d, want %d", c, got, n)
		}
	}
}

// TestRunCounters: whichever way a run goes, every counter counts its datagrams and the
// bytes of their payload, at the sender and at the receiver.
func TestRunCounters(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		for name, run := range map[string][]int{"short": {100, 0, 64, 0, 3}, "long": append(slices.Repeat([]int{1000}, 60), 0)} {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d hosts/%s/waits %v", hosts, name, waits), func(t *testing.T) {
					w, a, b := opPair(t, hosts)
					sent := []int{}
					if waits { // in daemon memory, behind what is not read
						sent = slices.Repeat([]int{2}, 40)
						for _, n := range sent {
							a.submit(shm.Sub{Len: uint32(n)})
						}
						w.run()
					}
					told := b.cl.socks[b.sock].rxTold
					a.submitRun(run...)
					w.run()
					all := slices.Concat(sent, run)
					n, nonEmpty, bytes := sumOf(all)
					local := 0
					if hosts == 1 {
						local = n
					}
					if s := b.cl.socks[b.sock]; s.rcvMsgs != nonEmpty || s.rcvBytes != bytes || waits && s.overSum != n-told {
						t.Errorf("the socket has %d messages of %d bytes, %d of them wait", s.rcvMsgs, s.rcvBytes, s.overSum)
					}
					if got := b.all(); !slices.Equal(got, all) {
						t.Errorf("datagrams of %d bytes came", got)
					}
					w.counts(a.e, map[stats.Counter]int{stats.SendQueued: n, stats.SendBytes: bytes, stats.CopyFromUser: bytes,
						stats.SendAcked: n, stats.LocalMessages: local, stats.MsgCancelled: 0})
					w.counts(b.e, map[stats.Counter]int{stats.RecvQueued: n, stats.RecvBytes: bytes, stats.CopyToUser: bytes,
						stats.RecvDelivered: n, stats.RecvBytesAddedToSock: bytes, stats.RecvBytesFreedFromSock: bytes})
					w.idle(a, b)
					w.clean2(a, b)
				})
			}
		}
	}
}

// told sums up the notices of one kind.
func (s *opSide) toldOf(notice uint8) (n int) {
	s.look()
	for _, x := range s.notes {
		if x.Notice == notice {
			n += int(x.Count)
		}
	}
	return n
}

// TestRunFoundNobody: of a run that finds no socket each datagram is told and counted.
func TestRunFoundNobody(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		for name, run := range map[string][]int{"short": {100, 0, 64}, "long": slices.Repeat([]int{1000}, 60)} {
			t.Run(fmt.Sprintf("%d hosts/%s", hosts, name), func(t *testing.T) {
				w, a, b := opPair(t, hosts)
				b.must(&ipc.CloseSock{Sock: b.sock})
				a.submitRun(run...)
				a.submit(shm.Sub{Len: 1})
				w.settle()
				if n := a.toldOf(shm.NoticeNoSocket); n != len(run)+1 {
					t.Errorf("%d told of %d", n, len(run)+1)
				}
				w.counts(b.e, map[stats.Counter]int{stats.RecvDropNoSock: len(run) + 1, stats.RecvQueued: 0})
				w.counts(a.e, map[stats.Counter]int{stats.SendQueued: len(run) + 1, stats.SendAcked: 0})
				if s := a.cl.socks[a.sock]; s.sndMsgs+s.sndBytes+a.e.tx.queued.msgs+a.e.tx.queued.bytes+a.cl.slots[0].handed != 0 || len(a.back) != 2 {
					t.Errorf("left: %d messages of %d bytes, %d ids came back", s.sndMsgs, s.sndBytes, len(a.back))
				}
				w.clean2(a, b)
			})
		}
	}
}

// TestRunWithdrawn: what a Cancel withdraws counts by datagram, and so does what is under
// way until then.
func TestRunWithdrawn(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		w, a, b := refusing(t, hosts)
		run := []int{200, 0, 300}
		id := a.submitRun(run...)
		a.submitRun(run...)
		w.settle()
		s, sl := a.cl.socks[a.sock], a.cl.slots[0]
		if s.sndMsgs != 6 || s.sndBytes != 1000 || a.e.tx.queued.msgs != 6 || a.e.tx.queued.bytes != 1000 || hosts > 1 && sl.handed != 6 {
			t.Errorf("%d hosts: under way are %d messages of %d bytes, %d of %d in the engine, %d handed on", hosts,
				s.sndMsgs, s.sndBytes, a.e.tx.queued.msgs, a.e.tx.queued.bytes, sl.handed)
		}
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 0} })
		w.settle()
		if a.look(); !slices.Contains(a.back, id) {
			t.Errorf("%d hosts: ids %d came back", hosts, a.back)
		}
		w.counts(a.e, map[stats.Counter]int{stats.MsgCancelled: 6, stats.SendAcked: 1, stats.SendQueued: 7})
		if got := append(b.datagrams(), b.all()...); !slices.Equal(got, []int{900}) {
			t.Errorf("%d hosts: datagrams of %d bytes came", hosts, got)
		}
		w.idle(a, b)
		w.clean2(a, b)
	}
}

// TestRunLost: of a run that was sent and not acked when the peer's daemon restarts each
// datagram is told as lost.
func TestRunLost(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 1})
	w.run()
	b.all()
	a.submitRun(100, 0, 64, 32)
	a.submit(shm.Sub{Len: 9})
	w.pass(1*ms, a.e) // sent, and nobody there has looked
	b.e.Shutdown()
	w.pass(20*ms, a.e)
	w.es[1] = w.boot(1, 99, Config{})
	x := w.opSide(1, 20)
	for range 20 {
		w.run()
	}
	if n := a.toldOf(shm.NoticeLost); n != 5 {
		t.Errorf("%d of 5 datagrams are told as lost", n)
	}
	a.submitRun(1, 2, 3)
	if got := x.all(); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("then datagrams of %d bytes came", got)
	}
	w.idle(a, x)
	w.clean2(a, x)
}

// TestRunPartlyAcked: of a run that a Linux kernel has acked in part only the other
// datagrams have the outcome that is told.
func TestRunPartlyAcked(t *testing.T) {
	for o, told := range map[msg.Outcome]uint8{msg.NoSock: shm.NoticeNoSocket, msg.Lost: shm.NoticeLost, msg.GaveUp: shm.NoticeGaveUp, msg.Cancelled: 0} {
		w, a, b := refusing(t, 1)
		id := a.submitRun(10, 0, 30, 40, 50)
		w.run()
		m := a.cl.msgs[id]
		m.m.Ended = 2
		m.slot.way.end(m, o)
		w.settle()
		want, withdrawn := 2, 0
		if o == msg.Cancelled {
			want, withdrawn = 0, 2
		}
		if n := a.toldOf(told); n != want {
			t.Errorf("%v: %d datagrams are told, want %d", o, n, want)
		}
		w.counts(a.e, map[stats.Counter]int{stats.SendAcked: 1 + 3, stats.SendQueued: 6, stats.MsgCancelled: withdrawn})
		if got := append(b.datagrams(), b.all()...); !slices.Equal(got, []int{900}) {
			t.Errorf("%v: datagrams of %d bytes came", o, got)
		}
		w.idle(a, b)
		w.clean2(a, b)
	}
}
