package shm

import (
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"
)

// FuzzOpenSegment: a header that is accepted describes memory that exists. All other
// headers are refused with ErrFormat.
func FuzzOpenSegment(f *testing.F) {
	small := Params{SubEntries: 8, EventEntries: 8, MaxMsgs: 8, MaxRx: 8, Slots: 4, Cells: 4, SendWindows: 1, RecvWindows: 1}
	words := func(p Params, size uint64) []byte {
		b := make([]byte, offParams+int(unsafe.Sizeof(p)))
		binary.LittleEndian.PutUint32(b, Magic)
		binary.LittleEndian.PutUint32(b[offVersion:], Version)
		binary.LittleEndian.PutUint64(b[offSize:], size)
		*(*Params)(unsafe.Pointer(&b[offParams])) = p
		return b
	}
	f.Add(words(small, uint64(SegmentSize(small))), uint16(2))
	f.Add(words(small, 0), uint16(2))
	huge := DefaultParams()
	huge.SubEntries, huge.Slots = MaxRingEntries, MaxTable
	f.Add(words(huge, uint64(SegmentSize(huge))), uint16(1))
	f.Add([]byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, head []byte, pages uint16) {
		mem := make([]uint64, int(pages%32)*4096/8+1)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), len(mem)*8)[:len(mem)*8-8]
		copy(b, head)
		s, err := OpenSegment(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("not an ErrFormat: %v", err)
			}
			return
		}
		p := s.Params()
		if SegmentSize(p) > len(b) {
			t.Fatalf("%+v accepted in %d bytes", p, len(b))
		}
		// All parts end within the memory, so reading their ends does not fault.
		s.WantCell(p.Cells - 1).StoreArmed(1)
		s.WantSlot(p.Slots - 1).SetRelief()
		var e Entry
		for range p.EventEntries + 1 {
			if !s.EventConsumer().Next(&e) {
				break
			}
		}
		for r := s.SubProducer().Reserve(); r != nil; r = s.SubProducer().Reserve() {
			*r = e
		}
		s.SendRetConsumer().Take()
		s.RecvRetProducer().Put(1)
		s.RecvRetProducer().Publish()
	})
}
