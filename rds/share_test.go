package rds

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/internal/shm"
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
		{"ids", Options{Spin: -1, Params: shm.Params{MaxMsgs: 256}}, 0},
		{"memory", Options{Spin: -1, Params: shm.Params{SendWindows: 1}}, 64 << 10},
		{"operations' memory", Options{Spin: -1, Params: shm.Params{SendWindows: 1, SubEntries: 1 << 12}}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := pair(t, tt.o)
				d.noGrow = true
				a.SetSndBuf(1 << 30)
				a.SetNonblock(true)
				m := Message{Payload: make([]byte, max(tt.size, 0))}
				if tt.size < 0 {
					buf := mustAlloc(t, a.c, 4096)
					m.Op = &RDMA{Kind: Write, Cookie: 1}
					for range shm.SegListMax {
						m.Op.Local = append(m.Op.Local, Segment{Buf: buf, Len: 1})
					}
				}
				send := func(to netip.AddrPort) error {
					m.Addr = to
					_, err := a.SendMsg(&m)
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
					b.RecvMsg(&Message{DontWait: true})
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
		"write": func(s *Socket) error { _, err := s.sendContext(bg(), &Message{Addr: stuckAt(0)}); return err },
		"relief": func(s *Socket) error {
			_, err := s.Wait(bg(), WaitSet{Relief: []netip.AddrPort{stuckAt(0)}})
			return err
		},
		"monitor": func(s *Socket) error {
			s.SetCongMonitor(true)
			if _, err := s.SendMsg(&Message{Addr: stuckAt(0), DontWait: true}); !errors.Is(err, ErrCongested) {
				return fmt.Errorf("beyond its share: %w", err)
			}
			_, err := s.Wait(bg(), WaitSet{Congestion: true})
			if mask := s.CongUpdates(); err == nil && mask != 1 {
				err = fmt.Errorf("updates %#x", mask)
			}
			return err
		},
	}
	for name, wait := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := pair(t, Options{Spin: -1, Params: shm.Params{MaxMsgs: 512}})
				var err error
				for _, port := range []int{0, 1} { // an eighth of all, an eighth of the rest
					for err == nil {
						_, err = a.SendMsg(&Message{Addr: stuckAt(port), DontWait: true})
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
