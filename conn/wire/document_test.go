package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// frameLayout is what the codec says of a frame: encode makes it with the
// fields of set only, and the fields have the names of the document.
type frameLayout struct {
	len    int
	base   int // offset in what encode makes
	encode func(set string) []byte
	fields []string
}

// layouts are the tables of docs/protocol.md, by title.
var layouts = map[string]frameLayout{
	"private data, IPv4": {32, 0, encodePrivate(false), []string{"saddr", "daddr", "common part"}},
	"private data, IPv6": {56, 0, encodePrivate(true), []string{"saddr", "daddr", "common part"}},
	"common part": {24, 8, encodePrivate(false), []string{"protocol major", "protocol minor", "minor mask", "tos", "path", "ack_seq",
		"credit", "magic", "extension version"}},
	"header": {48, 0, encodeHeader, []string{"h_sequence", "h_ack", "h_len", "h_sport", "h_dport", "h_flags", "h_credit",
		"source incarnation", "h_csum", "extension headers", "destination incarnation"}},
	"RDMA":      {5, 32, encodeExts, []string{"type", "rkey"}},
	"two RDMA":  {10, 32, encodeExts, []string{"type", "rkey", "second type", "second rkey"}},
	"RDMA_DEST": {9, 32, encodeExts, []string{"type", "rkey", "offset"}},
	"RUN":       {5, 32, encodeExts, []string{"type", "datagrams"}},
	"HELLO": {HelloLen, 0, encodeHello, []string{"version", "features", "instance", "ack", "notice", "largest SEND", "credits",
		"read depth", "flags", "ack instance"}},
	"GRANT":         {GrantLen, 0, encodeGrant, []string{"cookie", "length", "rights", "owner's port", "grantee's port", "owner's incarnation", "number"}},
	"REVOKE":        {RevokeLen, 0, encodeRevoke, []string{"rkey", "lanes"}},
	"REVOKED":       {RevokeLen, 0, encodeRevoke, []string{"rkey", "lanes"}},
	"GRANT_NAK":     {GrantNakLen, 0, encodeGrantNak, []string{"rkey", "grantee's port", "reason"}},
	"ASK":           {AskLen, 0, encodeAsk, []string{"cookie", "number", "says"}},
	"NOSOCK":        {NoticeLen, 0, encodeNotice, []string{"sequence", "port", "source port", "source incarnation"}},
	"REFUSED":       {NoticeLen, 0, encodeNotice, []string{"sequence", "port", "source port", "source incarnation"}},
	"ATOMIC":        {AtomicLen, HeaderLen, encodeAtomic, []string{"rkey", "region", "address", "kind", "compare or add", "swap", "compare mask", "swap mask"}},
	"TRACEPARENT":   {TraceparentRoom, HeaderLen, encodeTraceparent, []string{"version", "trace id", "parent id", "trace flags"}},
	"ATOMIC_RESULT": {ResultLen, 0, encodeResult, []string{"sequence", "port", "source port", "source incarnation", "status", "old value"}},
	"BOUND":         {BoundLen, 0, encodeBound, []string{"sequence", "port", "source port", "source incarnation", "incarnation"}},
}

// TestDocument holds every table of offsets in docs/protocol.md to what the
// codec does: a field is where the bytes are that its value changes, and what
// no field changes is reserved and 0.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`(?m)^\*\*([^*]+)\*\*, (?:type \d+, )?(\d+) bytes(?: at offset (\d+))?.*\n\n((?:\|.*\n)+)`)
	seen := map[string]bool{}
	for _, m := range title.FindAllStringSubmatch(string(text), -1) {
		l, ok := layouts[m[1]]
		if !ok {
			t.Errorf("%s: a table the codec knows nothing of", m[1])
			continue
		}
		seen[m[1]] = true
		start := 0
		if m[3] != "" {
			start = atoi(t, m[3])
		}
		if want := l.table(t, start); m[2] != fmt.Sprint(l.len) || rows(t, m[4]) != want {
			t.Errorf("%s: the document has %s bytes\n%sthe codec has %d\n%s", m[1], m[2], rows(t, m[4]), l.len, want)
		}
	}
	for name := range layouts {
		if !seen[name] {
			t.Errorf("%s: no table in the document", name)
		}
	}
	for _, c := range []struct {
		name  string
		value any
	}{
		{"HELLO**, type ", int(TypeHello)}, {"GRANT**, type ", int(TypeGrant)}, {"REVOKE**, type ", int(TypeRevoke)},
		{"REVOKED**, type ", int(TypeRevoked)}, {"NOSOCK**, type ", int(TypeNoSock)}, {"REFUSED**, type ", int(TypeRefused)},
		{"GRANT_NAK**, type ", int(TypeGrantNak)},
		{"BOUND**, type ", int(TypeBound)}, {"ATOMIC_RESULT**, type ", int(TypeResult)}, {"ASK**, type ", int(TypeAsk)},
		{"CONG_BITMAP", FlagCong}, {"ACK_REQUIRED", FlagAckRequired}, {"RETRANSMITTED", FlagRetransmitted},
		{"SILENT", FlagSilent}, {"RESUME", FlagResume}, {"INTERNAL", FlagInternal}, {"ATOMIC", FlagAtomic},
	} {
		want := fmt.Sprintf("**%s%v,", c.name, c.value)
		if f, ok := c.value.(Flags); ok {
			want = fmt.Sprintf("| 0x%02x | %s |", uint8(f), c.name)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("the document does not say %q", want)
		}
	}
}

