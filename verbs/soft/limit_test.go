package soft

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestLongestMessage: 2^31 bytes go in one SEND, WRITE and READ. The memory is
// 2 MiB mapped over and over.
func TestLongestMessage(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("6 GiB through the loopback")
	}
	const piece, pieces = 128 << 20, maxMsg / (128 << 20)
	at := attrs()
	at.Cap.MaxSendSGE, at.Cap.MaxRecvSGE = pieces, pieces
	a, b := newHost(t, Options{}), newHost(t, Options{})
	for _, h := range []*host{a, b} {
		h.mem = repeated(t, maxMsg)
		var err error
		if h.mr, err = h.pd.RegMR(h.mem, testIOVA, allAccess); err != nil {
			t.Fatal(err)
		}
	}
	link(t, a, b, at, at)
	sgl := func(h *host) (l []verbs.SGE) {
		for i := range pieces {
			l = append(l, h.sge(i*piece, piece)...)
		}
		return l
	}
	b.recv(verbs.RecvWR{WRID: 9, SGL: sgl(b)})
	for i, op := range []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead} {
		from, to := a, b
		if op == verbs.OpRDMARead {
			from, to = b, a
		}
		from.mem[0], to.mem[0] = byte(i+1), 0
		a.send(verbs.SendWR{WRID: uint64(i), Op: op, Flags: verbs.SendSignaled, SGL: sgl(a), RKey: b.mr.RKey(), RemoteAddr: testIOVA},
			verbs.SendWR{WRID: 7, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled}) // everything before it is there
		for _, wc := range a.take(2, b) {
			if wc.Status != 0 {
				t.Fatalf("%v: %+v", op, wc)
			}
		}
		if to.mem[maxMsg-2<<20] != byte(i+1) {
			t.Errorf("%v: the last piece is not there", op)
		}
	}
	if wc := b.take(1, a)[0]; wc.WRID != 9 || wc.Status != 0 || wc.ByteLen != maxMsg {
		t.Errorf("%+v", wc)
	}
	a.send(verbs.SendWR{WRID: 8, Op: verbs.OpRDMAWrite, SGL: append(sgl(a)[:pieces-1], a.sge(0, piece+1)...), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	if wc := a.take(1, b)[0]; wc.WRID != 8 || wc.Status != verbs.WCLocLenErr {
		t.Errorf("a byte more: %+v", wc)
	}
}

// TestNotGranted: what was posted before the connection stood, and what its
// peer turns out not to do, fails when its turn comes: LOC_QP_OP_ERR.
func TestNotGranted(t *testing.T) {
	for name, c := range map[string]struct {
		reply iwarp.MPA
		wr    verbs.SendWR
	}{
		"READ, no depth":         {iwarp.MPA{Reply: true, Rev: 2, Enhanced: true}, verbs.SendWR{Op: verbs.OpRDMARead}},
		"atomic, foreign peer":   {iwarp.MPA{Reply: true, Rev: 1}, verbs.SendWR{Op: verbs.OpAtomicFetchAdd}},
		"SEND_WITH_IMM, foreign": {iwarp.MPA{Reply: true, Rev: 1}, verbs.SendWR{Op: verbs.OpSendWithImm}},
	} {
		h := newHost(t, Options{})
		addr, _ := responderOnce(t, c.reply.Append(nil))
		h.qp = h.newQP(attrs())
		if err := h.dev.Connect(h.qp, verbs.ConnectParam{Remote: addr}); err != nil {
			t.Fatal(err)
		}
		c.wr.WRID, c.wr.SGL = 2, h.sge(0, 8)
		h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled}, c.wr, verbs.SendWR{WRID: 3, Op: verbs.OpSend})
		wc := h.take(3)
		if wc[0].Status != verbs.WCSuccess || wc[1].WRID != 2 || wc[1].Status != verbs.WCLocQPOpErr || wc[2].Status != verbs.WCWRFlushErr {
			t.Errorf("%s: %+v", name, wc)
		}
	}
}

// repeated is n bytes of address space backed by the same 2 MiB.
func repeated(t *testing.T, n int) []byte {
	t.Helper()
	const part = 2 << 20
	fd, err := unix.MemfdCreate("repeated", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, part); err != nil {
		t.Fatal(err)
	}
	all, err := unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(all) })
	for off := 0; off < n; off += part {
		if _, err := unix.MmapPtr(fd, 0, unsafe.Pointer(&all[off]), part, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
