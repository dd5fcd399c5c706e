package soft

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestDeregFinishesFrames: deregistering memory that is being sent leaves the
// frames begun as they were, and fails the rest of the request.
func TestDeregFinishesFrames(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead} {
		h := newHost(t, Options{})
		p := newPuppet(t, h, attrs())
		mem := make([]byte, 2<<20)
		fill(mem, 1)
		want := bytes.Clone(mem)
		m, err := h.pd.RegMR(mem, 0, allAccess)
		if err != nil {
			t.Fatal(err)
		}
		if op == verbs.OpRDMARead { // served to the peer
			p.write(readFrame(1, iwarp.ReadRequest{Size: 2 << 20, SrcSTag: m.RKey()}))
		} else {
			h.send(verbs.SendWR{WRID: 1, Op: op, SGL: []verbs.SGE{{Length: 2 << 20, LKey: m.LKey()}}})
		}
		for h.dev.Progress() {
		}
		h.collect()
		if len(h.wc) != 0 {
			t.Fatal("complete already")
		}
		if err := m.Dereg(); err != nil {
			t.Fatal(err)
		}
		for i := range mem {
			mem[i] = 0xff
		}
		term := p.terminate()
		fs := p.frames()
		off := 0
		for _, f := range fs[:len(fs)-1] {
			var hd iwarp.Header
			iwarp.ParseHeader(f, &hd)
			if !bytes.Equal(f[hd.Len():hd.Len()+hd.Payload()], want[off:off+hd.Payload()]) {
				t.Fatalf("op %d: frame at %d shows memory after Dereg", op, off)
			}
			off += hd.Payload()
		}
		if off == 0 || off >= 2<<20 {
			t.Errorf("op %d: %d bytes sent", op, off)
		}
		if op == verbs.OpRDMARead {
			if term.Code != iwarp.TermReadSTag || term.Req.Size != uint32(2<<20-off) || term.Req.SrcTO != uint64(off) {
				t.Errorf("%+v after %d bytes", term, off)
			}
			continue
		}
		if wc := h.take(1)[0]; wc.WRID != 1 || wc.Status != verbs.WCLocProtErr {
			t.Errorf("op %d: %+v", op, wc)
		}
		if term.Code != iwarp.TermLocal {
			t.Errorf("op %d: %v", op, term.Code)
		}
	}
}

// TestDeregDuringPlacement: the rest of a payload that is being read in place
// goes nowhere.
func TestDeregDuringPlacement(t *testing.T) {
	t.Run("dereg", func(t *testing.T) {
		placeUntil(t, func(m verbs.MR, _ []byte) error { return m.Dereg() })
	})
	t.Run("rereg", func(t *testing.T) {
		placeUntil(t, func(m verbs.MR, other []byte) error { return m.Rereg(other, 0, allAccess) })
	})
}

// placeUntil ends a region while a WRITE to it is being read in place: neither
// its memory nor other is written any more.
func placeUntil(t *testing.T, end func(m verbs.MR, other []byte) error) {
	h := newHost(t, Options{})
	mem := make([]byte, 64<<10)
	m, _ := h.pd.RegMR(mem, 0, allAccess)
	p := newPuppet(t, h, attrs())
	f := writeFrame(m.RKey(), 0, true, bytes.Repeat([]byte{1}, 60000))
	p.write(f[:1000])
	for h.dev.Progress() {
	}
	if !h.qp.(*qp).rx.placing || mem[0] != 1 {
		t.Fatal("not being read in place")
	}
	other := make([]byte, len(mem))
	if err := end(m, other); err != nil {
		t.Fatal(err)
	}
	clear(mem)
	p.write(f[1000:])
	if term := p.terminate(); term.Code != iwarp.TermTaggedSTag {
		t.Errorf("%+v", term)
	}
	for _, b := range append(mem, other...) {
		if b != 0 {
			t.Fatal("written after its end")
		}
	}
}