// rows are the first three columns of a table's rows: offset, size, field.
func rows(t *testing.T, table string) string {
	var b strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		c := strings.Split(line, "|")
		fmt.Fprintf(&b, "%4d %2d %s\n", atoi(t, c[1]), atoi(t, c[2]), strings.TrimSpace(c[3]))
	}
	return b.String()
}

func atoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// table finds out where each field is.
func (l *frameLayout) table(t *testing.T, start int) string {
	zero := l.encode("")[l.base:][:l.len]
	at := make([]string, l.len) // the field each byte belongs to
	for _, f := range l.fields {
		b := l.encode(f)[l.base:][:l.len]
		for i := range b {
			if b[i] != zero[i] {
				if at[i] != "" {
					t.Errorf("byte %d is of %s and of %s", i, at[i], f)
				}
				at[i] = f
			}
		}
	}
	var b strings.Builder
	for i := 0; i < l.len; {
		n := 1
		for i+n < l.len && at[i+n] == at[i] {
			n++
		}
		name := at[i]
		if name == "" {
			if name = "reserved"; !bytes.Equal(zero[i:i+n], make([]byte, n)) {
				t.Errorf("bytes %d to %d are of no field and not 0", i, i+n-1)
			}
		}
		fmt.Fprintf(&b, "%4d %2d %s\n", start+i, n, name)
		i += n
	}
	return b.String()
}

// ones is v with all bits set if the field f is the one that is set.
func ones[T uint8 | uint16 | uint32 | uint64](set, f string) T {
	if set == f {
		return ^T(0)
	}
	return 0
}

