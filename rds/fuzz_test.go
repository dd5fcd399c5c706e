package rds

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// hostileDaemon is a daemon that does with the shared memory and its answers
// what bytes say.
type hostileDaemon struct {
	mem    [][]byte // by pseudo descriptor: segment, table, two bells, windows
	seg    *shm.Segment
	table  *shm.Table
	params shm.Params
	wake   *shm.ChanWaiter
	gone   chan struct{}
	end    sync.Once

	nextSock uint32
	answer   byte   // what the next answer is like
	value    uint64 // ... and its numbers
}

const hostileStep = 4 // bytes of a step

// tiny keeps the memory of a run small.
var tiny = shm.Params{SubEntries: 16, EventEntries: 16, MaxMsgs: 16, MaxRx: 8, Slots: 8, Cells: 8, SendWindows: 1, RecvWindows: 1}

func newHostileDaemon() *hostileDaemon {
	d := &hostileDaemon{params: tiny, wake: shm.NewChanWaiter(nil), gone: make(chan struct{})}
	d.mem = [][]byte{heap(shm.SegmentSize(tiny)), heap(shm.TableSize(tiny.Slots, tiny.Cells)), nil, nil, heap(shm.WindowSize), heap(shm.WindowSize)}
	var err error
	if d.seg, err = shm.NewSegment(d.mem[0], tiny); err != nil {
		panic(err)
	}
	d.table = shm.NewTable(d.mem[1], tiny.Slots, tiny.Cells)
	return d
}

// Map implements mapper; a mapping is as long as it was made, as with sealed
// memory.
func (d *hostileDaemon) Map(fd, size int, _ bool) ([]byte, error) {
	if fd < 0 || fd >= len(d.mem) || len(d.mem[fd]) < size {
		return nil, unix.EINVAL
	}
	return d.mem[fd][:size:size], nil
}

func (d *hostileDaemon) RingDaemon()           {}
func (d *hostileDaemon) Gone() <-chan struct{} { return d.gone }
func (d *hostileDaemon) Reason() error         { return nil }
func (d *hostileDaemon) Close() error          { d.end.Do(func() { close(d.gone) }); return nil }

// Call answers as it is told to: rightly, with an error, with another answer,
// with numbers and descriptors of any kind.
func (d *hostileDaemon) Call(r ipc.Request, _ []int) (ipc.Response, []int, error) {
	n, kind := d.value, d.answer%8
	d.answer = 0
	switch kind {
	case 1:
		return nil, nil, &ipc.Err{Errno: uint32(n), Text: "no"}
	case 2:
		return &ipc.OK{}, []int{4, 5, 99}, nil
	case 3:
		return &ipc.HelloOK{Params: tiny}, nil, nil
	}
	odd := kind == 4
	switch r := r.(type) {
	case *ipc.Hello:
		p := d.params
		fds := []int{0, 1, 2, 3, 4, 5}
		if odd {
			*[]*uint32{&p.SubEntries, &p.EventEntries, &p.MaxMsgs, &p.MaxRx, &p.Slots, &p.Cells, &p.SendWindows, &p.RecvWindows}[n%8] = uint32(n >> 3)
		}
		if kind == 5 {
			fds = fds[:n%7%6]
		}
		return &ipc.HelloOK{Version: ipc.Version, Params: p, SpinNs: 1}, fds, nil
	case *ipc.Bind:
		ok := &ipc.BindOK{Sock: d.nextSock, Addr: r.Addr, Port: 1000 + uint16(d.nextSock)}
		d.nextSock++
		if odd {
			ok.Sock, ok.Port, ok.Addr = uint32(n), uint16(n), netip.IPv6Unspecified()
		}
		return ok, nil, nil
	case *ipc.Alloc:
		if r.Size > 1<<20 {
			return nil, nil, unix.ENOMEM
		}
		d.mem = append(d.mem, heap(int(r.Size)))
		ok := &ipc.AllocOK{Buffer: uint32(len(d.mem)), Size: r.Size}
		if odd {
			ok.Buffer, ok.Size = uint32(n), n
		}
		return ok, []int{len(d.mem) - 1}, nil
	case *ipc.GrowSend:
		if len(d.mem) > 20 {
			return nil, nil, unix.ENOBUFS
		}
		d.mem = append(d.mem, heap(shm.WindowSize))
		return &ipc.GrowSendOK{Windows: uint32(n)}, []int{len(d.mem) - 1}, nil
	case *ipc.Register:
		return &ipc.RegisterOK{Region: uint32(n), Cookie: n}, nil, nil
	}
	return &ipc.OK{}, nil, nil
}

