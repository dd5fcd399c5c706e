package tcp

import (
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
)

// Congestion maps that may have overtaken each other are asked for anew: by a lane
// that is broken off, later each time.
const doubtMs = congDoubt / 1_000_000

// doubtWorld is a puppet with two of eight lanes up.
type doubtWorld struct {
	t  *testing.T
	p  *tcpPuppet
	ss [2]*puppetStream
}

func newDoubtWorld(t *testing.T) *doubtWorld {
	w := &doubtWorld{t: t, p: newTCPPuppet(t, false)}
	for i := range w.ss {
		s, _, err := w.p.accept(40000 + uint16(i))
		if err != nil {
			t.Fatal(err)
		}
		w.ss[i] = s
		w.p.c.HandleData(w.p.now, 0, tcpFrame(1, 1, 0, 0, "", 5, 0, 8, 8, 0)) // eight lanes
	}
	return w
}

// tell has the peer say, by a lane, that port 77 is congested or nothing is.
func (w *doubtWorld) tell(lane int, congested bool) {
	b := make([]byte, wire.CongLen)
	if congested {
		b[77>>3] |= 1 << (77 & 7)
	}
	w.p.c.HandleData(w.p.now, lane, tcpFrame(0, 0, 0, wire.FlagCong, string(b)))
	if w.p.c.RemoteCong().Test(77) != congested {
		w.t.Fatal("the last map does not count")
	}
}

// ended reports whether the second lane was broken off.
func (w *doubtWorld) ended() bool { return w.ss[1].finished }

func TestTCPDoubtfulMaps(t *testing.T) {
	w := newDoubtWorld(t)
	p, tell, ended := w.p, w.tell, w.ended
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
		if p.run(2); !ended() || w.ss[0].finished {
			t.Fatalf("%d: the lane was not broken off", n)
		}
		p.c.HandleClosed(p.now, 1, nil)
		s, lane, err := p.accept(40001)
		if err != nil || lane != 1 {
			t.Fatal(lane, err)
		}
		w.ss[1] = s
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
