package librds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// victimParams are those of tests/victim.c.
var victimParams = shm.Params{SubEntries: 64, EventEntries: 128, MaxMsgs: 256, MaxRx: 128, Slots: 16, Cells: 16, SendWindows: 1, RecvWindows: 1}

// hostile is a daemon that keeps the contract with its one client, so that the client gets
// deep into its code, but for the steps of a script.
type hostile struct {
	seed     uint16
	r        *rand.Rand // of the engine
	does     string     // the script, for failures
	atHello  []step
	requests []step
	turns    []step
	conn     *ipc.Conn
	raw      *net.UnixConn
	maps     []*shm.Mapping
	fds      []int // others
	seg      *shm.Segment
	mem      []byte // of the segment
	table    []byte
	send     []byte
	recv     []byte
	bell     pipe // the client's
	own      pipe
	p        shm.Params
	next     atomic.Uint32 // handles, buffers, regions
	stop     atomic.Bool
	quiet    bool          // it has no whims
	orders   chan func()   // for the engine
	keeps    bool          // no message comes back
	grow     chan struct{} // closed when the client is to get more send memory; nil: it gets none
	entry    shm.Entry
	cells    map[uint32]uint32 // by slot
	rx       []uint32          // receive ids that the client does not have
}

func newHostile(script []byte) *hostile {
	h := &hostile{cells: map[uint32]uint32{}, bell: pipe{-1, -1}, own: pipe{-1, -1}}
	h.seed, h.atHello, h.requests, h.turns = parseScript(script)
	h.r = rand.New(rand.NewPCG(uint64(h.seed), 1))
	h.does = fmt.Sprint(h.atHello, h.requests, h.turns)
	return h
}

// whim is true once in n times, by the seed.
func (h *hostile) whim(n int) bool { return !h.quiet && h.r.IntN(n) == 0 }

// make makes the memory of the session.
func (h *hostile) make() error {
	for i, size := range []int{shm.SegmentSize(h.p), shm.TableSize(h.p.Slots, h.p.Cells), shm.WindowSize, shm.WindowSize} {
		create := shm.CreateMemfd
		if i == 1 || i == 3 {
			create = shm.CreateMemfdReadOnly
		}
		mp, err := create("hostile", size)
		if err != nil {
			return err
		}
		h.maps = append(h.maps, mp)
	}
	h.mem, h.table, h.send, h.recv = h.maps[0].Mem, h.maps[1].Mem, h.maps[2].Mem, h.maps[3].Mem
	for id := range h.p.MaxRx {
		h.rx = append(h.rx, id)
	}
	var err error
	if h.seg, err = shm.NewSegment(h.mem, h.p); err != nil {
		return err
	}
	if h.bell, err = newPipe(); err != nil {
		return err
	}
	h.own, err = newPipe()
	return err
}

// A pipe is a doorbell.
type pipe struct{ recv, send int }

func newPipe() (pipe, error) {
	p := []int{-1, -1}
	err := unix.Pipe2(p, unix.O_CLOEXEC|unix.O_NONBLOCK)
	return pipe{p[0], p[1]}, err
}

// hello answers the client's Hello with memory.
func (h *hostile) hello(m *ipc.Message) error {
	if h.p = m.Body.(*ipc.Hello).Params; h.p == (shm.Params{}) || h.quiet {
		h.p = victimParams
	}
	if err := h.make(); err != nil {
		return err
	}
	ok := &ipc.HelloOK{Features: 7, Instance: 1, MaxSockets: 100, MaxBuffers: 100, MaxMessage: 1 << 20, MaxBytes: 1 << 30, Params: h.p}
	fds := []int{h.maps[0].Give(), h.maps[1].Give(), h.own.send, h.bell.recv, h.maps[2].Give(), h.maps[3].Give()}
	for _, s := range h.atHello {
		var err error
		if fds, err = h.spoil(s, ok, fds, m.ID); err != nil {
			return err
		}
	}
	return h.conn.Send(m.ID, ok, fds...)
}

