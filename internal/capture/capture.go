// Package capture records what the daemon's connections send and receive while somebody
// wants it, as whole frames: FPDUs of MPA, and messages of RDS/TCP. The engine's thread
// copies bytes into a ring (Hub, Capture). Another goroutine takes them from there, puts
// frames together and writes a pcapng file (Reader). The engine never waits for it: a frame
// that does not fit is counted.
package capture

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// maxStreams bounds the connections of one capture.
const maxStreams = 4096

// Spec says what to record.
type Spec struct {
	Peer   netip.Addr // the zero Addr: all
	Port   uint16     // RDS port at either end; 0: all
	Snap   int        // bytes of each frame; 0: all
	Buffer int        // bytes of the ring
	Max    int64      // bytes of the file; 0: no limit
}

// Hub is where the daemon's connections find out whether they are recorded. All but On is
// the engine's.
type Hub struct {
	on  atomic.Uint32
	gen uint32
	cur *Capture
}

// On is what connections look at: see soft.LateTap.
func (h *Hub) On() *atomic.Uint32 { return &h.on }

// Start begins c; false: there is another.
func (h *Hub) Start(c *Capture) bool {
	if h.cur != nil {
		return false
	}
	h.cur = c
	h.gen++
	h.on.Store(max(h.gen, 1))
	return true
}

// Stop ends c. It may have ended before.
func (h *Hub) Stop(c *Capture) {
	if h.cur == c {
		h.cur = nil
		h.on.Store(0)
	}
	c.over.Store(true)
}

// Begin implements soft.LateTap.
func (h *Hub) Begin(local, remote netip.AddrPort, passive, marked bool) bool {
	out := fpdu
	if marked {
		out = chunk
	}
	return h.begin(local, remote, passive, [2]kind{fpdu, out}, true)
}

// BeginTCP announces a connection of RDS/TCP.
func (h *Hub) BeginTCP(local, remote netip.AddrPort, passive bool) bool {
	return h.begin(local, remote, passive, [2]kind{rds, rds}, false)
}

func (h *Hub) begin(local, remote netip.AddrPort, passive bool, kinds [2]kind, startup bool) bool {
	return h.cur != nil && h.cur.open(local, remote, passive, kinds, startup)
}

// Stream gets the next bytes of a stream.
func (h *Hub) Stream(local, remote netip.AddrPort, out bool, b []byte) {
	if h.cur != nil {
		h.cur.stream(local, remote, out, b)
	}
}

// kind is what the frames of a stream are.
type kind uint8

const (
	fpdu    kind = iota // of MPA
	rds                 // of RDS/TCP
	chunk               // not known: as they were written, because there are markers between
	startup             // the first frame of a direction, of MPA
)

// headLen is how many bytes of a frame say how long it is.
func (k kind) headLen() int {
	switch k {
	case fpdu:
		return 4 // the length, and which operation it is
	case startup:
		return iwarp.MPAHeaderLen
	case rds:
		return wire.HeaderLen
	}
	return 0
}

// maxRDS bounds the length of a frame of RDS/TCP. What says that it is longer is none.
const maxRDS = 16 << 20

// size is the length of the frame with this head.
func (k kind) size(head []byte) int {
	switch k {
	case fpdu:
		return max(iwarp.FPDUSize(iwarp.ULPDULen(head)), len(head))
	case startup:
		return iwarp.MPAHeaderLen + int(binary.BigEndian.Uint16(head[18:]))
	}
	return wire.HeaderLen + int(min(binary.BigEndian.Uint32(head[16:]), maxRDS))
}

// Capture is one recording. Except over and the ring it belongs to the engine.
type Capture struct {
	spec    Spec
	now     func() int64
	ring    ring
	streams map[[2]netip.AddrPort]*stream
	opened  uint32  // connections so far
	last    *stream // the one that had bytes last
	dropped atomic.Uint64
	over    atomic.Bool
}

// stream is both directions of one connection.
type stream struct {
	local, remote netip.AddrPort
	id            uint32
	dirs          [2]cutter // 1: out
}

// New makes a capture with the system's clock. Not for the engine's goroutine: it allocates
// the ring.
func New(spec Spec) *Capture {
	return &Capture{spec: spec, now: func() int64 { return time.Now().UnixNano() }, ring: newRing(spec.Buffer), streams: map[[2]netip.AddrPort]*stream{}}
}