// TestScribble: with CRC, memory that changes while it is being sent breaks
// nothing.
func TestScribble(t *testing.T) {
	at := attrs()
	at.CRC = verbs.CRCOn
	a, b := pair(t, at, at)
	stop, done := make(chan struct{}), make(chan struct{})
	shared := sharedMem(t, 1<<20)
	m, err := a.pd.RegMR(shared.mine, 0, verbs.AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				for j := 0; j < len(shared.theirs); j += 64 {
					shared.theirs[j] = i
				}
			}
		}
	}()
	for i := range 50 {
		b.recv(verbs.RecvWR{SGL: b.sge(0, 1<<20)})
		a.send(verbs.SendWR{WRID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{{Length: 1 << 20, LKey: m.LKey()}}})
		b.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(1<<20, 1<<20), RKey: m.RKey()})
		if wc := a.take(1, b)[0]; wc.Status != 0 {
			t.Fatalf("%+v", wc)
		}
		for _, wc := range b.take(2, a) {
			if wc.Status != 0 {
				t.Fatalf("%+v", wc)
			}
		}
	}
	close(stop)
	<-done
}

type twoViews struct{ mine, theirs []byte }

// sharedMem maps one memfd twice, so that a scribbling writer is no data race
// in the eyes of the race detector, as it is none across processes.
func sharedMem(t *testing.T, n int) twoViews {
	fd, err := unix.MemfdCreate("scribble", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	var v [2][]byte
	for i := range v {
		if v[i], err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(v[i]) })
	}
	return twoViews{v[0], v[1]}
}

// TestPrivateMemory: with CRC and AccessPrivate the payload is summed in
// place; the peer checks it.
func TestPrivateMemory(t *testing.T) {
	at := attrs()
	at.CRC = verbs.CRCOn
	a, b := pair(t, at, at)
	m, err := a.pd.RegMR(a.mem, 0, verbs.AccessPrivate)
	if err != nil {
		t.Fatal(err)
	}
	fill(a.mem[:1<<20], 5)
	for _, n := range sizes[1:] {
		clear(b.mem)
		b.recv(verbs.RecvWR{SGL: b.sge(0, 1<<20)})
		sgl := []verbs.SGE{{Length: uint32(n), LKey: m.LKey()}}
		if n > 10 {
			sgl = []verbs.SGE{{Length: 5, LKey: m.LKey()}, {Addr: 5, Length: uint32(n - 5), LKey: m.LKey()}}
		}
		a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: sgl})
		if wc := b.take(1, a)[0]; wc.Status != 0 || !bytes.Equal(b.mem[:n], a.mem[:n]) {
			t.Fatalf("size %d: %+v", n, wc)
		}
		a.take(1, b)
	}
}

// TestKeysGoOn: a device that was given the keys of a former one counts on behind the last of
// them, so that a value does not come back soon.
func TestKeysGoOn(t *testing.T) {
	h := newKeyHost(t)
	mem := make([]byte, 64)
	for _, count := range []uint32{100, 90, 110} {
		if _, err := h.RegMRKey(mem, 0, 0, 1<<20+count<<8+count); err != nil {
			t.Fatal(err)
		}
	}
	m, err := h.RegMR(mem, 0, 0)
	if err != nil || uint8(m.RKey()) != 111 {
		t.Errorf("key %#x, %v", m.RKey(), err)
	}
}

func newKeyHost(t *testing.T) *pd {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	p, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return p.(*pd)
}

// TestKeysApart: the lowest bit of a key's index says whether peers may have rights, also of a window and of
// a region that gets other rights.
func TestKeysApart(t *testing.T) {
	var keys keyTable
	keys.init()
	for i := range 200 {
		m, remote := &mr{}, i%2 == 1
		if !keys.add(m, remote) || m.key>>8&1 == 1 != remote {
			t.Fatalf("key %#x, remote %v", m.key, remote)
		}
	}
	_, b := pair(t, attrs(), attrs())
	for range 20 {
		w, err := b.pd.AllocMW(verbs.MWType1)
		if err != nil || w.RKey()>>8&1 != 1 {
			t.Fatal(w, err)
		}
		m, err := b.pd.RegMR(make([]byte, 8), 0, verbs.AccessLocalWrite)
		if err != nil || m.RKey()>>8&1 != 0 {
			t.Fatal(m, err)
		}
		if err := m.Rereg(make([]byte, 8), 0, verbs.AccessRemoteRead); err != nil || m.RKey()>>8&1 != 1 {
			t.Fatal(m, err)
		}
	}
}
