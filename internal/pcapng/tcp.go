package pcapng

import (
	"encoding/binary"
	"net/netip"
)

// maxPayload is the longest TCP payload of one packet: the longest IP packet less 20 bytes
// of TCP header and 20 of IP header without options.
const maxPayload = 65535 - 40

// TCP flags.
const (
	flagSYN = 2
	flagPSH = 8
	flagACK = 16
)

// streams turns the bytes of TCP connections into packets with running sequence numbers and
// correct checksums. At the first byte of a connection it invents the three packets that
// open it. Its packets are never lost, late or sent again. It is not safe for concurrent
// use.
type streams struct {
	w     *writer
	conns map[[2]netip.AddrPort]*conn
	frame []byte
}

// conn is one connection: the next sequence number of each end.
type conn struct{ seq map[netip.AddrPort]uint32 }

// newStreams returns streams that write to w.
func newStreams(w *writer) *streams {
	return &streams{w: w, conns: map[[2]netip.AddrPort]*conn{}}
}

// bytes writes the next bytes of the stream from src to dst, at ns nanoseconds
// after the epoch, in as many packets as they need. The error is the
// io.Writer's. src and dst must be of one IP version.
func (s *streams) bytes(ns int64, src, dst netip.AddrPort, b []byte) error {
	c := s.conns[key(src, dst)]
	if c == nil {
		c = &conn{map[netip.AddrPort]uint32{src: 1000, dst: 5000}}
		s.conns[key(src, dst)] = c
		s.packet(ns, c, src, dst, flagSYN, nil)
		s.packet(ns, c, dst, src, flagSYN|flagACK, nil)
		s.packet(ns, c, src, dst, flagACK, nil)
	}
	for len(b) > 0 {
		n := min(len(b), maxPayload)
		s.packet(ns, c, src, dst, flagPSH|flagACK, b[:n])
		b = b[n:]
	}
	return s.w.err
}

// key names a connection. It is the same for both directions.
func key(a, b netip.AddrPort) [2]netip.AddrPort {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	return [2]netip.AddrPort{a, b}
}

func (s *streams) packet(ns int64, c *conn, src, dst netip.AddrPort, flags byte, payload []byte) {
	s.cutPacket(ns, c, src, dst, flags, payload, len(payload))
}

// cutPacket is packet with n bytes of payload, of which the first ones are known.
func (s *streams) cutPacket(ns int64, c *conn, src, dst netip.AddrPort, flags byte, payload []byte, n int) {
	b := appendEthernet(s.frame[:0], src.Addr())
	b = appendIP(b, src.Addr(), dst.Addr(), tcpHeader+n)
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = binary.BigEndian.AppendUint32(b, c.seq[src])
	ack := c.seq[dst]
	if flags&flagACK == 0 {
		ack = 0
	}
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, tcpHeader/4<<4, flags, 0xff, 0xff, 0, 0, 0, 0) // window, checksum, urgent
	b = append(b, payload...)
	if n == len(payload) { // else the checksum of what is not known is not known
		sum := pseudo(src.Addr(), dst.Addr(), len(b)-at)
		binary.BigEndian.PutUint16(b[at+16:], fold(add(sum, b[at:])))
	}
	c.seq[src] += uint32(n)
	if flags&flagSYN != 0 {
		c.seq[src]++
	}
	s.frame = b
	_ = s.w.packet(ns, b, len(b)+n-len(payload)) // the writer keeps the error
}

const (
	maxHeaders = 14 + 40 + tcpHeader // of Ethernet, IPv6 and TCP

	tcpHeader = 20
	protoTCP  = 6
)

// appendEthernet appends a header between two invented, locally administered
// addresses.
func appendEthernet(b []byte, src netip.Addr) []byte {
	b = append(b, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)
	if src.Is4() {
		return append(b, 0x08, 0x00)
	}
	return append(b, 0x86, 0xdd)
}

func appendIP(b []byte, src, dst netip.Addr, payload int) []byte {
	if !src.Is4() {
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(payload))
		b = append(b, protoTCP, 64)
		return append(append(b, src.AsSlice()...), dst.AsSlice()...)
	}
	at := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+payload))
	b = append(b, 0, 0, 0x40, 0, 64, protoTCP, 0, 0) // don't fragment, TTL, checksum
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[at+10:], fold(add(0, b[at:])))
	return b
}

// pseudo is the checksum of the TCP pseudo header.
func pseudo(src, dst netip.Addr, n int) uint32 {
	return add(add(protoTCP+uint32(n), src.AsSlice()), dst.AsSlice())
}

// add adds the 16-bit words of b to a sum that cannot overflow: a packet has
// less than 2^16 of them.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

func fold(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	return ^uint16(sum)
}
