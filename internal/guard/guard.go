// Package guard keeps the daemon running when it touches memory that is gone: pages of a file that its owner
// has cut short, or that its file system cannot make again. The kernel sends SIGBUS for such an access, and Go
// ends the program, also in the middle of a copy or of a cipher.
//
// Memory that Add has noted is replaced instead. The handler of SIGBUS maps private zeros from the page that is
// gone to the end of the memory, and the access goes on. What is written there, nobody reads. Hits changes, and
// Hit says whose memory it was. A system call with such memory fails with EFAULT instead, see Touch. The handler
// passes on every other fault to the handler before it.
package guard

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// most is how many mappings can be guarded at a time, as many as a daemon has of all processes.
const most = 32768

// Guard is that of one mapping. The handler in assembly knows the layout.
type Guard struct {
	start, end uintptr // end 0: none
	mask       uintptr // of the first address of a page
	hit        uintptr // 1: a page was gone
}

var (
	table [most]Guard // the handler reads it
	used  uintptr     // none from this one on was ever used. The handler reads it
	hits  uintptr     // grows with each fault. The handler writes it

	mu sync.Mutex // one Add at a time
	on bool       // the handler is there; guarded by mu
)

var errMany error = fmt.Errorf("%w: too many files that can be cut short: add F_SEAL_SHRINK", unix.ENOBUFS)

// Add guards mem, a whole mapping with pages of so many bytes, until Remove. Errors: ENOTSUP on a processor without a
// handler; ENOBUFS.
func Add(mem []byte, page uint64) (*Guard, error) {
	mu.Lock()
	defer mu.Unlock()
	if !on {
		if err := install(); err != nil {
			return nil, err
		}
		on = true
	}
	at := uintptr(0)
	for at < used && atomic.LoadUintptr(&table[at].end) != 0 {
		at++
	}
	if at == most {
		return nil, errMany
	}
	g, from := &table[at], address(mem)
	atomic.StoreUintptr(&g.hit, 0)
	atomic.StoreUintptr(&g.mask, ^uintptr(page-1))
	atomic.StoreUintptr(&g.start, from)
	atomic.StoreUintptr(&g.end, from+uintptr(len(mem)))
	atomic.StoreUintptr(&used, max(used, at+1))
	return g, nil
}

// Remove ends the guard, if g is not nil. Nobody may touch the memory from then on.
func (g *Guard) Remove() {
	if g != nil {
		atomic.StoreUintptr(&g.end, 0)
	}
}

// Hit reports whether a page was gone. The memory is not the owner's any more then. g may be nil.
func (g *Guard) Hit() bool { return g != nil && atomic.LoadUintptr(&g.hit) != 0 }

// Hits is another number after each fault than before it.
func Hits() uint64 { return uint64(atomic.LoadUintptr(&hits)) }

// Touch reads each page of iov that is guarded. Call it when a system call with iov has failed with EFAULT. If it reports
// true, pages of iov were gone and are replaced, and the system call is to be tried again.
func Touch(iov []unix.Iovec) (again bool) {
	before := Hits()
	for i := range iov {
		mem := bytesOf(&iov[i])
		from := address(mem)
		for k := range atomic.LoadUintptr(&used) {
			g := &table[k]
			start, end := max(atomic.LoadUintptr(&g.start), from), min(atomic.LoadUintptr(&g.end), from+uintptr(len(mem)))
			mask := atomic.LoadUintptr(&g.mask)
			for at := start; at < end; at = at&mask - mask { // the next page
				look(&mem[at-from])
			}
		}
	}
	return Hits() != before
}
