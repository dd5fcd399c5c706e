package rds

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/abi"
)

// stuckAt is a destination whose messages the fake daemon keeps.
func stuckAt(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(port))
}

// release ends the held messages to a destination.
func (d *fakeDaemon) releaseTo(to netip.AddrPort) {
	d.do(func() {
		d.release(func(m *fakeMsg) bool { return m.slot.to == to }, func(m fakeMsg) { d.ack(m.sub.MsgID) })
	})
}

// TestStuckDestinations: destinations that take nothing keep their share of the
// process's message ids and send memory, and the others go on.
func TestStuckDestinations(t *testing.T) {
	const stuck = 8
	for _, tt := range []struct {
		name string
		o    Options
		size int
	}{
		{"ids", Options{Spin: -1, Params: Params{MaxMsgs: 256}}, 0},
		{"memory", Options{Spin: -1, Params: Params{SendWindows: 1}}, 64 << 10},
		{"operations' memory", Options{Spin: -1, Params: Params{SendWindows: 1, SubEntries: 1 << 12}}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := pair(t, tt.o)
				d.noGrow = true
				a.SetSndBuf(1 << 30)
				m := Message{Payload: make([]byte, max(tt.size, 0))}
				if tt.size < 0 {
					buf := mustAlloc(t, a.c, 4096)
					m.Op = &RDMA{Write: true, Cookie: 1}
					for range abi.MaxSegs {
						m.Op.Local = append(m.Op.Local, Segment{Buf: buf, Len: 1})
					}
				}
				send := func(to netip.AddrPort) error {
					m.Addr = to
					_, err := a.Send(DontWait, &m)
					return err
				}
				for i := range stuck {
					n := 0
					var err error
					for err == nil {
						err = send(stuckAt(i))
						n++
					}
					if !errors.Is(err, ErrCongested) || n < 2 {
						t.Fatalf("destination %d took %d messages: %v", i, n-1, err)
					}
				}
				for i := range 100 {
					if err := send(b.LocalAddrPort()); err != nil {
						t.Fatalf("message %d to a destination that takes them: %v", i, err)
					}
					d.do(func() {})
					b.Recv(DontWait, &Received{})
				}
				for i := range stuck {
					d.releaseTo(stuckAt(i))
				}
			})
		})
	}
}

// TestShareRelief: every way to wait for the relief of a destination ends when
// it has room in its share again, and not before.
func TestShareRelief(t *testing.T) {
	ways := map[string]func(s *Socket) error{
		"send":  func(s *Socket) error { _, err := s.SendTo(nil, stuckAt(0)); return err },
		"write": func(s *Socket) error { _, err := s.Send(bg(), &Message{Addr: stuckAt(0)}); return err },
		"relief": func(s *Socket) error {
			_, err := s.Wait(bg(), WaitSet{Relief: []netip.AddrPort{stuckAt(0)}})
			return err
		},
		"monitor": func(s *Socket) error {
			(kernelSocket{s}).SetCongMonitor(true)
			if _, err := s.Send(DontWait, &Message{Addr: stuckAt(0)}); !errors.Is(err, ErrCongested) {
				return fmt.Errorf("beyond its share: %w", err)
			}
			_, err := s.Wait(bg(), WaitSet{congestion: true})
			if mask := (kernelSocket{s}).CongUpdates(); err == nil && mask != 1 {
				err = fmt.Errorf("updates %#x", mask)
			}
			return err
		},
	}
	for name, wait := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := pair(t, Options{Spin: -1, Params: Params{MaxMsgs: 512}})
				var err error
				for _, port := range []int{0, 1} { // an eighth of all, an eighth of the rest
					for err == nil {
						_, err = a.Send(DontWait, &Message{Addr: stuckAt(port)})
					}
					if !errors.Is(err, ErrCongested) {
						t.Fatal(err)
					}
					err = nil
				}
				got := make(chan error, 1)
				go func() { got <- wait(a) }()
				synctest.Wait()
				d.do(func() { // a few of them
					n := 0
					d.release(func(*fakeMsg) bool { n++; return n <= 9 }, func(m fakeMsg) { d.ack(m.sub.MsgID) })
				})
				synctest.Wait()
				if len(got) > 0 {
					t.Fatalf("relieved with %d messages pending and %d free: %v", a.dests[stuckAt(0)].pending, len(a.c.tx.free), <-got)
				}
				d.releaseTo(stuckAt(0))
				synctest.Wait()
				select {
				case err := <-got:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("still waits, with room in its share")
				}
				for i := range 2 {
					d.releaseTo(stuckAt(i))
				}
			})
		})
	}
}

// TestGrownHasRoom: a send that had to wait for more send memory leaves nobody
// behind who waits for it.
func TestGrownHasRoom(t *testing.T) {
	d, a, _ := pair(t, Options{Params: Params{SendWindows: 1}})
	a.SetSndBuf(64 << 20)
	for range 6 {
		if _, err := a.SendTo(make([]byte, MaxMessage), stuckAt(1)); err != nil {
			t.Fatal(err)
		}
	}
	if d.grown == 0 {
		t.Fatal("the arena did not grow")
	}
	if got, err := a.ready(&WaitSet{SendSpace: true}, false); err != nil || !got.SendSpace {
		t.Errorf("no send space with %d bytes free: %v", a.c.tx.freeMem(), err)
	}
	d.releaseTo(stuckAt(1))
}

// TestWithdrawnHasRoom: what a send that failed had set aside is there for those
// who wait for it.
func TestWithdrawnHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := pair(t, Options{Spin: -1, Params: Params{MaxMsgs: 2}})
		tx, ms := &a.c.tx, [3]outMsg{}
		tx.mu.Lock()
		for i := range ms {
			ms[i] = outMsg{to: stuckAt(i), id: noID}
			if err := tx.prepare(a, &ms[i], false); (err == nil) != (i < 2) {
				t.Errorf("message %d: %v", i, err)
			}
		}
		tx.mu.Unlock()
		got := make(chan error, 1)
		go func() {
			_, err := a.Wait(bg(), WaitSet{SendSpace: true})
			got <- err
		}()
		synctest.Wait()
		if len(got) > 0 {
			t.Error("send space without message ids")
		}
		tx.abandon(&ms[0])
		tx.abandon(&ms[1])
		synctest.Wait()
		if len(got) == 0 {
			t.Error("still waits, with all message ids free")
		}
	})
}

// TestGrowLeadsNobody: who asks the daemon for more send memory is no waiter
// meanwhile. A waiter can be the leader, and the others would wait for the
// daemon's answer.
func TestGrowLeadsNobody(t *testing.T) {
	d, a, _ := pair(t, Options{Params: Params{SendWindows: 1}})
	asked := false
	d.callHook = func(any) error {
		asked = true
		a.c.wait.mu.Lock()
		defer a.c.wait.mu.Unlock()
		if a.c.wait.all.Head != nil {
			t.Error("it waits, and could lead")
		}
		return nil
	}
	w := a.enter(wantSpace, false)
	if err := a.sendWait(bg(), &outMsg{windows: 1}, errNoMemory, &w, false); err != nil || !asked {
		t.Error(asked, err)
	}
	a.endWait(&w)
	d.callHook = nil
}
