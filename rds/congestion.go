package rds

import (
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/krds"
)

// What package afrds and the tools for kernel RDS need of this package.
var _ = krds.Provide(func(s any) krds.Socket { return kernelSocket{s.(*Socket)} },
	func(w any) *bool { return &w.(*WaitSet).congestion })

// kernelSocket is a socket with what only the kernel's calls have.
type kernelSocket struct{ *Socket }

func (s kernelSocket) Recv(m any, peek bool) (assembly time.Duration, err error) {
	s.c.rx.mu.Lock()
	assembly, err = s.recvInto(DontWait, m.(*Received), peek, true)
	return assembly, recvError(err)
}

// congMonitor is what a socket knows about congestion that its sends met. Guarded by
// rx.mu.
type congMonitor struct {
	failed map[netip.AddrPort]struct{} // sends to these failed, and their relief is to come
	update uint64                      // relieved, by port modulo 64
}

func (s kernelSocket) SetCongMonitor(on bool) {
	s.c.rx.mu.Lock()
	defer s.c.rx.mu.Unlock()
	s.congMon.Store(on)
	if !on {
		s.cong = congMonitor{}
		s.taken()
	}
}

func (s kernelSocket) PreferAnybody() {
	s.c.tx.mu.Lock()
	defer s.c.tx.mu.Unlock()
	s.anybody, s.orMeets = true, true
}

func (s kernelSocket) CongUpdates() uint64 {
	if s.congMon.Load() {
		s.c.tx.poll() // destinations beyond their share may have room
	}
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents()
	mask := s.cong.update
	s.cong.update = 0
	s.taken()
	return mask
}

// congFailed notes that a send failed because the destination to is congested, and
// asks the daemon to announce its relief.
func (s *Socket) congFailed(to netip.AddrPort) {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.congMon.Load() || t.dead || s.closed.Load() {
		return
	}
	if s.cong.failed == nil {
		s.cong.failed = map[netip.AddrPort]struct{}{}
	}
	s.cong.failed[to] = struct{}{}
	if d := s.dests[to]; d == nil || t.relieved(d, true) {
		s.relieved(to) // meanwhile
	}
}

// relieved reports the relief of a destination for which a send had failed. rx.mu is
// held.
func (s *Socket) relieved(to netip.AddrPort) {
	if _, failed := s.cong.failed[to]; !failed {
		return
	}
	delete(s.cong.failed, to)
	s.cong.update |= 1 << (to.Port() % 64)
	s.arrived(wantCongestion)
	s.notifyAll(wantCongestion)
}
