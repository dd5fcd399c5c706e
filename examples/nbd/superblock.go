package main

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	superMagic = "rdsdmir1"
	superUsed  = 52       // bytes of a superblock
	superSize  = 4096     // bytes that are written
	superRoom  = 64 << 10 // bytes at the end of each leg that are not the volume's
)

// errNoSuper says that a leg has no superblock.
var errNoSuper = errors.New("no superblock")

// superblock is what each leg of a mirror says about the mirror.
type superblock struct {
	id     [16]byte // of the mirror
	events uint64   // grows with every change of the membership; the greatest is right
	size   uint64   // of the volume, bytes
	legs   uint8    // how many the mirror has
	leg    uint8    // which one this is
	clean  bool     // nothing is being written
	inSync uint32   // the legs that have everything, as bits
}

// superAt returns where the superblock of a leg of size bytes is, 0 if it has no room.
func superAt(size uint64) uint64 { return (max(size, superRoom) - superRoom) &^ (superSize - 1) }

// append adds the bytes of s, superSize of them, to b.
func (s *superblock) append(b []byte) []byte {
	from := len(b)
	le := binary.LittleEndian
	b = append(append(b, superMagic...), s.id[:]...)
	b = le.AppendUint64(b, s.events)
	b = le.AppendUint64(b, s.size)
	clean := byte(0)
	if s.clean {
		clean = 1
	}
	b = append(b, s.legs, s.leg, clean, 0)
	b = le.AppendUint32(b, s.inSync)
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
	s.legs, s.leg, s.clean, s.inSync = b[40], b[41], b[42] != 0, le.Uint32(b[44:])
	if s.leg >= s.legs || s.legs > maxLegs || s.inSync == 0 || s.inSync>>s.legs != 0 {
		return s, errNoSuper
	}
	return s, nil
}
