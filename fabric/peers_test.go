package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// Kinds and flags of src/wire.h, as far as the tests send or await them.
const (
	wMsg, wRTS, wCTS, wData, wWrite, wRead, wAck, wOff, wWrote = 1, 2, 3, 4, 5, 6, 9, 10, 12

	last, cqData, delivery, isTagged = 1, 2, 4, 8

	eager  = 65536
	enokey = 266 // of fi_errno.h
)

// A wire is the header of a datagram between two endpoints.
type wire struct {
	Magic        uint16
	Kind, Flags  uint8
	Err          uint32
	ID, Len, Tag uint64
	Data, Addr   uint64
}

const wireLen = 48

// A driven is a program of libfabric that does what the test says: tests/driven.c.
type driven struct {
	*program
	d    *rdstest.Daemon
	at   netip.AddrPort
	size int // of its completion queue
}

// drive starts one of those built in dir, and ends it with the test.
func drive(t *testing.T, dir string) *driven {
	t.Helper()
	p := &driven{d: rdstest.StartDaemons(t, 1)[0]}
	p.program = talk(t, command(dir, p.d, filepath.Join(dir, "driven"), p.d.Addr().String()))
	t.Cleanup(func() {
		p.say("end")
		p.finish()
	})
	var port uint16
	if _, err := fmt.Sscan(p.line(), &port, &p.size); err != nil {
		t.Fatal(err)
	}
	p.at = netip.AddrPortFrom(p.d.Addr(), port)
	return p
}

// do has the program carry out a line and returns the answer.
func (p *driven) do(format string, args ...any) string {
	p.t.Helper()
	line := fmt.Sprintf(format, args...)
	p.say(line)
	return p.line()
}

// want is do with the answer that is wanted.
func (p *driven) want(answer, format string, args ...any) {
	p.t.Helper()
	if got := p.do(format, args...); got != answer {
		p.t.Fatalf("%s: %q, want %q", fmt.Sprintf(format, args...), got, answer)
	}
}

// A raw is a socket that speaks to the program's endpoint as it likes.
type raw struct {
	*rds.Socket
	p *driven
}

func (p *driven) raw(port uint16) raw {
	p.t.Helper()
	return raw{p.d.Bind(p.t, p.d.Open(p.t), port), p}
}

func (r raw) send(w wire, payload ...byte) {
	r.p.t.Helper()
	w.Magic = 0x4672
	b := make([]byte, wireLen, wireLen+len(payload))
	if _, err := binary.Encode(b, binary.NativeEndian, w); err != nil {
		r.p.t.Fatal(err)
	}
	if _, err := r.SendTo(append(b, payload...), r.p.at); err != nil {
		r.p.t.Fatal(err)
	}
}

// get returns the next datagram of one of the kinds, and its sender's incarnation.
func (r raw) get(kinds ...uint8) (w wire, inc uint32) {
	r.p.t.Helper()
	ctx, cancel := context.WithTimeout(r.p.t.Context(), patience(r.p.t))
	defer cancel()
	m := rds.Received{Payload: make([]byte, 1<<18)}
	for {
		if err := r.Recv(ctx, &m); err != nil {
			r.p.t.Fatalf("no datagram of kinds %v: %v", kinds, err)
		}
		if _, err := binary.Decode(m.Payload[:m.N], binary.NativeEndian, &w); err != nil {
			r.p.t.Fatal(err)
		}
		if slices.Contains(kinds, w.Kind) {
			return w, m.SrcInc
		}
	}
}

// want is get with the id and error that are wanted.
func (r raw) want(kind uint8, id uint64, errno syscall.Errno) {
	r.p.t.Helper()
	if w, _ := r.get(kind); w.ID != id || w.Err != uint32(errno) {
		r.p.t.Fatalf("kind %d with id %d, error %d, want id %d, error %d", kind, w.ID, w.Err, id, errno)
	}
}

// TestPeers: what becomes of an endpoint and its operations when peers misbehave, end, or begin again.
func TestPeers(t *testing.T) {
	checks := map[string]func(*testing.T, *driven){
		"BoundAgain": boundAgain, "IgnoresStop": ignoresStop, "AnswersWait": answersWait, "Writes": writes,
		"PollFindsEnd": findsEnd("poll"), "BusyFindsEnd": findsEnd("busy"), "SentBeforeEnd": sentBeforeEnd, "SentLate": sentLate,
		"InjectedAtEnd": injectedAtEnd, "BoundSince": boundSince,
	}
	sanitized(t, func(t *testing.T, dir string) {
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			t.Run(name, func(t *testing.T) { checks[name](t, drive(t, dir)) })
		}
	}, "address,undefined")
}

