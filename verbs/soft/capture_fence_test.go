package soft

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/pcapng"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// record makes a tap whose capture done closes and dissects.
func record(t *testing.T) (tap Tap, done func(activePort int) []*fpdu) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: apt-get install -y --no-install-recommends tshark")
	}
	name := filepath.Join(t.TempDir(), "soft.pcapng")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := pcapng.NewTap(f, func() int64 { return time.Now().UnixNano() })
	if err != nil {
		t.Fatal(err)
	}
	return rec, func(activePort int) []*fpdu {
		t.Helper()
		if err := errors.Join(rec.Err(), f.Close()); err != nil {
			t.Fatal(err)
		}
		return dissect(t, name, activePort)
	}
}

// fencesOf counts the Read Requests of no bytes.
func fencesOf(t *testing.T, fpdus []*fpdu) (n int) {
	t.Helper()
	for _, f := range fpdus {
		if f.number(t, "iwarp_rdma.opcode") == iwarp.OpReadRequest && f.number(t, "iwarp_rdma.rdmardsz") == 0 {
			n++
		}
	}
	return n
}

// TestCaptureFences has tshark read AckRemote: one fence behind a group of
// requests, none where a READ does its work.
func TestCaptureFences(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		tap, done := record(t)
		at.Ack = verbs.AckRemote
		a, b := newHost(t, Options{Tap: tap}), newHost(t, Options{})
		link(t, a, b, at, at)
		want := []message{{fromActive: true, op: iwarp.OpWrite, stag: 1}} // the ready-to-receive message
		for _, dir := range [2][2]*host{{a, b}, {b, a}} {
			from, to := dir[0], dir[1]
			active, rkey, reads := from == a, to.mr.RKey(), 0
			read := func(n int) []message {
				reads++
				return []message{
					{fromActive: active, op: iwarp.OpReadRequest, qn: iwarp.QNRead, msn: reads, payload: iwarp.ReadReqLen},
					{fromActive: !active, op: iwarp.OpReadResponse, payload: n},
				}
			}
			write := verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: from.sge(0, 9), RKey: rkey, RemoteAddr: testIOVA}
			written := message{fromActive: active, op: iwarp.OpWrite, stag: rkey, to: testIOVA, payload: 9}
			from.send(write)
			from.take(1, to)
			want = append(append(want, written), read(0)...)

			from.send(write, write, write, write, write)
			from.take(5, to)
			want = append(append(want, written, written, written, written, written), read(0)...)

			to.recv(verbs.RecvWR{})
			from.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled},
				verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: from.sge(64, 5), RKey: rkey, RemoteAddr: testIOVA})
			from.take(2, to)
			to.take(1, from)
			want = append(append(want, message{fromActive: active, op: iwarp.OpSend, qn: iwarp.QNSend, msn: 1}), read(5)...)
		}
		fences := a.dev.Stats().FencesSent + b.dev.Stats().FencesSent
		fpdus := done(int(a.qp.(*qp).local.Port()))
		checkCRC(t, fpdus, at.CRC)
		if n := fencesOf(t, fpdus); n != 4 || fences != 4 {
			t.Errorf("%d fences in the capture, %d counted; want 4", n, fences)
		}
		checkMessages(t, join(t, fpdus), want)
	})
}

// TestCapturePause: a SEND that waits for its receive has a fence between its
// segments, and the peer's READ is answered there.
func TestCapturePause(t *testing.T) {
	tap, done := record(t)
	at := remoteAttrs()
	at.CRC = verbs.CRCOn
	a, b := newHost(t, Options{Tap: tap}), newHost(t, Options{})
	link(t, a, b, at, at)
	a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 2<<20)})
	for a.dev.Progress() || b.dev.Progress() {
	}
	b.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(0, 7), RKey: a.mr.RKey(), RemoteAddr: testIOVA})
	b.take(1, a)
	b.recv(verbs.RecvWR{SGL: b.sge(0, 2<<20)})
	a.take(1, b)
	fpdus := done(int(a.qp.(*qp).local.Port()))
	checkCRC(t, fpdus, verbs.CRCOn)
	var between []uint64 // opcodes from the active side
	sent, mid := 0, false
	for _, f := range fpdus {
		op := f.number(t, "iwarp_rdma.opcode")
		switch {
		case !f.fromActive:
		case op == iwarp.OpSend:
			if mo := f.number(t, "iwarp_ddp.mo"); int(mo) != sent || f.number(t, "iwarp_ddp.msn") != 1 {
				t.Fatalf("segment at %d, want %d", mo, sent)
			}
			sent += int(f.number(t, "iwarp_mpa.ulpdulength")) - 18
			mid = f.number(t, "iwarp_ddp.last_flag") == 0
		case mid:
			between = append(between, op)
		}
	}
	if sent != 2<<20 || len(between) != 2 || between[0] != iwarp.OpReadRequest || between[1] != iwarp.OpReadResponse {
		t.Errorf("%d bytes sent, opcodes %v between the segments; want a fence and the answer", sent, between)
	}
}

// startAndOut leaves out what the peer says after its start-up frame: tshark
// takes both directions for marked when one is.
type startAndOut struct {
	Tap
	started bool
}

func (s *startAndOut) Stream(local, remote netip.AddrPort, out bool, b []byte) {
	if out || !s.started {
		s.Tap.Stream(local, remote, out, b)
	}
	s.started = true
}

// TestCaptureMarkers has tshark read what a peer gets that wants markers: every
// FPDU whole, every CRC right, a marker in each 512 bytes. tshark wants one FPDU
// below 32 KiB in a packet for it.
func TestCaptureMarkers(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		tap, done := record(t)
		h := newHost(t, Options{Tap: &startAndOut{Tap: tap}})
		conn := dialRaw(t, listen(t, h).Addr())
		req := iwarp.MPA{Markers: true, Rev: 1, CRC: at.CRC == verbs.CRCOn}
		conn.Write(req.Append(nil))
		h.qp = h.newQP(at)
		if err := h.dev.Accept(h.event().Req, h.qp, nil); err != nil {
			t.Fatal(err)
		}
		conn.Write(writeFrame(1, 0, true, nil))
		got := make(chan int, 1)
		go func() {
			b, _ := io.ReadAll(conn)
			got <- len(b) - iwarp.MPAHeaderLen
		}()
		fill(h.mem[:200000], 3)
		var want []message
		for i, n := range []int{0, 1, 5, 485, 486, 487, 512, 3000, 30000} {
			h.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: h.sge(0, n)})
			h.take(1)
			h.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: h.sge(0, n), RKey: 9, RemoteAddr: uint64(i)})
			h.take(1)
			want = append(want, message{op: iwarp.OpSend, qn: iwarp.QNSend, msn: i + 1, payload: n})
			want = append(want, message{op: iwarp.OpWrite, stag: 9, to: uint64(i), payload: n})
		}
		h.qp.Disconnect()
		h.event() // Established
		h.event()
		bytes := <-got
		fpdus := done(conn.LocalAddr().(*net.TCPAddr).Port)
		markers := 0
		for _, f := range fpdus {
			markers += f.markers
		}
		if want := (bytes + 511) / 512; markers != want {
			t.Errorf("%d markers in %d bytes, want %d", markers, bytes, want)
		}
		checkCRC(t, fpdus, at.CRC)
		checkMessages(t, join(t, fpdus), want)
	})
}
