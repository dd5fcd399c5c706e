package soft

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/pcapng"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// message is one RDMAP message as Wireshark sees it, its segments joined.
type message struct {
	fromActive bool
	op         int
	stag       uint32 // tagged; invalidated by a SEND
	to         uint64 // tagged
	qn, msn    int    // untagged
	payload    int    // bytes behind the DDP header
}

func (m message) String() string {
	from := "passive"
	if m.fromActive {
		from = "active"
	}
	return fmt.Sprintf("{%s: opcode %d, STag %#x, TO %#x, QN %d, MSN %d, %d B}", from, m.op, m.stag, m.to, m.qn, m.msn, m.payload)
}

// TestCapture has tshark read what two devices say to each other: every kind of
// message, with and without CRC, seen from the active and the passive side.
func TestCapture(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: apt-get install -y --no-install-recommends tshark")
	}
	for _, c := range []struct {
		name   string
		crc    verbs.CRCMode
		active bool // which side records
	}{{"CRC", verbs.CRCOn, true}, {"NoCRC", verbs.CRCOff, false}} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "soft.pcapng")
			want, port := capture(t, name, c.crc, c.active)
			fpdus := dissect(t, name, port)
			checkCRC(t, fpdus, c.crc)
			checkMessages(t, join(t, fpdus), want)
			checkTerminate(t, fpdus[len(fpdus)-1])
		})
	}
}

func checkMessages(t *testing.T, got, want []message) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("message %d of %d and %d\ngot  %v\nwant %v", i, len(got), len(want), got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}