// answer is an honest answer to a request.
func (h *hostile) answer(body ipc.Body) (ipc.Response, []int) {
	id := h.next.Add(1)
	switch b := body.(type) {
	case *ipc.Bind:
		return &ipc.BindOK{Sock: id, Addr: b.Addr, Port: b.Port, Inc: 1}, nil
	case *ipc.Alloc:
		size := (int(b.Size) + 4095) / 4096 * 4096
		mp, err := shm.CreateMemfd("buffer", size)
		if err != nil {
			return &ipc.Err{Errno: uint32(unix.ENOMEM)}, nil
		}
		h.maps = append(h.maps, mp)
		return &ipc.AllocOK{Buffer: id, Size: uint64(size)}, []int{mp.FD}
	case *ipc.Import:
		return &ipc.ImportOK{Buffer: id}, nil
	case *ipc.Register:
		return &ipc.RegisterOK{Region: id, Cookie: uint64(id)}, nil
	case *ipc.GrowSend:
		if h.grow != nil {
			<-h.grow
			if mp, err := shm.CreateMemfd("window", shm.WindowSize); err == nil {
				h.maps = append(h.maps, mp)
				return &ipc.GrowSendOK{Windows: 2}, []int{mp.Give()}
			}
		}
		return &ipc.Err{Errno: uint32(unix.ENOBUFS), Text: "no more"}, nil
	}
	return &ipc.OK{}, nil
}

// control answers requests until the client or the test ends the connection.
func (h *hostile) control() {
	for n := 0; ; n++ {
		m, err := h.conn.Recv()
		if err != nil {
			return
		}
		m.CloseFDs()
		resp, fds := h.answer(m.Body)
		if len(h.requests) > 0 && n >= int(h.requests[0].after) {
			s := h.requests[0]
			h.requests, n = h.requests[1:], 0
			var on bool
			resp, fds, on = h.misanswer(s, m.ID, resp, fds)
			if !on {
				return
			}
		}
		if resp == nil {
			continue
		}
		if err := h.conn.Send(m.ID, resp, fds...); err != nil {
			return
		}
	}
}

// event publishes an event as daemons do.
func (h *hostile) event() {
	sock := 1 + h.r.Uint32N(4)
	kind := []shm.EvKind{shm.EvData, shm.EvData, shm.EvNotice, shm.EvBarrier, shm.EvRelief, shm.EvCrowded}[h.r.IntN(6)]
	if kind == shm.EvData {
		h.data(sock, uint8(h.r.IntN(2)), 0)
		return
	}
	if e := h.seg.EventProducer().Reserve(); e != nil {
		*e = shm.Entry{}
		*e.Notice() = shm.EventNotice{Kind: kind, Notice: uint8(h.r.IntN(9)), Sock: sock, Slot: h.r.Uint32N(4), Addr: source, Port: 4000, Count: 1}
		h.seg.EventProducer().Publish()
	}
}

// source is where events say that they come from.
var source = [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}

// data publishes the event of a message, or of a run of two datagrams and more bytes.
func (h *hostile) data(sock uint32, flags uint8, more uint16) {
	if len(h.rx) == 0 {
		return
	}
	e := h.seg.EventProducer().Reserve()
	if e == nil {
		return
	}
	n := frames.Put(h.recv[4096:], []byte("datagram"))
	n += frames.Put(h.recv[4096+n:], make([]byte, 3000))
	*e = shm.Entry{}
	*e.Event() = shm.Event{Kind: shm.EvData, Flags: flags, Sock: sock, RxID: h.rx[0], Chunk: 64, Len: uint32(n) + uint32(more), SrcAddr: source, SrcPort: 4000}
	h.rx = h.rx[1:]
	h.seg.EventProducer().Publish()
}

