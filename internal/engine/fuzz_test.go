package engine

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// stepLen is a step of FuzzClient: what to do, where a value goes, and which.
const stepLen = 4

// FuzzClient has a hostile client do what the bytes say with its rings, its
// send arena and its control calls, against a real engine beside another
// client: no panic, no hang, memory within its quota, nobody else harmed,
// nothing left.
func FuzzClient(f *testing.F) {
	for first := range byte(24) {
		f.Add([]byte{first, 0, 0, 0, 9, 0, 0, 0, first, 3, 1, 255, 9, 0, 0, 0})
	}
	f.Add([]byte{22, 4, 51, 0, 23, 72, 252, 34}) // a grant to nobody, released while connecting
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 1, 3, 0, 0, 0, 1, 3, 40, 0, 4, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 400*stepLen {
			return
		}
		q := config.NoQuota()
		q[config.Sockets], q[config.Destinations], q[config.Operations], q[config.RegisteredBytes] = 10, 20, 20, evilBytes
		w := newWorld(t, 2, Config{HardCap: 64 << 10, OverflowBytes: 1 << 20,
			Policy: &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}})
		far, good, evil, peer := w.opSide(1, 20), w.opSide(0, 30), w.opSideAs(0, 10, 1000), w.opSide(1, 40)
		good.open(good.sock, 0, 0, hostAddr(1), 40)
		evil.open(evil.sock, 0, 0, hostAddr(1), 20)
		ours := peer.expose(0, 64, abi.RightWrite|abi.RightAtomic, good)
		grant := far.expose(0, 64, abi.RightRead|abi.RightWrite|abi.RightAtomic, evil)
		w.run()
		x := &fuzzer{opSide: evil, keys: [2]uint64{grant.Cookie, ours.Cookie}}
		w.unharmed(good, peer, ours.Cookie, func() {
			for ; len(b) >= stepLen; b = b[stepLen:] {
				x.step(b[0], b[1], uint16(b[2])|uint16(b[3])<<8)
			}
		})
		if n := w.es[0].users.mem.Sum().Registered; n > evilBytes+4*64<<10 {
			t.Errorf("%d bytes registered", n)
		}
		evil.at.Close()
		w.unharmed(good, peer, ours.Cookie, func() {})
		for _, s := range []*opSide{far, good, peer} {
			s.at.Close()
		}
		w.settle()
		w.es[0].peers.dropUnused() // as when another peer needs the room
		w.clean()
	})
}

// fuzzer carries out the steps.
type fuzzer struct {
	*opSide
	keys    [2]uint64 // one granted to it, one not
	entry   shm.Entry // under construction
	op      shm.SubOp
	regions []uint32
}

// value spreads 16 bits over what a field may hold: small, near the limits, and
// at the end of numbers.
func value(v uint16) uint64 {
	n := uint64(v & 0x3fff)
	switch v >> 14 {
	case 1:
		return n << 20
	case 2:
		return ^n
	case 3:
		return n * 257 << 32
	}
	return n
}

