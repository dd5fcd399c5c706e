package afrds

import "unsafe"

// addressOf is the address of b's first byte in this process.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
