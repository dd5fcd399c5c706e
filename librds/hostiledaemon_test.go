package librds

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// hostile is a daemon that mostly keeps the contract with its one client, so that the
// client gets deep into its code, and breaks it now and then: it writes garbage into the
// shared memory and into the control socket.
type hostile struct {
	r     *rand.Rand // of the engine
	rc    *rand.Rand // of the control socket
	every int        // one turn in so many breaks a rule
	conn  *ipc.Conn
	raw   *net.UnixConn
	maps  []*shm.Mapping
	seg   *shm.Segment
	mem   []byte // of the segment
	table []byte
	send  []byte
	recv  []byte
	bell  *shm.Doorbell // the client's
	own   *shm.Doorbell
	p     shm.Params
	next  atomic.Uint32 // handles, buffers, regions
	stop  atomic.Bool
	entry shm.Entry
	cells map[uint32]uint32 // by slot
	rx    []uint32          // receive ids that the client does not have
}

func newHostile(seed uint64, raw *net.UnixConn) (*hostile, error) {
	conn, err := ipc.NewConn(raw)
	r := rand.New(rand.NewPCG(seed, 1))
	return &hostile{r: r, cells: map[uint32]uint32{}, rc: rand.New(rand.NewPCG(seed, 2)), every: []int{5, 50, 500, 1 << 30}[r.IntN(4)], conn: conn, raw: raw}, err
}

// hello answers the client's Hello with memory.
func (h *hostile) hello(m *ipc.Message) error {
	h.p = m.Body.(*ipc.Hello).Params
	sizes := []int{shm.SegmentSize(h.p), shm.TableSize(h.p.Slots, h.p.Cells), shm.WindowSize, shm.WindowSize}
	for i, size := range sizes {
		if h.r.IntN(40) == 0 {
			size += 4096 // not what was announced
		}
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
	if h.bell, err = shm.NewDoorbell(); err != nil {
		return err
	}
	if h.own, err = shm.NewDoorbell(); err != nil {
		return err
	}
	fds := []int{h.maps[0].FD, h.maps[1].FD, h.own.Send, h.bell.Recv, h.maps[2].FD, h.maps[3].FD}
	if h.r.IntN(20) == 0 {
		fds = fds[:h.r.IntN(len(fds))]
	}
	return h.conn.Send(m.ID, &ipc.HelloOK{Features: uint64(h.r.IntN(2)), Instance: 1, MaxSockets: 100, MaxBuffers: 100,
		MaxMessage: 1 << 20, MaxBytes: 1 << 30, Params: h.p}, fds...)
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
	case *ipc.Register:
		return &ipc.RegisterOK{Region: id, Cookie: uint64(id)}, nil
	case *ipc.GrowSend:
		return &ipc.Err{Errno: uint32(unix.ENOBUFS), Text: "no more"}, nil
	}
	return &ipc.OK{}, nil
}

// garbage sends something that is no answer.
func (h *hostile) garbage(id uint32) {
	b := make([]byte, h.rc.IntN(64))
	for i := range b {
		b[i] = byte(h.rc.Uint32())
	}
	if len(b) >= 8 && h.rc.IntN(4) > 0 { // with a header that makes sense
		binary.LittleEndian.PutUint16(b, uint16(h.rc.IntN(22)))
		binary.LittleEndian.PutUint16(b[2:], uint16(h.rc.IntN(2)))
		binary.LittleEndian.PutUint32(b[4:], []uint32{0, id, id + 1, 1}[h.rc.IntN(4)])
	}
	var oob []byte
	if h.rc.IntN(3) == 0 {
		oob = unix.UnixRights(h.bell.Recv, h.bell.Recv)
	}
	_, _, _ = h.raw.WriteMsgUnix(b, oob, nil)
}

// control answers requests until the client or the test ends the connection.
func (h *hostile) control() {
	for {
		m, err := h.conn.Recv()
		if err != nil {
			return
		}
		m.CloseFDs()
		switch h.rc.IntN(h.every) {
		case 0:
			h.garbage(m.ID)
		case 1:
			_ = h.conn.Send(0, &ipc.Goodbye{Text: "enough", Ends: h.rc.IntN(2) == 0})
		case 2: // never
			continue
		}
		resp, fds := h.answer(m.Body)
		if err := h.conn.Send(m.ID, resp, fds...); err != nil {
			return
		}
	}
}

// word is 4 bytes of mem as the client may read them at the same time.
func word(mem []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[at&^3])) }

