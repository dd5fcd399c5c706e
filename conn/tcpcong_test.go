package conn

import (
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
)

// Congestion maps that may have overtaken each other are asked for anew: by a lane
// that is broken off, later each time.
func TestTCPDoubtfulMaps(t *testing.T) {
	p := newTCPPuppet(t, false)
	var ss []*puppetStream
	for i := range uint16(2) {
		s, _, err := p.accept(40000 + i)
		if err != nil {
			t.Fatal(err)
		}
		ss = append(ss, s)
		p.c.HandleData(p.now, 0, tcpFrame(1, 1, 0, 0, "", 5, 0, 8, 8, 0)) // eight lanes
	}
	full := make([]byte, wire.CongLen)
	full[77>>3] |= 1 << (77 & 7)
	tell := func(lane int, congested bool) {
		b := make([]byte, wire.CongLen)
		if congested {
			b = full
		}
		p.c.HandleData(p.now, lane, tcpFrame(0, 0, 0, wire.FlagCong, string(b)))
		if p.c.RemoteCong().Test(77) != congested {
			t.Fatal("the last map does not count")
		}
	}
	const doubtMs = congDoubt / 1_000_000
	ended := func() bool { return ss[1].finished }
	tell(0, true)
	tell(0, false)
	tell(0, true)
	if p.run(3 * doubtMs); ended() {
		t.Fatal("maps of one lane are in order")
	}
	tell(0, true)
	tell(1, false)
	if p.run(3 * doubtMs); ended() {
		t.Fatal("nobody waits")
	}
	tell(0, true)
	p.run(doubtMs + 1)
	tell(1, true)
	if p.run(3 * doubtMs); ended() {
		t.Fatal("so late it is newer")
	}
	tell(0, false)
	tell(1, true)
	p.run(doubtMs / 2)
	tell(1, false) // a newer one
	if p.run(3 * doubtMs); ended() {
		t.Fatal("the doubt was over")
	}
	for n := range 3 {
		tell(0, false)
		p.run(1)
		if n > 0 {
			p.c.cong.doubt.n = n // the peer was congested all the time
		}
		tell(1, true)
		if p.run(doubtMs<<n - 1); ended() {
			t.Fatalf("%d: early", n)
		}
		if p.run(2); !ended() || ss[0].finished {
			t.Fatalf("%d: the lane was not broken off", n)
		}
		p.c.HandleClosed(p.now, 1, nil)
		s, lane, err := p.accept(40001)
		if err != nil || lane != 1 {
			t.Fatal(lane, err)
		}
		ss[1] = s
		tell(1, true) // what it is told now
		if p.run(3 * doubtMs); ended() {
			t.Fatal("the answer is doubted")
		}
	}
	tell(1, false)
	if p.c.cong.doubt.n != 0 {
		t.Error("the peer is not congested any more")
	}
}