// capture records a conversation in a file. It returns its messages, in the
// order in which they are on the wire, and the active side's port.
func capture(t *testing.T, name string, crc verbs.CRCMode, active bool) (want []message, port int) {
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	tap, err := pcapng.NewTap(f, func() int64 { return time.Now().UnixNano() })
	if err != nil {
		t.Fatal(err)
	}
	opt := [2]Options{}
	opt[1-b2i(active)].Tap = tap
	a, b := newHost(t, opt[0]), newHost(t, opt[1])
	at := attrs()
	at.CRC = crc
	at.Access |= verbs.AccessRemoteAtomic
	link(t, a, b, at, at)
	want = append(want, message{fromActive: true, op: iwarp.OpWrite, stag: 1}) // the ready-to-receive message
	for _, dir := range [2][2]*host{{a, b}, {b, a}} {
		want = append(want, converse(dir[0], dir[1], dir[0] == a)...)
	}

	// The last word: a WRITE to a key that does not exist.
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, 5), RKey: b.mr.RKey() + 1, RemoteAddr: testIOVA})
	if wc := a.take(1, b)[0]; wc.Status != verbs.WCRemAccessErr && wc.Status != verbs.WCSuccess {
		t.Fatalf("bad WRITE: %+v", wc)
	}
	run(t, "both queue pairs in ERR", func() bool { return a.qp.State() == verbs.QPErr && b.qp.State() == verbs.QPErr }, a, b)
	want = append(want,
		message{fromActive: true, op: iwarp.OpWrite, stag: b.mr.RKey() + 1, to: testIOVA, payload: 5},
		message{op: iwarp.OpTerminate, qn: iwarp.QNTerminate, msn: 1, payload: 4 + 2 + 14})
	if err := errors.Join(tap.Err(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return want, int(a.qp.(*qp).local.Port())
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// converse sends messages of every kind from one host to the other, each when
// the one before it is complete, and returns what must be on the wire.
func converse(from, to *host, active bool) (want []message) {
	sent, read, reads := 0, 0, 0
	rkey := to.mr.RKey()
	for i, n := range []int{0, 1, 2, 3, 4, 13, 4096, 8193, iwarp.MaxPayload, iwarp.MaxPayload + 1, 150001} {
		to.recv(verbs.RecvWR{SGL: to.sge(0, 200000)})
		se := i%2 == 1
		wr := verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: from.sge(7, n)}
		op := iwarp.OpSend
		if se {
			wr.Flags |= verbs.SendSolicited
			op = iwarp.OpSendSE
		}
		from.send(wr)
		from.take(1, to)
		to.take(1, from)
		sent++
		want = append(want, message{fromActive: active, op: op, qn: iwarp.QNSend, msn: sent, payload: n})

		at := uint64(testIOVA + 3*i)
		from.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: from.sge(1, n), RKey: rkey, RemoteAddr: at})
		from.take(1, to)
		want = append(want, message{fromActive: active, op: iwarp.OpWrite, stag: rkey, to: at, payload: n})

		from.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: from.sge(1<<20+i, n), RKey: rkey, RemoteAddr: at})
		from.take(1, to)
		read++
		want = append(want,
			message{fromActive: active, op: iwarp.OpReadRequest, qn: iwarp.QNRead, msn: read, payload: iwarp.ReadReqLen},
			message{fromActive: !active, op: iwarp.OpReadResponse, payload: n})
	}

	// What RFC 7306 adds, and invalidation. An immediate is a message of its
	// own, before the SEND or behind the WRITE it belongs to.
	counter, err1 := to.pd.RegMR(to.mem[:64], testIOVA, allAccess|verbs.AccessRemoteAtomic|verbs.AccessMWBind)
	window, err2 := to.pd.AllocMW(verbs.MWType2)
	if err := errors.Join(err1, err2); err != nil {
		from.t.Fatal(err)
	}
	to.send(verbs.SendWR{Op: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: &verbs.BindMW{
		MW: window, MR: counter, Addr: testIOVA, Length: 64, Access: verbs.AccessRemoteWrite, RKey: verbs.IncRKey(window.RKey())}})
	to.take(1, from)
	imm := func(op int) message {
		sent++
		return message{fromActive: active, op: op, qn: iwarp.QNSend, msn: sent, payload: 8}
	}
	send := func(op int, stag uint32) message {
		sent++
		return message{fromActive: active, op: op, stag: stag, qn: iwarp.QNSend, msn: sent, payload: 9}
	}
	write := message{fromActive: active, op: iwarp.OpWrite, stag: rkey, to: testIOVA, payload: 9}
	atomic := func() []message {
		read++
		return []message{
			{fromActive: active, op: iwarp.OpAtomicRequest, qn: iwarp.QNRead, msn: read, payload: iwarp.AtomicReqLen},
			{fromActive: !active, op: iwarp.OpAtomicResponse, qn: iwarp.QNAtomic, msn: read - reads, payload: iwarp.AtomicRespLen},
		}
	}
	reads = read
	for _, c := range []struct {
		wr   verbs.SendWR
		recv bool
		want func() []message
	}{
		{verbs.SendWR{Op: verbs.OpSendWithInv, Imm: window.RKey()}, true, func() []message { return []message{send(iwarp.OpSendInv, window.RKey())} }},
		{verbs.SendWR{Op: verbs.OpSendWithImm, Imm: 1}, true, func() []message { return []message{imm(iwarp.OpImmediate), send(iwarp.OpSend, 0)} }},
		{verbs.SendWR{Op: verbs.OpRDMAWriteWithImm, Imm: 2}, true, func() []message { return []message{write, imm(iwarp.OpImmediate)} }},
		{verbs.SendWR{Op: verbs.OpRDMAWriteWithImm, Imm: 2, Flags: verbs.SendSolicited}, true, func() []message { return []message{write, imm(iwarp.OpImmediateSE)} }},
		{verbs.SendWR{Op: verbs.OpAtomicFetchAdd, Atomic: verbs.AtomicArgs{CompareAdd: 1}}, false, atomic},
		{verbs.SendWR{Op: verbs.OpAtomicCmpAndSwp, Atomic: verbs.AtomicArgs{Swap: 1}}, false, atomic},
	} {
		wr := c.wr
		wr.Flags |= verbs.SendSignaled
		wr.SGL, wr.RKey, wr.RemoteAddr = from.sge(0, 9), rkey, testIOVA
		if wr.Op.Atomic() {
			wr.SGL, wr.RKey = from.sge(0, 8), counter.RKey()
		}
		if c.recv {
			to.recv(verbs.RecvWR{SGL: to.sge(0, 64)})
		}
		from.send(wr)
		if wc := from.take(1, to)[0]; wc.Status != verbs.WCSuccess {
			from.t.Fatalf("%v: %+v", wr.Op, wc)
		}
		if c.recv {
			to.take(1, from)
		}
		want = append(want, c.want()...)
	}
	return want
}

// fpdu holds what Wireshark shows of one FPDU, by field name.
type fpdu struct {
	fromActive bool
	show       map[string]string
	crc        string // the CRC field's label
	markers    int
}

func (f *fpdu) number(t *testing.T, name string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(f.show[name], 0, 64)
	if err != nil {
		t.Fatalf("field %s: %v in %v", name, err, f.show)
	}
	return n
}