// settle ends an operation.
func (h *hostile) settle(sock, cell uint32, op *shm.SubOp, table *shm.Table) {
	table.Cell(cell % h.p.Cells).StoreHWM(op.OpID)
	if op.Flags&abi.FlagNotify == 0 {
		return
	}
	if e := h.seg.EventProducer().Reserve(); e != nil && !h.whim(20) {
		*e = shm.Entry{}
		*e.Status() = shm.EventStatus{Kind: shm.EvStatus, Sock: sock, Cell: cell, OpID: op.OpID, Token: op.Token}
		h.seg.EventProducer().Publish()
	}
}

// back returns a message, unless they stay.
func (h *hostile) back(id uint32) {
	if !h.keeps {
		h.seg.SendRetProducer().Put(id)
	}
}

// take takes in what the client submitted and returns its messages.
func (h *hostile) take() {
	sub := h.seg.SubConsumer()
	table := shm.NewTable(h.table, h.p.Slots, h.p.Cells)
	for sub.Next(&h.entry) {
		s := h.entry.Sub()
		switch shm.Kind(h.entry.Kind()) {
		case shm.KindOpenDest:
			d := h.entry.SubDest()
			h.cells[d.Slot] = d.Cell
			congested := uint32(0)
			if h.whim(8) {
				congested = 1
			}
			table.Slot(d.Slot % h.p.Slots).StoreCongested(congested)
			table.Slot(d.Slot % h.p.Slots).StoreGen(d.Gen)
		case shm.KindSendOp:
			id, sock, cell, ops := s.MsgID, s.Sock, h.cells[s.Slot], 1
			if s.Flags&shm.SubTwoOps != 0 {
				ops = 2
			}
			for range ops {
				sub.Next(&h.entry)
				h.settle(sock, cell, h.entry.SubOp(), table)
			}
			h.back(id)
		case shm.KindRun:
			if at := int(s.Chunk) * shm.Unit; at+8 < len(h.send) {
				shm.RunWord(h.send[at:]).Close()
			}
			h.back(s.MsgID)
		case shm.KindSend:
			h.back(s.MsgID)
		}
	}
	sub.Release()
	ret := h.seg.RecvRetConsumer()
	for {
		id, ok := ret.Take()
		if !ok {
			break
		}
		if id < h.p.MaxRx { // no step
			h.rx = append(h.rx, id)
		}
	}
	ret.Release()
	h.seg.SendRetProducer().Publish()
}

// engine is the daemon's data path.
func (h *hostile) engine() {
	h.seg.DaemonAsleep().Store(shm.Asleep)
	for turn := 0; !h.stop.Load(); turn++ {
		h.take()
		if h.whim(3) {
			h.event()
		}
		select {
		case f := <-h.orders:
			f()
		default:
		}
		for len(h.turns) > 0 && turn >= int(h.turns[0].after) {
			h.scribble(h.turns[0])
			h.turns, turn = h.turns[1:], 0
		}
		if shm.WakeNeeded(h.seg.ClientAsleep()) || h.whim(10) {
			shm.Ring(h.bell.send)
		}
		if h.r.IntN(4) == 0 {
			h.seg.DaemonAsleep().Store(shm.Asleep) // it never reads its doorbell
		}
		time.Sleep(50 * time.Microsecond) // the client is to have the processor, too
	}
}

// serve serves one client until it has gone.
func (h *hostile) serve(raw *net.UnixConn) error {
	defer h.close()
	h.raw = raw
	var err error
	if h.conn, err = ipc.NewConn(raw); err != nil {
		return err
	}
	m, err := h.conn.Recv()
	if err != nil {
		return nil // it has gone
	}
	if err := h.hello(m); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) { // it has gone because of what came ahead of the answer
			return nil
		}
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.engine()
	}()
	h.control()
	h.stop.Store(true)
	<-done
	return nil
}

func (h *hostile) close() {
	if h.conn != nil {
		h.conn.Close()
	}
	for _, m := range h.maps {
		m.Close()
	}
	for _, fd := range append(h.fds, h.bell.recv, h.bell.send, h.own.recv, h.own.send) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
