package soft

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// puppet is a peer made of bytes: the test writes frames by hand and reads
// what the QP under test answers. The stream is a socketpair.
type puppet struct {
	t   testing.TB
	h   *host
	fd  int
	crc bool
	in  []byte
	eof bool
}

// newPuppet connects a QP of h to a puppet. The QP is as after Connect, its
// RTR not sent.
func newPuppet(t testing.TB, h *host, at verbs.QPInitAttr) *puppet {
	t.Helper()
	return newPuppetOver(t, h, at, nil)
}

// newPuppetOver is newPuppet with TLS.
func newPuppetOver(t testing.TB, h *host, at verbs.QPInitAttr, sec *secure) *puppet {
	t.Helper()
	sp, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &puppet{t: t, h: h, fd: sp[1], crc: at.CRC == verbs.CRCOn && sec == nil}
	t.Cleanup(p.close)
	q := h.newQP(at).(*qp)
	h.qp = q
	q.become(connecting)
	depth := uint16(at.Cap.ReadDepth)
	q.negotiate(&iwarp.MPA{Rev: 2, Enhanced: true, IRD: depth, ORD: depth})
	if err := q.establish(sp[0], netip.AddrPort{}, netip.AddrPort{}, &iwarp.MPA{}, sec); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *puppet) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// write sends raw bytes, driving the QP while the socket is full.
func (p *puppet) write(b []byte) {
	p.t.Helper()
	for len(b) > 0 {
		n, err := unix.SendmsgN(p.fd, b, nil, nil, ioFlags)
		if err == unix.EPIPE {
			return // the QP gave up; what it said is still to be read
		}
		if err != nil && err != unix.EAGAIN {
			p.t.Fatal(err)
		}
		b = b[max(n, 0):]
		p.h.dev.Progress()
		p.h.collect()
	}
}

// read takes what has arrived.
func (p *puppet) read() {
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(p.fd, b, unix.MSG_DONTWAIT)
		if err != nil {
			if err != unix.EAGAIN && err != unix.ECONNRESET {
				p.t.Fatal(err)
			}
			p.eof = p.eof || err == unix.ECONNRESET
			return
		}
		if n == 0 {
			p.eof = true
			return
		}
		p.in = append(p.in, b[:n]...)
	}
}

// until drives the QP until cond.
func (p *puppet) until(what string, cond func() bool) {
	p.t.Helper()
	runWith(p.t, what, func() bool { p.read(); return cond() }, []int{p.fd}, p.h)
}

// frames waits for the end of the stream and splits it.
func (p *puppet) frames() [][]byte {
	p.t.Helper()
	p.until("end of stream", func() bool { return p.eof })
	var fs [][]byte
	for b := p.in; len(b) > 0; {
		n := 0
		if len(b) >= 2 {
			n = iwarp.FPDUSize(iwarp.ULPDULen(b))
		}
		if n == 0 || n > len(b) {
			p.t.Fatalf("the stream ends in a part of a frame: %x", b[:min(len(b), 64)])
		}
		if p.crc && !iwarp.CheckCRC(b[:n]) {
			p.t.Fatalf("bad CRC: %x", b[:n])
		}
		fs = append(fs, b[:n])
		b = b[n:]
	}
	return fs
}

// terminate waits for the end of the stream and returns the Terminate that
// must be its last frame.
func (p *puppet) terminate() iwarp.Terminate {
	p.t.Helper()
	fs := p.frames()
	if len(fs) == 0 {
		p.t.Fatal("no Terminate")
	}
	f := fs[len(fs)-1]
	var h iwarp.Header
	if err := iwarp.ParseHeader(f, &h); err != nil || h.Op != iwarp.OpTerminate || h.QN != 2 || h.MSN != 1 || h.MO != 0 || !h.Last {
		p.t.Fatalf("last frame %v, %v; want a Terminate", &h, err)
	}
	m, err := iwarp.ParseTerminate(f[iwarp.UntaggedLen:iwarp.LenField+h.ULPDU], false)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// Frames, sealed with CRC so that they serve both modes.

func seal(h *iwarp.Header, payload []byte) []byte {
	h.ULPDU = h.Len() - iwarp.LenField + len(payload)
	f := make([]byte, iwarp.FPDUSize(h.ULPDU))
	n := h.Put(f)
	copy(f[n:], payload)
	iwarp.Seal(f, true)
	return f
}

func sendFrame(msn, mo uint32, last bool, payload []byte) []byte {
	return seal(&iwarp.Header{Op: iwarp.OpSend, Last: last, MSN: msn, MO: mo}, payload)
}

func writeFrame(stag uint32, to uint64, last bool, payload []byte) []byte {
	return seal(&iwarp.Header{Op: iwarp.OpWrite, Tagged: true, Last: last, STag: stag, TO: to}, payload)
}

func responseFrame(stag uint32, to uint64, last bool, payload []byte) []byte {
	return seal(&iwarp.Header{Op: iwarp.OpReadResponse, Tagged: true, Last: last, STag: stag, TO: to}, payload)
}

func readFrame(msn uint32, r iwarp.ReadRequest) []byte {
	var b [iwarp.ReadReqLen]byte
	r.Put(b[:])
	return seal(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: 1, MSN: msn}, b[:])
}

func terminateFrame(m iwarp.Terminate) []byte {
	b := make([]byte, iwarp.MaxTerminate)
	return seal(&iwarp.Header{Op: iwarp.OpTerminate, Last: true, QN: 2, MSN: 1}, b[:m.Put(b)])
}

// reseal fixes the CRC of a frame that was changed.
func reseal(f []byte) []byte {
	iwarp.PutCRC(f[len(f)-iwarp.CRCLen:], iwarp.CRC(0, f[:len(f)-iwarp.CRCLen]))
	return f
}

// writeSome sends what the socket takes at once.
func (p *puppet) writeSome(b *[]byte) {
	p.t.Helper()
	n, err := unix.SendmsgN(p.fd, *b, nil, nil, ioFlags)
	if err != nil && err != unix.EAGAIN {
		p.t.Fatal(err)
	}
	*b = (*b)[max(n, 0):]
}
