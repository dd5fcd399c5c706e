package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// deeds are rounds of everything that load does not do: atomics, silent writes, long
// operations, regions for one use, runs of datagrams, datagrams in another lane, and
// datagrams and operations whose data is not copied. Each round checks what it has brought
// about. A round is one after the other, so the expected results are exact.
type deeds struct {
	t       *testing.T
	ctx     context.Context
	stop    chan struct{}
	ended   sync.WaitGroup
	s, lane *rds.Socket // of the one who acts, the second in lane 3
	to      *rds.Socket // of the other, who answers
	local   *rds.Buffer
	mem     *rds.Buffer // of the other
	cookie  rds.Cookie  // of mem
	done    int         // rounds
	breaks  int         // how often the other host's daemon is replaced
	dropped int         // operations that were done again
	target  *rds.Client
}

const (
	deedLong = 3<<20 + 5 // bytes of a long operation, in pieces
	deedMem  = deedLong + 4096
	deedRun  = 40
)

// startDeeds returns when the first round is over. A destination that is opened while its host's daemon
// is away is told of the connection that comes next, and was not told of the break.
func startDeeds(t *testing.T, from, to *host) *deeds {
	t.Helper()
	d := &deeds{t: t, ctx: t.Context(), stop: make(chan struct{})}
	c := from.open()
	d.target = to.open()
	d.s, d.lane, d.to = from.bind(c, 0), from.bind(c, 0), to.bind(d.target, 0)
	if err := d.lane.SetLane(3); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.local, err = c.Alloc(deedMem); err != nil {
		t.Fatal(err)
	}
	if d.mem, err = d.target.Alloc(deedMem); err != nil {
		t.Fatal(err)
	}
	r, err := d.to.Register(d.mem, 0, deedMem, rds.AllowRead|rds.AllowWrite|rds.AllowAtomic)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Expose(t.Context(), addrPortOf(from.addr(), 0)); err != nil {
		t.Fatal(err)
	}
	d.cookie = r.Cookie()
	if _, err := d.to.SendTo([]byte("granted"), d.s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	if err := d.s.Recv(context.Background(), &rds.Received{Payload: make([]byte, 16)}); err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{})
	d.ended.Go(func() {
		over := sync.OnceFunc(func() { close(first) })
		defer over()
		for {
			select {
			case <-d.stop:
				return
			default:
			}
			if err := d.round(uint64(d.done + 1)); err != nil {
				t.Errorf("round %d: %v", d.done+1, err)
				return
			}
			d.done++
			over()
		}
	})
	<-first
	return d
}

// finish ends the rounds.
func (d *deeds) finish() {
	d.t.Helper()
	close(d.stop)
	d.ended.Wait()
	onlyBreaks(d.t, d.breaks, d.s, d.lane, d.to)
	if d.done == 0 {
		d.t.Error("no round was done")
	}
	d.t.Logf("%d rounds, %d operations dropped and done again", d.done, d.dropped)
	for _, s := range []*rds.Socket{d.s, d.lane, d.to} {
		s.Close()
	}
}

func (d *deeds) round(n uint64) error {
	for _, do := range []struct {
		name string
		do   func(uint64) error
	}{{"atomics", d.atomics}, {"silent", d.silent}, {"long", d.long}, {"once", d.once}, {"run", d.run}, {"lane", d.otherLane}, {"uncopied", d.uncopied}} {
		if err := do.do(n); err != nil {
			return fmt.Errorf("%s: %w", do.name, err)
		}
	}
	return nil
}

// again does an operation until it is not dropped. An operation on memory of a host whose daemon is
// replaced may be, and is harmless then.
func (d *deeds) again(do func() error) error {
	for {
		err := do()
		if !errors.Is(err, rds.Dropped) {
			return err
		}
		d.dropped++
	}
}

// atomics are counted exactly, and never dropped.
func (d *deeds) atomics(n uint64) error {
	old, err := d.s.Atomic(d.ctx, d.to.LocalAddrPort(), &rds.Atomic{Cookie: d.cookie, RemoteOff: 8, Add: 3})
	if err == nil && old != 3*(n-1) {
		err = fmt.Errorf("added to %d", old)
	}
	if err != nil {
		return err
	}
	old, err = d.s.Atomic(d.ctx, d.to.LocalAddrPort(), &rds.Atomic{CmpSwap: true, Cookie: d.cookie, RemoteOff: 16, Compare: n - 1, Swap: n})
	if err == nil && old != n-1 {
		err = fmt.Errorf("compared with %d", old)
	}
	return err
}

// silent writes without a message. The write behind it shows the end.
func (d *deeds) silent(n uint64) error {
	binary.LittleEndian.PutUint64(d.local.Bytes()[64:], n)
	write := rds.RDMA{Write: true, Cookie: d.cookie, RemoteOff: 64, Local: []rds.Segment{{Buf: d.local, Off: 64, Len: 8}}, Silent: true, Notify: true, Token: n}
	err := d.again(func() error {
		id, err := d.s.Send(context.Background(), &rds.Message{Addr: d.to.LocalAddrPort(), Op: &write})
		if err != nil {
			return err
		}
		c, err := d.s.WaitOp(d.ctx, d.to.LocalAddrPort().Addr(), id)
		if err == nil && (c.Token != n || d.s.HWM(c.To) < id) {
			err = fmt.Errorf("completion %+v of operation %d, mark %d", c, id, d.s.HWM(c.To))
		}
		return errors.Join(err, c.Err())
	})
	if got := binary.LittleEndian.Uint64(d.mem.Bytes()[64:]); err == nil && got != n {
		err = fmt.Errorf("memory has %d", got)
	}
	return err
}

