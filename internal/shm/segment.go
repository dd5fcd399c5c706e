package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// ErrFormat says that memory is not a segment of this version.
var ErrFormat = errors.New("not a shared memory segment of this version")

// Offsets in the segment. The header page comes first. Each index is alone on 128 bytes:
// two cache lines, because the CPU fetches lines in pairs.
const (
	lineSize   = 128
	headerSize = 4096

	offMagic        = 0
	offVersion      = 4
	offSize         = 8  // u64, of the whole segment
	offParams       = 16 // Params, 8 u32
	offDaemonAsleep = 1 * lineSize
	offClientAsleep = 2 * lineSize
	offSubTail      = 3 * lineSize
	offSubHead      = 4 * lineSize
	offEventTail    = 5 * lineSize
	offEventHead    = 6 * lineSize
	offSendRetTail  = 7 * lineSize
	offSendRetHead  = 8 * lineSize
	offRecvRetTail  = 9 * lineSize
	offRecvRetHead  = 10 * lineSize
)

// Limits of Params. A daemon grants no more, and a client refuses more.
const (
	MaxRingEntries = 1 << 20 // SubEntries, EventEntries, MaxMsgs, MaxRx
	MaxTable       = 1 << 20 // Slots, Cells
	MaxWindows     = 1 << 10 // SendWindows, RecvWindows: 4 GiB each way
)

// Check returns an error that names the first field beyond its limits.
func (p Params) Check() error {
	for _, f := range []struct {
		name string
		v    uint32
	}{{"SubEntries", p.SubEntries}, {"EventEntries", p.EventEntries}, {"MaxMsgs", p.MaxMsgs}, {"MaxRx", p.MaxRx}} {
		if f.v < 2 || f.v > MaxRingEntries || bits.OnesCount32(f.v) != 1 {
			return fmt.Errorf("shared memory parameters: %s is %d, want a power of two from 2 to %d", f.name, f.v, MaxRingEntries)
		}
	}
	for _, f := range []struct {
		name   string
		v, max uint32
	}{{"Slots", p.Slots, MaxTable}, {"Cells", p.Cells, MaxTable},
		{"SendWindows", p.SendWindows, MaxWindows}, {"RecvWindows", p.RecvWindows, MaxWindows}} {
		if f.v < 1 || f.v > f.max {
			return fmt.Errorf("shared memory parameters: %s is %d, want 1 to %d", f.name, f.v, f.max)
		}
	}
	return nil
}

// segmentLayout has the offsets that depend on the parameters.
type segmentLayout struct {
	sub, event, sendRet, recvRet, wantCells, wantSlots, size int
}

func layoutOf(p Params) (l segmentLayout) {
	off := headerSize
	place := func(n uint32, size int) int {
		at := off
		off = roundUp(off+int(n)*size, lineSize)
		return at
	}
	l.sub = place(p.SubEntries, EntrySize)
	l.event = place(p.EventEntries, EntrySize)
	l.sendRet = place(p.MaxMsgs, 4)
	l.recvRet = place(RunSteps*p.MaxRx, 4)
	l.wantCells = place(p.Cells, int(unsafe.Sizeof(WantCell{})))
	l.wantSlots = place(p.Slots, int(unsafe.Sizeof(WantSlot{})))
	l.size = roundUp(off, headerSize)
	return l
}

func roundUp(n, to int) int { return (n + to - 1) &^ (to - 1) }

// SegmentSize is the size in bytes of a segment with these parameters.
func SegmentSize(p Params) int { return layoutOf(p).size }

// Segment is one client's rings and wishes (WantSlot, WantCell) as one side sees them. Each
// side makes its own Segment of the same memory and uses only its own ends.
type Segment struct {
	sub, event       ring[Entry]
	sendRet, recvRet ring[uint32]

	mem       []byte
	params    Params
	wantCells []WantCell
	wantSlots []WantSlot

	subProducer     *Producer
	subConsumer     *Consumer
	eventProducer   *Producer
	eventConsumer   *Consumer
	sendRetProducer *IDProducer
	sendRetConsumer *IDConsumer
	recvRetProducer *IDProducer
	recvRetConsumer *IDConsumer
}

