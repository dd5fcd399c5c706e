package soft

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// TestSRQIsAStack: few buffers are touched however many are posted.
func TestSRQIsAStack(t *testing.T) {
	h := newHost(t, Options{})
	at := attrs()
	s, _ := h.pd.CreateSRQ(64, 1)
	at.SRQ = s
	p := newPuppet(t, h, at)
	for i := range 64 {
		s.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: h.sge(i*64, 64)}})
	}
	if n, err := s.PostRecv([]verbs.RecvWR{{}}); n != 0 || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("65th receive: %d, %v", n, err)
	}
	for i := range 100 {
		p.write(sendFrame(uint32(i+1), 0, true, []byte{1}))
		wc := h.take(1)[0]
		if wc.WRID != 63 {
			t.Fatalf("message %d took receive %d", i, wc.WRID)
		}
		s.PostRecv([]verbs.RecvWR{{WRID: 63, SGL: h.sge(63*64, 64)}})
	}
}

// TestCongestion: a refused algorithm is reported and costs nothing.
func TestCongestion(t *testing.T) {
	a, b := newHost(t, Options{Congestion: "reno"}), newHost(t, Options{Congestion: "no-such-thing"})
	link(t, a, b, attrs(), attrs())
	if name, err := a.dev.Congestion(); name != "reno" && err == nil {
		t.Errorf("%q, %v", name, err)
	}
	if name, err := b.dev.Congestion(); name == "" || err == nil {
		t.Errorf("%q, %v", name, err)
	}
}

// TestPeerLacks: what a foreign peer does not understand is refused by name.
func TestPeerLacks(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	for op, name := range map[verbs.Opcode]string{
		verbs.OpSendWithImm: "SEND_WITH_IMM", verbs.OpRDMAWriteWithImm: "RDMA_WRITE_WITH_IMM",
		verbs.OpAtomicCmpAndSwp: "ATOMIC_CMP_AND_SWP", verbs.OpAtomicFetchAdd: "ATOMIC_FETCH_AND_ADD",
	} {
		n, err := h.qp.PostSend([]verbs.SendWR{{Op: op, SGL: h.sge(0, 8)}})
		if n != 0 || !errors.Is(err, unix.EINVAL) || !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), name) {
			t.Errorf("opcode %d: %d, %v", op, n, err)
		}
	}
	if c := h.qp.Cap().Caps; c&(verbs.CapImm|verbs.CapAtomics|verbs.CapMaskedAtomic|verbs.CapRNRRetry) != 0 || c&verbs.CapInvalidate == 0 {
		t.Errorf("capabilities %#x", c)
	}
	if n, err := h.qp.PostSend([]verbs.SendWR{{Op: 99}}); n != 0 || !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "99") {
		t.Errorf("opcode 99: %d, %v", n, err)
	}
	p.close()
}

// TestNothingIsLeft: descriptors and goroutines after Close, counted in a process of its own, in which
// nothing of other tests ends meanwhile.
func TestNothingIsLeft(t *testing.T) {
	const alone = "RDSD_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingIsLeft$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestNothingIsLeft")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	fds := func() int {
		e, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	newHost(t, Options{}).dev.Close() // what the runtime opens once
	wasFDs, wasGo := fds(), runtime.NumGoroutine()
	a, b := pair(t, attrs(), attrs())
	for range 5 {
		link(t, a, b, attrs(), attrs())
		a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: a.sge(0, 1<<20), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
		a.dev.Progress()
	}
	listen(t, b)
	a.qp.ToError()
	b.dev.Close()
	a.dev.Close()
	if now := fds(); now != wasFDs {
		t.Errorf("%d descriptors, before %d", now, wasFDs)
	}
	for limit := time.Now().Add(failsafe); runtime.NumGoroutine() > wasGo; {
		if time.Now().After(limit) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), wasGo)
		}
		runtime.Gosched()
	}
}

// TestIdleConnectionHoldsNoStage: large buffers are in use only while data is
// in motion.
func TestIdleConnectionHoldsNoStage(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	b.recv(verbs.RecvWR{SGL: b.sge(0, 300000)})
	a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 300000)})
	a.take(1, b)
	b.take(1, a)
	for _, h := range []*host{a, b} {
		if q := h.qp.(*qp); q.rx.stage != nil || q.out.stage != nil || q.out.first != nil || q.out.segs != nil {
			t.Error("an idle QP holds a stage")
		}
	}
}

// TestKeepAlive: a silent peer of whom nothing but an answer is due is noticed, one that has started
// again soon.
func TestKeepAlive(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	for _, h := range []*host{a, b} {
		for _, o := range [][3]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 30},
		} {
			if got, err := unix.GetsockoptInt(h.qp.(*qp).fd, o[0], o[1]); got != o[2] || err != nil {
				t.Errorf("option %d of level %d: %d, %v, want %d", o[1], o[0], got, err, o[2])
			}
		}
	}
}
