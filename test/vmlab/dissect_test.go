package vmlab

import (
	"encoding/xml"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// wire has Wireshark check the streams of siw and soft, as the machine's network card has seen
// them.
func wire(t *testing.T, m *machine, siwInitiates bool) {
	captured := []int{0, 1, 3, 1431, 1433, 4097, 64513}
	from := m.mark(t)
	transfer(newLab(t, m, soft.Options{}), siwInitiates, captured)
	for _, host := range []bool{true, false} { // whether the host breaks a rule, or siw; the other side sends a Terminate
		l := newLab(t, m, soft.Options{})
		l.connect(siwInitiates, "", "")
		if host {
			l.post(verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, SGL: l.sge(0, 8), RemoteAddr: l.raddr, RKey: l.rkey ^ 0x5500})
		} else {
			l.guest("write 1 0 8 %d %d", iova, l.mr.RKey()^0x550000)
		}
		l.event(verbs.CMDisconnected)
		l.guest("event %d", guestMs)
	}
	n, fpdus := len(captured), dissect(t, m.since(t, from))
	for side, addr := range map[string]string{"soft": toHost, "siw": toGuest} {
		first := 0
		if siwInitiates == (side == "siw") {
			first = 3 // one SEND of connect, in each connection
		}
		want := map[int]int{
			iwarp.OpSend:         2*n + first,
			iwarp.OpWrite:        n - 1 + 1, // less the empty one, which may be a nudge; and the bad one
			iwarp.OpReadRequest:  n,
			iwarp.OpReadResponse: n,
			iwarp.OpTerminate:    1,
		}
		got := map[int]int{}
		for _, f := range fpdus {
			if f.src != addr {
				continue
			}
			if !f.good {
				t.Errorf("%s: FPDU without a good CRC: %v", side, f.show)
			}
			op := f.number(t, "iwarp_rdma.opcode")
			if f.number(t, "iwarp_ddp.last_flag") == 1 && !(op == iwarp.OpWrite && f.number(t, "iwarp_mpa.ulpdulength") == iwarp.TaggedLen-iwarp.LenField) {
				got[op]++
			}
		}
		for op := range 16 {
			if got[op] != want[op] {
				t.Errorf("%s: %d messages of opcode %d, want %d", side, got[op], op, want[op])
			}
		}
	}
}

// fpdu has what Wireshark shows of one FPDU, by field name.
type fpdu struct {
	src  string
	good bool // its CRC is right
	show map[string]string
}

func (f *fpdu) number(t *testing.T, name string) int {
	t.Helper()
	n, err := strconv.ParseInt(f.show[name], 0, 64)
	if err != nil {
		t.Fatalf("field %s: %v in %v", name, err, f.show)
	}
	return int(n)
}

// dissector are flags that make tshark find iWARP. Two heuristics must be off, because they
// claim its payload. And heuristics must come before dissectors that own the ephemeral port.
var dissector = []string{"-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"}

// dissect runs tshark on a capture. It fails the test if a frame is malformed.
func dissect(t *testing.T, capture string) (fpdus []*fpdu) {
	t.Helper()
	cmd := exec.Command("tshark", append([]string{"-r", capture, "-T", "pdml", "-n"}, dissector...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("tshark: %v", err)
		}
	}()
	src := ""
	for d := xml.NewDecoder(out); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return fpdus
		} else if err != nil {
			t.Fatalf("tshark's output: %v", err)
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		a := map[string]string{}
		for _, x := range e.Attr {
			a[x.Name.Local] = x.Value
		}
		switch name := a["name"]; {
		case strings.Contains(name, "malformed") || name == "iwarp_mpa.bad_length":
			t.Errorf("Wireshark: %s: %s", name, a["showname"])
		case name == "ip.src":
			src = a["show"]
		case name == "iwarp_mpa.fpdu":
			fpdus = append(fpdus, &fpdu{src: src, show: map[string]string{}})
		case len(fpdus) > 0 && strings.HasPrefix(name, "iwarp_"):
			f := fpdus[len(fpdus)-1]
			f.show[name] = a["show"]
			if name == "iwarp_mpa.crc_check" {
				f.good = strings.Contains(a["showname"], "(Good CRC32)")
			}
		}
	}
}
