package rds

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
)

// successor is what a client has got from its next daemon: a session, and sockets,
// buffers and regions in it. The client goes on with it after changeOver.
type successor struct {
	c, n    *Client // n has the session alone
	socks   map[*Socket]taken
	bufs    map[*Buffer]taken
	regions map[*Region]taken
	dests   []*dest // of the sockets that go on
	gone    error   // the session has ended, or broke the protocol
}

// taken is what the next daemon answered.
type taken struct {
	id     uint32 // of the socket, buffer or region
	cookie Cookie
	err    error // it was refused
}

// errBufferFreed: the application freed a region's buffer while there was no daemon.
var errBufferFreed = fmt.Errorf("%w: the region's buffer was freed", ErrDaemonGone)

// noHandle is the handle of a socket that has none at the daemon.
const noHandle = ^uint32(0)

// call makes a request of the next daemon. refused is the daemon's answer. If the
// session ends instead, x.gone is set.
func (x *successor) call(req ipc.Request, fds ...int) (resp ipc.Response, refused error) {
	resp, got, err := x.n.ctl.Call(req, fds)
	x.n.mem.closeFDs(got)
	var no *ipc.Err
	if err != nil && !errors.As(err, &no) {
		x.gone = err
	}
	return resp, err
}

// take asks the next daemon for everything that c has and for which it was not asked
// before.
func (x *successor) take() {
	regions, bufs, socks := x.c.regions.list(), x.c.buffers.list(), x.c.rx.open() // so the socket and the buffer of each region are there
	for _, s := range socks {
		if _, asked := x.socks[s]; x.gone == nil && !asked {
			x.socks[s] = x.bind(s)
		}
	}
	for _, b := range bufs {
		if _, asked := x.bufs[b]; x.gone == nil && !asked && b.Bytes() != nil {
			x.bufs[b] = x.importBuffer(b)
		}
	}
	for _, r := range regions {
		if _, asked := x.regions[r]; x.gone == nil && !asked {
			x.regions[r] = x.register(r)
		}
	}
}

func (x *successor) bind(s *Socket) taken {
	s.c.rx.mu.Lock()
	limit := s.rcvbuf
	s.c.rx.mu.Unlock()
	resp, err := x.call(&ipc.Bind{Addr: s.local.Addr(), Port: s.local.Port(), RcvBuf: uint32(limit)})
	if err != nil {
		return taken{id: noHandle, err: fmt.Errorf("%w: bind %v at the next daemon: %w", ErrDaemonGone, s.local, err)}
	}
	ok, is := resp.(*ipc.BindOK)
	if !is {
		x.gone = fmt.Errorf("%w: answer %T to Bind", ErrVersion, resp)
		return taken{id: noHandle}
	}
	return taken{id: ok.Sock}
}

func (x *successor) importBuffer(b *Buffer) taken {
	fd, err := x.c.buffers.descriptor(b) // Free may close that of b meanwhile
	switch {
	case err != nil:
		return taken{err: fmt.Errorf("%w: duplicate the descriptor of the buffer's memory: %w", ErrDaemonGone, err)}
	case fd < 0:
		return taken{err: fmt.Errorf("%w: the buffer's memory has no descriptor", ErrDaemonGone)}
	}
	defer func() { _ = unix.Close(fd) }()
	if !x.n.imports {
		return taken{err: fmt.Errorf("%w: %w", ErrDaemonGone, errNoImport)}
	}
	resp, err := x.call(&ipc.Import{Off: b.off, Len: uint64(len(b.mem))}, fd)
	if err != nil {
		return taken{err: fmt.Errorf("%w: import a buffer of %d bytes at the next daemon: %w", ErrDaemonGone, len(b.mem), err)}
	}
	ok, is := resp.(*ipc.ImportOK)
	if !is {
		x.gone = fmt.Errorf("%w: answer %T to Import", ErrVersion, resp)
		return taken{}
	}
	return taken{id: ok.Buffer}
}

func (x *successor) register(r *Region) taken {
	s, open := x.socks[r.s]
	b := x.bufs[r.buf]
	switch {
	case r.once:
		return taken{err: fmt.Errorf("%w: nobody knows whether the region for one use was used", ErrDaemonGone)}
	case !open: // it closes, or has ended; no handle, and 0 is another socket's
		return taken{err: cmp.Or(r.s.ended(), ErrDaemonGone)}
	case s.id == noHandle:
		return taken{err: s.err}
	case b.id == 0:
		return taken{err: cmp.Or(b.err, errBufferFreed)}
	}
	resp, err := x.call(&ipc.Register{Sock: s.id, Buffer: b.id, Off: r.off, Len: r.n, Access: abi.Rights(r.access)})
	if err != nil {
		return taken{err: fmt.Errorf("%w: register at the next daemon: %w", ErrDaemonGone, err)}
	}
	ok, is := resp.(*ipc.RegisterOK)
	if !is {
		x.gone = fmt.Errorf("%w: answer %T to Register", ErrVersion, resp)
		return taken{}
	}
	return taken{id: ok.Region, cookie: Cookie(ok.Cookie)}
}

