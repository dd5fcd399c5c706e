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
