package engine

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// spell turns the engines for d ns of virtual time, f before each round.
func (w *world) spell(d int64, f func()) {
	for end := w.net.Now() + d; w.net.Now() < end; {
		f()
		w.turnAll()
		next := w.net.Now() + 50_000
		for w.net.At(next, func() {}); w.net.Now() < next; {
			w.net.Step()
		}
	}
}

// TestControlFlood: a peer's daemon that sends control messages without end gets
// as far as the limit, keeps its connection, and another peer's messages take no
// longer than before.
func TestControlFlood(t *testing.T) {
	const rate = 2000
	for _, tc := range []struct {
		name  string
		flood func(e *Engine, p *peer) // a round's worth
	}{
		{"REVOKE", func(e *Engine, p *peer) {
			for p.ctls < 200 {
				e.peers.sendRevoke(p, wire.TypeRevoke, 12345, 1)
			}
		}},
		{"GRANT", func(e *Engine, p *peer) {
			for p.ctls < 200 {
				m := e.peers.ctl(p, wire.TypeGrant, 1)
				e.peers.sendCtl(p, m, (&wire.Grant{Cookie: uint64(p.ctls), Length: 1, Rights: 1}).Append(m.buf[:0]))
			}
		}},
		{"ping", func(e *Engine, p *peer) {
			for p.ctls < 200 {
				m := e.peers.ctl(p, 0, 0)
				m.m.SPort, m.m.SrcInc = 7, 1
				e.peers.sendCtl(p, m, nil)
			}
		}},
		{"congestion", func(e *Engine, p *peer) {
			if !p.c.Ready() && p.ctls == 0 {
				e.peers.sendRevoke(p, wire.TypeRevoke, 12345, 1)
			}
			p.c.QueueCong(&p.local.cong)
			e.dirty.touch(p)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 3, Config{PeerCredits: 8})
			var slowed []error
			w.es[0].cfg.Trace = func(_ Place, event string, err error) {
				if event == EventSlowed {
					slowed = append(slowed, err)
				}
			}
			w.es[0].SetRates(Rates{Control: rate})
			victim, good := w.attach(0, smallParams()), w.attach(2, smallParams())
			vs, gs := victim.bind(10), good.bind(11)
			victim.open(vs, 0, 0, hostAddr(1), 7) // what a map is compared with
			good.open(gs, 0, 0, hostAddr(0), 10)
			good.sendMsg(gs, 0, 0, 10)
			w.run()
			bad := w.es[1]
			p, err := bad.peers.peer(bad.addrs.all[0], hostAddr(0), 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			victim.read()
			const seconds = 2
			sent, got, late := 0, 0, int64(0)
			sentAt := w.net.Now()
			w.spell(seconds*1000*ms, func() {
				tc.flood(bad, p)
				if got += victim.read(); got < sent {
					late = max(late, w.net.Now()-sentAt)
					return
				}
				if w.net.Now()-sentAt < 1*ms {
					return
				}
				for ret := good.seg.SendRetConsumer(); ; {
					if _, ok := ret.Take(); !ok {
						ret.Release()
						break
					}
				}
				good.sendMsg(gs, 0, 1+uint32(sent)%200, 10)
				sentAt = w.net.Now()
				sent++
			})
			if late > 2*ms || got < 500*seconds {
				t.Errorf("the other peer: %d messages, one took %d ns", got, late)
			}
			h := w.es[0].peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
			s := h.lanes[0].c.Stats()
			work := s.RecvPing + 8*s.CongUpdateReceived + w.es[0].st.C[stats.GrantsReceived]
			if tc.name == "REVOKE" {
				work = s.SendQueued
			}
			// A second's worth at once; what is on its way when it is held.
			if most := uint64(rate*(1+seconds)) + 8*200; work > most || work < rate*seconds/2 {
				t.Errorf("%d units of work in %d s, want %d to %d", work, seconds, rate*seconds/2, most)
			}
			if s.ConnReset != 0 || s.ProtocolErrors != 0 || h.ration.holds == 0 || w.es[0].st.C[stats.PeerHolds] != h.ration.holds {
				t.Errorf("%d resets, %d errors, held %d times, counted %d", s.ConnReset, s.ProtocolErrors, h.ration.holds, w.es[0].st.C[stats.PeerHolds])
			}
			if len(slowed) != 1 || !strings.Contains(slowed[0].Error(), "peers.control_per_s = 2000") {
				t.Errorf("said: %v", slowed)
			}
			var i ctl.PeerInfo
			if w.es[0].throttle.limited(h.lanes[0], &i); i.HeldBy != "peers.control_per_s" || i.Limitable != "sends" || i.HeldTime == 0 {
				t.Errorf("%+v", i)
			}
		})
	}
}