// reconcile takes what was made while the next daemon was asked: an answer of the old
// one was still being noted. It gives back what was closed, released or freed meanwhile.
// c.life is held, so that nothing more is.
func (x *successor) reconcile() {
	x.take()
	for r, got := range x.regions {
		live := x.c.regions.has(r)
		if x.gone != nil || live && r.buf.Bytes() != nil {
			continue
		}
		if got.err == nil { // before its buffer is freed, which waits for it
			_, _ = x.call(&ipc.Release{Region: got.id})
		}
		if live {
			x.regions[r] = taken{err: cmp.Or(got.err, errBufferFreed)}
		} else {
			delete(x.regions, r)
		}
	}
	for b, got := range x.bufs {
		if x.gone == nil && b.Bytes() == nil {
			if got.err == nil {
				_, _ = x.call(&ipc.Free{Buffer: got.id, Wait: 1})
			}
			delete(x.bufs, b)
		}
	}
	for s, got := range x.socks {
		if x.gone == nil && s.closed.Load() {
			if got.err == nil {
				_, _ = x.call(&ipc.CloseSock{Sock: got.id})
			}
			delete(x.socks, s)
		}
	}
}

// changeOver makes c go on with the next daemon's session, in one step for everybody
// else: it holds both locks, nobody leads, and it waits for uses of the memory without
// a lock. c.life is held. The error is that of a client that has ended.
func (x *successor) changeOver(o *outage) (*Reopened, error) {
	c, n := x.c, x.n
	t, r := &c.tx, &c.rx
	t.mu.Lock()
	t.reap()
	r.mu.Lock()
	r.takeEvents()
	r.keepAll()
	if c.state() != error(o) {
		r.mu.Unlock()
		t.mu.Unlock()
		return nil, ErrClosed // closed, or the old daemon had broken the contract
	}
	c.pins.Wait()
	told := &Reopened{Cause: o.cause, Outage: time.Since(o.since)}
	lost := t.settle()
	for _, s := range r.all() {
		told.Sockets = append(told.Sockets, x.moveSocket(s, lost[s])...)
	}
	told.dests = x.dests
	told.Buffers = x.moveBuffers()
	told.Regions = x.moveRegions()
	t.adopt(&n.tx)
	r.adopt(&n.rx, x.socks)
	ctl, bell := c.ctl, c.bell
	c.wait.mu.Lock()
	c.ctl, c.bell, c.ring, c.wait.ring = n.ctl, n.bell, n.ring, n.bell.Ring
	c.seg, c.table, c.waits = n.seg, n.table, n.waits
	c.tellsAddrs, c.imports = n.tellsAddrs, n.imports
	c.wait.mu.Unlock()
	c.mem.adopt(&n.mem, c.buffers.mappings())
	works := false
	if p := c.err.Load(); *p == error(o) {
		works = c.err.CompareAndSwap(p, nil)
	}
	r.mu.Unlock()
	t.mu.Unlock()
	_ = ctl.Close()
	_ = bell.Close()
	if len(told.Buffers) > 0 {
		c.words.forgetFreed()
		c.bounces.forgetFreed()
	}
	c.wait.resume()
	if works { // else fail has closed it
		close(o.over)
	}
	return told, nil
}

// moveSocket gives s its new handle, or ends it. It returns what s has lost. tx.mu and
// rx.mu are held.
func (x *successor) moveSocket(s *Socket, lost SocketLoss) []SocketLoss {
	lost.Socket = s
	got, open := x.socks[s]
	if !open {
		got = taken{id: noHandle}
		if !s.closed.Load() {
			got.err = s.ended() // overrun before
		} else if len(lost.Unacked) > 0 {
			got.err = ErrDaemonGone // for CloseWait
		}
	}
	s.handle = got.id
	if got.err != nil {
		s.end.CompareAndSwap(nil, &got.err)
		s.arrived(wantAll)
	}
	if open && got.err == nil {
		x.dests = slices.AppendSeq(x.dests, maps.Values(s.dests))
	}
	s.queued, s.parked, s.msgs, s.busy = 0, 0, 0, nil
	s.dests, s.lastDest, s.near = nil, nil, nil
	if s.cells != nil {
		s.dests = map[netip.AddrPort]*dest{}
	}
	for _, ce := range s.cells {
		ce.final, ce.base = ce.last, ce.last
		ce.shared, ce.want, ce.first = nil, nil, nil
	}
	for to := range s.cong.failed {
		s.relieved(to)
	}
	lost.Unknown = s.settleUnknown()
	lost.Err = got.err
	if !open {
		return nil
	}
	return []SocketLoss{lost}
}

