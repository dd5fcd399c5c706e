package rds

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// fakeDaemon is also its own ipc.Control, and hands its memory over by Map.

func (d *fakeDaemon) Map(fd, size int, writable bool) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fd < 0 || fd >= len(d.mem) || len(d.mem[fd]) < size {
		return nil, syscall.EBADF
	}
	return d.mem[fd][:size], nil
}

func (d *fakeDaemon) RingDaemon() { d.self.Ring() }

func (d *fakeDaemon) Gone() <-chan struct{} { return d.gone }

func (d *fakeDaemon) Reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reason
}

func (d *fakeDaemon) Close() error {
	d.die(nil)
	<-d.ended
	return nil
}

// die ends the daemon: killed, or with a reason.
func (d *fakeDaemon) die(reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop.CompareAndSwap(false, true) {
		d.reason = reason
		if d.reason == nil {
			d.reason = ipc.ErrGone
		}
		close(d.gone)
		d.self.Ring()
	}
}

func (d *fakeDaemon) Call(req ipc.Request, _ []int) (resp ipc.Response, fds []int, err error) {
	if d.callHook != nil {
		if err := d.callHook(req); err != nil {
			return nil, nil, err
		}
	}
	if d.stop.Load() {
		<-d.gone // as package ipc: who sees the error sees the end
		return nil, nil, ipc.ErrGone
	}
	d.do(func() { resp, fds, err = d.answer(req) })
	return resp, fds, err
}

func (d *fakeDaemon) newMem(n int) ([]byte, int) {
	m := heap(n)
	d.mem = append(d.mem, m)
	return m, len(d.mem) - 1
}

func (d *fakeDaemon) answer(req ipc.Request) (ipc.Response, []int, error) {
	switch r := req.(type) {
	case *ipc.Hello:
		fds := make([]int, len(d.mem))
		for i := range fds {
			fds[i] = i
		}
		return &ipc.HelloOK{Version: ipc.Version, Features: r.Features & (ipc.FeatureAddrs | d.features), Params: d.params}, fds, nil
	case *ipc.Bind:
		return d.bind(r)
	case *ipc.Addrs:
		return &ipc.AddrsOK{Addrs: d.addrs}, nil, nil
	case *ipc.CloseSock:
		s := d.sock(r.Sock)
		s.closed = true
		d.release(func(m *fakeMsg) bool { return m.slot.sock == s }, func(m fakeMsg) { d.end(m, abi.StatusCanceled, 0) })
		for i, sl := range d.slots {
			if sl != nil && sl.sock == s {
				d.slots[i] = nil
				d.table.Slot(uint32(i)).StoreGen(0)
			}
		}
		d.socks[shm.SockIndex(r.Sock)] = &fakeSock{handle: r.Sock, closed: true}
		return &ipc.OK{}, nil, nil
	case *ipc.SetRcvBuf:
		d.sock(r.Sock).limit = int(r.Bytes)
		return &ipc.OK{}, nil, nil
	case *ipc.Alloc:
		mem, fd := d.newMem(int(r.Size))
		d.nextID++
		d.bufs[d.nextID] = mem
		return &ipc.AllocOK{Buffer: d.nextID, Size: r.Size}, []int{fd}, nil
	case *ipc.Free:
		for _, g := range d.regions {
			if unsafe.SliceData(g.mem) == unsafe.SliceData(d.bufs[r.Buffer]) {
				return nil, nil, &ipc.Err{Errno: uint32(syscall.EBUSY)}
			}
		}
		delete(d.bufs, r.Buffer)
		return &ipc.OK{}, nil, nil
	case *ipc.Register:
		d.nextID++
		g := &fakeRegion{mem: d.bufs[r.Buffer][r.Off : r.Off+r.Len], cookie: uint64(d.nextID) | 0x1000<<32, access: r.Access}
		d.regions[d.nextID] = g
		return &ipc.RegisterOK{Region: d.nextID, Cookie: g.cookie}, nil, nil
	case *ipc.Expose:
		return &ipc.OK{}, nil, nil
	case *ipc.Release:
		delete(d.regions, r.Region)
		return &ipc.OK{}, nil, nil
	case *ipc.GrowSend:
		if d.noGrow || len(d.send) >= 64 {
			return nil, nil, &ipc.Err{Errno: uint32(syscall.ENOBUFS)}
		}
		mem, fd := d.newMem(shm.WindowSize)
		d.send = append(d.send, mem)
		d.grown++
		return &ipc.GrowSendOK{Windows: uint32(len(d.send))}, []int{fd}, nil
	}
	return nil, nil, errors.New("fake daemon: unknown request")
}

