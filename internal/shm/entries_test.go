package shm

import "testing"

func TestSegEntryInPlace(t *testing.T) {
	b := heap(3 * SegEntrySize)
	want := SegEntry{Region: 0x01020304, Off: 0x1112131415161718, Len: 0x2122232425262728}
	PutSegEntry(b[SegEntrySize:], want)
	if got := ReadSegEntry(b[SegEntrySize:]); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i, c := range append(b[:SegEntrySize:SegEntrySize], b[2*SegEntrySize:]...) {
		if c != 0 {
			t.Errorf("byte %d beside the entry is %#x", i, c)
		}
	}
	if !panics(func() { ReadSegEntry(b[:SegEntrySize-1]) }) || !panics(func() { PutSegEntry(b[:SegEntrySize-1], want) }) {
		t.Error("an entry beyond the end of its memory")
	}
}

func TestAtomicEntryInPlace(t *testing.T) {
	b := heap(2 * AtomicEntrySize)
	want := AtomicEntry{CompareAdd: 1 << 60, Swap: 2, CompareMask: 3, SwapMask: 4}
	PutAtomicEntry(b[AtomicEntrySize:], want)
	if got := ReadAtomicEntry(b[AtomicEntrySize:]); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !panics(func() { ReadAtomicEntry(b[:AtomicEntrySize-1]) }) || !panics(func() { PutAtomicEntry(b[:AtomicEntrySize-1], want) }) {
		t.Error("an entry beyond the end of its memory")
	}
}
