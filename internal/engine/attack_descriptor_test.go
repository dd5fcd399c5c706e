package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

func descriptorAttacks() []attack {
	message := func(edit func(*shm.Sub)) func(*attacker) {
		return func(a *attacker) { a.post(a.sub(edit)) }
	}
	open := func(edit func(*shm.SubDest)) func(*attacker) {
		return func(a *attacker) { a.post(a.dest(edit)) }
	}
	to := func(s string) func(*shm.SubDest) {
		return func(d *shm.SubDest) { d.Addr = netip.MustParseAddr(s).As16() }
	}
	return []attack{
		{"unknown kind", message(func(s *shm.Sub) { s.Kind = 99 }), "unknown descriptor kind 99"},
		{"kind 0", message(func(s *shm.Sub) { s.Kind = 0 }), "unknown descriptor kind 0"},
		{"operation without its descriptor", message(func(s *shm.Sub) { s.Kind = shm.KindSendOp }), "descriptor missing"},
		{"two operations, one descriptor", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind, s.Flags = shm.KindSendOp, shm.SubTwoOps }), a.op(abi.OpWrite, 5, 0))
		}, "descriptor missing"},
		{"two operations of a plain message", message(func(s *shm.Sub) { s.Flags = shm.SubTwoOps }), ""},
		{"flags nobody knows", message(func(s *shm.Sub) { s.Flags = 0xe0 }), ""},
		{"a status of a message with operations", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind, s.Flags = shm.KindSendOp, shm.SubNotify }), a.op(abi.OpWrite, 5, 0))
		}, "which have their own"},
		{"a traceparent outside the arena", message(func(s *shm.Sub) { s.Flags, s.Chunk, s.Len = shm.SubTraceparent, 1<<30, 0 }), "a traceparent outside"},
		{"a traceparent over the window's end", message(func(s *shm.Sub) {
			s.Flags, s.Chunk, s.Len = shm.SubTraceparent, shm.WindowSize/shm.Unit-1, shm.Unit-wire.TraceparentLen+1
		}), "a traceparent outside"},
		{"message id out of range", message(func(s *shm.Sub) { s.MsgID = 256 }), "message id 256"},
		{"message id at the end of numbers", message(func(s *shm.Sub) { s.MsgID = ^uint32(0) }), "message id"},
		{"message id in use", func(a *attacker) { m := a.sub(none[shm.Sub]); a.post(m, m) }, "out of range or in use"},
		{"payload outside the arena", message(func(s *shm.Sub) { s.Chunk = 1 << 30 }), "outside the send arena"},
		{"payload chunk that overflows", message(func(s *shm.Sub) { s.Chunk = ^uint32(0) }), "outside the send arena"},
		{"payload over the window's end", message(func(s *shm.Sub) { s.Chunk = shm.WindowSize/shm.Unit - 1; s.Len = shm.Unit + 1 }), "outside the send arena"},
		{"payload too long", message(func(s *shm.Sub) { s.Len = abi.MaxMessage + 1 }), "payload"},
		{"payload of 4 GiB", message(func(s *shm.Sub) { s.Len = ^uint32(0) }), "payload"},
		{"payload from no buffer", message(func(s *shm.Sub) { s.Flags, s.Buf = shm.SubFromBuf, 999 }), "outside buffer"},
		{"payload past its buffer", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf, s.Off = shm.SubFromBuf, a.buf, 64<<10-63 }))
		}, "outside buffer"},
		{"payload offset that overflows", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf, s.Off = shm.SubFromBuf, a.buf, ^uint64(0)-31 }))
		}, "outside buffer"},
		{"payload from a buffer that was freed", func(a *attacker) {
			b := a.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
			a.must(&ipc.Free{Buffer: b})
			a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf = shm.SubFromBuf, b }))
		}, "outside buffer"},
		{"buffer freed under its payload", func(a *attacker) {
			b := a.must(&ipc.Alloc{Size: 1 << 19}).(*ipc.AllocOK).Buffer
			for range 20 {
				a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf, s.Len = shm.SubFromBuf, b, 1<<19 }))
			}
			a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
			a.call(&ipc.Free{Buffer: b}) // EBUSY, or freed once nobody reads it
		}, ""},
		{"socket that is not there", message(func(s *shm.Sub) { s.Sock = 77 }), ""},
		{"slot that is not open", message(func(s *shm.Sub) { s.Slot = 5 }), "slot 5 is not open"},
		{"slot out of range", message(func(s *shm.Sub) { s.Slot = 1 << 31 }), "is not open"},
		{"slot of another socket", func(a *attacker) {
			other := a.bind(11)
			a.post(a.sub(func(s *shm.Sub) { s.Sock = other }))
		}, "slot 0 is not open"},
		{"slot opened twice", open(func(d *shm.SubDest) { d.Slot = 0 }), "out of range or in use"},
		{"slot to open out of range", open(func(d *shm.SubDest) { d.Slot = 64 }), "out of range or in use"},
		{"cell out of range", open(func(d *shm.SubDest) { d.Cell = 1 << 31 }), "out of range or in use"},
		{"cell of another destination", open(func(d *shm.SubDest) { d.Addr = hostAddr(0).As16() }), "cell 0 belongs to another"},
		{"generation 0", open(func(d *shm.SubDest) { d.Gen = 0 }), "bad address"},
		{"no address", open(to("0.0.0.0")), "bad address"},
		{"multicast", open(to("224.0.0.1")), "bad address"},
		{"broadcast", open(to("255.255.255.255")), "bad address"},
		{"another family", open(to("fd00::1")), "bad address"},
		{"two lanes of one socket", open(func(d *shm.SubDest) { d.Lane = 7 }), "lane 7"},
		{"all lanes there are", func(a *attacker) {
			for lane := 1; lane < evilDests; lane++ {
				s := a.bind(uint16(100 + lane))
				a.post(a.dest(func(d *shm.SubDest) { d.Sock, d.Slot, d.Cell, d.Lane = s, uint32(lane), uint32(lane), uint8(lane*8) }),
					a.sub(func(m *shm.Sub) { m.Sock, m.Slot = s, uint32(lane) }))
			}
		}, ""},
		{"slot used again with messages on their way", func(a *attacker) {
			for i := range 40 {
				a.post(a.sub(none[shm.Sub]), shm.SubDest{Kind: shm.KindCloseDest, Slot: 0},
					a.dest(func(d *shm.SubDest) { d.Slot, d.Port = 0, uint16(20+i%2) }))
			}
			a.w.run()
			for a.far.look(); len(a.far.msgs) > 0; a.far.msgs = a.far.msgs[1:] {
				if m := a.far.msgs[0]; m.SrcPort == 10 && m.DstPort != 20 {
					a.w.t.Error("a message went astray")
				}
			}
		}, ""},
		{"close of a slot that is not open", func(a *attacker) {
			a.post(shm.SubDest{Kind: shm.KindCloseDest, Slot: 9}, shm.SubDest{Kind: shm.KindCloseDest, Slot: ^uint32(0)})
		}, ""},
		{"cancel of a slot that is not open", func(a *attacker) {
			a.post(shm.Sub{Kind: shm.KindCancel, Slot: 9}, shm.Sub{Kind: shm.KindCancel, Slot: ^uint32(0)})
		}, ""},
		{"the longest limit", message(func(s *shm.Sub) { s.GiveUp = ^uint32(0) }), ""},
		{"limits of a millisecond, to nobody", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell = nobody(1).As16(), 1 }))
			for range 100 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot, s.GiveUp = 1, 1 }))
			}
			a.w.settle()
			if a.look(); len(a.back) != 100 {
				a.w.t.Errorf("%d of 100 messages came back", len(a.back))
			}
		}, ""},
		{"cookie of another client", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Cookie = a.theirs.Cookie }))
		}, ""},
	}
}

