package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"golang.org/x/sys/unix"
)

// asker asks for operations in its memory, one at a time.
type asker struct {
	c        *config
	s        socket
	mem      []byte // has the regions
	addr     uint64 // of mem
	cookie   []byte // where the socket writes the cookie of each registration
	cookieAt uint64
	want     []byte // the contents that mem must have

	buf, name, control []byte
	done, again        int // operations that were done, and requests that were made again
}

// rdmaAsk asks for -n operations of -sizes, one at a time. It registers memory anew for each.
func rdmaAsk(c *config) error {
	x := asker{c: c, want: make([]byte, askMax+2*4096), buf: make([]byte, 1<<16), name: make([]byte, 28), control: make([]byte, 512)}
	if err := x.open(); err != nil {
		return err
	}
	defer func() { x.s.close() }()
	for i := range c.n {
		for try := 0; ; try++ {
			ended, err := x.try(i, try)
			if err != nil {
				return err
			}
			if ended {
				break
			}
			x.again++
		}
	}
	fmt.Fprintf(c.out, "%d operations in place, %d asked for again\n", x.done, x.again)
	return nil
}

// open makes the socket and memory for its regions.
func (x *asker) open() (err error) {
	if x.s, err = x.c.open(x.c.from.AddrPort); err != nil {
		return err
	}
	if err := limitRecv(x.s, x.c.patience); err != nil {
		return err
	}
	return x.alloc()
}

// alloc makes memory for the regions. The memory before it stays as it is.
func (x *asker) alloc() error {
	mem, addr, err := x.s.alloc(askMax + 3*4096)
	if err != nil {
		return err
	}
	x.addr, x.cookie, x.cookieAt = addr, mem[len(mem)-8:], addr+uint64(len(mem)-8)
	x.mem = mem[:askMax+2*4096]
	return nil
}

// free ends the last registration.
func (x *asker) free() error {
	args := cmsg.FreeMRArgs{Cookie: binary.NativeEndian.Uint64(x.cookie), Flags: cmsg.FlagInvalidate}
	if err := x.s.setsockopt(solRDS, int(cmsg.OptFreeMR), args.Append(nil)); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("RDS_FREE_MR: %w", err)
	}
	return nil // EINVAL: the use of the region has ended its registration
}

// next returns request number i. Its region is region bytes of the memory, beginning at start.
func (x *asker) next(i int) (a ask, start, region int) {
	size := max(x.c.sizes[i%len(x.c.sizes)], 1)
	start = 64 + i*37%4000 // at changing places in a page
	a = ask{Seq: uint32(i + 1), Kind: askWrite + uint32(i%2), Size: uint32(size), Off: uint32(i * 11 % 500)}
	region = int(a.Off) + size
	if start+region+askGuard > len(x.mem) {
		a.Off, region = 0, size
	}
	if i%3 == 2 {
		a.How |= askSplit
	}
	if x.c.silent && i%5 == 4 {
		a.How |= askSilent
	}
	if x.c.bad > 0 && i%x.c.bad == x.c.bad-1 {
		a.How = askBad
	}
	return a, start, region
}

// try makes request number i and checks its outcome. It returns false without an error if the
// request has to be made again.
func (x *asker) try(i, try int) (ended bool, err error) {
	a, start, region := x.next(i)
	size := int(a.Size)
	a.Seq |= uint32(try) << 20
	at := start + int(a.Off)
	fill(x.mem, uint64(a.Seq)<<32)
	copy(x.want, x.mem)
	if a.Kind == askRead {
		a.Sum = sum(x.mem[at : at+size])
	}
	send := cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap), Map: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: x.addr + uint64(start), Bytes: uint64(region)},
		CookieAddr: x.cookieAt, Flags: cmsg.FlagReadWrite | cmsg.FlagUseOnce | cmsg.FlagInvalidate}}
	ctl, err := send.Append(nil)
	if err != nil {
		return false, err
	}
	if err := x.c.sendWith(x.s, a.append(nil), sockaddr(x.c.to.AddrPort), ctl); err != nil {
		return false, fmt.Errorf("request %d: %w", i, err)
	}
	if a.How&askBad != 0 {
		time.Sleep(x.c.patience / 4) // by then the server has tried the operation
		return true, x.free()
	}
	got, err := reply(x.s, a.Seq, x.buf, x.name, x.control)
	if (errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EAGAIN)) && time.Duration(try)*x.c.patience < x.c.limit {
		return false, x.unanswered(try)
	}
	if err != nil {
		return false, fmt.Errorf("request %d of %d bytes, try %d: %w", i, size, try, err)
	}
	if got.Status != 0 { // the connection ended before the operation was done
		return false, nil
	}
	if a.Kind == askWrite {
		fill(x.want[at:at+size], uint64(got.Seq))
	}
	if i := firstDiff(x.mem, x.want); i >= 0 {
		return false, fmt.Errorf("request %d, kind %d of %d bytes at %d: byte %d is wrong", a.Seq, a.Kind, size, at, i)
	}
	x.done++
	return true, nil
}

// unanswered prepares to make a request again. A reply that was lost with a connection never
// comes. The kernel finishes a broken connection only when the registrations made on it have
// ended, so unanswered ends them.
func (x *asker) unanswered(try int) error {
	if err := x.free(); err != nil {
		return err
	}
	// In this time, without any registration, the kernel finishes the old connection. A
	// registration that is made at once would be made on the old connection and keep it.
	time.Sleep(x.c.patience / 8)
	// A request that is not acked keeps its registration, even if that is freed, and waits for
	// the connection. The close of its socket withdraws it.
	if _, kernel := x.s.(*kernelSocket); kernel && try > 0 {
		x.s.close()
		return x.open()
	}
	// The server may still carry out the old request, in the memory that the old request named.
	return x.alloc()
}

// firstDiff returns the index of the first byte of a that differs from b, or -1.
func firstDiff(a, b []byte) int {
	if bytes.Equal(a, b[:len(a)]) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// reply waits for the reply to request seq. It skips notifications and replies to earlier tries.
func reply(s socket, seq uint32, buf, name, control []byte) (ask, error) {
	for {
		r, err := s.recvmsg(buf, name, control, 0)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && r.name == 0:
			continue
		case err != nil:
			return ask{}, err
		}
		a, err := parseAsk(buf[:r.n])
		if err != nil || a.Seq == seq {
			return a, err
		}
	}
}
