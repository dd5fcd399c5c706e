package soft

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestZeroLength: nothing of a zero-length WRITE or READ is checked.
func TestZeroLength(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	b := writeFrame(0xdead, 1<<63, true, nil)
	b = append(b, readFrame(1, iwarp.ReadRequest{SinkSTag: 3, SinkTO: 4, SrcSTag: 0xdead, SrcTO: 5})...)
	p.write(b)
	want := responseFrame(3, 4, true, nil)
	p.until("the response", func() bool { return len(p.in) >= len(want) })
	if !bytes.Equal(p.in[:14], want[:14]) {
		t.Errorf("%x, want %x", p.in, want)
	}
	h.send(verbs.SendWR{WRID: 1, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled})
	p.write(responseFrame(1, 2, true, nil)) // our sink unchecked as well
	if wc := h.take(1)[0]; wc.Status != 0 || wc.ByteLen != 0 {
		t.Errorf("%+v", wc)
	}
}

// TestHalfFrameThenEnd: the peer dies in the middle of each part of a frame.
func TestHalfFrameThenEnd(t *testing.T) {
	for _, crc := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		h := newHost(t, Options{})
		at := attrs()
		at.CRC = crc
		f := sendFrame(1, 0, true, make([]byte, 60000))
		for _, n := range []int{0, 1, 2, 3, 15, 19, 20, 21, 100, 40000, len(f) - 5, len(f) - 4, len(f) - 1} {
			p := newPuppet(t, h, at)
			h.recv(verbs.RecvWR{WRID: 1, SGL: h.sge(0, 60000)})
			h.send(verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, SGL: h.sge(0, 4)})
			p.write(f[:n])
			run(t, "input taken", func() bool { return !h.dev.Progress() }, h)
			p.close()
			wc := h.take(2)
			if wc[0].WRID != 2 || wc[0].Status != verbs.WCRetryExcErr || wc[1].WRID != 1 || wc[1].Status != verbs.WCWRFlushErr {
				t.Errorf("cut at %d: %+v", n, wc)
			}
			if e := h.event(); e.Type != verbs.CMDisconnected || e.Err == nil {
				t.Errorf("cut at %d: %+v", n, e)
			}
			if err := h.qp.Destroy(); err != nil {
				t.Error(err)
			}
		}
		if l := &h.dev.lent; len(l.small.free) > 2 || len(l.large.free) > 2 {
			t.Errorf("%d and %d stages in use by one connection at a time", len(l.small.free), len(l.large.free))
		}
	}
}

// TestEverySplit: a stream may be cut into segments anywhere.
func TestEverySplit(t *testing.T) {
	for _, crc := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		h := newHost(t, Options{})
		at := attrs()
		at.CRC = crc
		var stream []byte
		for i := range 5 {
			stream = append(stream, sendFrame(uint32(2*i+1), 0, false, bytes.Repeat([]byte{byte(i + 1)}, i))...)
			stream = append(stream, sendFrame(uint32(2*i+1), uint32(i), true, bytes.Repeat([]byte{byte(i + 1)}, 7))...)
			stream = append(stream, writeFrame(h.mr.RKey(), testIOVA+4096, true, []byte{byte(i)})...)
			stream = append(stream, sendFrame(uint32(2*i+2), 0, true, nil)...)
			stream = append(stream, readFrame(uint32(i+1), iwarp.ReadRequest{Size: 1, SrcSTag: h.mr.RKey(), SrcTO: testIOVA + 4096})...)
		}
		for cut := 1; cut < len(stream); cut++ {
			p := newPuppet(t, h, at)
			for i := range 10 {
				h.recv(verbs.RecvWR{WRID: uint64(i), SGL: h.sge(i*64, 64)})
			}
			for _, part := range [][]byte{stream[:cut], stream[cut:]} {
				p.write(part)
				for h.dev.Progress() {
				}
			}
			for i, wc := range h.take(10) {
				want := uint32(0)
				if i%2 == 0 {
					want = uint32(i/2 + 7)
				}
				if wc.WRID != uint64(i) || wc.Status != 0 || wc.ByteLen != want {
					t.Fatalf("cut at %d: completion %d is %+v", cut, i, wc)
				}
			}
			p.until("the responses", func() bool { return len(p.in) >= 5*24 })
			h.qp.Destroy()
			p.close()
		}
	}
}