// long moves some MiB there and back.
func (d *deeds) long(n uint64) error {
	mem := d.local.Bytes()[4096:][:deedLong]
	fillPattern(mem, n)
	op := rds.RDMA{Write: true, Cookie: d.cookie, RemoteOff: 4096, Local: []rds.Segment{{Buf: d.local, Off: 4096, Len: deedLong / 2}, {Buf: d.local, Off: 4096 + deedLong/2, Len: deedLong - deedLong/2}}}
	if err := d.again(func() error { return d.s.RDMAWrite(d.ctx, d.to.LocalAddrPort(), &op) }); err != nil {
		return err
	}
	clear(mem)
	op.Write = false
	if err := d.again(func() error { return d.s.RDMARead(d.ctx, d.to.LocalAddrPort(), &op) }); err != nil {
		return err
	}
	return checkPattern(mem, n)
}

// once uses a region for one use, whose cookie comes with a message.
func (d *deeds) once(n uint64) error {
	r, err := d.to.Register(d.mem, 128, 64, rds.AllowWrite|rds.UseOnce)
	if err != nil {
		return err
	}
	if _, err := d.to.Send(context.Background(), &rds.Message{Addr: d.s.LocalAddrPort(), Cookie: r.Cookie()}); err != nil {
		return err
	}
	var m rds.Received
	if err := d.s.Recv(context.Background(), &m); err != nil || m.Cookie != r.Cookie() {
		return fmt.Errorf("cookie %v, want %v: %w", m.Cookie, r.Cookie(), err)
	}
	binary.LittleEndian.PutUint64(d.local.Bytes()[128:], n)
	op := rds.RDMA{Write: true, Cookie: m.Cookie, Local: []rds.Segment{{Buf: d.local, Off: 128, Len: 8}}}
	err = d.s.RDMAWrite(d.ctx, d.to.LocalAddrPort(), &op)
	if err != nil && !errors.Is(err, rds.Dropped) {
		return err
	}
	if got := binary.LittleEndian.Uint64(d.mem.Bytes()[128:]); err == nil && got != n {
		return fmt.Errorf("memory has %d", got)
	}
	if err := r.Release(d.ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	// A region that is taken back cannot be used, whoever was replaced since.
	err = d.again(func() error { return d.s.RDMAWrite(d.ctx, d.to.LocalAddrPort(), &op) })
	if !errors.Is(err, rds.RemoteError) {
		return fmt.Errorf("a write to a region that was released: %w", err)
	}
	return nil
}

// expect receives the message n with so many bytes.
func (d *deeds) expect(s *rds.Socket, from addrPort, n uint64, size int) error {
	b := make([]byte, size+1)
	k, src, err := s.RecvFrom(b)
	if err != nil {
		return err
	}
	got, err := parsePayload(b[:k])
	if err != nil || got != n || k != size || src != from {
		return fmt.Errorf("message %d of %d bytes from %v, want %d of %d from %v: %w", got, k, src, n, size, from, err)
	}
	return nil
}

func (d *deeds) run(n uint64) error {
	ms := make([]rds.Message, deedRun)
	for i := range ms {
		ms[i] = rds.Message{Addr: d.to.LocalAddrPort(), Payload: fillPayload(make([]byte, minPayload+i), n*deedRun+uint64(i))}
	}
	for left := ms; len(left) > 0; {
		k, err := d.s.SendBatch(context.Background(), left)
		if err != nil {
			return err
		}
		left = left[k:]
	}
	for i := range uint64(deedRun) {
		if err := d.expect(d.to, d.s.LocalAddrPort(), n*deedRun+i, minPayload+int(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *deeds) otherLane(n uint64) error {
	for i, size := range []int{minPayload, 100, 5000, 200000, rds.MaxMessage} {
		if size > sndBuf {
			continue
		}
		if _, err := d.lane.SendTo(fillPayload(make([]byte, size), n+uint64(i)), d.to.LocalAddrPort()); err != nil {
			return err
		}
		if err := d.expect(d.to, d.lane.LocalAddrPort(), n+uint64(i), size); err != nil {
			return err
		}
	}
	return nil
}

// uncopied sends from a buffer, which is the sender's again afterwards.
func (d *deeds) uncopied(n uint64) error {
	const size = 30000
	fillPayload(d.local.Bytes()[4096:][:size], n)
	m := rds.Message{Addr: d.to.LocalAddrPort(), From: rds.Segment{Buf: d.local, Off: 4096, Len: size}, ZeroCopy: true, ZeroCopyCookie: uint32(n)}
	if _, err := d.s.Send(context.Background(), &m); err != nil {
		return err
	}
	if err := d.expect(d.to, d.s.LocalAddrPort(), n, size); err != nil {
		return err
	}
	if _, err := d.s.Wait(d.ctx, rds.WaitSet{ZeroCopy: true}); err != nil {
		return err
	}
	var back [4]uint32
	if k := d.s.ZeroCopyDone(back[:]); k != 1 || back[0] != uint32(n) {
		return fmt.Errorf("cookies %v came back", back[:k])
	}
	return nil
}