// refused is how the program's operations at a socket that has gone end.
const refused = int(syscall.ECONNREFUSED)

// boundAgain: a socket that is bound at the port of another one is another peer. What that one had announced is an error of
// the receive that takes it, and ids of its successor name nothing of it.
func boundAgain(t *testing.T, p *driven) {
	r := p.raw(0)
	port := r.LocalAddrPort().Port()
	r.send(wire{Kind: wRTS, Flags: isTagged, ID: 5, Len: 100000, Tag: 7})
	p.want("here", "peek 7")
	r.Close()
	r = p.raw(port)
	r.send(wire{Kind: wRTS, Flags: isTagged, ID: 5, Len: 100000, Tag: 8})
	p.want("here", "peek 8")
	p.want("ok", "recv 7")
	p.want(fmt.Sprint("7 0 ", refused), "done")
	p.want("ok", "recv 8")
	r.want(wCTS, 5, 0) // it was asked for its own message alone
	p.want("ok", "know %d", port)
	p.want("ok", "read")
	if w, inc := r.get(wRead); w.ID>>32 != uint64(inc) {
		t.Errorf("operation %#x of socket %#x has not a number of its own", w.ID, inc)
	}
	r.Close()
	p.want(fmt.Sprint("0 0 ", refused), "done") // the read
	p.want(fmt.Sprint("8 0 ", refused), "done")
}

// ignoresStop: peers that go on sending messages which nobody receives lose them. The endpoint serves those whom the
// program knows.
func ignoresStop(t *testing.T, p *driven) {
	const most = 256 << 20
	r, other, known := p.raw(0), p.raw(0), p.raw(0)
	p.want("ok", "know %d", known.LocalAddrPort().Port())
	payload := make([]byte, eager)
	for i := range most/eager + 100 {
		r.send(wire{Kind: wMsg, Flags: isTagged, ID: uint64(i), Len: eager, Tag: 1}, payload...)
	}
	if w, _ := r.get(wOff, wAck); w.Kind != wOff {
		t.Errorf("kind %d ahead of the request to stop", w.Kind)
	}
	if w, _ := r.get(wAck); w.Err != uint32(syscall.ENOMEM) || w.ID < 8<<20/eager {
		t.Errorf("message %d has error %d, want one beyond 8 MiB with ENOMEM", w.ID, w.Err)
	}
	other.send(wire{Kind: wMsg, Flags: isTagged, ID: 9, Tag: 2})
	other.want(wAck, 9, syscall.ENOMEM)
	known.send(wire{Kind: wMsg, Flags: isTagged, Len: eager, Tag: 3}, payload...)
	p.want("here", "peek 3")
	p.want("arrived", "self")
	p.want("ok", "recv 1")
	p.want(fmt.Sprint("1 ", eager, " 0"), "done")
}

// answersWait: who does not take answers for long gets them all in the end.
func answersWait(t *testing.T, p *driven) {
	const operations = 40000
	r := p.raw(0)
	for i := range operations {
		r.send(wire{Kind: wWrite, Flags: last, ID: uint64(i), Tag: 99})
	}
	r.send(wire{Kind: wMsg, Flags: isTagged, Tag: 1})
	p.want("here", "peek 1")
	for i := range operations {
		r.want(wAck, uint64(i), enokey)
	}
}

// writes: strangers' writes fill a completion queue, and no more.
func writes(t *testing.T, p *driven) {
	r := p.raw(0)
	p.want("ok", "recv 1")
	for range p.size + 100 {
		r.send(wire{Kind: wWrote})
	}
	r.send(wire{Kind: wWrite, Flags: last | cqData, ID: 3, Tag: 2, Len: 1}, 'x')
	r.want(wAck, 3, syscall.ENOMEM)
	r.send(wire{Kind: wWrite, Flags: last, ID: 4, Tag: 2, Len: 1}, 'x')
	r.want(wAck, 4, 0)
	r.send(wire{Kind: wMsg, Flags: isTagged | delivery, ID: 5, Tag: 1}) // its receive was posted
	r.want(wAck, 5, 0)
	p.want(fmt.Sprint(p.size+1), "count")
}