func (c *Capture) open(local, remote netip.AddrPort, passive bool, kinds [2]kind, withStartup bool) bool {
	if c.spec.Peer.IsValid() && c.spec.Peer != remote.Addr() {
		return false
	}
	key := [2]netip.AddrPort{local, remote}
	s := c.streams[key]
	if s == nil {
		if len(c.streams) >= maxStreams {
			c.dropped.Add(1)
			return false
		}
		s = &stream{local: local, remote: remote, id: c.opened}
		c.opened++
		c.streams[key] = s
	}
	for i := range s.dirs {
		d := cutter{kind: kinds[i]}
		if withStartup {
			d.then, d.kind = kinds[i], startup
		}
		s.dirs[i] = d
	}
	r := record{stream: s.id, at: c.now(), flags: opens}
	if passive {
		r.flags |= inward
	}
	a, _ := local.MarshalBinary()
	b, _ := remote.MarshalBinary()
	if !c.ring.put(&r, append([]byte{byte(len(a))}, a...), b) {
		c.dropped.Add(1)
		delete(c.streams, key)
		c.last = nil
		return false
	}
	return true
}

func (c *Capture) stream(local, remote netip.AddrPort, out bool, b []byte) {
	s := c.last
	if s == nil || s.local != local || s.remote != remote {
		if s = c.streams[[2]netip.AddrPort{local, remote}]; s == nil {
			return
		}
		c.last = s
	}
	i := 0
	if out {
		i = 1
	}
	c.cut(s, &s.dirs[i], i, b)
}

// cutter finds the frames of one direction.
type cutter struct {
	kind, then kind
	head       [wire.HeaderLen]byte
	n          int    // bytes of head
	left       int    // bytes to come of the frame
	room       int    // of those, how many are recorded
	passing    bool   // nothing more of the frame is recorded
	gap        uint64 // bytes of frames that were dropped since the last one that was not
}

// cut records b, the next bytes of d.
func (c *Capture) cut(s *stream, d *cutter, dir int, b []byte) {
	for len(b) > 0 {
		if d.left > 0 {
			b = c.more(s, d, dir, b)
			continue
		}
		want := d.kind.headLen()
		if d.kind == chunk {
			d.n, d.left = 0, len(b)
		} else {
			n := copy(d.head[d.n:want], b)
			d.n += n
			if b = b[n:]; d.n < want {
				return
			}
			d.left = d.kind.size(d.head[:want]) - want
		}
		b = c.begin(s, d, dir, b)
		if d.kind == startup {
			d.kind = d.then
		}
	}
}

// begin records the first part of a frame: the head, and what there is of the rest in b.
func (c *Capture) begin(s *stream, d *cutter, dir int, b []byte) []byte {
	n := min(d.left, len(b))
	total := d.n + d.left
	snap := total
	switch wanted := c.wants(d); {
	case wanted == no:
		d.passing, d.n = true, 0
		d.left -= n
		return b[n:]
	case wanted == yes && c.spec.Snap > 0:
		snap = min(total, c.spec.Snap)
	}
	head := d.head[:min(d.n, snap)]
	take := min(n, snap-len(head))
	r := record{stream: s.id, dir: uint8(dir), kind: d.kind, at: c.now(), total: uint32(total), gap: d.gap, flags: begins}
	d.left -= n
	d.room = snap - len(head) - take
	if d.left == 0 {
		r.flags |= ends
	}
	d.n = 0
	if d.passing = !c.ring.put(&r, head, b[:take]); d.passing {
		c.dropped.Add(1)
		d.gap += uint64(total)
	} else {
		d.gap = 0
	}
	return b[n:]
}

// more records the next part of a frame.
func (c *Capture) more(s *stream, d *cutter, dir int, b []byte) []byte {
	n := min(d.left, len(b))
	d.left -= n
	if d.passing {
		return b[n:]
	}
	take := min(n, d.room)
	d.room -= take
	r := record{stream: s.id, dir: uint8(dir), kind: d.kind, at: c.now()}
	if d.left == 0 {
		r.flags |= ends
	}
	switch {
	case take == 0 && d.left > 0:
	case !c.ring.put(&r, b[:take], nil):
		d.passing = true // the reader finds out when the next frame begins
		c.dropped.Add(1)
	}
	return b[n:]
}

// answer is whether a frame is recorded.
type answer uint8

const (
	yes answer = iota
	no
	inspect // the reader decides, and has to see all of it
)

// wants decides about the frame whose head d has.
func (c *Capture) wants(d *cutter) answer {
	if c.spec.Port == 0 {
		return yes
	}
	switch d.kind {
	case rds:
		sport, dport := binary.BigEndian.Uint16(d.head[20:]), binary.BigEndian.Uint16(d.head[22:])
		if sport != c.spec.Port && dport != c.spec.Port {
			return no
		}
	case fpdu:
		switch d.head[3] & 0x0f {
		case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInv, iwarp.OpSendSEInv:
			return inspect
		case iwarp.OpTerminate:
		default:
			return no
		}
	case chunk:
		return no
	}
	return yes
}