// take takes what was submitted.
func (d *hostileDaemon) take() {
	var e shm.Entry
	for sub := d.seg.SubConsumer(); sub.Next(&e); {
		sub.Release()
	}
}

// spread makes 16 bits small numbers, and numbers near the limits and the end.
func spread(v uint16) uint64 {
	n := uint64(v & 0x3fff)
	switch v >> 14 {
	case 1:
		return n << 18
	case 2:
		return ^n
	case 3:
		return n * 257 << 32
	}
	return n
}

// FuzzDaemon has a hostile daemon do what the bytes say, while a client uses
// every call that does not wait: no panic, no hang, what the client keeps is
// bounded.
func FuzzDaemon(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	for what := range byte(32) {
		f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 17, 1, 0, 0, what, 1, 0, 0, 4, 0, 0, 0, what, 3, 9, 0x80, 18, 0, 0, 0})
	}
	for where := range byte(8) { // runs, received by several calls, while runs are sent
		f.Add([]byte{0, 0, 0, 0, 29, 0, 0, 0, 12, 7 | where<<4, 0, 5, 18, 200, 1, 0, 18, 9, 2, 0, 18, 9, 0, 0, 16, 20, 9, 0, 13, 0, 0, 0, 16, 20, 9, 0, 7, 0, 0, 0,
			18, 9, 2, 0, 12, 15, 0, 1, 18, 9, 1, 0, 28, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < hostileStep || len(b) > 400*hostileStep {
			return
		}
		d := newHostileDaemon()
		d.answer, d.value = b[0], spread(uint16(b[2])|uint16(b[3])<<8)
		if b[0] == 6 {
			d.mem[0][b[1]] = b[2]
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := Open(attach.Through(context.Background(), attach.Way{Control: d, Wake: d.wake}), Options{Params: Params(tiny), Spin: -1})
			if err != nil {
				return
			}
			x := &victim{t: t, d: d, c: c}
			for b = b[hostileStep:]; len(b) >= hostileStep; b = b[hostileStep:] {
				x.step(b[0], b[1], uint16(b[2])|uint16(b[3])<<8)
			}
			x.bounded()
			if err := c.Close(); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			panic("the client hangs")
		}
	})
}

// TestBrokenDaemon: a daemon that breaks the memory contract ends the client,
// with ErrSession, and nobody waits for it for ever.
func TestBrokenDaemon(t *testing.T) {
	data := shm.Event{Kind: shm.EvData}
	index := func(line int) func(*hostileDaemon) {
		return func(d *hostileDaemon) { d.mem[0][line*128+5] = 1 }
	}
	event := func(n int, e shm.Event) func(*hostileDaemon) {
		return func(d *hostileDaemon) {
			for range n {
				if p := d.seg.EventProducer(); p.Free() > 0 {
					*p.Reserve().Event() = e
					p.Publish()
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		do    func(*hostileDaemon)
		times int
	}{
		{"submission head ahead", index(4), 100},
		{"event tail ahead", index(5), 100},
		{"send-return tail ahead", index(7), 100},
		{"receive-return head ahead", index(10), 100},
		{"message id never given", func(d *hostileDaemon) { d.seg.SendRetProducer().Put(9); d.seg.SendRetProducer().Publish() }, 100},
		{"status nobody asked for", event(1, shm.Event{Kind: shm.EvStatus}), 1},
		{"more messages than receive ids", event(8, data), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newHostileDaemon()
			cl, err := Open(attach.Through(t.Context(), attach.Way{Control: d, Wake: d.wake}), Options{Params: Params(tiny), Spin: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			s := bindFake(t, cl, "127.0.0.1:0")
			for i := 0; i < c.times && cl.Err() == nil; i++ {
				if c.times == 100 {
					s.Send(DontWait, &Message{Addr: netip.AddrPortFrom(s.local.Addr(), uint16(i))}) // each destination has its share
					if e := d.seg.EventProducer().Reserve(); e != nil {
						*e.Event() = data
						d.seg.EventProducer().Publish()
					}
					s.Recv(DontWait, &Received{})
				}
				c.do(d)
				cl.rx.poll()
				cl.tx.poll()
			}
			if err := cl.Err(); !errors.Is(err, ErrSession) {
				t.Errorf("the client ended with %v, want ErrSession", err)
			}
		})
	}
}
