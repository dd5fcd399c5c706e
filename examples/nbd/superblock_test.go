package main

import (
	"bytes"
	"testing"
)

func TestSuperblock(t *testing.T) {
	for _, clean := range []bool{false, true} {
		s := superblock{id: [16]byte{1, 15: 9}, events: 1 << 40, size: 1 << 50, legs: 3, leg: 2, clean: clean, inSync: 5}
		b := s.append([]byte("before"))[6:]
		if got, err := parseSuper(b); err != nil || got != s || len(b) != superSize {
			t.Errorf("%+v came back as %+v (%v) from %d bytes", s, got, err, len(b))
		}
		for i := range superUsed {
			bad := bytes.Clone(b)
			bad[i] ^= 4
			if _, err := parseSuper(bad); err == nil {
				t.Errorf("one with another byte %d was taken", i)
			}
		}
	}
	for what, s := range map[string]superblock{
		"a leg too many":     {legs: 2, leg: 2, inSync: 1},
		"no leg in sync":     {legs: 2},
		"a leg that is not":  {legs: 2, inSync: 4},
		"more legs than can": {legs: maxLegs + 1, inSync: 1},
	} {
		if _, err := parseSuper(s.append(nil)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	for size, want := range map[uint64]uint64{0: 0, superRoom: 0, superRoom + 4095: 0, superRoom + 4096: 4096, 1<<30 + 5: 1<<30 - superRoom} {
		if got := superAt(size); got != want {
			t.Errorf("a leg of %d bytes has its superblock at %d, want %d", size, got, want)
		}
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add((&superblock{legs: 2, inSync: 3, events: 7}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSuper(b)
		if err == nil && !bytes.Equal(s.append(nil)[:40], b[:40]) {
			t.Errorf("%x was read as %+v", b, s)
		}
	})
}
