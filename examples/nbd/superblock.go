package main

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	superMagic = "rdsdvol2"
	superUsed  = 124      // bytes of a superblock
	superSize  = 4096     // bytes of a superblock with its padding
	superRoom  = 64 << 10 // bytes at the end of each blockstore that the volume does not use

	// mapRoom is the room for a mirror's map of regions, behind the superblock.
	mapRoom = superRoom - superSize
	// minRegion and maxRegion bound the binary logarithm of a region's bytes.
	minRegion, maxRegion = 20, 44
)

// errNoSuper says that a blockstore has no superblock.
var errNoSuper = errors.New("no superblock")

// superblock describes a volume that consists of several blockstores: parts that make
// stripes, legs that make a mirror, or both. Each blockstore has one.
type superblock struct {
	id     [16]byte // the volume's random id
	events uint64   // grows with each write of the part's superblocks; the greatest one is valid
	size   uint64   // bytes of the part that the volume uses
	parts  uint8    // the number of parts
	part   uint8    // the number of the part that has this superblock
	unit   uint32   // bytes of a stripe's share of one part; 0 if there is one part

	legs   uint8  // the number of the part's legs
	leg    uint8  // the number of the leg that has this superblock
	clean  bool   // the legs in sync are equal
	region uint8  // the binary logarithm of a region's bytes
	inSync uint32 // the set of legs in sync, a bit for each
	// last has for each leg the last events that it is known to have. 0 is a leg that has
	// never been in sync.
	last [maxLegs]uint64
}

// superAt returns the offset of the superblock of a blockstore with size bytes, or 0 if the
// blockstore is too small.
func superAt(size uint64) uint64 { return (max(size, superRoom) - superRoom) &^ (superSize - 1) }

// regionFor returns the binary logarithm of the bytes of a region, so that the map of size
// bytes fits into mapRoom.
func regionFor(size uint64) uint8 {
	b := uint8(minRegion)
	for b < maxRegion && size>>b >= mapRoom*8 {
		b++
	}
	return b
}

// regions returns the number of the part's regions.
func (s *superblock) regions() int { return int((s.size + 1<<s.region - 1) >> s.region) }

// follows reports whether the leg i, which has the superblock o, has everything that the
// legs in sync of s have, but for the regions in their map.
func (s *superblock) follows(i int, o *superblock) bool {
	if o == nil || o.id != s.id || o.part != s.part || int(o.leg) != i || o.events > s.events {
		return false
	}
	return s.inSync&(1<<i) != 0 && o.events == s.events || s.last[i] != 0 && o.events >= s.last[i]
}

// append adds the bytes of s, superSize of them, to b.
func (s *superblock) append(b []byte) []byte {
	from := len(b)
	le := binary.LittleEndian
	b = append(append(b, superMagic...), s.id[:]...)
	b = le.AppendUint64(b, s.events)
	b = le.AppendUint64(b, s.size)
	for _, e := range s.last {
		b = le.AppendUint64(b, e)
	}
	b = le.AppendUint32(b, s.inSync)
	b = le.AppendUint32(b, s.unit)
	clean := byte(0)
	if s.clean {
		clean = 1
	}
	b = append(b, s.parts, s.part, s.legs, s.leg, clean, s.region, 0, 0)
	b = le.AppendUint32(b, store.Checksum(b[from:]))
	return append(b, make([]byte, superSize-superUsed)...)
}

// parseSuper decodes a superblock.
func parseSuper(b []byte) (s superblock, err error) {
	le := binary.LittleEndian
	if len(b) < superUsed || !bytes.HasPrefix(b, []byte(superMagic)) || store.Checksum(b[:superUsed-4]) != le.Uint32(b[superUsed-4:]) {
		return s, errNoSuper
	}
	copy(s.id[:], b[8:])
	s.events, s.size = le.Uint64(b[24:]), le.Uint64(b[32:])
	for i := range s.last {
		s.last[i] = le.Uint64(b[40+8*i:])
	}
	s.inSync, s.unit = le.Uint32(b[104:]), le.Uint32(b[108:])
	s.parts, s.part, s.legs, s.leg, s.clean, s.region = b[112], b[113], b[114], b[115], b[116] != 0, b[117]
	switch {
	case s.leg >= s.legs || s.legs > maxLegs || s.inSync == 0 || s.inSync>>s.legs != 0,
		s.part >= s.parts || s.parts > maxParts || (s.parts > 1) != (s.unit > 0) || s.unit > 0 && !unitFits(int(s.unit)),
		s.size == 0 || s.size > 1<<62 || s.region < minRegion || s.region > maxRegion || s.size>>s.region >= mapRoom*8:
		return s, errNoSuper
	}
	return s, nil
}