func (x *fuzzer) step(what, where byte, v uint16) {
	n := value(v)
	switch what % 24 {
	case 0: // a good message
		*x.entry.Sub() = shm.Sub{Kind: shm.KindSend, Sock: x.sock, MsgID: uint32(v % 256), Len: uint32(where) * 16, Flags: where & shm.SubNotify}
		x.publish()
	case 1: // the entry as it is, with one field changed
		(*[shm.EntrySize]byte)(unsafe.Pointer(&x.entry))[where%shm.EntrySize] = byte(v)
		x.publish()
	case 2:
		(*[shm.EntrySize]byte)(unsafe.Pointer(&x.entry))[where%shm.EntrySize] = byte(v)
	case 3: // a good operation
		*x.entry.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: x.sock, MsgID: uint32(v % 256), Flags: where & shm.SubTwoOps}
		x.publish()
		x.opID++
		x.op = x.opWith(abi.OpKind(where), x.opID)
		x.publishOp()
		if where&shm.SubTwoOps != 0 {
			x.opID++
			x.op = x.args(x.opWith(abi.OpFetchAdd, x.opID), shm.AtomicEntry{CompareAdd: n})
			x.publishOp()
		}
	case 4: // the operation as it is, with one field changed
		switch where % 10 {
		case 0:
			x.op.Op = abi.OpKind(v)
		case 1:
			x.op.Flags = abi.OpFlags(v)
		case 2:
			x.op.NSeg = v
		case 3:
			x.op.Region = uint32(n)
		case 4:
			x.op.SegChunk = uint32(n)
		case 5:
			x.op.Off = n
		case 6:
			x.op.Len = n
		case 7:
			x.op.Cookie = n
		case 8:
			x.op.RemoteOff = n
		case 9:
			x.op.OpID = n
		}
		*x.entry.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: x.sock, MsgID: uint32(v % 256)}
		x.publish()
		x.publishOp()
	case 5: // a destination
		to := []netip.Addr{hostAddr(1), hostAddr(0), nobody(int(v % 8)), netip.IPv4Unspecified()}[where%4]
		*x.entry.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: x.sock, Slot: uint32(v % 64), Cell: uint32(where % 64), Port: uint16(n), Lane: where >> 6, Addr: to.As16(), Gen: 1}
		x.publish()
	case 6:
		*x.entry.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Slot: uint32(n)}
		x.publish()
	case 7:
		*x.entry.Sub() = shm.Sub{Kind: shm.KindCancel, Slot: uint32(n)}
		x.publish()
	case 8: // from a buffer, with a limit
		*x.entry.Sub() = shm.Sub{Kind: shm.KindSend, Sock: x.sock, MsgID: uint32(where), Flags: shm.SubFromBuf, Buf: x.buf, Off: n, Len: uint32(v), GiveUp: uint32(n)}
		x.publish()
	case 9:
		x.w.run()
	case 10:
		x.look()
	case 11: // gives back what it was told, or not
		if len(x.msgs) > 0 {
			x.giveBack(x.msgs[len(x.msgs)-1].RxID)
			x.msgs = x.msgs[:len(x.msgs)-1]
		}
	case 12:
		x.giveBack(uint32(n))
	case 13: // anything in its segment, indices included
		mem := x.at.mem[1]
		mem[int(where)*128%len(mem)+int(v%8)] = byte(v >> 8)
		x.at.RingDaemon()
	case 14: // anything in its arena
		x.send[int(v)%len(x.send)] = where
	case 15:
		x.seg.WantCell(uint32(where % 64)).StoreArmed(n)
		x.seg.WantSlot(uint32(v % 64)).SetRelief()
	case 16:
		x.e.Turn(x.w.net.Now(), Wall(x.w.net.Now()))
	default:
		x.ask(what, where, n)
	}
}

func (x *fuzzer) opWith(kind abi.OpKind, id uint64) shm.SubOp {
	o := x.opSide.op(kind%5, x.keys[kind>>7], uint64(kind&8))
	o.OpID, o.Token = id, id*10
	return o
}

// ask makes control calls.
func (x *fuzzer) ask(what, where byte, n uint64) {
	switch what % 24 {
	case 17:
		x.call(&ipc.Bind{Addr: hostAddr(int(where % 2)), Port: uint16(n), RcvBuf: uint32(n)})
	case 18:
		x.call(&ipc.CloseSock{Sock: uint32(n)})
	case 19:
		x.call(&ipc.SetRcvBuf{Sock: uint32(where), Bytes: uint32(n)})
	case 20:
		x.call(&ipc.Alloc{Size: n})
	case 21:
		x.call(&ipc.Free{Buffer: uint32(n)})
	case 22:
		if r, err := x.call(&ipc.Register{Sock: uint32(where >> 4), Buffer: x.buf, Off: n, Len: n + 1, Access: abi.Rights(where & 15)}); err == nil {
			x.regions = append(x.regions, r.(*ipc.RegisterOK).Region)
		}
	case 23:
		if len(x.regions) == 0 {
			break
		}
		r := x.regions[int(where)%len(x.regions)]
		if n%2 == 0 {
			x.call(&ipc.Expose{Region: r, Addr: hostAddr(int(n / 2 % 3)), Port: uint16(n)})
		} else if g := x.w.es[0].keys.by[r]; g != nil && g.sock.cl == x.cl {
			if err := x.w.es[0].keys.release(g, func(error) {}); err != nil && err != unix.EALREADY {
				x.w.t.Error(err)
			}
		}
	}
}

func (x *fuzzer) giveBack(id uint32) {
	ret := x.seg.RecvRetProducer()
	ret.Put(id)
	ret.Publish()
	x.at.RingDaemon()
}

// publish and publishOp leave out what does not fit the ring.
func (x *fuzzer) publish() {
	if e := x.seg.SubProducer().Reserve(); e != nil {
		*e = x.entry
		x.seg.SubProducer().Publish()
	}
	x.at.RingDaemon()
}

func (x *fuzzer) publishOp() {
	if e := x.seg.SubProducer().Reserve(); e != nil {
		*e.SubOp() = x.op
		x.seg.SubProducer().Publish()
	}
	x.at.RingDaemon()
}
