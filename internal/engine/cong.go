package engine

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/internal/stats"
)

// setCongested sets or clears a port's bit in its address's map and tells all
// peers of that address and the senders of this host. The bit is the port's: a socket
// that has left it sets nothing any more.
func (rx *receiver) setCongested(s *socket, on bool) {
	e := rx.e
	if s.congested == on || s.left {
		return
	}
	s.congested = on
	l := s.local
	if on {
		s.congAt = e.wall
		l.cong.Set(s.port)
		e.st.C[stats.CongestedPorts]++
	} else {
		l.cong.Clear(s.port)
		e.st.C[stats.CongestedPorts]--
	}
	if !l.congNews {
		l.congNews = true
		rx.congNews = true
	}
	if to := l.slots[s.port]; to != nil {
		e.dests.tell(to)
	}
}

// tellCong tells the peers of the addresses whose maps changed, before anything
// is sent to them: once a turn, however often a socket fills and empties.
func (rx *receiver) tellCong() {
	e := rx.e
	if !rx.congNews {
		return
	}
	rx.congNews = false
	for _, p := range e.peers.all {
		if p.local.congNews {
			p.c.QueueCong(&p.local.cong)
		}
	}
	for _, l := range e.addrs.all {
		l.congNews = false
	}
}

// Congestion: the peer's map changed.
func (u *qpHost) Congestion(_ *conn.Conn, _ *cong.Map) { u.e.rx.congestion(u.p) }

func (rx *receiver) congestion(p *peer) {
	e := rx.e
	e.throttle.spend(p.remote, rateControl, p.slots.N/slotsWork)
	e.dests.tell(&p.slots)
}

// setSlotCongested publishes the congestion of a destination and tells the
// client if it wants to know.
func (rx *receiver) setSlotCongested(sl *slot, on bool) {
	e := rx.e
	t := sl.sock.cl.table.Slot(sl.idx)
	on = on || e.drains.toldToWait(sl)
	if (t.LoadCongested() != 0) == on {
		return
	}
	t.StoreCongested(b2u(on))
	if on {
		sl.crowded, sl.congestedAt = true, e.now
	} else {
		sl.relief = true
	}
	e.clients.note(sl)
}