func opAttacks() []attack {
	refused := func(kind abi.OpKind, errno unix.Errno, edit func(*attacker, *shm.SubOp)) func(*attacker) {
		return func(a *attacker) {
			own := a.far.expose(0, 64, abi.RightRead|abi.RightWrite|abi.RightAtomic, a.opSide)
			a.w.run()
			a.status(abi.StatusRemoteError, errno, a.opWith(kind, own.Cookie, func(o *shm.SubOp) { edit(a, o) }))
		}
	}
	list := func(n int, each shm.SegEntry) func(*attacker, *shm.SubOp) {
		return func(a *attacker, o *shm.SubOp) {
			o.NSeg, o.SegChunk = uint16(n), 128
			for i := range n {
				e := each
				e.Region = a.buf
				shm.PutSegEntry(a.send[128*shm.Unit+i*shm.SegEntrySize:], e)
			}
		}
	}
	opID := func(id uint64) func(*attacker) {
		return func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind = shm.KindSendOp }), a.opWith(abi.OpWrite, 5, func(o *shm.SubOp) { o.OpID = id }))
		}
	}
	return []attack{
		{"operation id skipped", opID(2), "operation id"},
		{"operation id 0", opID(0), "operation id"},
		{"operation id at the end of numbers", opID(^uint64(0)), "operation id"},
		{"two operations, one id", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind, s.Flags = shm.KindSendOp, shm.SubTwoOps }),
				a.opWith(abi.OpWrite, 5, func(o *shm.SubOp) { o.OpID = 1 }), a.opWith(abi.OpFetchAdd, 5, func(o *shm.SubOp) { o.OpID = 1 }))
		}, "operation id"},
		{"an atomic, then a write", func(a *attacker) {
			own := a.far.expose(0, 64, abi.RightWrite|abi.RightAtomic, a.opSide)
			a.w.run()
			a.status(abi.StatusRemoteError, unix.EINVAL, a.opWith(abi.OpFetchAdd, own.Cookie, none[shm.SubOp]), a.op(abi.OpWrite, own.Cookie, 8))
		}, ""},
		{"guessed key", refused(abi.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Cookie ^= 0x5a5a }), ""},
		{"guessed offset in the key", refused(abi.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Cookie += 1 << 32 }), ""},
		{"stolen key", refused(abi.OpRead, unix.EACCES, func(a *attacker, o *shm.SubOp) { o.Cookie = a.theirs.Cookie }), ""},
		{"every key near a stolen one", func(a *attacker) {
			for i := range uint64(evilOps) {
				cookie := a.theirs.Cookie&^0xffffffff | (a.theirs.Cookie+i+1)&0xffffffff
				a.status(abi.StatusRemoteError, unix.EINVAL, a.op(abi.OpWrite, cookie, 0))
			}
		}, ""},
		{"beyond the region", refused(abi.OpWrite, unix.ERANGE, func(_ *attacker, o *shm.SubOp) { o.RemoteOff = 57 }), ""},
		{"remote offset that overflows", refused(abi.OpWrite, unix.ERANGE, func(_ *attacker, o *shm.SubOp) { o.RemoteOff = ^uint64(0) - 3 }), ""},
		{"no such operation", refused(255, unix.EINVAL, func(*attacker, *shm.SubOp) {}), ""},
		{"no segments", refused(abi.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.NSeg = 0 }), ""},
		{"65535 segments", refused(abi.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.NSeg = 65535 }), ""},
		{"segment list outside the arena", refused(abi.OpWrite, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.NSeg, o.SegChunk = 2, ^uint32(0) }), ""},
		{"segment list over the window's end", refused(abi.OpWrite, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.NSeg, o.SegChunk = 3, shm.WindowSize/shm.Unit-1 }), ""},
		{"segments that do not add up", refused(abi.OpWrite, unix.EINVAL, list(3, shm.SegEntry{Len: 4})), ""},
		{"segments whose sum overflows", refused(abi.OpWrite, unix.EINVAL, list(2, shm.SegEntry{Len: 1<<63 + 4})), ""},
		{"segment past its buffer", refused(abi.OpWrite, unix.EFAULT, list(2, shm.SegEntry{Off: 64<<10 - 2, Len: 4})), ""},
		{"segment offset that overflows", refused(abi.OpWrite, unix.EFAULT, list(2, shm.SegEntry{Off: ^uint64(0) - 2, Len: 4})), ""},
		{"local length of everything", refused(abi.OpWrite, unix.EMSGSIZE, func(_ *attacker, o *shm.SubOp) { o.Len = ^uint64(0) }), ""},
		{"local memory of no buffer", refused(abi.OpWrite, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.Region = 1 << 31 }), ""},
		{"operands outside the arena", refused(abi.OpFetchAdd, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.SegChunk = ^uint32(0) }), ""},
		{"atomic of a list", refused(abi.OpCmpSwap, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.NSeg = 2 }), ""},
		{"atomic of 16 bytes", refused(abi.OpFetchAdd, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Len = 16 }), ""},
		{"atomic at an odd place", refused(abi.OpFetchAdd, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.RemoteOff = 1 }), ""},
		{"atomic into an odd place", refused(abi.OpFetchAdd, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.Off = 1 }), ""},
		{"every operation flag", func(a *attacker) {
			own := a.far.expose(0, 64, abi.RightWrite, a.opSide)
			a.w.run()
			a.status(abi.StatusSuccess, 0, a.opWith(abi.OpWrite, own.Cookie, func(o *shm.SubOp) { o.Flags = 0xffff }))
		}, ""},
		{"use-once key, at once and again", func(a *attacker) {
			own := a.far.expose(0, 64, abi.RightWrite|abi.UseOnce, a.opSide)
			a.w.run()
			for range 10 {
				a.submit(shm.Sub{}, a.op(abi.OpWrite, own.Cookie, 0))
			}
			a.w.run()
			n := 0
			for _, st := range a.statuses() {
				if st == int(abi.StatusSuccess) {
					n++
				}
			}
			if n != 1 {
				a.w.t.Errorf("a use-once key served %d operations", n)
			}
		}, ""},
	}
}