// NewSegment formats mem, zeroed memory of at least SegmentSize(p) bytes, and returns the
// daemon's view of it. It fails if Params.Check fails or the memory is too short.
func NewSegment(mem []byte, p Params) (*Segment, error) {
	s, err := AttachSegment(mem, p)
	if err != nil {
		return nil, err
	}
	*at[uint32](mem, offMagic) = Magic
	*at[uint32](mem, offVersion) = Version
	*at[uint64](mem, offSize) = uint64(SegmentSize(p))
	*at[Params](mem, offParams) = p
	return s, nil
}

// AttachSegment returns the daemon's view of a segment that another daemon formatted with p
// in mem. It reads and writes nothing there, because the client may have overwritten the
// header. It fails as NewSegment does. HandOverRings follows.
func AttachSegment(mem []byte, p Params) (*Segment, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if len(mem) < SegmentSize(p) {
		return nil, fmt.Errorf("shared memory segment: %d bytes, these parameters need %d", len(mem), SegmentSize(p))
	}
	if uintptr(unsafe.Pointer(&mem[0]))%8 != 0 {
		return nil, errors.New("shared memory segment: memory is not aligned to 8 bytes")
	}
	return newSegment(mem, p), nil
}

// OpenSegment checks memory that the daemon formatted, and returns the client's view of it.
// It may be used only at the start of the session. Its error is ErrFormat, with what is
// wrong.
func OpenSegment(mem []byte) (*Segment, error) {
	if len(mem) < headerSize || uintptr(unsafe.Pointer(&mem[0]))%8 != 0 {
		return nil, fmt.Errorf("%w: %d bytes, or not aligned to 8", ErrFormat, len(mem))
	}
	magic, version := *at[uint32](mem, offMagic), *at[uint32](mem, offVersion)
	p, size := *at[Params](mem, offParams), *at[uint64](mem, offSize)
	switch {
	case magic != Magic:
		return nil, fmt.Errorf("%w: magic %#x, want %#x", ErrFormat, magic, uint32(Magic))
	case version != Version:
		return nil, fmt.Errorf("%w: version %d, this program has %d", ErrFormat, version, Version)
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if want := SegmentSize(p); size != uint64(want) || len(mem) < want {
		return nil, fmt.Errorf("%w: %d bytes mapped, %d in the header, these parameters need %d", ErrFormat, len(mem), size, want)
	}
	return newSegment(mem, p), nil
}

func newSegment(mem []byte, p Params) *Segment {
	l := layoutOf(p)
	s := &Segment{mem: mem, params: p,
		sub:       ring[Entry]{array[Entry](mem, l.sub, p.SubEntries), index(mem, offSubHead), index(mem, offSubTail)},
		event:     ring[Entry]{array[Entry](mem, l.event, p.EventEntries), index(mem, offEventHead), index(mem, offEventTail)},
		sendRet:   ring[uint32]{array[uint32](mem, l.sendRet, p.MaxMsgs), index(mem, offSendRetHead), index(mem, offSendRetTail)},
		recvRet:   ring[uint32]{array[uint32](mem, l.recvRet, RunSteps*p.MaxRx), index(mem, offRecvRetHead), index(mem, offRecvRetTail)},
		wantCells: array[WantCell](mem, l.wantCells, p.Cells),
		wantSlots: array[WantSlot](mem, l.wantSlots, p.Slots),
	}
	s.subProducer = &Producer{producer[Entry]{ring: &s.sub}}
	s.subConsumer = &Consumer{consumer[Entry]{ring: &s.sub}}
	s.eventProducer = &Producer{producer[Entry]{ring: &s.event}}
	s.eventConsumer = &Consumer{consumer[Entry]{ring: &s.event}}
	s.sendRetProducer = &IDProducer{producer[uint32]{ring: &s.sendRet}}
	s.sendRetConsumer = &IDConsumer{consumer[uint32]{ring: &s.sendRet}}
	s.recvRetProducer = &IDProducer{producer[uint32]{ring: &s.recvRet}}
	s.recvRetConsumer = &IDConsumer{consumer[uint32]{ring: &s.recvRet}}
	return s
}

// Params are the sizes the segment was made with.
func (s *Segment) Params() Params { return s.params }

// SubProducer is the client's end of the submission ring. Each call of this and the other
// ends' methods returns the same end.
func (s *Segment) SubProducer() *Producer { return s.subProducer }

// SubConsumer is the daemon's end of the submission ring.
func (s *Segment) SubConsumer() *Consumer { return s.subConsumer }

// EventProducer is the daemon's end of the event ring.
func (s *Segment) EventProducer() *Producer { return s.eventProducer }

// EventConsumer is the client's end of the event ring.
func (s *Segment) EventConsumer() *Consumer { return s.eventConsumer }

// SendRetProducer is the daemon's end of the send-return ring.
func (s *Segment) SendRetProducer() *IDProducer { return s.sendRetProducer }

// SendRetConsumer is the client's end of the send-return ring.
func (s *Segment) SendRetConsumer() *IDConsumer { return s.sendRetConsumer }

// RecvRetProducer is the client's end of the receive-return ring.
func (s *Segment) RecvRetProducer() *IDProducer { return s.recvRetProducer }

// RecvRetConsumer is the daemon's end of the receive-return ring.
func (s *Segment) RecvRetConsumer() *IDConsumer { return s.recvRetConsumer }

// WantSlot is the client's wishes for slot i, below Params.Slots.
func (s *Segment) WantSlot(i uint32) *WantSlot { return &s.wantSlots[i] }

// WantCell is the client's wishes for cell i, below Params.Cells.
func (s *Segment) WantCell(i uint32) *WantCell { return &s.wantCells[i] }

// DaemonAsleep is the daemon's announcement of sleep.
func (s *Segment) DaemonAsleep() *Announcement { return at[Announcement](s.mem, offDaemonAsleep) }

// ClientAsleep is the client's announcement of sleep.
func (s *Segment) ClientAsleep() *Announcement { return at[Announcement](s.mem, offClientAsleep) }

// SetRelief asks for an EvRelief when the destination is no longer congested. The caller
// has to check Slot.LoadCongested afterwards: an earlier relief gives no event.
func (w *WantSlot) SetRelief() { atomic.OrUint32(&w.Relief, WantRelief) }

// WantsRelief reports whether the client asks for an EvRelief.
func (w *WantSlot) WantsRelief() bool { return atomic.LoadUint32(&w.Relief)&WantRelief != 0 }

// TakeRelief withdraws the wish and reports whether it was set.
func (w *WantSlot) TakeRelief() bool { return atomic.AndUint32(&w.Relief, ^WantRelief)&WantRelief != 0 }

// SetCrowded asks for an EvCrowded when the destination becomes congested. The caller has
// to check Slot.LoadCongested afterwards: earlier congestion gives no event.
func (w *WantSlot) SetCrowded() { atomic.OrUint32(&w.Relief, WantCrowded) }

// TakeCrowded withdraws the wish and reports whether it was set.
func (w *WantSlot) TakeCrowded() bool {
	return atomic.AndUint32(&w.Relief, ^WantCrowded)&WantCrowded != 0
}

// Bits of WantSlot.Relief.
const (
	WantRelief  = uint32(1)
	WantCrowded = uint32(2)
)

// LoadArmed is the id for which the client wants an EvBarrier, 0 for none.
func (c *WantCell) LoadArmed() uint64 { return atomic.LoadUint64(&c.Armed) }

// StoreArmed asks for an EvBarrier when the HWM reaches id. 0 withdraws the wish. The
// caller has to check Cell.LoadHWM afterwards: an id that was reached earlier gives no
// event. It is a Swap for the same reason as Announcement.Store.
func (c *WantCell) StoreArmed(id uint64) { atomic.SwapUint64(&c.Armed, id) }

// CompareAndClearArmed withdraws the wish for id unless it was replaced by another.
func (c *WantCell) CompareAndClearArmed(id uint64) bool {
	return atomic.CompareAndSwapUint64(&c.Armed, id, 0)
}