// findsEnd: a program that polls the descriptor of its queue, without a limit, learns that a peer has ended. So does one that is
// never idle.
func findsEnd(how string) func(*testing.T, *driven) {
	return func(t *testing.T, p *driven) {
		r := p.raw(0)
		p.want("ok", "know %d", r.LocalAddrPort().Port())
		p.want("ok", "read")
		r.get(wRead)
		r.Close()
		p.want(fmt.Sprint("0 0 ", refused), "%s", how)
	}
}

// sentLate: a message for a peer without room, sent by a program that polls without having looked again, goes out when
// there is room.
func sentLate(t *testing.T, p *driven) {
	r, other := p.raw(0), p.raw(0)
	p.want("ok", "know %d", r.LocalAddrPort().Port())
	fill := &rds.Message{Payload: make([]byte, eager), Addr: r.LocalAddrPort()}
	for err := error(nil); !errors.Is(err, rds.ErrCongested); _, err = other.Send(rds.DontWait, fill) {
		if errors.Is(err, rds.ErrWouldBlock) { // its own buffer is full
			other.Wait(t.Context(), rds.WaitSet{SendSpace: true})
		}
	}
	p.want("sent", "late 5 10")
	if w, _ := r.get(wMsg); w.Tag != 5 {
		t.Errorf("tag %d", w.Tag)
	}
	if got := p.line(); got != "0 0 0" {
		t.Error(got)
	}
}

// sentBeforeEnd: all that a peer has sent counts, though the notice of its end is there, too.
func sentBeforeEnd(t *testing.T, p *driven) {
	const pieces, size = 1000, 100
	r := p.raw(0)
	p.want("ok", "know %d", r.LocalAddrPort().Port())
	p.want("ok", "recv 7")
	r.send(wire{Kind: wRTS, Flags: isTagged, ID: 5, Len: pieces * size, Tag: 7})
	cts, _ := r.get(wCTS)
	p.want("ok", "hold")
	for i := range pieces {
		r.send(wire{Kind: wData, ID: cts.Addr, Addr: uint64(i * size)}, make([]byte, size)...)
	}
	if err := r.CloseWait(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.want("ok", "send 1 10")
	other := p.raw(0) // when it has its own datagram, the daemon has looked for the socket that is gone
	other.SendTo(nil, other.LocalAddrPort())
	if _, _, err := other.RecvFrom(nil); err != nil {
		t.Fatal(err)
	}
	p.want("ok", "go")
	got := []string{p.do("done"), p.do("done")}
	slices.Sort(got)
	want := []string{fmt.Sprint("0 0 ", refused), fmt.Sprint("7 ", pieces*size, " 0")}
	if !slices.Equal(got, want) {
		t.Errorf("completions %q, want %q", got, want)
	}
}

// injectedAtEnd: what was injected is complete for the program. So an endpoint that is closed waits for a peer that has it announced.
func injectedAtEnd(t *testing.T, p *driven) {
	r := p.raw(0)
	p.want("ok", "know %d", r.LocalAddrPort().Port())
	r.send(wire{Kind: wOff})
	r.send(wire{Kind: wMsg, Flags: isTagged, Tag: 3})
	p.want("here", "peek 3") // and so what came ahead of it
	p.want("ok", "inject 7 100")
	p.say("end")
	rts, _ := r.get(wRTS)
	r.send(wire{Kind: wCTS, ID: rts.ID, Len: rts.Len, Addr: 1})
	if data, _ := r.get(wData); data.ID != 1 || rts.Len != 100 {
		t.Errorf("announced %+v, then %+v", rts, data)
	}
}

// boundSince: a notice that nobody was there ends nothing of a socket that has been bound there since.
func boundSince(t *testing.T, p *driven) {
	looked := func(r raw) { // when r has its own datagram, the daemon has seen to what was sent before
		if _, err := r.SendTo(nil, r.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.RecvFrom(nil); err != nil {
			t.Fatal(err)
		}
	}
	r, other := p.raw(0), p.raw(0)
	port := r.LocalAddrPort().Port()
	r.Close()
	p.want("ok", "know %d", port)
	p.want("ok", "recv 7")
	p.want("ok", "hold")
	p.want("ok", "send 1 10")
	looked(other)
	r = p.raw(port)
	r.send(wire{Kind: wRTS, Flags: isTagged, ID: 5, Len: eager, Tag: 7})
	looked(r)
	p.want("ok", "go")
	cts, _ := r.get(wCTS)
	r.send(wire{Kind: wData, ID: cts.Addr}, make([]byte, eager)...)
	got := []string{p.do("done"), p.do("done")}
	slices.Sort(got)
	if want := []string{fmt.Sprint("0 0 ", refused), fmt.Sprint("7 ", eager, " 0")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
