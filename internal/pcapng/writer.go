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
	blockStats     = 5 // interface statistics
	blockPacket    = 6 // enhanced packet block
	byteOrderMagic = 0x1A2B3C4D
	linkEthernet   = 1
	optComment     = 1
	optUserAppl    = 4 // of a section
	optName        = 2 // of an interface
	optTsResol     = 9
	optReceived    = 4 // of statistics
	optDropped     = 5
)

// writer writes one capture file. It is not safe for concurrent use.
type writer struct {
	w   io.Writer
	buf []byte
	err error
}

// option appends an option, padded.
func option(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// endOfOptions appends what ends a list of options.
func endOfOptions(b []byte) []byte { return append(b, 0, 0, 0, 0) }

func newWriter(w io.Writer) (*writer, error) { return newWriterAbout(w, About{}) }

// newWriterAbout writes the section header and the description of the one
// interface: Ethernet, nanoseconds.
func newWriterAbout(w io.Writer, a About) (*writer, error) {
	p := &writer{w: w}
	p.block(blockSection, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, byteOrderMagic)
		b = binary.LittleEndian.AppendUint16(b, 1) // version 1.0
		b = binary.LittleEndian.AppendUint16(b, 0)
		b = binary.LittleEndian.AppendUint64(b, 1<<64-1) // section length not given
		if a.Comment != "" {
			b = option(b, optComment, []byte(a.Comment))
		}
		if a.Program != "" {
			b = option(b, optUserAppl, []byte(a.Program))
		}
		if a.Comment == "" && a.Program == "" {
			return b
		}
		return endOfOptions(b)
	})
	p.block(blockInterface, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint16(b, linkEthernet)
		b = binary.LittleEndian.AppendUint16(b, 0)
		snap := 0 // no limit
		if a.Snap > 0 {
			snap = a.Snap + maxHeaders
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(snap))
		if a.Interface != "" {
			b = option(b, optName, []byte(a.Interface))
		}
		return endOfOptions(option(b, optTsResol, []byte{9})) // 10^-9 s
	})
	return p, p.err
}

// packet writes one Ethernet frame of length bytes, of which the first ones are known, at ns
// nanoseconds after the epoch. After an error of the io.Writer it writes nothing more and
// returns the same error.
func (p *writer) packet(ns int64, frame []byte, length int) error {
	p.block(blockPacket, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, 0) // interface
		b = binary.LittleEndian.AppendUint32(b, uint32(uint64(ns)>>32))
		b = binary.LittleEndian.AppendUint32(b, uint32(ns))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
		b = binary.LittleEndian.AppendUint32(b, uint32(length))
		return append(b, frame...)
	})
	return p.err
}

// statistics writes how many packets the interface has seen, and has dropped.
func (p *writer) statistics(ns int64, seen, dropped uint64) {
	p.block(blockStats, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, 0) // interface
		b = binary.LittleEndian.AppendUint32(b, uint32(uint64(ns)>>32))
		b = binary.LittleEndian.AppendUint32(b, uint32(ns))
		b = option(b, optReceived, binary.LittleEndian.AppendUint64(nil, seen))
		return endOfOptions(option(b, optDropped, binary.LittleEndian.AppendUint64(nil, dropped)))
	})
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
