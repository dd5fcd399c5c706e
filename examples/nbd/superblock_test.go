package main

import (
	"bytes"
	"testing"
)

func TestSuperblock(t *testing.T) {
	for _, clean := range []bool{false, true} {
		s := superblock{id: [16]byte{1, 15: 9}, events: 1 << 40, size: 1 << 50, parts: 2, part: 1, unit: 1 << 20,
			legs: 3, leg: 2, clean: clean, inSync: 5, region: regionFor(1 << 50), last: [maxLegs]uint64{7, 0, 1 << 39}}
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
	good := superblock{size: 1 << 30, parts: 1, legs: 2, leg: 1, inSync: 1, region: minRegion}
	for what, spoil := range map[string]func(s *superblock){
		"a leg too many":             func(s *superblock) { s.leg = 2 },
		"no leg in sync":             func(s *superblock) { s.inSync = 0 },
		"a leg that is not":          func(s *superblock) { s.inSync = 4 },
		"more legs than can":         func(s *superblock) { s.legs = maxLegs + 1 },
		"a part too many":            func(s *superblock) { s.part = 1 },
		"more parts than can":        func(s *superblock) { s.parts, s.unit = maxParts+1, 4096 },
		"stripes of one part":        func(s *superblock) { s.unit = 4096 },
		"parts without stripes":      func(s *superblock) { s.parts = 2 },
		"an odd stripe":              func(s *superblock) { s.parts, s.unit = 2, 5000 },
		"no bytes":                   func(s *superblock) { s.size = 0 },
		"regions that are too small": func(s *superblock) { s.region = minRegion - 1 },
		"more regions than fit":      func(s *superblock) { s.size = 1 << 50 },
	} {
		s := good
		if _, err := parseSuper(s.append(nil)); err != nil {
			t.Fatal(err)
		}
		if spoil(&s); s == good {
			t.Fatal(what)
		}
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

// TestRegionFor: the map of any size has room, and small volumes have small regions.
func TestRegionFor(t *testing.T) {
	for size, want := range map[uint64]uint8{1: 20, 1 << 30: 20, mapRoom * 8 << 20: 21, 1 << 50: 32, 1 << 59: 41} {
		s := superblock{size: size, region: regionFor(size)}
		if s.region != want || s.regions() > mapRoom*8 || uint64(s.regions())<<s.region < size {
			t.Errorf("%d bytes have %d regions of 1<<%d bytes, want 1<<%d", size, s.regions(), s.region, want)
		}
	}
}

// TestFollows: only a leg that is known to have been in sync is spared a whole copy.
func TestFollows(t *testing.T) {
	s := superblock{id: [16]byte{1}, events: 9, inSync: 1, last: [maxLegs]uint64{9, 5, 0}}
	for _, c := range []struct {
		what string
		leg  int
		o    *superblock
		want bool
	}{
		{"none", 1, nil, false},
		{"the last that it is known to have", 1, &superblock{id: s.id, leg: 1, events: 5}, true},
		{"one that it was not known to have", 1, &superblock{id: s.id, leg: 1, events: 6}, true},
		{"an earlier content", 1, &superblock{id: s.id, leg: 1, events: 4}, false},
		{"a later life", 1, &superblock{id: s.id, leg: 1, events: 10}, false},
		{"another mirror's", 1, &superblock{id: [16]byte{2}, leg: 1, events: 5}, false},
		{"another leg's", 1, &superblock{id: s.id, leg: 2, events: 5}, false},
		{"another part's", 1, &superblock{id: s.id, leg: 1, part: 1, events: 5}, false},
		{"of a leg that was never in sync", 2, &superblock{id: s.id, leg: 2, events: 8}, false},
		{"the newest, in sync", 0, &superblock{id: s.id, events: 9}, true},
	} {
		if got := s.follows(c.leg, c.o); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add((&superblock{size: 1 << 30, parts: 1, legs: 2, inSync: 3, events: 7, region: minRegion}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSuper(b)
		if err == nil && !bytes.Equal(s.append(nil)[:40], b[:40]) {
			t.Errorf("%x was read as %+v", b, s)
		}
	})
}
