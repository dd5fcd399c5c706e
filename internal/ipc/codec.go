package ipc

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

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
	c := codec{b: b}
	m.fields(&c)
	return c.b
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
	c := &codec{b: b[headerSize:], reads: true}
	m.fields(c)
	switch {
	case c.bad != "":
		return id, nil, protocolError("%v of %d bytes: %s", t, len(b), c.bad)
	case len(c.b) > 0:
		return id, nil, protocolError("%v of %d bytes: %d too many", t, len(b), len(c.b))
	}
	return id, m, nil
}

// codec goes through the fields of a body, in order: it reads them from the start of b, or writes them
// behind b. After the first mistake it reads zeros and keeps the reason.
type codec struct {
	b     []byte
	reads bool
	bad   string
}

func (c *codec) fail(why string) {
	if c.bad == "" {
		c.bad = why
	}
	c.b = nil
}

// next is the place of the next n bytes: with what was read, or for what is written, zero so far.
func (c *codec) next(n int) []byte {
	if !c.reads {
		c.b = append(c.b, make([]byte, n)...)
		return c.b[len(c.b)-n:]
	}
	if len(c.b) < n {
		c.fail("too short")
		return make([]byte, n)
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *codec) u16(v *uint16) {
	if p := c.next(2); c.reads {
		*v = le.Uint16(p)
	} else {
		le.PutUint16(p, *v)
	}
}

func (c *codec) u32(v *uint32) {
	if p := c.next(4); c.reads {
		*v = le.Uint32(p)
	} else {
		le.PutUint32(p, *v)
	}
}

func (c *codec) u64(v *uint64) {
	if p := c.next(8); c.reads {
		*v = le.Uint64(p)
	} else {
		le.PutUint64(p, *v)
	}
}

func (c *codec) u32s(all ...*uint32) {
	for _, v := range all {
		c.u32(v)
	}
}

func (c *codec) u64s(all ...*uint64) {
	for _, v := range all {
		c.u64(v)
	}
}

// version goes through a version, of which 0 is written as this package's and is not read. It returns
// false, and nothing is left, if it is another one that was read: only that one knows the layout of the rest.
func (c *codec) version(v *uint32) bool {
	is := *v
	if is == 0 {
		is = Version
	}
	if c.u32(&is); !c.reads {
		return true
	}
	if *v = is; is == 0 {
		c.fail("version 0")
	}
	if is != Version {
		c.b = nil
	}
	return is == Version
}

// rest goes through everything that is left, at most n bytes.
func (c *codec) rest(p *[]byte, n int) {
	if !c.reads {
		c.b = append(c.b, *p...)
		return
	}
	if len(c.b) > n {
		c.fail("text too long")
	}
	*p, c.b = bytes.Clone(c.b), nil
}

// text goes through everything that is left, as a text that is clipped when it is written.
func (c *codec) text(s *string) {
	var p []byte
	if !c.reads {
		p = []byte(clip(*s))
	}
	if c.rest(&p, MaxText); c.reads {
		*s = string(p)
	}
}

// addr goes through an address: 16 bytes, IPv4 as v4-mapped, u16 port, u8 1 for IPv4, u8 0.
func (c *codec) addr(a *netip.Addr, port *uint16) {
	p := c.next(16)
	if !c.reads && a.IsValid() {
		*(*[16]byte)(p) = a.As16()
	}
	c.u16(port)
	is := c.next(2)
	if !c.reads {
		if a.Is4() {
			is[0] = 1
		}
		return
	}
	*a = netip.AddrFrom16([16]byte(p))
	switch {
	case is[0] == 1 && a.Is4In6():
		*a = a.Unmap()
	case is[0] != 0:
		c.fail("bad address")
	}
	if is[1] != 0 {
		c.fail("reserved bytes are not zero")
	}
}

func (c *codec) params(p *shm.Params) {
	c.u32s(&p.SubEntries, &p.EventEntries, &p.MaxMsgs, &p.MaxRx, &p.Slots, &p.Cells, &p.SendWindows, &p.RecvWindows)
}

// name goes through a name without NUL, padded with NULs.
func (c *codec) name(s *string) {
	p := c.next(MaxName)
	if !c.reads {
		name, _, _ := strings.Cut(*s, "\x00")
		copy(p, name)
		return
	}
	name, padding, _ := bytes.Cut(p, []byte{0})
	if len(bytes.Trim(padding, "\x00")) > 0 {
		c.fail("bad name")
	}
	*s = string(name)
}

func (m *Hello) fields(c *codec) {
	magic := uint32(Magic)
	if c.u32(&magic); magic != Magic {
		c.fail("bad magic")
		return
	}
	if !c.version(&m.Version) {
		return
	}
	c.u64(&m.Features)
	c.u32((*uint32)(&m.Role))
	c.name(&m.Name)
	c.params(&m.Params)
}

func (m *HelloOK) fields(c *codec) {
	if !c.version(&m.Version) {
		return
	}
	c.u64s(&m.Features, &m.Instance)
	c.u32s(&m.MaxSockets, &m.MaxBuffers)
	c.u64s(&m.MaxMessage, &m.MaxBytes, &m.SpinNs)
	c.params(&m.Params)
}

func (m *Bind) fields(c *codec) {
	c.addr(&m.Addr, &m.Port)
	c.u32(&m.RcvBuf)
}

func (m *BindOK) fields(c *codec) {
	c.u32s(&m.Sock, &m.Inc)
	c.addr(&m.Addr, &m.Port)
}

func (m *Register) fields(c *codec) {
	c.u32s(&m.Sock, &m.Buffer)
	c.u64s(&m.Off, &m.Len)
	c.u32((*uint32)(&m.Access))
}

func (m *Expose) fields(c *codec) {
	c.u32(&m.Region)
	c.addr(&m.Addr, &m.Port)
}

func (m *AddrsOK) fields(c *codec) {
	n := uint32(min(len(m.Addrs), MaxAddrs))
	if c.u32(&n); n > MaxAddrs {
		c.fail("too many addresses")
	}
	for i := uint32(0); i < n && c.bad == ""; i++ {
		var a netip.Addr
		var port uint16
		if !c.reads {
			a = m.Addrs[i]
		}
		if c.addr(&a, &port); port != 0 {
			c.fail("an address with a port")
		}
		if c.reads {
			m.Addrs = append(m.Addrs, a)
		}
	}
}

func (m *RegisterOK) fields(c *codec) {
	c.u32(&m.Region)
	c.u64(&m.Cookie)
}

func (m *AllocOK) fields(c *codec) {
	c.u32(&m.Buffer)
	c.u64(&m.Size)
}

func (m *Err) fields(c *codec) {
	c.u32(&m.Errno)
	c.text(&m.Text)
}

func (m *TakeOver) fields(c *codec) {
	c.u64(&m.NetNS)
	c.rest(&m.Token, MaxToken)
}

func (m *CloseSock) fields(c *codec)  { c.u32(&m.Sock) }
func (m *SetRcvBuf) fields(c *codec)  { c.u32s(&m.Sock, &m.Bytes) }
func (m *Alloc) fields(c *codec)      { c.u64(&m.Size) }
func (m *Free) fields(c *codec)       { c.u32s(&m.Buffer, &m.Wait) }
func (m *Release) fields(c *codec)    { c.u32(&m.Region) }
func (m *GrowSendOK) fields(c *codec) { c.u32(&m.Windows) }
func (m *Import) fields(c *codec)     { c.u64s(&m.Off, &m.Len) }
func (m *ImportOK) fields(c *codec)   { c.u32(&m.Buffer) }
func (m *TakeOverOK) fields(c *codec) { c.text(&m.Path) }
func (m *Goodbye) fields(c *codec)    { c.text(&m.Text) }
func (m *Ctl) fields(c *codec)        { c.rest(&m.JSON, MaxFrame) }
func (m *CtlPart) fields(c *codec)    { c.rest(&m.JSON, MaxFrame) }
func (*GrowSend) fields(*codec)       {}
func (*Addrs) fields(*codec)          {}
func (*OK) fields(*codec)             {}

// clip shortens a text to MaxText bytes.
func clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText-3], "") + "..."
}
