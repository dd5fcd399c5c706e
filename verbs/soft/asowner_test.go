package soft

import (
	"bytes"
	"crypto/fips140"
	"crypto/tls"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// outcome is what comes of a stream.
type outcome struct {
	mem         uint32
	wc          []verbs.WC
	stats       verbs.QPStats
	frames, bad uint64
	said        []byte // by the queue pair
	byThread    uint64
}

func (o outcome) String() string {
	done := 0
	for _, wc := range o.wc {
		if wc.Status == verbs.WCSuccess {
			done++
		}
	}
	return fmt.Sprintf("memory %08x, %d of %d completions, %+v, %d frames, %d bad, says %x", o.mem, done, len(o.wc), o.stats, o.frames, o.bad, o.said)
}

// TestFollowAsOwner: whatever a peer sends, and however it comes in pieces, has the same outcome with a thread.
func TestFollowAsOwner(t *testing.T) {
	for how := range sealed + 1 {
		if how == sealed && fips140.Enabled() {
			continue // crypto/tls carries the records, and threads have none
		}
		threads := uint64(0)
		for seed := range uint64(60) {
			owner, thread := playStream(t, seed, how, false), playStream(t, seed, how, true)
			threads += thread.byThread
			thread.byThread = 0
			if !reflect.DeepEqual(owner, thread) {
				t.Fatalf("seed %d, %v:\nowner  %v\nthread %v", seed, how, owner, thread)
			}
		}
		if threads < 100 {
			t.Errorf("%v: threads have made %d calls", how, threads)
		}
	}
}

// sessions returns both ends of a connection with TLS.
func sessions(t testing.TB) (client, server *tls13.Session) {
	var s [2]*tls13.Session
	for i := range s {
		var err error
		if s[i], err = tls13.NewSession(tls.TLS_AES_128_GCM_SHA256, i == 0, make([]byte, 32), bytes.Repeat([]byte{1}, 32)); err != nil {
			t.Fatal(err)
		}
	}
	return s[0], s[1]
}

// records returns b in records of any length, between which there are other ones, and one of which may be broken.
// whole: close_notify ends them.
func records(t testing.TB, rng *rand.Rand, s *tls13.Session, b []byte, whole bool) (r []byte) {
	broken := rng.IntN(len(b) << 2)
	for len(b) > 0 {
		k := min(1+rng.IntN(1<<rng.IntN(16)), len(b), tls13.MaxPlain)
		at := len(r)
		var err error
		if r, err = s.Out.Append(r, b[:k]); err == nil && rng.IntN(20) == 0 {
			r, err = s.Out.AppendUpdates(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		b = b[k:]
		if broken -= k; broken < 0 && broken > -k-1 {
			r[at+rng.IntN(len(r)-at)]++
		}
	}
	if whole {
		r = s.Out.AppendAlert(r, tls13.AlertCloseNotify)
	}
	return r
}

// opened returns the content of the records in b, and what ended them.
func opened(s *tls13.Session, b []byte) (said []byte, end error) {
	for {
		n, err := tls13.RecordLen(b)
		if err != nil || n == 0 || n > len(b) {
			return said, err
		}
		p := make([]byte, n)
		k, err := s.In.Open(p, b[:n])
		if err != nil {
			return said, err
		}
		said, b = append(said, p[:k]...), b[n:]
	}
}

const streamReads = 3

// playStream sends a stream to a queue pair and returns what becomes of it.
func playStream(t *testing.T, seed uint64, how guarded, thread bool) outcome {
	h := newHost(t, Options{})
	at := attrs()
	var sec *secure
	var far *tls13.Session
	switch how {
	case summed:
		at.CRC = verbs.CRCOn
	case sealed:
		sec = &secure{}
		sec.Session, far = sessions(t)
	}
	p := newPuppetOver(t, h, at, sec)
	m, err := h.pd.(verbs.Keyed).RegMRKey(h.mem, testIOVA, allAccess, 0x12345601)
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		h.recv(verbs.RecvWR{SGL: h.sge(memSize-128, 64)})
	}
	for i := range streamReads {
		h.send(verbs.SendWR{Op: verbs.OpRDMARead, WRID: uint64(i), Flags: verbs.SendSignaled, RKey: 1, SGL: append(h.sge(2<<20+i<<19, 200_000), h.sge(3<<20+i<<18, 100_000)...)})
	}
	if thread {
		h.threadByHand()
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	b := (&script{rng: rng, key: m.RKey(), crc: p.crc, msn: 1}).bytes()
	pieces := rand.New(rand.NewPCG(seed, 2))
	cut := seed%4 == 3 // somewhere; a thread then may have placed more than the owner, who waits for whole frames
	if how == sealed {
		b = records(t, rng, far, b, !cut)
	}
	if cut {
		b = b[:rng.IntN(len(b))]
	}
	step := func() {
		h.dev.Progress()
		h.collect()
		if th := h.dev.threads; th != nil && len(th.work) > 0 && pieces.IntN(3) > 0 {
			h.done(<-th.work)
		}
		p.read()
	}
	for len(b) > 0 && !p.eof {
		k := min(1+pieces.IntN(1<<pieces.IntN(18)), len(b))
		n, err := unix.SendmsgN(p.fd, b[:k], nil, nil, ioFlags)
		if err == unix.EPIPE {
			break
		}
		b = b[max(n, 0):]
		step()
	}
	_ = unix.Shutdown(p.fd, unix.SHUT_WR)
	for n := 0; !p.eof; n++ {
		if step(); n > 1e6 {
			t.Fatalf("seed %d: the queue pair goes on", seed)
		}
	}
	s, said := h.dev.Stats(), p.in
	if how == sealed {
		var end error
		said, end = opened(far, p.in)
		said = fmt.Appendf(said, "%v", end)
	}
	if cut {
		return outcome{wc: h.wc, said: said, bad: s.CRCErrors, byThread: h.dev.Threads().Calls}
	}
	return outcome{crc32.ChecksumIEEE(h.mem), h.wc, h.qp.Stats(), s.FramesIn, s.CRCErrors, said, h.dev.Threads().Calls}
}

// script makes what a peer sends, of which some breaks a rule.
type script struct {
	rng  *rand.Rand
	key  uint32
	crc  bool
	msn  uint32
	read uint32
	b    []byte
}

func (s *script) bytes() []byte {
	for range 8 {
		switch s.rng.IntN(4) {
		case 0:
			s.send()
		case 1:
			if s.read < streamReads {
				s.read++
				s.segments(sinkSTag(s.read), 0, 300_000, responseFrame)
			}
		default:
			to := testIOVA + s.rng.Uint64N(1<<20)
			if s.rng.IntN(16) == 0 {
				to = testIOVA + memSize - 200_000
			}
			s.segments(s.key, to, 1+s.rng.IntN(600_000), writeFrame)
		}
	}
	return s.b
}

func (s *script) send() {
	s.b = append(s.b, sendFrame(s.msn, 0, true, make([]byte, s.rng.IntN(64)))...)
	s.msn++
}

// segments makes a message of n bytes.
func (s *script) segments(stag uint32, to uint64, n int, frame func(stag uint32, to uint64, last bool, payload []byte) []byte) {
	size := []int{65_000, 65_000, 40_000, 33_000, 5000}[s.rng.IntN(5)]
	for n > 0 {
		k := min(n, size)
		payload := make([]byte, k)
		fill(payload[:min(k, 999)], s.rng.IntN(256))
		last := n == k
		at, key := to, stag
		switch s.rng.IntN(200) {
		case 0:
			at++
		case 1:
			key ^= 0x100
		case 2:
			last = !last
		case 3:
			at += memSize
		case 4:
			payload = nil
		case 5, 6, 7:
			s.send() // between two segments
		}
		f := frame(key, at, last, payload)
		if s.crc && s.rng.IntN(100) == 0 {
			f[iwarp.TaggedLen+len(payload)/2]++
		}
		s.b = append(s.b, f...)
		to += uint64(k)
		n -= k
	}
}
