package shm

import "unsafe"

// SegEntrySize is the size of a SegEntry in bytes.
const SegEntrySize = int(unsafe.Sizeof(SegEntry{}))

// ReadSegEntry copies the entry at the start of b. It reads each byte once.
func ReadSegEntry(b []byte) SegEntry {
	_ = b[SegEntrySize-1]
	return *(*SegEntry)(unsafe.Pointer(unsafe.SliceData(b)))
}

// PutSegEntry writes e at the start of b.
func PutSegEntry(b []byte, e SegEntry) {
	_ = b[SegEntrySize-1]
	*(*SegEntry)(unsafe.Pointer(unsafe.SliceData(b))) = e
}

// AtomicEntrySize is the size of an AtomicEntry in bytes.
const AtomicEntrySize = int(unsafe.Sizeof(AtomicEntry{}))

// ReadAtomicEntry copies the entry at the start of b. It reads each byte once.
func ReadAtomicEntry(b []byte) AtomicEntry {
	_ = b[AtomicEntrySize-1]
	return *(*AtomicEntry)(unsafe.Pointer(unsafe.SliceData(b)))
}

// PutAtomicEntry writes e at the start of b.
func PutAtomicEntry(b []byte, e AtomicEntry) {
	_ = b[AtomicEntrySize-1]
	*(*AtomicEntry)(unsafe.Pointer(unsafe.SliceData(b))) = e
}
