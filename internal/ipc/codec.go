package ipc

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

var le = binary.LittleEndian

// AppendFrame appends the frame of m with the given id to b.
func AppendFrame(b []byte, id uint32, m Body) []byte {
	var flags uint16
	if last := lastOf(m); last != nil && *last {
		flags = flagLast
	}
	b = le.AppendUint16(b, uint16(m.Type()))
	b = le.AppendUint16(b, flags)
	b = le.AppendUint32(b, id)
	return m.append(b)
}

// flagLast marks the last CtlPart of an answer, and the Goodbye of a daemon that ends.
const flagLast = 1

// lastOf is the field of m for flagLast. It is nil if m has none.
func lastOf(m Body) *bool {
	switch m := m.(type) {
	case *CtlPart:
		return &m.Last
	case *Goodbye:
		return &m.Ends
	}
	return nil
}

// ParseFrame reads one whole frame. The body does not point into b. The error is an
// ErrProtocol that says what is wrong.
func ParseFrame(b []byte) (id uint32, m Body, err error) {
	if len(b) < headerSize || len(b) > MaxFrame {
		return 0, nil, protocolError("frame of %d bytes", len(b))
	}
	t, flags := Type(le.Uint16(b)), le.Uint16(b[2:])
	id = le.Uint32(b[4:])
	if m = newBody(t); m == nil {
		return id, nil, protocolError("unknown frame %v", t)
	}
	if last := lastOf(m); last != nil {
		*last = flags&flagLast != 0
		flags &^= flagLast
	}
	if flags != 0 {
		return id, nil, protocolError("%v with unknown flags %#x", t, flags)
	}
	r := &reader{b: b[headerSize:]}
	m.parse(r)
	switch {
	case r.bad != "":
		return id, nil, protocolError("%v of %d bytes: %s", t, len(b), r.bad)
	case len(r.b) > 0:
		return id, nil, protocolError("%v of %d bytes: %d too many", t, len(b), len(r.b))
	}
	return id, m, nil
}

// reader reads fields of a body. After the first mistake it returns zeros and keeps the
// reason.
type reader struct {
	b   []byte
	bad string
}

