// Package pcapng writes packet captures for Wireshark in the pcapng format (IETF draft
// draft-ietf-opsawg-pcapng), with one Ethernet interface per file. It makes the Ethernet,
// IPv4 or IPv6 and TCP headers for byte streams that were recorded above the kernel. So
// recording needs no privilege.
package pcapng

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Block types and options of the format.
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockPacket    = 6 // enhanced packet block
	byteOrderMagic = 0x1A2B3C4D
	linkEthernet   = 1
	optTsResol     = 9
)

// writer writes one capture file. It is not safe for concurrent use.
type writer struct {
	w   io.Writer
	buf []byte
	err error
}

// newWriter writes the section header and the description of the one
// interface: Ethernet, no length limit, nanoseconds.
func newWriter(w io.Writer) (*writer, error) {
	p := &writer{w: w}
	p.block(blockSection, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, byteOrderMagic)
		b = binary.LittleEndian.AppendUint16(b, 1) // version 1.0
		b = binary.LittleEndian.AppendUint16(b, 0)
		return binary.LittleEndian.AppendUint64(b, 1<<64-1) // section length not given
	})
	p.block(blockInterface, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint16(b, linkEthernet)
		b = binary.LittleEndian.AppendUint16(b, 0)
		b = binary.LittleEndian.AppendUint32(b, 0) // no snap length
		b = binary.LittleEndian.AppendUint16(b, optTsResol)
		b = binary.LittleEndian.AppendUint16(b, 1)
		return append(b, 9, 0, 0, 0, 0, 0, 0, 0) // 10^-9 s, pad, end of options
	})
	return p, p.err
}

// packet writes one Ethernet frame, at ns nanoseconds after the epoch. After an error of
// the io.Writer it writes nothing more and returns the same error.
func (p *writer) packet(ns int64, frame []byte) error {
	p.block(blockPacket, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, 0) // interface
		b = binary.LittleEndian.AppendUint32(b, uint32(uint64(ns)>>32))
		b = binary.LittleEndian.AppendUint32(b, uint32(ns))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
		return append(b, frame...)
	})
	return p.err
}

// block writes body as a block: type and total length before it, padding and the length
// again behind it.
func (p *writer) block(typ uint32, body func([]byte) []byte) {
	if p.err != nil {
		return
	}
	b := binary.LittleEndian.AppendUint32(p.buf[:0], typ)
	b = body(append(b, 0, 0, 0, 0))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	size := uint32(len(b) + 4)
	binary.LittleEndian.PutUint32(b[4:], size)
	p.buf = binary.LittleEndian.AppendUint32(b, size)
	if _, err := p.w.Write(p.buf); err != nil {
		p.err = fmt.Errorf("pcapng: %w", err)
	}
}
