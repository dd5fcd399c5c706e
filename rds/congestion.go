package rds

import "net/netip"

// congMonitor is what a socket knows about congestion that its sends met. Guarded by
// rx.mu.
type congMonitor struct {
	failed map[netip.AddrPort]struct{} // sends to these failed, and their relief is to come
	update uint64                      // relieved, by port modulo 64
}

// SetCongMonitor chooses whether the socket collects reports for CongUpdates. A new
// socket does not. Turning the monitor off drops the reports that were not taken.
//
// Source: RDS_CONG_MONITOR, net/rds/af_rds.c rds_cong_monitor.
func (s *Socket) SetCongMonitor(on bool) {
	s.c.rx.mu.Lock()
	defer s.c.rx.mu.Unlock()
	s.congMon.Store(on)
	if !on {
		s.cong = congMonitor{}
		s.taken()
	}
}

// CongUpdates returns which destinations are no longer congested, as a mask in which
// the bit (port modulo 64) is set for each, and clears the mask. It reports a
// destination once for all sends to it that failed with ErrCongested since the last
// report, if the monitor was on (SetCongMonitor).
//
// A set bit may stand for another port with the same bit, and the port may be
// congested again: try to send. Wait for reports with WaitSet.Congestion or a poll
// descriptor. WaitSet.Relief is exact.
//
// Source: RDS_CMSG_CONG_UPDATE, net/rds/recv.c rds_notify_cong.
func (s *Socket) CongUpdates() uint64 {
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
