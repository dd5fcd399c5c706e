package afrds

import "unsafe"

// addressOf returns the address of the first byte of b in this process.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
