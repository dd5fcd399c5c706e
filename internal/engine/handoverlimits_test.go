package engine

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// handedList is a list of the state: how to have n elements of it on host 0, and how many there
// can be.
type handedList struct {
	what string
	most int
	make func(l *atLimit, r *raw, n int)
}

// handedLists are the lists of the state that a process can grow, and that of drained addresses.
var handedLists = []handedList{
	{"sockets", 65534, func(_ *atLimit, r *raw, n int) {
		for port := range n {
			r.bind(uint16(port + 2))
		}
	}},
	{"free socket handles", 65534, func(l *atLimit, r *raw, n int) {
		for port := range n {
			r.bind(uint16(port + 2))
		}
		for _, s := range r.cl.socks {
			l.closeSock(r, s.handle)
		}
	}},
	{"buffers", MaxBuffers, func(_ *atLimit, r *raw, n int) {
		for range n {
			r.must(&ipc.Alloc{Size: shm.PageSize})
		}
	}},
	{"regions", maxRegions, func(_ *atLimit, r *raw, n int) {
		s, buf := r.bind(10), r.must(&ipc.Alloc{Size: shm.PageSize}).(*ipc.AllocOK).Buffer
		for range n {
			r.must(&ipc.Register{Sock: s, Buffer: buf, Len: 8, Access: abi.RightRead})
		}
	}},
	{"grants of a region", 1024, func(_ *atLimit, r *raw, n int) {
		s, buf := r.bind(10), r.must(&ipc.Alloc{Size: shm.PageSize}).(*ipc.AllocOK).Buffer
		g := r.must(&ipc.Register{Sock: s, Buffer: buf, Len: 8, Access: abi.RightRead}).(*ipc.RegisterOK)
		for port := range n {
			r.must(&ipc.Expose{Region: g.Region, Addr: hostAddr(0), Port: uint16(port + 100)})
		}
	}},
	{"destinations and barriers", allSlots, func(l *atLimit, r *raw, n int) {
		l.openAll(r, r.bind(10), n, func(i int) shm.SubDest {
			return shm.SubDest{Port: uint16(i%60000 + 2), Addr: hostAddr(0).As16()}
		})
	}},
	{"messages that wait for a host", allMsgs, func(l *atLimit, r *raw, n int) {
		s := r.bind(10)
		l.openAll(r, s, 1, func(int) shm.SubDest { return shm.SubDest{Port: 20, Addr: hostAddr(7).As16()} })
		l.sendAll(r, s, n, func(int) uint32 { return 0 }, 1)
	}},
	{"destinations that wait for a socket's room", 60000, func(l *atLimit, r *raw, n int) {
		s := r.bind(10)
		full := r.bind(20)
		r.must(&ipc.SetRcvBuf{Sock: full, Bytes: 1000})
		l.openAll(r, s, n, func(int) shm.SubDest { return shm.SubDest{Port: 20, Addr: hostAddr(0).As16()} })
		l.sendAll(r, s, n, func(i int) uint32 { return uint32(i) }, 500)
	}},
	{"messages that were not given back", allMsgs, func(l *atLimit, r *raw, n int) {
		s := r.bind(10)
		l.openAll(r, s, 1, func(int) shm.SubDest { return shm.SubDest{Port: 10, Addr: hostAddr(0).As16()} })
		r.must(&ipc.SetRcvBuf{Sock: s, Bytes: 64 << 20})
		for done := 0; done < n; done += min(n-done, 4000) {
			for i := range min(n-done, 4000) {
				r.sendMsg(s, 0, uint32(i), 1)
			}
			l.taken(r)
			r.events()
			ret := r.seg.SendRetConsumer()
			for _, ok := ret.Take(); ok; _, ok = ret.Take() {
			}
			ret.Release()
		}
	}},
	{"statuses that wait for room", allMsgs, func(l *atLimit, r *raw, n int) {
		s, buf := r.bind(10), r.must(&ipc.Alloc{Size: shm.PageSize}).(*ipc.AllocOK).Buffer
		l.openAll(r, s, 1, func(int) shm.SubDest { return shm.SubDest{Port: 10, Addr: hostAddr(0).As16()} })
		shm.PutSegEntry(r.send[32*shm.Unit:], shm.SegEntry{Region: buf, Len: 8})
		for i := range n {
			r.put(func(e *shm.Entry) {
				*e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: s, MsgID: uint32(i)}
			})
			r.put(func(e *shm.Entry) {
				*e.SubOp() = shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Region: buf, Len: 8, OpID: uint64(i + 1), Cookie: 0x77}
			})
			if i%2000 == 1999 {
				l.taken(r)
			}
		}
		l.taken(r)
	}},
	{"drained addresses", maxDrains, func(l *atLimit, _ *raw, n int) {
		for i := range n {
			l.es[0].drains.setDrain(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), true)
		}
	}},
}

// TestHandoverLists: an engine with nothing of a list, one element, many, and as many as there can
// be, is handed over. The process that has them is the last one of the state.
func TestHandoverLists(t *testing.T) {
	for _, list := range handedLists {
		for _, n := range []int{0, 1, 21, 1000, list.most} {
			t.Run(fmt.Sprintf("%d %s", n, list.what), func(t *testing.T) {
				l := &atLimit{world: newWorld(t, 1, Config{HardCap: 1 << 20})}
				p := largeParams()
				p.MaxRx = allMsgs
				r := l.attach(0, p)
				list.make(l, r, n)
				l.still(0)
				l.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{HardCap: 1 << 20}, &opSide{raw: r})
				l.run()
				r.alive(true)
				r.at.Close()
				l.rest()
				l.clean()
			})
		}
	}
}