// TestRequestFlood: who connects again and again is turned away.
func TestRequestFlood(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.es[0].SetRates(Rates{Control: 5000})
	bad := w.es[1]
	p, err := bad.peers.peer(bad.addrs.all[0], hostAddr(0), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	bad.peers.sendRevoke(p, wire.TypeRevoke, 1, 1)
	w.run()
	bad.cfg.MaxBackoff = 1
	w.spell(3_000*ms, func() {
		if p.c.State() == conn.Up {
			p.c.Reset(bad.now, errAdmin)
		}
		if p.c.State() == conn.Down {
			if p.ctls == 0 {
				bad.peers.sendRevoke(p, wire.TypeRevoke, 1, 1)
			}
			p.c.Reset(bad.now, errAdmin) // no back-off
		}
		bad.dirty.touch(p)
	})
	// 10 at once, then 10 a second.
	if n := w.es[0].st.C[stats.PeerConnects]; n < 20 || n > 42 {
		t.Errorf("%d connections in 3 s, 40 are allowed", n)
	}
	if w.es[0].st.C[stats.BadHandshakes] == 0 {
		t.Error("nothing was refused")
	}
}

// limitRig is two hosts with soft devices whose engines have a clock of the
// test's: TCP is real, time is not.
type limitRig struct {
	*rig
	at int64
}

func (r *limitRig) turn(f func(now int64)) {
	r.at += 100_000
	for _, h := range r.hosts {
		h.e.Turn(r.at, Wall(r.at))
		h.collect()
	}
	f(r.at)
}

// TestMessageRate, by the engine's clock: a peer's messages come at the rate that
// is set, for ever, none is lost, and a reload changes that at once.
func TestMessageRate(t *testing.T) {
	for _, tc := range []struct {
		name string
		r    Rates
		size int
		rate float64 // messages a second
	}{
		{"messages", Rates{Messages: 5000}, 64, 5000},
		{"bytes", Rates{Bytes: 10 << 20}, 8192, (10 << 20) / 8350},
		{"both", Rates{Messages: 50_000, Bytes: 10 << 20, Control: 1e6}, 8192, (10 << 20) / 8350},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &limitRig{rig: newRig(t, 2), at: 1}
			a, b := r.hosts[0], r.hosts[1]
			b.e.SetRates(tc.r)
			a.open(b)
			chunk, _ := a.send.Alloc(tc.size)
			sent := 0
			more := func(int64) {
				for ; sent-a.back < 60; sent++ {
					a.put(chunk, uint32(tc.size))
				}
				a.publish()
			}
			for b.got == 0 {
				r.turn(more)
			}
			// Two seconds to use up what it may have at once, then five.
			for end := r.at + 2000*ms; r.at < end; {
				r.turn(more)
			}
			got, from := b.got, r.at
			for end := r.at + 5000*ms; r.at < end; {
				r.turn(more)
			}
			rate := float64(b.got-got) * 1e9 / float64(r.at-from)
			if rate < tc.rate*0.95 || rate > tc.rate*1.05 {
				t.Errorf("%.0f messages a second, want %.0f", rate, tc.rate)
			}
			h := b.e.peers.hosts[remoteKey{b.addr, a.addr}]
			if h.ration.holds == 0 || h.lanes[0].c.limitable() != "all" {
				t.Errorf("held %d times", h.ration.holds)
			}
			// Without the limit what waits comes.
			b.e.SetRates(Rates{})
			got = b.got
			for n := 0; n < 20_000 && b.got < got+2000; n++ {
				r.turn(more)
			}
			if h.ration.held || b.got < got+2000 {
				t.Errorf("after a reload: %d messages", b.got-got)
			}
			for n := 0; n < 20_000 && a.back < sent; n++ {
				r.turn(func(int64) {})
			}
			if s := h.lanes[0].c.Stats(); b.got != sent || a.back != sent || s.ConnReset+s.Retransmitted+s.RecvDropOldSeq != 0 {
				t.Errorf("%d sent, %d arrived, %d returned, %d resets", sent, b.got, a.back, s.ConnReset)
			}
		})
	}
}