func (r *reader) fail(why string) {
	if r.bad == "" {
		r.bad = why
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.fail("too short")
		return make([]byte, n)
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u16() uint16 { return le.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return le.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return le.Uint64(r.take(8)) }

// zero reads n reserved bytes, which must be 0.
func (r *reader) zero(n int) {
	for _, c := range r.take(n) {
		if c != 0 {
			r.fail("reserved bytes are not zero")
		}
	}
}

// version reads a version. 0 is refused: in a Body it stands for this package's version.
func (r *reader) version() uint32 {
	v := r.u32()
	if v == 0 {
		r.fail("version 0")
	}
	return v
}

// rest reads everything that is left, at most n bytes.
func (r *reader) rest(n int) []byte {
	if len(r.b) > n {
		r.fail("text too long")
	}
	p := bytes.Clone(r.b)
	r.b = nil
	return p
}

// Addresses: 16 bytes, IPv4 as v4-mapped, u16 port, u8 1 for IPv4, u8 0.

func appendAddr(b []byte, a netip.Addr, port uint16) []byte {
	var a16 [16]byte
	if a.IsValid() {
		a16 = a.As16()
	}
	b = append(b, a16[:]...)
	b = le.AppendUint16(b, port)
	if a.Is4() {
		return append(b, 1, 0)
	}
	return append(b, 0, 0)
}

func (r *reader) addr() (a netip.Addr, port uint16) {
	a = netip.AddrFrom16([16]byte(r.take(16)))
	port = r.u16()
	switch is4 := r.take(1)[0]; {
	case is4 == 1 && a.Is4In6():
		a = a.Unmap()
	case is4 != 0:
		r.fail("bad address")
	}
	r.zero(1)
	return a, port
}

func appendParams(b []byte, p *shm.Params) []byte {
	for _, v := range []uint32{p.SubEntries, p.EventEntries, p.MaxMsgs, p.MaxRx, p.Slots, p.Cells, p.SendWindows, p.RecvWindows} {
		b = le.AppendUint32(b, v)
	}
	return b
}

func (r *reader) params() shm.Params {
	return shm.Params{SubEntries: r.u32(), EventEntries: r.u32(), MaxMsgs: r.u32(), MaxRx: r.u32(),
		Slots: r.u32(), Cells: r.u32(), SendWindows: r.u32(), RecvWindows: r.u32()}
}

func (m *Hello) append(b []byte) []byte {
	b = le.AppendUint32(b, Magic)
	b = le.AppendUint32(b, orThis(m.Version))
	b = le.AppendUint64(b, m.Features)
	b = le.AppendUint32(b, uint32(m.Role))
	var name [MaxName]byte
	s, _, _ := strings.Cut(m.Name, "\x00")
	copy(name[:], s)
	b = append(b, name[:]...)
	return appendParams(b, &m.Params)
}

func (m *Hello) parse(r *reader) {
	if r.u32() != Magic {
		r.fail("bad magic")
		return
	}
	if m.Version = r.version(); m.Version != Version {
		r.b = nil // only that version knows the layout of the rest
		return
	}
	m.Features = r.u64()
	m.Role = Role(r.u32())
	name, padding, _ := bytes.Cut(r.take(MaxName), []byte{0})
	if len(bytes.Trim(padding, "\x00")) > 0 {
		r.fail("bad name")
	}
	m.Name = string(name)
	m.Params = r.params()
}

func (m *HelloOK) append(b []byte) []byte {
	b = le.AppendUint32(b, orThis(m.Version))
	b = le.AppendUint64(b, m.Features)
	b = le.AppendUint64(b, m.Instance)
	b = le.AppendUint32(b, m.MaxSockets)
	b = le.AppendUint32(b, m.MaxBuffers)
	b = le.AppendUint64(b, m.MaxMessage)
	b = le.AppendUint64(b, m.MaxBytes)
	b = le.AppendUint64(b, m.SpinNs)
	return appendParams(b, &m.Params)
}

func (m *HelloOK) parse(r *reader) {
	if m.Version = r.version(); m.Version != Version {
		r.b = nil
		return
	}
	*m = HelloOK{Version: Version, Features: r.u64(), Instance: r.u64(), MaxSockets: r.u32(), MaxBuffers: r.u32(),
		MaxMessage: r.u64(), MaxBytes: r.u64(), SpinNs: r.u64(), Params: r.params()}
}

// orThis is v, or this package's version if v is 0.
func orThis(v uint32) uint32 {
	if v == 0 {
		return Version
	}
	return v
}

func (m *Bind) append(b []byte) []byte {
	return le.AppendUint32(appendAddr(b, m.Addr, m.Port), m.RcvBuf)
}

func (m *Bind) parse(r *reader) {
	m.Addr, m.Port = r.addr()
	m.RcvBuf = r.u32()
}

func (m *BindOK) append(b []byte) []byte {
	return appendAddr(le.AppendUint32(le.AppendUint32(b, m.Sock), m.Inc), m.Addr, m.Port)
}

func (m *BindOK) parse(r *reader) {
	m.Sock, m.Inc = r.u32(), r.u32()
	m.Addr, m.Port = r.addr()
}

func (m *CloseSock) append(b []byte) []byte { return le.AppendUint32(b, m.Sock) }
func (m *CloseSock) parse(r *reader)        { m.Sock = r.u32() }

func (m *SetRcvBuf) append(b []byte) []byte {
	return le.AppendUint32(le.AppendUint32(b, m.Sock), m.Bytes)
}
func (m *SetRcvBuf) parse(r *reader) { *m = SetRcvBuf{Sock: r.u32(), Bytes: r.u32()} }

func (m *Alloc) append(b []byte) []byte { return le.AppendUint64(b, m.Size) }
func (m *Alloc) parse(r *reader)        { m.Size = r.u64() }

func (m *AllocOK) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint32(b, m.Buffer), m.Size)
}
func (m *AllocOK) parse(r *reader) { *m = AllocOK{Buffer: r.u32(), Size: r.u64()} }

