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
	superSize  = 4096     // bytes of a superblock with its padding
	superRoom  = 64 << 10 // bytes at the end of each leg that the volume does not use
)

// errNoSuper says that a leg has no superblock.
var errNoSuper = errors.New("no superblock")

// superblock describes a mirror. Each leg has one.
type superblock struct {
	id     [16]byte // the mirror's random id
	events uint64   // grows with each write of the superblocks; the greatest one is valid
	size   uint64   // the volume's size in bytes
	legs   uint8    // the number of legs
	leg    uint8    // the number of the leg that has this superblock
	clean  bool     // the legs in sync are equal
	inSync uint32   // the set of legs in sync, a bit for each
}

// superAt returns the offset of the superblock of a leg with size bytes, or 0 if the leg is
// too small.
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
