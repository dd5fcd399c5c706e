package shm

import "unsafe"

// Entry is one ring entry: 64 bytes, aligned to 8, that hold one descriptor. Kind says
// which descriptor it is. The other methods view the same memory as that descriptor.
type Entry [EntrySize / 8]uint64

// Kind is the first byte. It is a Kind in the submission ring and an EvKind in the event
// ring.
func (e *Entry) Kind() uint8 { return *(*uint8)(unsafe.Pointer(e)) }

// Sub views e as the descriptor of KindSend, KindSendOp and KindCancel.
func (e *Entry) Sub() *Sub { return (*Sub)(unsafe.Pointer(e)) }

// SubOp views e as the operation that follows a KindSendOp entry.
func (e *Entry) SubOp() *SubOp { return (*SubOp)(unsafe.Pointer(e)) }

// SubDest views e as the descriptor of KindOpenDest and KindCloseDest.
func (e *Entry) SubDest() *SubDest { return (*SubDest)(unsafe.Pointer(e)) }

// Event views e as the descriptor of EvData.
func (e *Entry) Event() *Event { return (*Event)(unsafe.Pointer(e)) }

// Status views e as the descriptor of EvStatus.
func (e *Entry) Status() *EventStatus { return (*EventStatus)(unsafe.Pointer(e)) }

// Notice views e as the descriptor of EvNotice, EvBarrier, EvRelief,
// EvCrowded and EvOverrun.
func (e *Entry) Notice() *EventNotice { return (*EventNotice)(unsafe.Pointer(e)) }

// Every descriptor fills one entry, and every table entry one cache line.
const (
	_ = -(EntrySize ^ unsafe.Sizeof(Entry{}))
	_ = -(EntrySize ^ unsafe.Sizeof(Sub{}))
	_ = -(EntrySize ^ unsafe.Sizeof(SubOp{}))
	_ = -(EntrySize ^ unsafe.Sizeof(SubDest{}))
	_ = -(EntrySize ^ unsafe.Sizeof(Event{}))
	_ = -(EntrySize ^ unsafe.Sizeof(EventStatus{}))
	_ = -(EntrySize ^ unsafe.Sizeof(EventNotice{}))
	_ = -(64 ^ unsafe.Sizeof(Slot{}))
	_ = -(64 ^ unsafe.Sizeof(Cell{}))
)
