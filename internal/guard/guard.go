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
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// most is how many mappings can be guarded at a time, as many as a daemon has of all processes.
const most = 32768

// entry is a guarded mapping. The handler in assembly knows the layout.
type entry struct {
	start, end uintptr // both 0: none
	mask       uintptr // of the first address of a page
	hit        uintptr // 1: a page was gone
}

var (
	table [most]entry // the handler reads it
	used  uintptr     // no entry from this one on was ever used. The handler reads it
	hits  uintptr     // grows with each fault. The handler writes it

	mu   sync.Mutex // guards what follows, and which entries are free
	free []int
	on   error // why there is no handler
	once sync.Once
)

// Guard is the guard of one mapping.
type Guard struct{ at int }

// Add guards mem, a whole mapping with pages of so many bytes, until Remove. Errors: ENOTSUP on a processor without a
// handler; ENOBUFS.
func Add(mem []byte, page uint64) (*Guard, error) {
	once.Do(func() { on = install() })
	if on != nil {
		return nil, on
	}
	mu.Lock()
	defer mu.Unlock()
	at := int(used)
	if n := len(free); n > 0 {
		at, free = free[n-1], free[:n-1]
	} else if at == most {
		return nil, fmt.Errorf("%w: %d mappings of files that can be cut short; seal a memfd against shrinking (F_SEAL_SHRINK)", unix.ENOBUFS, most)
	} else {
		defer atomic.StoreUintptr(&used, used+1)
	}
	e, from := &table[at], address(mem)
	atomic.StoreUintptr(&e.hit, 0)
	atomic.StoreUintptr(&e.mask, ^uintptr(page-1))
	atomic.StoreUintptr(&e.start, from)
	atomic.StoreUintptr(&e.end, from+uintptr(len(mem)))
	return &Guard{at}, nil
}

// Remove ends the guard. Nobody may touch the memory from then on.
func (g *Guard) Remove() {
	mu.Lock()
	defer mu.Unlock()
	e := &table[g.at]
	atomic.StoreUintptr(&e.end, 0)
	atomic.StoreUintptr(&e.start, 0)
	free = append(free, g.at)
}

// Hit reports whether a page was gone. The memory is not the owner's any more then.
func (g *Guard) Hit() bool { return atomic.LoadUintptr(&table[g.at].hit) != 0 }

// Hits is another number after each fault than before it.
func Hits() uint64 { return uint64(atomic.LoadUintptr(&hits)) }

// Touch reads each page of iov that is guarded. Call it when a system call with iov has failed with EFAULT. If it reports
// true, pages of iov were gone and are replaced, and the system call is to be tried again.
func Touch(iov []unix.Iovec) (again bool) {
	before := Hits()
	for _, v := range iov {
		if mem := bytesOf(v); len(mem) > 0 {
			touchGuarded(mem)
		}
	}
	return Hits() != before
}

func touchGuarded(mem []byte) {
	from, to := address(mem), address(mem)+uintptr(len(mem))
	for i := range atomic.LoadUintptr(&used) {
		e := &table[i]
		start, end := atomic.LoadUintptr(&e.start), atomic.LoadUintptr(&e.end)
		if start, end = max(start, from), min(end, to); start < end {
			touch(mem[start-from : end-from])
		}
	}
}

// touch reads each page of mem.
func touch(mem []byte) {
	page := os.Getpagesize()
	for at := 0; at < len(mem); at += page {
		look(&mem[at])
	}
	look(&mem[len(mem)-1])
}
