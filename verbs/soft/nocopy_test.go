package soft

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// ioMeter is a tap that tells the bytes which system calls read from or write
// to a region from those which pass through the device's own memory. Only the
// latter are copied by the provider.
type ioMeter struct {
	lo, hi            uintptr // the region
	outThere, inThere int
	outElse, inElse   int
}

func meter(mem []byte) *ioMeter {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return &ioMeter{lo: lo, hi: lo + uintptr(len(mem))}
}

func (m *ioMeter) Stream(_, _ netip.AddrPort, out bool, b []byte) {
	if len(b) == 0 {
		return
	}
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	in := p >= m.lo && p+uintptr(len(b)) <= m.hi
	switch {
	case out && in:
		m.outThere += len(b)
	case out:
		m.outElse += len(b)
	case in:
		m.inThere += len(b)
	default:
		m.inElse += len(b)
	}
}

// tapTo forwards to a meter that is made after the device.
type tapTo struct{ m *ioMeter }

func (t *tapTo) Stream(l, r netip.AddrPort, out bool, b []byte) {
	if t.m != nil {
		t.m.Stream(l, r, out, b)
	}
}

// TestNoCopy: without CRC the payload of large WRITEs and READs goes from one
// region to the socket and from the socket to the other region. The sender's
// device handles headers and trailers only; the receiver's also the 2 KiB that
// it reads along with a header where the stream had paused. With TLS the receiver's device
// handles the end of each segment, too.
func TestNoCopy(t *testing.T) {
	const size, count = 1 << 20, 64
	for _, c := range []struct {
		name string
		op   verbs.Opcode
		tls  bool
		most int // of 100 bytes, those that the receiver's device handles
	}{{"write", verbs.OpRDMAWrite, false, 1}, {"read", verbs.OpRDMARead, false, 1}, {"write/TLS", verbs.OpRDMAWrite, true, 33}, {"read/TLS", verbs.OpRDMARead, true, 33}} {
		t.Run(c.name, func(t *testing.T) {
			taps := [2]*tapTo{{}, {}}
			opt := [2]Options{}
			if c.tls {
				ca := tlstest.NewCA(t)
				opt = [2]Options{secured(t, ca), secured(t, ca)}
			}
			opt[0].Tap, opt[1].Tap = taps[0], taps[1]
			a, b := newHost(t, opt[0]), newHost(t, opt[1])
			link(t, a, b, attrs(), attrs())
			for i := range a.mem {
				a.mem[i] = byte(i * 7)
			}
			source, sink := a, b
			if c.op == verbs.OpRDMARead {
				source, sink = b, a
				copy(b.mem, a.mem)
				clear(a.mem)
			}
			run := func(n int) {
				wc := make([]verbs.WC, 8)
				for posted, done := 0, 0; done < n; {
					for ; posted < n && posted-done < 4; posted++ {
						off := uint64(posted % 4 * size)
						wr := verbs.SendWR{Op: c.op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{{Addr: testIOVA + off, Length: size, LKey: a.mr.LKey()}}, RKey: b.mr.RKey(), RemoteAddr: testIOVA + off}
						if _, err := a.qp.PostSend([]verbs.SendWR{wr}); err != nil {
							t.Fatal(err)
						}
					}
					a.dev.Progress()
					b.dev.Progress()
					k := a.cq.Poll(wc)
					for i := range wc[:k] {
						if wc[i].Status != verbs.WCSuccess {
							t.Fatalf("%+v", wc[i])
						}
					}
					done += k
				}
			}
			run(4) // the receiver learns that payloads are large
			out, in := meter(source.mem), meter(sink.mem)
			for i, h := range []*host{a, b} {
				if taps[i].m = in; h == source {
					taps[i].m = out
				}
			}
			run(count)
			const payload = size * count
			if out.outThere != payload {
				t.Errorf("%d of %d bytes were sent from the region", out.outThere, payload)
			}
			// 17 segments a message, of header, pad and CRC.
			if limit := count * 17 * (iwarp.UntaggedLen + 3 + iwarp.CRCLen); out.outElse > limit {
				t.Errorf("the sender's own memory: %d bytes, want at most %d", out.outElse, limit)
			}
			if in.inElse > payload/100*c.most {
				t.Errorf("the receiver's own memory: %d bytes, want less than %d %% of %d", in.inElse, c.most, payload)
			}
			t.Logf("source: region %d, own %d; sink: region %d, own %d", out.outThere, out.outElse, in.inThere, in.inElse)
		})
	}
}

// TestSegment: as few segments as possible, none of them short.
func TestSegment(t *testing.T) {
	const most = iwarp.MaxPayload
	for _, length := range []uint64{0, 1, most - 1, most, most + 1, 100 << 10, 2 * most, 2*most + 1, 1 << 20, 1<<31 - 1, 1 << 31} {
		for _, limit := range []uint64{most, 1408, 1} {
			if length/limit > 1<<20 {
				continue
			}
			count, shortest := uint64(0), length
			for left := length; left > 0; count++ {
				n := segment(left, limit)
				if n == 0 || n > left || n > limit {
					t.Fatalf("segment(%d, %d) = %d", left, limit, n)
				}
				shortest = min(shortest, n)
				left -= n
			}
			if want := (length + limit - 1) / limit; count != want {
				t.Errorf("%d bytes by %d: %d segments, want %d", length, limit, count, want)
			}
			if limit == most && count > 1 && shortest+64 < most/2 {
				t.Errorf("%d bytes by %d: a segment of %d", length, limit, shortest)
			}
		}
	}
}