func encodePrivate(v6 bool) func(string) []byte {
	addr := func(set bool) netip.Addr {
		b := [16]byte{}
		if set {
			copy(b[:], bytes.Repeat([]byte{0xff}, 16))
		}
		if v6 {
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return func(set string) []byte {
		p := Private{
			Src: addr(set == "saddr"), Dst: addr(set == "daddr"),
			Major: ones[uint8](set, "protocol major"), Minor: ones[uint8](set, "protocol minor"),
			MinorMask: ones[uint16](set, "minor mask"), TOS: ones[uint8](set, "tos"), Path: ones[uint8](set, "path"),
			AckSeq: ones[uint64](set, "ack_seq"), Credit: ones[uint32](set, "credit"),
		}
		b := AppendPrivate(nil, &p)
		switch p.Ext = 0xff; set {
		case "magic":
			copy(b[len(b)-4:], AppendPrivate(nil, &p)[len(b)-4:][:2])
		case "extension version":
			b[len(b)-2] = AppendPrivate(nil, &p)[len(b)-2]
		case "common part":
			copy(b[len(b)-24:], bytes.Repeat([]byte{0xff}, 24))
		}
		return b
	}
}

// encodeHeader leaves the checksum out: that changes with every field.
func encodeHeader(set string) []byte {
	h := Header{
		Seq: ones[uint64](set, "h_sequence"), Ack: ones[uint64](set, "h_ack"), Len: ones[uint32](set, "h_len"),
		SPort: ones[uint16](set, "h_sport"), DPort: ones[uint16](set, "h_dport"),
		Flags: Flags(ones[uint8](set, "h_flags")), Credit: ones[uint8](set, "h_credit"),
		SrcInc: ones[uint32](set, "source incarnation"), DstInc: ones[uint32](set, "destination incarnation"),
	}
	if set == "extension headers" {
		copy(h.Ext[:], bytes.Repeat([]byte{0xff}, ExtLen))
	}
	b := make([]byte, HeaderLen)
	h.Put(b)
	sum := byte(0)
	if set == "h_csum" {
		sum = 0xff
	}
	b[csumOff], b[csumOff+1] = sum, sum
	return b
}

// encodeExts makes the headers of two operations, or of a cookie: without a
// set field, none.
func encodeExts(set string) []byte {
	var h Header
	switch set {
	case "type":
		h.SetExtRDMA(0)
	case "rkey":
		h.SetExtRDMA(math.MaxUint32)
		h.Ext[0] = 0
	case "second type":
		h.AddExtRDMA(0)
	case "second rkey":
		h.AddExtRDMA(math.MaxUint32)
		h.Ext[5] = 0
	case "datagrams":
		h.SetExtRun(math.MaxUint32)
		h.Flags, h.Ext[0] = 0, 0
	case "offset":
		h.SetExtDest(math.MaxUint32 << 32)
		h.Ext[0] = 0
	}
	b := make([]byte, HeaderLen)
	h.Put(b)
	return b
}

func encodeHello(set string) []byte {
	h := Hello{
		Version: ones[uint16](set, "version"), Features: ones[uint32](set, "features"), Instance: ones[uint64](set, "instance"),
		Ack: ones[uint64](set, "ack"), Notice: ones[uint64](set, "notice"), MaxSend: ones[uint32](set, "largest SEND"),
		Credits: ones[uint32](set, "credits"), ReadDepth: ones[uint32](set, "read depth"), Flags: ones[uint32](set, "flags"),
		AckInst: ones[uint64](set, "ack instance"),
	}
	return h.Append(nil)
}

func encodeGrant(set string) []byte {
	g := Grant{
		Cookie: ones[uint64](set, "cookie"), Length: ones[uint64](set, "length"), Rights: ones[uint32](set, "rights"),
		Owner: ones[uint16](set, "owner's port"), Grantee: ones[uint16](set, "grantee's port"),
		OwnerInc: ones[uint32](set, "owner's incarnation"), Region: ones[uint32](set, "number"),
	}
	return g.Append(nil)
}

func encodeAsk(set string) []byte {
	a := Ask{Cookie: ones[uint64](set, "cookie"), Number: ones[uint32](set, "number"), Says: ones[uint16](set, "says")}
	return a.Append(nil)
}

func encodeAtomic(set string) []byte {
	a := Atomic{
		RKey: ones[uint32](set, "rkey"), Region: ones[uint32](set, "region"), Addr: ones[uint64](set, "address"),
		Kind: AtomicKind(ones[uint8](set, "kind")), CompareAdd: ones[uint64](set, "compare or add"), Swap: ones[uint64](set, "swap"),
		CompareMask: ones[uint64](set, "compare mask"), SwapMask: ones[uint64](set, "swap mask"),
	}
	b := make([]byte, HeaderLen+AtomicLen)
	a.Put(b[HeaderLen:])
	return b
}

func encodeTraceparent(set string) []byte {
	var p Traceparent
	p[0], p[25] = ones[uint8](set, "version"), ones[uint8](set, "trace flags")
	for i := range p[1:25] {
		p[1+i] = ones[uint8](set, map[bool]string{true: "trace id", false: "parent id"}[i < 16])
	}
	b := make([]byte, HeaderLen+TraceparentRoom)
	p.Put(b[HeaderLen:])
	return b
}

func encodeResult(set string) []byte {
	r := Result{
		Notice: Notice{Seq: ones[uint64](set, "sequence"), DPort: ones[uint16](set, "port"), SPort: ones[uint16](set, "source port"),
			SrcInc: ones[uint32](set, "source incarnation")},
		Status: AtomicStatus(ones[uint32](set, "status")), Old: ones[uint64](set, "old value"),
	}
	return r.Append(nil)
}

func encodeRevoke(set string) []byte {
	return (&Revoke{RKey: ones[uint32](set, "rkey"), Lanes: ones[uint32](set, "lanes")}).Append(nil)
}

func encodeGrantNak(set string) []byte {
	n := GrantNak{RKey: ones[uint32](set, "rkey"), Grantee: ones[uint16](set, "grantee's port"), Reason: ones[uint16](set, "reason")}
	return n.Append(nil)
}

func encodeNotice(set string) []byte {
	n := Notice{
		Seq: ones[uint64](set, "sequence"), DPort: ones[uint16](set, "port"), SPort: ones[uint16](set, "source port"),
		SrcInc: ones[uint32](set, "source incarnation"),
	}
	return n.Append(nil)
}

func encodeBound(set string) []byte {
	n, _ := ParseNotice(encodeNotice(set))
	return (&Bound{Notice: n, DstInc: ones[uint32](set, "incarnation")}).Append(nil)
}
