package rds

import (
	"context"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

// victim is a client at the mercy of its daemon.
type victim struct {
	t     *testing.T
	d     *hostileDaemon
	c     *Client
	socks []*Socket
	bufs  []*Buffer
	regs  []*Region
	entry shm.Entry
}

func (x *victim) sock(i byte) *Socket {
	if len(x.socks) == 0 {
		x.bind()
	}
	if len(x.socks) == 0 {
		return nil
	}
	return x.socks[int(i)%len(x.socks)]
}

func (x *victim) bind() {
	if s, err := x.c.Bind(netip.MustParseAddrPort("127.0.0.1:0")); err == nil {
		x.socks = append(x.socks, s)
	}
}

func (x *victim) step(what, where byte, v uint16) {
	d, n := x.d, spread(v)
	if what%32 >= 16 {
		x.use(what%32, where, v)
		return
	}
	switch what % 16 {
	case 0: // the next answer
		d.answer, d.value = where, n
	case 1: // a good event
		*x.entry.Event() = shm.Event{Kind: shm.EvKind(where%7 + 1), Sock: uint32(v % 2), RxID: uint32(v >> 8), Len: uint32(where), Chunk: uint32(v % 64)}
		x.publish()
	case 2: // the last event with one byte changed
		(*[shm.EntrySize]byte)(unsafe.Pointer(&x.entry))[where%shm.EntrySize] = byte(v)
		x.publish()
	case 3: // anything in the segment
		d.mem[0][(int(where)*128+int(v%8))%len(d.mem[0])] = byte(v >> 8)
	case 4:
		d.seg.SendRetProducer().Put(uint32(n))
		d.seg.SendRetProducer().Publish()
	case 5:
		d.table.Cell(uint32(where % 8)).StoreHWM(n)
	case 6:
		d.table.Slot(uint32(where % 8)).StoreGen(uint32(n))
		d.table.Slot(uint32(where % 8)).StoreCongested(uint32(v))
	case 7:
		d.take()
	case 8: // a burst of one event
		for range where {
			x.publish()
		}
	case 9: // ... which the client takes
		for range 4 {
			x.publish()
			x.c.poll()
		}
	case 10:
		*x.entry.Status() = shm.EventStatus{Kind: shm.EvStatus, Status: abi.Status(where), Sock: uint32(v % 2), Cell: uint32(v >> 12), OpID: uint64(v >> 4 & 15)}
		x.publish()
	case 11:
		if v == 0xffff {
			d.Close()
		}
	case 12: // a run, or what is left of one
		x.run(where, v)
	case 13: // the state of runs
		mem := d.mem[4][int(v%256)*shm.Unit:]
		if shm.RunWord(mem).Close(); where > 0 {
			shm.RunWord(mem).Open(shm.RunState(n))
		}
	default:
		x.c.poll()
	}
}

// run publishes a run of up to 8 datagrams in chunk v, which is shorter or longer by some
// bytes than its event says, or has a length that is not.
func (x *victim) run(where byte, v uint16) {
	chunk := uint32(v % 64)
	mem := x.d.mem[5][chunk*shm.Unit:]
	size := 0
	for i := range where % 8 {
		size += frames.Put(mem[size:], make([]byte, (int(i)*int(v>>6))%700))
	}
	if where&8 != 0 {
		mem[size/2&^3] ^= byte(v >> 8)
	}
	*x.entry.Event() = shm.Event{Kind: shm.EvData, Flags: shm.EventRun, Sock: uint32(v >> 6 % 2), RxID: uint32(v >> 7 % 8), Chunk: chunk,
		Len: uint32(max(0, size+int(where>>4%8)-3*int(where>>7)))}
	x.publish()
}

func (x *victim) publish() {
	if e := x.d.seg.EventProducer().Reserve(); e != nil {
		*e = x.entry
		x.d.seg.EventProducer().Publish()
	}
}

// use makes a call of the client's.
func (x *victim) use(what, where byte, v uint16) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	s := x.sock(where)
	if s == nil {
		return
	}
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + v%3)}), 4000+v%7)
	var buf [300]byte
	switch what {
	case 16:
		ms := make([]Message, where%32)
		for i := range ms {
			ms[i] = Message{Payload: buf[:int(v)*i%len(buf)], Addr: to}
		}
		if k, err := s.SendBatch(DontWait, ms); k < 0 || k > len(ms) || (k < len(ms)) != (err != nil) {
			x.t.Errorf("%d of %d messages sent, %v", k, len(ms), err)
		}
	case 17:
		s.Send(DontWait, &Message{Payload: buf[:int(v)%len(buf)], Addr: to, ZeroCopy: where&8 != 0})
	case 18:
		if v&2 != 0 {
			ms := []Received{{Payload: buf[:where]}, {Payload: buf[:4]}, {}}
			if k, err := s.RecvBatch(DontWait, ms); k > len(ms) || (k > 0) == (err != nil) {
				x.t.Errorf("%d messages received, %v", k, err)
			}
			break
		}
		m := Received{Payload: buf[:where]}
		if err := recvOr(DontWait, s, &m, v&1 != 0); err == nil && m.N > len(m.Payload) {
			x.t.Errorf("%d bytes received into %d", m.N, len(m.Payload))
		}
	case 19:
		var c [3]Completion
		s.Completions(c[:])
		var n [3]Notice
		s.Notices(n[:])
		var z [3]uint32
		s.ZeroCopyDone(z[:])
		(kernelSocket{s}).CongUpdates()
	case 20, 21:
		if len(x.bufs) == 0 {
			break
		}
		g := Segment{Buf: x.bufs[0], Off: int(where), Len: 8}
		m := &Message{Addr: to, Op: &RDMA{Write: true, Cookie: Cookie(v), Local: []Segment{g, g}, Notify: where&1 != 0, Report: true}}
		if what == 21 {
			g.Off &^= 7
			m.Op, m.Atomic = nil, &Atomic{Cookie: Cookie(v), Local: g, Notify: true}
		}
		s.Send(DontWait, m)
	case 22:
		if b, err := x.c.Alloc(int(v % 5000)); err == nil {
			x.bufs = append(x.bufs, b)
		}
	case 23:
		if len(x.bufs) > 0 {
			if r, err := s.Register(x.bufs[0], 0, 1+int(where), AllowRead); err == nil {
				x.regs = append(x.regs, r)
			}
		}
	case 24:
		if len(x.regs) > 0 {
			x.regs[0].Expose(over, to)
			x.regs[0].Release(over)
		}
	case 25:
		s.Barrier(over, to.Addr(), uint64(where))
		s.HWM(to.Addr())
		s.BarrierAll(over)
	case 26:
		s.WaitOp(over, to.Addr(), uint64(where))
		s.Wait(over, WaitSet{Message: true, SendSpace: true, Completion: true})
	case 27:
		x.d.take() // else it waits for that
		s.CancelSentTo(to)
		s.SetRcvBuf(int(v) + 1)
	case 28:
		s.Close()
		x.socks = without(x.socks, s)
	case 29:
		x.bind()
	case 30:
		(kernelSocket{s}).SetCongMonitor(true)
		s.SetNotices(Lost, NoSocket, PeerDown, PeerUp, GaveUp)
	case 31:
		if len(x.bufs) > 0 {
			x.bufs[0].Free()
			x.bufs = x.bufs[1:]
		}
	}
	x.bounded()
}

func without(socks []*Socket, s *Socket) []*Socket {
	for i := range socks {
		if socks[i] == s {
			return append(socks[:i:i], socks[i+1:]...)
		}
	}
	return socks
}

// bounded: what the client keeps for its sockets is no more than the parameters
// allow.
func (x *victim) bounded() {
	r := &x.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := 0
	for _, s := range r.socks {
		if s == nil {
			continue
		}
		waiting += s.rxq.len()
		if n := s.comps.len(); n > int(tiny.MaxMsgs+tiny.EventEntries) {
			x.t.Errorf("%d statuses of a socket", n)
		}
		if n := s.notices.len(); n > maxNotices+3 {
			x.t.Errorf("%d notices of a socket", n)
		}
	}
	if waiting > int(tiny.MaxRx+tiny.EventEntries) {
		x.t.Errorf("%d messages wait, at most %d can", waiting, tiny.MaxRx)
	}
}
