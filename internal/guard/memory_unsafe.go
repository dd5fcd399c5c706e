package guard

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// address is where mem begins.
func address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

func bytesOf(v *unix.Iovec) []byte { return unsafe.Slice(v.Base, int(v.Len)) }

// look reads the aligned word that has b. The compiler leaves an atomic load in.
func look(b *byte) {
	p := unsafe.Pointer(b)
	_ = atomic.LoadUint32((*uint32)(unsafe.Add(p, -int(uintptr(p)&3))))
}