func (m *Free) append(b []byte) []byte {
	return le.AppendUint32(le.AppendUint32(b, m.Buffer), m.Wait)
}
func (m *Free) parse(r *reader) { *m = Free{Buffer: r.u32(), Wait: r.u32()} }

func (m *Register) append(b []byte) []byte {
	b = le.AppendUint32(le.AppendUint32(b, m.Sock), m.Buffer)
	b = le.AppendUint64(le.AppendUint64(b, m.Off), m.Len)
	return le.AppendUint32(b, uint32(m.Access))
}

func (m *Register) parse(r *reader) {
	*m = Register{Sock: r.u32(), Buffer: r.u32(), Off: r.u64(), Len: r.u64(), Access: abi.Rights(r.u32())}
}

func (m *RegisterOK) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint32(b, m.Region), m.Cookie)
}
func (m *RegisterOK) parse(r *reader) { *m = RegisterOK{Region: r.u32(), Cookie: r.u64()} }

func (m *Expose) append(b []byte) []byte {
	return appendAddr(le.AppendUint32(b, m.Region), m.Addr, m.Port)
}

func (m *Expose) parse(r *reader) {
	m.Region = r.u32()
	m.Addr, m.Port = r.addr()
}

func (m *Release) append(b []byte) []byte { return le.AppendUint32(b, m.Region) }
func (m *Release) parse(r *reader)        { m.Region = r.u32() }

func (*GrowSend) append(b []byte) []byte { return b }
func (*GrowSend) parse(*reader)          {}

func (m *GrowSendOK) append(b []byte) []byte { return le.AppendUint32(b, m.Windows) }
func (m *GrowSendOK) parse(r *reader)        { m.Windows = r.u32() }

func (*Addrs) append(b []byte) []byte { return b }
func (*Addrs) parse(*reader)          {}

func (m *AddrsOK) append(b []byte) []byte {
	addrs := m.Addrs[:min(len(m.Addrs), MaxAddrs)]
	b = le.AppendUint32(b, uint32(len(addrs)))
	for _, a := range addrs {
		b = appendAddr(b, a, 0)
	}
	return b
}

func (m *AddrsOK) parse(r *reader) {
	n := r.u32()
	if n > MaxAddrs {
		r.fail("too many addresses")
	}
	for ; n > 0 && r.bad == ""; n-- {
		a, port := r.addr()
		if port != 0 {
			r.fail("an address with a port")
		}
		m.Addrs = append(m.Addrs, a)
	}
}

func (*OK) append(b []byte) []byte { return b }
func (*OK) parse(*reader)          {}

func (m *Err) append(b []byte) []byte {
	return append(le.AppendUint32(b, m.Errno), clip(m.Text)...)
}
func (m *Err) parse(r *reader) { *m = Err{Errno: r.u32(), Text: string(r.rest(MaxText))} }

func (m *Goodbye) append(b []byte) []byte { return append(b, clip(m.Text)...) }
func (m *Goodbye) parse(r *reader)        { m.Text = string(r.rest(MaxText)) }

func (m *Ctl) append(b []byte) []byte { return append(b, m.JSON...) }
func (m *Ctl) parse(r *reader)        { m.JSON = r.rest(MaxFrame) }

func (m *CtlPart) append(b []byte) []byte { return append(b, m.JSON...) }
func (m *CtlPart) parse(r *reader)        { m.JSON = r.rest(MaxFrame) }

// clip shortens a text to MaxText bytes.
func clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText-3], "") + "..."
}