// TestByteByByte sends a message of several large segments in small pieces.
func TestByteByByte(t *testing.T) {
	for _, crc := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		for _, piece := range []int{1, 1000, 33333} {
			h := newHost(t, Options{})
			at := attrs()
			at.CRC = crc
			p := newPuppet(t, h, at)
			data := make([]byte, 150001)
			fill(data, piece)
			var stream []byte
			for off := 0; off < len(data); off += 64512 {
				n := min(64512, len(data)-off)
				stream = append(stream, sendFrame(1, uint32(off), off+n == len(data), data[off:off+n])...)
			}
			h.recv(verbs.RecvWR{SGL: append(h.sge(0, 70000), h.sge(1<<20, 90000)...)})
			var step int
			for off := 0; off < len(stream); off += step {
				if piece == 1 && off > 300 && off < len(stream)-300 {
					step = 97
				} else {
					step = piece
				}
				p.write(stream[off:min(off+step, len(stream))])
			}
			if wc := h.take(1)[0]; wc.Status != 0 || wc.ByteLen != uint32(len(data)) {
				t.Fatalf("%+v", wc)
			}
			if !bytes.Equal(h.mem[:70000], data[:70000]) || !bytes.Equal(h.mem[1<<20:][:80001], data[70000:]) {
				t.Errorf("crc %d, pieces of %d: data differ", crc, piece)
			}
		}
	}
}

// TestTerminateBehindBlockedOutput: a peer that does not read gets its Terminate
// late, behind the frames begun as they were.
func TestTerminateBehindBlockedOutput(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	fill(h.mem[:1<<20], 1)
	h.send(verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: h.sge(0, 1<<20), RKey: 1})
	for h.dev.Progress() {
	}
	if h.qp.(*qp).events&unix.EPOLLOUT == 0 {
		t.Fatal("1 MiB fitted the socket")
	}
	p.write(writeFrame(1, 0, true, []byte("bad")))
	if wc := h.take(1)[0]; wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
	clear(h.mem) // the buffer is ours again: the frames begun must not change
	if m := p.terminate(); m.Code != iwarp.TermTaggedSTag {
		t.Errorf("%+v", m)
	}
	want := make([]byte, 1<<20)
	fill(want, 1)
	off := 0
	fs := p.frames()
	for _, f := range fs[:len(fs)-1] {
		n := iwarp.ULPDULen(f) + iwarp.LenField - iwarp.TaggedLen
		if !bytes.Equal(f[iwarp.TaggedLen:iwarp.TaggedLen+n], want[off:off+n]) {
			t.Fatalf("frame at %d changed", off)
		}
		off += n
	}
}

func TestResetByPeer(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	a.recv(verbs.RecvWR{WRID: 1})
	fd := b.qp.(*qp).fd
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	b.dev.watch(unix.EPOLL_CTL_DEL, fd, 0, 0)
	unix.Close(fd)
	b.qp.(*qp).fd = -1
	if wc := a.take(1)[0]; wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
	if e := a.event(); e.Type != verbs.CMDisconnected || !errors.Is(e.Err, unix.ECONNRESET) {
		t.Errorf("%+v", e)
	}
}

// TestHeldBack: a fence keeps a SEND off the wire until the READs before it are
// complete, and the read depth keeps further READs, and all behind them, off.
func TestHeldBack(t *testing.T) {
	const request, send = 52, 24
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs()) // depth 4
	read := verbs.SendWR{Op: verbs.OpRDMARead, SGL: h.sge(0, 4), RKey: 1}
	var wr []verbs.SendWR
	for range 6 {
		wr = append(wr, read)
	}
	h.send(append(wr, verbs.SendWR{WRID: 7, Op: verbs.OpSend, Flags: verbs.SendFence | verbs.SendSignaled})...)
	wait := func(n int) {
		t.Helper()
		for h.dev.Progress() {
		}
		p.read()
		if len(p.in) != n {
			t.Fatalf("%d bytes on the wire, want %d", len(p.in), n)
		}
	}
	wait(4 * request)
	for i := range uint32(6) {
		p.write(responseFrame(sinkSTag(i+1), 0, true, []byte("data")))
		n := min(int(i)+5, 6) * request
		if i == 5 {
			n += send
		}
		wait(n)
	}
	if wc := h.take(1)[0]; wc.WRID != 7 || wc.Status != 0 {
		t.Errorf("%+v", wc)
	}
}