// TestRDMARate: RDMA counts, though nothing of it completes here; and an answer
// that waits because we do not read it is not late.
func TestRDMARate(t *testing.T) {
	r := &limitRig{rig: newRig(t, 2), at: 1}
	a, b := r.hosts[0], r.hosts[1]
	const n, rate = 256 << 10, 20 << 20
	alloc := func(h *rigHost) uint32 {
		resp, _, err := h.p.Call(&ipc.Alloc{Size: n}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*ipc.AllocOK).Buffer
	}
	resp, _, err := b.p.Call(&ipc.Register{Sock: b.sock, Buffer: alloc(b), Len: n, Access: abi.RightWrite}, nil)
	if err != nil {
		t.Fatal(err)
	}
	reg := resp.(*ipc.RegisterOK)
	if _, _, err := b.p.Call(&ipc.Expose{Region: reg.Region, Addr: a.addr}, nil); err != nil {
		t.Fatal(err)
	}
	local := alloc(a)
	a.open(b)
	b.open(a)
	b.put(0, 0)
	b.publish()
	for a.got == 0 {
		r.turn(func(int64) {})
	}
	b.e.SetRates(Rates{Bytes: rate})
	sent, from := 0, r.at
	for end := r.at + 3000*ms; r.at < end; {
		r.turn(func(int64) {
			for ; sent-a.statuses < 16; sent++ {
				a.put(0, 0, &shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Region: local, Len: n, Cookie: reg.Cookie})
			}
			a.publish()
		})
	}
	got := float64(a.statuses) * n * 1e9 / float64(r.at-from)
	if got > rate*1.2 || got < rate*0.8 {
		t.Errorf("%.0f bytes a second, want %d", got, rate)
	}
	for a.statuses < sent {
		r.turn(func(int64) {})
	}
	if a.good != sent || b.got != sent {
		t.Errorf("%d writes, %d good, %d messages", sent, a.good, b.got)
	}
}

// TestHeldRevoke: a peer that is held has longer to give a key back, and no
// longer than that.
func TestHeldRevoke(t *testing.T) {
	w := newWorld(t, 2, Config{RevokeTimeout: 100 * ms})
	e := w.es[0]
	target, user := w.attach(0, smallParams()), w.attach(1, smallParams())
	ts, us := target.bind(10), user.bind(11)
	target.open(ts, 0, 0, hostAddr(1), 11)
	user.open(us, 0, 0, hostAddr(0), 10)
	b := target.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	g := target.must(&ipc.Register{Sock: ts, Buffer: b, Len: 10, Access: abi.RightRead}).(*ipc.RegisterOK).Region
	target.must(&ipc.Expose{Region: g, Addr: hostAddr(1)})
	target.sendMsg(ts, 0, 0, 10)
	w.run()
	h := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	h.ration.held = true                   // and never let go
	e.Turn(w.net.Now(), Wall(w.net.Now())) // the network's clock may have jumped ahead
	done := false
	if err := e.keys.release(e.keys.by[g], func(error) { done = true }); err != nil || done {
		t.Fatalf("released: %v, %v", done, err)
	}
	// The peer does not answer: its engine stands still.
	w.es = w.es[:1]
	w.spell(1000*ms, func() {})
	if done || h.lanes[0].c.Stats().ConnReset != 0 {
		t.Errorf("a peer that is held was taken for one that keeps a key: %v, %v", done, h.lanes[0].c.Info().LastError)
	}
	w.spell(400*ms, func() {})
	if !done || h.lanes[0].c.Stats().ConnReset == 0 {
		t.Error("a key is never taken back")
	}
}
