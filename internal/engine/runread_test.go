package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// oneRun has b told of a run of these lengths, and returns its event.
func (w *world) oneRun(a, b *opSide, sizes ...int) shm.Event {
	w.t.Helper()
	a.submitRun(sizes...)
	w.run()
	if b.look(); len(b.msgs) != 1 || b.msgs[0].Flags != shm.EventRun {
		w.t.Fatalf("came: %+v", b.msgs)
	}
	ev := b.msgs[0]
	b.msgs = b.msgs[:0]
	return ev
}

// step tells that another part of the run was read.
func (w *world) step(b *opSide, ev *shm.Event) {
	w.t.Helper()
	b.gaveBack(ev.RxID | shm.RxStep)
	w.run()
	b.alive(true)
}

// TestRunHalfRead: each step gives back a part of what is left of the run, the receive id
// all the rest, and in sum that is what arrived. What a receive id was used for before does
// not matter.
func TestRunHalfRead(t *testing.T) {
	for _, sizes := range [][]int{
		slices.Repeat([]int{512}, 8), {700, 0, 33, 900, 5, 611, 1}, {5000}, {0, 0, 0, 0, 0}, {1, 1, 1},
	} {
		w, a, b := opPair(t, 2)
		w.run()
		s, st := b.cl.socks[b.sock], &b.e.st.C
		for steps := range shm.RunSteps {
			added, freed, read := st[stats.RecvBytesAddedToSock], st[stats.RecvBytesFreedFromSock], st[stats.RecvDelivered]
			ev := w.oneRun(a, b, sizes...)
			whole, parts := s.rcvBytes, shm.RunSteps
			if n := st[stats.RecvBytesAddedToSock] - added; n != uint64(whole) {
				t.Errorf("%d bytes of %d counted", n, whole)
			}
			for range steps {
				before := s.rcvBytes
				w.step(b, &ev)
				if want := before / parts; before-s.rcvBytes != want {
					t.Errorf("%d: a step with %d bytes left gave back %d, want %d", sizes, before, before-s.rcvBytes, want)
				}
				if parts--; b.cl.rx[ev.RxID].sock != s {
					t.Fatal("a step gave the receive id back")
				}
			}
			b.gaveBack(ev.RxID)
			w.run()
			if n := st[stats.RecvDelivered] - read; n != uint64(len(sizes)) {
				t.Errorf("%d, %d steps: %d datagrams counted as read", sizes, steps, n)
			}
			if n := st[stats.RecvBytesFreedFromSock] - freed; n != uint64(whole) {
				t.Errorf("%d, %d steps: %d of %d bytes freed", sizes, steps, n, whole)
			}
			w.idle(a, b)
		}
		w.clean2(a, b)
	}
}

// TestRunRelieves: while a long run is read those who wait for room get it in steps, and
// congestion clears, before all of it was read.
func TestRunRelieves(t *testing.T) {
	long, next := slices.Repeat([]int{1000}, 60), []int{1000, 1001, 1002, 990}
	for _, hosts := range []int{1, 2} {
		w := newWorld(t, hosts, Config{HardCap: 1})
		a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 40_000})
		a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
		w.run()
		s := b.cl.socks[b.sock]
		ev := w.oneRun(a, b, long...)
		a.submitRun(next...)
		w.run()
		if !s.congested || a.cl.table.Slot(0).LoadCongested() == 0 || s.rcvBytes != 60_000 {
			t.Fatalf("%d hosts: congested %v with %d bytes", hosts, s.congested, s.rcvBytes)
		}
		came := 0 // on the same host with the first room, else when congestion clears
		for step, x := range []struct {
			left      int
			congested bool
		}{{45_000, true}, {30_000, true}, {15_000, false}} {
			w.step(b, &ev)
			w.settle()
			if b.look(); len(b.msgs) > 0 && came == 0 {
				came = step + 1
			}
			left := s.rcvBytes
			if came > 0 {
				left -= 3993
			}
			if left != x.left || s.congested != x.congested || a.cl.table.Slot(0).LoadCongested() != b2u(x.congested) {
				t.Errorf("%d hosts, step %d: %d bytes of the run are left, congested %v, want %+v", hosts, step+1, left, s.congested, x)
			}
		}
		if want := 1 + hosts; came != want {
			t.Errorf("%d hosts: what was refused came with step %d, want %d", hosts, came, want)
		}
		b.gaveBack(ev.RxID)
		if got := b.all(); !slices.Equal(got, next) {
			t.Errorf("%d hosts: then datagrams of %d bytes", hosts, got)
		}
		w.idle(a, b)
		w.clean2(a, b)
	}
}

// TestRunHalfReadClosed: a socket that is closed with a run half read gives back all of
// it, with more steps or without, and so does a process that ends.
func TestRunHalfReadClosed(t *testing.T) {
	for steps := range shm.RunSteps {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d steps/process ends %v", steps, ends), func(t *testing.T) {
				w, a, b := opPair(t, 2)
				w.run()
				ev := w.oneRun(a, b, 700, 0, 33, 900, 5, 611, 1)
				for range steps {
					w.step(b, &ev)
				}
				a.submitRun(slices.Repeat([]int{1000}, 60)...)
				w.run() // unread
				if !ends {
					b.must(&ipc.CloseSock{Sock: b.sock})
					w.run()
					for range shm.RunSteps - 1 - steps {
						w.step(b, &ev)
					}
					b.gaveBack(ev.RxID)
					b.all()
					if n := b.e.st.C[stats.RecvDelivered]; n != 67 {
						t.Errorf("%d of 67 datagrams counted as given back", n)
					}
					if len(b.cl.rxFree) != len(b.cl.rx) || b.cl.recv.InUse() != 0 {
						t.Errorf("%d of %d receive ids are free, %d bytes in use", len(b.cl.rxFree), len(b.cl.rx), b.cl.recv.InUse())
					}
					b.alive(true)
				}
				w.clean2(a, b)
			})
		}
	}
}

// TestBacklogOfOneMoment: whenever the application reads while the backlog is looked at, a
// socket has messages if and only if it has their bytes.
func TestBacklogOfOneMoment(t *testing.T) {
	for when := range 12 {
		w, a, b := opPair(t, 2)
		w.run()
		ev := w.oneRun(a, b, slices.Repeat([]int{100}, 128)...)
		asked := 0
		inspect := b.e.Inspect(func(f func()) error {
			f()
			if asked == when {
				b.gaveBack(ev.RxID)
				w.run()
			}
			asked++
			return nil
		})
		rows, _, err := inspect.Backlog(ctl.View{Limit: 100, May: func(uint32) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.UnreadMessages != 0 && r.UnreadBytes != 100*r.UnreadMessages {
				t.Errorf("read after question %d: %d messages of %d bytes", when, r.UnreadMessages, r.UnreadBytes)
			}
		}
		w.clean2(a, b)
	}
}
