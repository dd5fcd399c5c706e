package conformance

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupL() []statement {
	return []statement{
		{n: 185, kind: "k", later: laterKernel, text: "rds-stress between rdsd and a kernel over TCP, ten minutes without an error"},
		{n: 186, kind: "k", later: laterKernel, text: "rds-stress with RDMA over IB or soft-RoCE, both directions"},
		{n: 187, kind: "k", later: laterKernel, text: "the same with a link bounce every 5 s"},
		{n: 188, kind: "k", later: laterKernel, text: "rds-stress -I 16, -M 1, -M 2, -o each complete"},
		{n: 189, kind: "k", later: laterKernel, text: "FREE_MR(0) tells rds-stress of RDMA, on TCP it fails as configured"},
		{n: 190, kind: "r", by: byCalls, text: "when the daemon restarts clients get a defined error, rebind, and traffic resumes", check: daemonRestart},
		{n: 191, kind: "r", by: byPeer, text: "garbage on the wire and at the control socket: no crash, no leak, bounded memory (24 h form: make fuzz)", check: garbageIsBounded},
		{n: 192, kind: "r", by: byCalls, text: "a dead peer that holds half the send buffer leaves the other half to the live peers of the same socket, and their messages go on", check: deadPeerLeavesHalf},
	}
}

func daemonRestart(t *testing.T, e *env) {
	p := pair(t)
	s, to := p.ka.bound(t), p.kb.bound(t)
	at := s.local()
	waits := make(chan error, 1)
	s.timeo(soRcvTimeo, patience)
	go func() {
		_, err := s.recvInto(nil, nil, 0)
		waits <- err
	}()
	s.mustSend([]byte("before"), to.local())
	to.recv()
	p.a.kill(t)
	want(t, "a receive that waits", <-waits, syscall.ECONNRESET)
	want(t, "a send", s.send(nil, to.local()), syscall.ECONNRESET)
	if got := s.poll(afrds.PollIn | afrds.PollErr); got&afrds.PollErr == 0 {
		t.Errorf("poll: %#x", got)
	}
	p.a.start(t)
	again := newKernel(t, p.a).socket(t)
	again.bind(at)
	to.deliver([]byte("to the new one"), at)
	if g := again.recv(); string(g.data) != "to the new one" {
		t.Errorf("received %q", g.data)
	}
	again.mustSend([]byte("after"), to.local())
	if g := to.recv(); string(g.data) != "after" || g.from != at {
		t.Errorf("received %q from %v", g.data, g.from)
	}
}

// resident returns the bytes of a process's resident memory.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	ok(t, "statm", err)
	n, err := strconv.Atoi(strings.Fields(string(b))[1])
	ok(t, "statm", err)
	return n * os.Getpagesize()
}

func garbageIsBounded(t *testing.T, e *env) {
	goTest(t, "../../conn/wire", "FuzzParse", "FuzzBodies")
	p := pair(t)
	s, to := p.ka.bound(t), p.kb.bound(t)
	rng := rand.New(rand.NewPCG(191, 1))
	junk := make([]byte, 4096)
	fill := func() []byte {
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		return junk[:1+rng.IntN(len(junk)-1)]
	}
	pid := p.a.Pid()
	before := 0
	for round := range 60 {
		if round == 20 {
			before = resident(t, pid)
		}
		if c, err := net.Dial("tcp", netip.AddrPortFrom(p.a.addr(), rdsPort).String()); err == nil {
			_, _ = c.Write(fill())
			c.Close()
		}
		if c, err := net.Dial("unixpacket", p.a.sock); err == nil {
			_, _ = c.Write(fill())
			c.Close()
		}
		// The peer's frames are right except for some bytes.
		x := connected(t, p.a)
		for range 20 {
			b := x.frame(s.local(), fill()[:rng.IntN(200)])
			for range 1 + rng.IntN(3) {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
			if rng.IntN(2) == 0 {
				binary.BigEndian.PutUint16(b[30:], 0) // so that the checksum does not catch it
			}
			x.post(b[:max(1, min(len(b), wire.HeaderLen+rng.IntN(len(b))))])
			if x.step(); x.down {
				break
			}
		}
		_ = x.dev.Close()
		s.mustSend([]byte("alive"), to.local())
		if g := to.recv(); string(g.data) != "alive" {
			t.Fatalf("round %d: received %q", round, g.data)
		}
		for { // parts of the garbage may have been messages
			if _, err := s.recvInto(junk, make([]byte, 256), syscall.MSG_DONTWAIT); err != nil {
				break
			}
		}
	}
	if after := resident(t, pid); after > before+before/2+16<<20 {
		t.Errorf("memory grew from %d to %d bytes", before, after)
	}
	if n := p.a.counter(t, stats.ProtocolErrors); n == 0 {
		t.Error("nothing of it was noticed")
	}
	eventually(t, "descriptors", func() error {
		fds, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		return errOf(err != nil || len(fds) > 100, "%d, %v", len(fds), err)
	})
}

// deadPeerLeavesHalf counts the messages that a socket may have sent to a peer that does not
// acknowledge, first alone and then beside a dead one.
func deadPeerLeavesHalf(t *testing.T, e *env) {
	p := pair(t)
	to := p.kb.bound(t)
	const limit, size, n = 64 << 10, 1000, 5000
	const dead = limit / 2 / size
	to.rcvbuf(16 << 20)
	msg := make([]byte, size)
	inFlight := func(s *sock) (sent int) {
		p.b.pause(t)
		defer p.b.Resume()
		for {
			err := s.send(msg, to.local())
			if errors.Is(err, syscall.EAGAIN) {
				return sent
			}
			ok(t, "sendmsg", err)
			sent++
		}
	}
	s := p.ka.bound(t)
	s.sndbuf(limit)
	before := p.a.counter(t, stats.SendAcked)
	acked := func(n int) { p.a.counted(t, stats.SendAcked, before, uint64(n)) }
	s.mustSend(msg, to.local()) // connects
	to.drain(1)
	acked(1) // otherwise it is in flight, too
	alone := inFlight(s)
	to.drain(alone)
	acked(1 + alone)
	away := nobody()
	for range dead {
		s.mustSend(msg, away)
	}
	beside := inFlight(s)
	if alone < limit/size || beside != alone-dead {
		t.Errorf("%d messages in flight alone, %d beside %d to a dead peer", alone, beside, dead)
	}
	to.drain(beside)
	go func() {
		for range n {
			s.deliver(msg, to.local())
		}
	}()
	to.drain(n)
	eventually(t, "only the dead peer's are left", func() error {
		queued := p.a.counter(t, stats.QueuedMessages)
		return errOf(queued != dead, "%d messages are queued", queued)
	})
}