// moveBuffers gives the buffers their new ids. tx.mu is held.
func (x *successor) moveBuffers() map[*Buffer]error {
	lost := map[*Buffer]error{}
	for b, got := range x.bufs {
		if b.id = got.id; got.err != nil {
			b.freed = true
			lost[b] = got.err
		}
	}
	return lost
}

// moveRegions gives the regions their new cookies.
func (x *successor) moveRegions() map[*Region]error {
	lost := map[*Region]error{}
	g := &x.c.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live = map[uint32]*Region{}
	for r, got := range x.regions {
		lost[r] = got.err
		if r.cookie != 0 && got.err == nil {
			r.id, r.cookie = got.id, got.cookie
			g.live[uint32(r.cookie)] = r
		} else {
			r.cookie = 0
		}
	}
	return lost
}

// settle ends what was sent and has not come back, and returns it. It leaves no message
// behind. tx.mu and rx.mu are held.
func (t *tx) settle() map[*Socket]SocketLoss {
	counts := map[*dest]int{}
	for i := range t.msgs {
		m := &t.msgs[i]
		if m.sock == nil || !m.sent {
			continue
		}
		counts[m.dest] += m.sum.Datagrams
		if m.notify {
			t.c.wait.returns.Add(-1)
		}
		if m.zc {
			m.sock.zcDone.push(m.zcCookie)
			m.sock.arrived(wantZeroCopy)
		}
	}
	lost := map[*Socket]SocketLoss{}
	for d, n := range counts {
		l := lost[d.sock]
		if l.Unacked == nil {
			l.Unacked = map[netip.AddrPort]int{}
		}
		l.Unacked[d.to] = n
		lost[d.sock] = l
	}
	return lost
}

// adopt makes t go on with the memory of n. tx.mu is held, and no socket has a
// destination.
func (t *tx) adopt(n *tx) {
	t.sub, t.ret, t.arena = n.sub, n.ret, n.arena
	t.msgs, t.free, t.asked = n.msgs, n.free, n.asked
	t.slots, t.hand, t.nslots = n.slots, 0, 0
	t.cells, t.cellFree = n.cells, n.cellFree
	t.sends, t.full, t.starved, t.over, t.cur = 0, false, false, nil, nil
	t.asks, t.tells, t.anybody = n.asks, n.tells, n.anybody
	t.epoch++
}

// adopt makes r go on with the memory of n, for the sockets that the next daemon has
// bound. rx.mu is held.
func (r *rx) adopt(n *rx, bound map[*Socket]taken) {
	all := r.all()
	r.ev, r.ret, r.arena = n.ev, n.ret, n.arena
	r.maxRx, r.maxStatuses = n.maxRx, n.maxStatuses
	r.waiting, r.mu.returned = 0, false
	r.epoch++
	r.socks = nil
	for _, s := range all {
		if got, ok := bound[s]; ok && got.err == nil {
			r.add(s)
			continue
		}
		if r.apart == nil {
			r.apart = map[*Socket]struct{}{}
		}
		r.apart[s] = struct{}{}
	}
}

// settleUnknown queues Unknown for the operations whose status has not come. It
// returns how many have asked for it. rx.mu is held.
func (s *Socket) settleUnknown() (n int) {
	keys := make([]opKey, 0, len(s.awaited))
	for key := range s.awaited {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b opKey) int { return cmp.Or(cmp.Compare(a.cell, b.cell), cmp.Compare(a.id, b.id)) })
	for _, key := range keys {
		if op := s.awaited[key]; op.wanted {
			s.comps.push(s.completion(key, Completion{Token: op.token, Status: Unknown}))
			n++
		}
	}
	s.queuedComps.Add(int32(n))
	s.promised.Store(0)
	s.awaited, s.cellAddr = map[opKey]awaitedOp{}, map[uint32]cellRef{}
	if n > 0 {
		s.arrived(wantCompletion)
	}
	return n
}
