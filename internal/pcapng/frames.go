package pcapng

import (
	"io"
	"net/netip"
)

// About says what a file is.
type About struct {
	Program, Comment, Interface string
	Snap                        int // bytes of each frame that are kept, 0: all
}

// Frames writes frames of byte streams as packets: each frame in a packet of its own, or in
// as many as it needs. It is for recordings that begin in the middle, have gaps, or keep
// only the first bytes of each frame. It is not safe for concurrent use. Methods return the
// first error of the io.Writer.
type Frames struct{ s *streams }

// NewFrames writes the head of the file to w.
func NewFrames(w io.Writer, a About) (*Frames, error) {
	p, err := newWriterAbout(w, a)
	return &Frames{newStreams(p)}, err
}

// Open writes the packets that open a connection from src to dst, at ns nanoseconds after
// the epoch. A former connection between the two is forgotten.
func (f *Frames) Open(ns int64, src, dst netip.AddrPort) error {
	delete(f.s.conns, key(src, dst))
	return f.s.bytes(ns, src, dst, nil)
}

// Frame writes a frame of total bytes from src to dst, of which b are known: the first ones.
func (f *Frames) Frame(ns int64, src, dst netip.AddrPort, b []byte, total int) error {
	c := f.s.conns[key(src, dst)]
	if c == nil {
		if err := f.Open(ns, src, dst); err != nil {
			return err
		}
		c = f.s.conns[key(src, dst)]
	}
	for total > 0 {
		n := min(total, maxPayload)
		known := min(n, len(b))
		f.s.cutPacket(ns, c, src, dst, flagPSH|flagACK, b[:known], n)
		b, total = b[known:], total-n
	}
	return f.s.w.err
}

// Gap says that n bytes from src to dst were not recorded.
func (f *Frames) Gap(src, dst netip.AddrPort, n int) {
	if c := f.s.conns[key(src, dst)]; c != nil {
		c.seq[src] += uint32(n)
	}
}

// StatisticsLen is how many bytes Statistics writes.
const StatisticsLen = 52

// Statistics writes how many frames there were, and how many of them are not in the file.
func (f *Frames) Statistics(ns int64, seen, dropped uint64) error {
	f.s.w.statistics(ns, seen, dropped)
	return f.s.w.err
}