// scribble writes a random number into some of the shared memory.
func (h *hostile) scribble() {
	v := h.r.Uint32()
	if h.r.IntN(2) == 0 {
		v %= 16
	}
	switch mem := h.mem; h.r.IntN(12) {
	case 0:
		atomic.StoreUint32(word(mem, h.r.IntN(len(mem)-4)), v)
	case 1: // an index or an announcement
		atomic.StoreUint32(word(mem, (1+h.r.IntN(10))*128+4*h.r.IntN(2)), v)
	case 2:
		atomic.StoreUint32(word(h.table, h.r.IntN(len(h.table)-4)), v)
	case 3:
		atomic.StoreUint32(word(h.recv, h.r.IntN(1<<16)), v)
	case 4:
		h.seg.SendRetProducer().Put(v % 512)
		h.seg.SendRetProducer().Publish()
	case 5, 6, 7:
		h.event(true)
	default:
		atomic.StoreUint32(word(h.recv, 4096+h.r.IntN(4096)), v) // where the messages lie
	}
}

// event publishes an event. Wild ones have random fields.
func (h *hostile) event(wild bool) {
	sock, kind := 1+h.r.Uint32N(4), []shm.EvKind{shm.EvData, shm.EvData, shm.EvNotice, shm.EvBarrier, shm.EvRelief, shm.EvCrowded, shm.EvStatus}[h.r.IntN(7)]
	if !wild && (kind == shm.EvStatus || kind == shm.EvData && len(h.rx) == 0) {
		return
	}
	e := h.seg.EventProducer().Reserve()
	if e == nil {
		return
	}
	if wild {
		for i := range e {
			e[i] = h.r.Uint64()
		}
		e.Event().Kind, e.Event().Sock = kind, sock
		h.seg.EventProducer().Publish()
		return
	}
	addr := [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}
	*e = shm.Entry{}
	switch kind {
	case shm.EvData:
		n := frames.Put(h.recv[4096:], []byte("datagram"))
		n += frames.Put(h.recv[4096+n:], make([]byte, 3000))
		*e.Event() = shm.Event{Kind: kind, Flags: uint8(h.r.IntN(2)), Sock: sock, RxID: h.rx[0], Chunk: 64, Len: uint32(n), SrcAddr: addr, SrcPort: 4000}
		h.rx = h.rx[1:]
	default:
		*e.Notice() = shm.EventNotice{Kind: kind, Notice: uint8(h.r.IntN(9)), Sock: sock, Slot: h.r.Uint32N(4), Addr: addr, Port: 4000, Count: 1}
	}
	h.seg.EventProducer().Publish()
}

// settle ends an operation.
func (h *hostile) settle(sock, cell uint32, op *shm.SubOp, table *shm.Table) {
	table.Cell(cell % h.p.Cells).StoreHWM(op.OpID)
	if op.Flags&abi.FlagNotify == 0 {
		return
	}
	if e := h.seg.EventProducer().Reserve(); e != nil && h.r.IntN(20) > 0 {
		*e = shm.Entry{}
		*e.Status() = shm.EventStatus{Kind: shm.EvStatus, Sock: sock, Cell: cell, OpID: op.OpID, Token: op.Token}
		h.seg.EventProducer().Publish()
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
			table.Slot(d.Slot % h.p.Slots).StoreCongested(uint32(h.r.IntN(8) / 7))
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
			h.seg.SendRetProducer().Put(id)
		case shm.KindRun:
			if at := int(s.Chunk) * shm.Unit; at+8 < len(h.send) {
				shm.RunWord(h.send[at:]).Close()
			}
			h.seg.SendRetProducer().Put(s.MsgID)
		case shm.KindSend:
			h.seg.SendRetProducer().Put(s.MsgID)
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
		if h.r.IntN(3) == 0 {
			h.event(false)
		}
		if h.r.IntN(h.every) == 0 {
			h.scribble()
		}
		if shm.WakeNeeded(h.seg.ClientAsleep()) || h.r.IntN(10) == 0 {
			shm.Ring(h.bell.Send)
		}
		time.Sleep(50 * time.Microsecond) // the client is to have the processor, too
	}
}

// serve serves one client until it has gone.
func (h *hostile) serve(t *testing.T) {
	defer h.close()
	m, err := h.conn.Recv()
	if err != nil {
		return
	}
	if h.r.IntN(30) == 0 {
		h.bell, _ = shm.NewDoorbell()
		h.garbage(m.ID)
		return
	}
	if err := h.hello(m); err != nil {
		t.Log("hello:", err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.engine()
	}()
	h.control()
	h.stop.Store(true)
	<-done
}

func (h *hostile) close() {
	h.conn.Close()
	for _, b := range []*shm.Doorbell{h.bell, h.own} {
		if b != nil {
			b.Close()
		}
	}
	for _, m := range h.maps {
		m.Close()
	}
}
