package main

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/rdsd/rdsd/cmsg"
	"golang.org/x/sys/unix"
)

// server carries out operations that rdma-ask asks for.
type server struct {
	c        *config
	s        socket
	mem      []byte               // askSlots slots, each with vectors and the memory of one operation
	addr     uint64               // of mem
	free     []int                // slots that no operation uses; the one that was used last is the last
	asked    int                  // requests so far
	statuses int                  // statuses so far
	open     map[uint64]operation // operations without a status, by token
	counts   map[string]int       // statuses by value
}

// operation is an operation without a status.
type operation struct {
	ask
	from []byte // address of the asker
	slot int
}

// askSlots is the number of operations that can be without a status at the same time. An asker has
// one operation in progress, but rdsd has messages to a kernel acked only now and then, and a status
// comes with the ack.
const (
	askSlots = 32
	slotLen  = askHeader + askMax
)

// local returns the memory of an operation of n bytes that uses a slot.
func (x *server) local(slot, n int) []byte { return x.mem[slot*slotLen+askHeader:][:n] }

// rdmaServe carries out requests until -n operations have a status.
func rdmaServe(c *config) error {
	s, err := c.open(c.at.AddrPort)
	if err != nil {
		return err
	}
	defer s.close()
	if err := limitRecv(s, c.limit); err != nil {
		return err
	}
	x := server{c: c, s: s, open: map[uint64]operation{}, counts: map[string]int{}}
	if x.mem, x.addr, err = s.alloc(askSlots * slotLen); err != nil {
		return err
	}
	for i := range askSlots {
		x.free = append(x.free, i)
	}
	fmt.Fprintln(c.out, "ready")
	buf, name, control := make([]byte, 1<<16), make([]byte, 28), make([]byte, 512)
	var recv cmsg.Recv
	for x.statuses < c.n {
		r, err := s.recvmsg(buf, name, control, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("after %d requests and %d statuses: %w", x.asked, x.statuses, err)
		}
		if err := recv.Parse(control[:r.control]); err != nil {
			return err
		}
		for _, st := range recv.Status {
			if err := x.status(st.UserToken, int(st.Status)); err != nil {
				return err
			}
		}
		if r.name == 0 { // statuses without a message
			continue
		}
		a, err := parseAsk(buf[:r.n])
		switch {
		case err != nil:
			return err
		case !recv.Present.Has(cmsg.TypeRDMADest):
			return errors.New("a request without a cookie")
		}
		if err := x.carryOut(a, recv.Dest, name[:r.name]); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out, "%d operations: %s\n", c.n, list(x.counts))
	return nil
}

// status takes the status of an operation, and compares what a READ of status 0 has read with the
// request. If the operation failed, status notifies its asker, unless the key was spoilt on purpose.
func (x *server) status(token uint64, status int) error {
	x.statuses++
	a, ok := x.open[token]
	if !ok {
		return fmt.Errorf("operation %d: status %d, but it has no status to come", token, status)
	}
	delete(x.open, token)
	x.free = append(x.free, a.slot)
	x.counts[fmt.Sprintf("status %d", status)]++
	// An operation is dropped when its connection breaks. It ends with a remote error when it
	// comes after the asker has freed the region. In both cases the asker asks again. A test in
	// which neither may happen checks the counts that rdmaServe prints.
	const remoteError, dropped = 1, 3
	bad := a.How&askBad != 0
	if bad && status == 0 || !bad && status != 0 && status != dropped && status != remoteError {
		return fmt.Errorf("operation %d: unexpected status %d, key spoilt %v", token, status, bad)
	}
	if status == 0 && a.Kind == askRead && sum(x.local(a.slot, int(a.Size))) != a.Sum {
		return fmt.Errorf("operation %d: a READ of %d bytes has status 0, but did not read what the asker's memory has", token, a.Size)
	}
	if status == 0 || bad {
		return nil
	}
	a.Status = uint32(status)
	return x.c.sendWith(x.s, a.append(nil), a.from, nil)
}

// carryOut posts the operation that a asks for in the region of cookie, and the reply to the
// address name.
func (x *server) carryOut(a ask, cookie uint64, name []byte) error {
	if len(x.free) == 0 {
		return fmt.Errorf("operation %d: all %d operations before it are without a status", x.asked+1, askSlots)
	}
	slot := x.free[0]
	x.free = x.free[1:]
	x.asked++
	local := x.local(slot, int(a.Size))
	vecsAt := x.addr + uint64(slot*slotLen)
	at := vecsAt + askHeader
	vecs := []cmsg.IOVec{{Addr: at, Bytes: uint64(a.Size)}}
	if a.How&askSplit != 0 && a.Size > 2 {
		k := uint64(a.Size)/3 + 1
		vecs = []cmsg.IOVec{{Addr: at, Bytes: k}, {Addr: at + k, Bytes: uint64(a.Size) - k}}
	}
	var v []byte
	for _, vec := range vecs {
		v = vec.Append(v)
	}
	copy(x.mem[slot*slotLen:], v)
	token := uint64(x.asked)
	args := cmsg.RDMAArgs{Cookie: cookie, RemoteVec: cmsg.IOVec{Addr: uint64(a.Off), Bytes: uint64(a.Size)}, LocalVecAddr: vecsAt,
		NrLocal: uint64(len(vecs)), Flags: cmsg.FlagNotifyMe, UserToken: token}
	if a.How&askBad != 0 {
		args.Cookie ^= 0x5a00
	}
	if a.Kind == askWrite {
		args.Flags |= cmsg.FlagReadWrite
		fill(local, uint64(a.Seq))
	} else {
		args.Flags |= cmsg.FlagFence
		clear(local)
	}
	x.open[token] = operation{a, slices.Clone(name), slot}
	payload := a.append(nil)
	silent := a.How&askSilent != 0
	if silent {
		args.Flags |= cmsg.FlagSilent
		payload = nil
	}
	send := cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAArgs), Args: args}
	ctl, err := send.Append(nil)
	if err != nil {
		return err
	}
	if err := x.c.sendWith(x.s, payload, name, ctl); err != nil {
		return fmt.Errorf("operation %d: %w", x.asked, err)
	}
	if !silent {
		return nil
	}
	return x.c.sendWith(x.s, a.append(nil), name, nil)
}

// list returns the counts as text, sorted.
func list(counts map[string]int) string {
	var l []string
	for k, n := range counts {
		l = append(l, fmt.Sprintf("%d %s", n, k))
	}
	sort.Strings(l)
	return strings.Join(l, ", ")
}
