package soft

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/verbs"
)

// ioMeter is a tap that tells the bytes which system calls read from or write
// to a region from those which pass through the device's own memory. Only the
// latter are copied by the provider.
type ioMeter struct {
	lo, hi                         uintptr // the region
	sentThere, sentElse, inElse    int
	receivedThere                  int
	largestSentElse, largestInElse int
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
		m.sentThere += len(b)
	case out:
		m.sentElse += len(b)
		m.largestSentElse = max(m.largestSentElse, len(b))
	case in:
		m.receivedThere += len(b)
	default:
		m.inElse += len(b)
		m.largestInElse = max(m.largestInElse, len(b))
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
// device sees headers and trailers only; the receiver's also the little that
// one system call takes in together with the header of a message's first
// segment.
func TestNoCopy(t *testing.T) {
	const size, count = 1 << 20, 64
	for _, c := range []struct {
		name string
		op   verbs.Opcode
	}{{"write", verbs.OpRDMAWrite}, {"read", verbs.OpRDMARead}} {
		t.Run(c.name, func(t *testing.T) {
			taps := [2]*tapTo{{}, {}}
			a, b := newHost(t, Options{Tap: taps[0]}), newHost(t, Options{Tap: taps[1]})
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
			if out.sentThere < payload-4*size || out.sentThere > payload+4*size {
				t.Errorf("%d of %d bytes were sent from the region", out.sentThere, payload)
			}
			segments := payload/iwarpSegment + 2*count
			if out.sentElse > segments*64 {
				t.Errorf("the sender's own memory: %d bytes, want headers and trailers of about %d segments", out.sentElse, segments)
			}
			if limit := 3 * bulkTail * count; in.inElse > limit {
				t.Errorf("the receiver's own memory: %d bytes, want at most %d in %d messages", in.inElse, limit, count)
			}
			t.Logf("source: region %d, own %d; sink: region %d, own %d", out.sentThere, out.sentElse, in.receivedThere, in.inElse)
		})
	}
}

const iwarpSegment = 60 << 10