// dissect runs tshark over a file and returns its FPDUs in order. Any frame
// found malformed ends the test.
func dissect(t *testing.T, name string, activePort int) (fpdus []*fpdu) {
	t.Helper()
	// The two heuristics claim payloads that are not theirs. A dissector that
	// owns the ephemeral port must not come first either.
	cmd := exec.Command("tshark", "-r", name, "-T", "pdml", "-n", "-o", "tcp.try_heuristic_first:TRUE",
		"--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Fatalf("tshark: %v\n%s", err, &stderr)
		}
	}()
	var cur *fpdu
	fromActive := false
	for d := xml.NewDecoder(out); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return fpdus
		} else if err != nil {
			t.Errorf("tshark's output: %v", err)
			io.Copy(io.Discard, out)
			return fpdus
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		switch a := attributes(e); {
		case strings.Contains(a["name"], "malformed") || a["name"] == "iwarp_mpa.bad_length":
			t.Errorf("Wireshark: %s: %s", a["name"], a["showname"])
		case a["name"] == "tcp.srcport":
			fromActive = a["show"] == strconv.Itoa(activePort)
		case a["name"] == "iwarp_mpa.fpdu":
			cur = &fpdu{fromActive: fromActive, show: map[string]string{}}
			fpdus = append(fpdus, cur)
		case cur != nil && strings.HasPrefix(a["name"], "iwarp_"):
			cur.show[a["name"]] = a["show"]
			if a["name"] == "iwarp_mpa.marker_fpduptr" {
				cur.markers++
			}
			if a["name"] == "iwarp_mpa.crc_check" || a["name"] == "iwarp_mpa.crc" {
				cur.crc = a["name"] + " " + a["showname"]
			}
		}
	}
}

func attributes(e xml.StartElement) map[string]string {
	m := map[string]string{}
	for _, a := range e.Attr {
		m[a.Name.Local] = a.Value
	}
	return m
}

// checkCRC wants every FPDU's checksum verified and right, or none there.
func checkCRC(t *testing.T, fpdus []*fpdu, crc verbs.CRCMode) {
	t.Helper()
	good := 0
	for _, f := range fpdus {
		if strings.HasPrefix(f.crc, "iwarp_mpa.crc_check ") && strings.Contains(f.crc, "(Good CRC32)") {
			good++
		} else if crc == verbs.CRCOn || !strings.HasPrefix(f.crc, "iwarp_mpa.crc ") {
			t.Errorf("CRC: %q in %v", f.crc, f.show)
		}
	}
	if want := len(fpdus) * b2i(crc == verbs.CRCOn); good != want {
		t.Errorf("%d of %d CRCs good, want %d", good, len(fpdus), want)
	}
}

// join makes messages of segments. Offsets must run on, and segments of one
// message must follow each other.
func join(t *testing.T, fpdus []*fpdu) (ms []message) {
	t.Helper()
	var cur [2]*message
	for _, f := range fpdus {
		m := message{fromActive: f.fromActive, op: int(f.number(t, "iwarp_rdma.opcode"))}
		length := int(f.number(t, "iwarp_mpa.ulpdulength"))
		var off uint64
		if f.number(t, "iwarp_ddp.tagged_flag") != 0 {
			m.stag, m.to = uint32(f.number(t, "iwarp_ddp.stag")), f.number(t, "iwarp_ddp.tagged_offset")
			m.payload = length - 14
		} else {
			m.qn, m.msn = int(f.number(t, "iwarp_ddp.qn")), int(f.number(t, "iwarp_ddp.msn"))
			off = f.number(t, "iwarp_ddp.mo")
			if m.op == iwarp.OpSendInv || m.op == iwarp.OpSendSEInv {
				m.stag = uint32(f.number(t, "iwarp_rdma.inval_stag"))
			}
			m.payload = length - 18
		}
		if m.op == iwarp.OpReadResponse { // the sink is the requester's own business
			off, m.stag, m.to = m.to, 0, 0
		}
		c := &cur[b2i(m.fromActive)]
		if *c == nil {
			*c = &message{}
			**c = m
			if m.qn == iwarp.QNSend && m.op != iwarp.OpReadResponse && off != 0 {
				t.Errorf("first segment at offset %d: %v", off, m)
			}
		} else {
			if m.op != (*c).op || m.msn != (*c).msn || m.stag != (*c).stag || m.op == iwarp.OpSend && off != uint64((*c).payload) ||
				m.op == iwarp.OpWrite && m.to != (*c).to+uint64((*c).payload) {
				t.Errorf("segment %v at %d does not continue %v", m, off, *c)
			}
			(*c).payload += m.payload
		}
		if f.number(t, "iwarp_ddp.last_flag") != 0 {
			ms = append(ms, **c)
			*c = nil
		}
	}
	for _, c := range cur {
		if c != nil {
			t.Errorf("unfinished %v", *c)
		}
	}
	return ms
}

// checkTerminate wants "DDP, tagged buffer, invalid STag" with the segment's
// length and header.
func checkTerminate(t *testing.T, f *fpdu) {
	t.Helper()
	got := []uint64{
		f.number(t, "iwarp_rdma.term_layer"), f.number(t, "iwarp_rdma.term_etype_ddp"), f.number(t, "iwarp_rdma.term_errcode_ddp_tagged"),
		f.number(t, "iwarp_rdma.term_hdrct_m"), f.number(t, "iwarp_rdma.hdrct_d"), f.number(t, "iwarp_rdma.hdrct_r"),
	}
	if want := []uint64{1, 1, 0, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("Terminate: layer, type, code, M, D, R %v, want %v: %v", got, want, f.show)
	}
}
