package msg

import (
	"math/rand/v2"
	"testing"
)

// TestPorts: whatever happens to messages, what is known of each port is what the lists have, and nothing
// is known of other ports.
func TestPorts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s Ports
	var queue, rtx, unacked List
	s.Of(&queue, &rtx, &unacked)
	lists := []*List{&queue, &rtx, &unacked}
	var out []*Msg
	for range 3000 {
		out = append(out, &Msg{})
	}
	step := func() {
		l := lists[rng.IntN(3)]
		m := l.Head
		for range rng.IntN(20) {
			if m != nil {
				m = m.Track.Next
			}
		}
		switch k := rng.IntN(8); {
		case k < 4 && len(out) > 0:
			m := out[len(out)-1]
			out = out[:len(out)-1]
			m.DPort = uint16(rng.IntN(1 << rng.IntN(12)))
			l.Push(m)
		case k == 4:
			rtx.Prepend(&unacked)
		case k == 5 && m != nil:
			l.Leave(m)
			unacked.Push(m)
		case k == 6 && m != nil:
			ahead := &Msg{DPort: m.DPort}
			l.Insert(ahead, m)
			l.Remove(m)
			out = append(out, m)
		case m != nil:
			l.Remove(m)
			out = append(out, m)
		}
	}
	for i := range 3000 {
		if i%300 == 100 { // some time after it was forgotten that there is anything to know
			s.Get(5).Stop = true
		}
		for range 5 {
			step()
		}
		if s.n > 0 {
			checkPorts(t, &s, &queue, &rtx, &unacked)
		}
		if i%300 == 299 {
			p := s.At(5)
			p.Stop = nil
			s.Drop(p)
			for _, l := range lists {
				for l.Head != nil {
					out = append(out, l.Head)
					l.Remove(l.Head)
				}
			}
			if s.n != 0 || s.by != nil || queue.ports != nil || unacked.ports != nil {
				t.Fatalf("%+v of nothing", s)
			}
		}
	}
	if s.Walked == 0 {
		t.Error("it never began with messages")
	}
	rtx.Push(&Msg{Internal: 5})
	rtx.Push(&Msg{Internal: 5})
	s.Walked = 0
	for range 10 {
		s.Drop(s.Get(7))
	}
	if s.Walked != 2 {
		t.Errorf("%d looks at two messages", s.Walked)
	}
}

func checkPorts(t *testing.T, s *Ports, queue, rtx, unacked *List) {
	t.Helper()
	waits, flies, all := map[uint16][]*Msg{}, map[uint16]int{}, map[uint16]bool{}
	all[5] = true
	for m := range queue.All() {
		waits[m.DPort], all[m.DPort] = append(waits[m.DPort], m), true
	}
	for _, l := range []*List{rtx, unacked} {
		for m := range l.All() {
			flies[m.DPort]++
			all[m.DPort] = true
		}
	}
	if len(all) != s.n {
		t.Fatalf("%d ports are known, want %d", s.n, len(all))
	}
	for port := range all {
		p, want := s.At(port), waits[port]
		if p == nil || p.InFlight != flies[port] {
			t.Fatalf("port %d: %+v, want %d in flight", port, p, flies[port])
		}
		for m := p.Waiting(); m != nil; m = m.SamePort() {
			if len(want) == 0 || want[len(want)-1] != m {
				t.Fatalf("port %d: another message, or at another place", port)
			}
			want = want[:len(want)-1]
		}
		if len(want) > 0 {
			t.Fatalf("port %d: %d messages more wait", port, len(want))
		}
	}
}