func (d *fakeDaemon) bind(r *ipc.Bind) (ipc.Response, []int, error) {
	ap := netip.AddrPortFrom(r.Addr, r.Port)
	if !ap.Addr().IsLoopback() {
		return nil, nil, &ipc.Err{Errno: uint32(syscall.EADDRNOTAVAIL), Text: "not an address of this host"}
	}
	if ap.Port() == 0 {
		p := uint16(20000)
		for d.bound(netip.AddrPortFrom(ap.Addr(), p)) != nil {
			p++
		}
		ap = netip.AddrPortFrom(ap.Addr(), p)
	} else if d.bound(ap) != nil {
		return nil, nil, &ipc.Err{Errno: uint32(syscall.EADDRINUSE)}
	}
	handle := uint32(len(d.socks))
	for _, s := range d.socks {
		if s.closed {
			handle = s.handle + shm.MaxSocks
		}
	}
	if handle == uint32(len(d.socks)) {
		d.socks = append(d.socks, nil)
	}
	d.nextID++
	d.socks[shm.SockIndex(handle)] = &fakeSock{handle: handle, addr: ap, limit: int(r.RcvBuf), inc: d.nextID}
	return &ipc.BindOK{Sock: handle, Inc: d.nextID, Addr: ap.Addr(), Port: ap.Port()}, nil, nil
}

func isAtomic(op *shm.SubOp) bool { return op.Op == abi.OpFetchAdd || op.Op == abi.OpCmpSwap }

// runOp copies between buffers; non-zero: refused.
func (d *fakeDaemon) runOp(op *shm.SubOp) uint32 {
	var g *fakeRegion
	for _, r := range d.regions {
		if r.cookie == op.Cookie {
			g = r
		}
	}
	if g == nil {
		return uint32(syscall.EINVAL)
	}
	if op.RemoteOff+op.Len > uint64(len(g.mem)) {
		return uint32(syscall.ERANGE)
	}
	right := map[abi.OpKind]abi.Rights{abi.OpWrite: abi.RightWrite, abi.OpRead: abi.RightRead, abi.OpFetchAdd: abi.RightAtomic,
		abi.OpCmpSwap: abi.RightAtomic}[op.Op]
	if g.access&right == 0 {
		return uint32(syscall.EACCES)
	}
	remote := g.mem[op.RemoteOff:]
	if isAtomic(op) {
		return d.runAtomic(op, remote)
	}
	for _, s := range d.segments(op) {
		local := d.bufs[s.Region][s.Off:][:s.Len]
		if op.Op == abi.OpRead {
			copy(local, remote)
		} else {
			copy(remote, local)
		}
		remote = remote[s.Len:]
	}
	return 0
}

func (d *fakeDaemon) runAtomic(op *shm.SubOp, remote []byte) uint32 {
	if op.RemoteOff%8 != 0 {
		return uint32(syscall.EINVAL)
	}
	if op.NSeg != 1 || op.Len != 8 || op.Off%8 != 0 {
		d.bad("atomic without 8 aligned local bytes")
		return uint32(syscall.EINVAL)
	}
	e := shm.ReadAtomicEntry(d.at(op.SegChunk, shm.AtomicEntrySize))
	old := binary.NativeEndian.Uint64(remote)
	v := old
	switch {
	case op.Op == abi.OpFetchAdd:
		v = addFields(old, e.CompareAdd, e.CompareMask)
	case (old^e.CompareAdd)&e.CompareMask == 0:
		v = old&^e.SwapMask | e.Swap&e.SwapMask
	}
	binary.NativeEndian.PutUint64(remote, v)
	binary.NativeEndian.PutUint64(d.bufs[op.Region][op.Off:], old)
	return 0
}

// addFields adds bit by bit; a bit of noCarry keeps its carry.
func addFields(a, b, noCarry uint64) (sum uint64) {
	carry := uint64(0)
	for i := range 64 {
		s := a>>i&1 + b>>i&1 + carry
		sum |= s & 1 << i
		if carry = s >> 1; noCarry>>i&1 != 0 {
			carry = 0
		}
	}
	return sum
}

func (d *fakeDaemon) segments(op *shm.SubOp) []shm.SegEntry {
	if op.NSeg == 1 {
		return []shm.SegEntry{{Region: op.Region, Off: op.Off, Len: op.Len}}
	}
	list := make([]shm.SegEntry, op.NSeg)
	b := d.at(op.SegChunk, int(op.NSeg)*shm.SegEntrySize)
	for i := range list {
		list[i] = shm.ReadSegEntry(b[i*shm.SegEntrySize:])
	}
	return list
}

// open attaches a client to a new fake daemon.
func openFake(t testing.TB, o Options) (*Client, *fakeDaemon) {
	t.Helper()
	d := newFakeDaemon(o.Params)
	c, err := Open(attach.Through(context.Background(), attach.Way{Control: d, Wake: d.client}), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, b := range d.broken {
			t.Errorf("the client broke the contract: %s", b)
		}
	})
	return c, d
}

// noSpin is for synctest, whose clock stands still while somebody spins.
var noSpin = Options{Spin: -1}

func bindFake(t testing.TB, c *Client, addr string) *Socket {
	t.Helper()
	s, err := c.Bind(netip.MustParseAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair makes two sockets of one client.
func pair(t testing.TB, o Options) (*fakeDaemon, *Socket, *Socket) {
	t.Helper()
	c, d := openFake(t, o)
	return d, bindFake(t, c, "127.0.0.1:4000"), bindFake(t, c, "127.0.0.1:4001")
}

func timeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
