package engine

import (
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

func controlAttacks() []attack {
	refused := func(errno unix.Errno, reqs ...ipc.Request) func(*attacker) {
		return func(a *attacker) {
			for _, r := range reqs {
				a.refused(r, errno)
			}
		}
	}
	region := func(a *attacker) *ipc.RegisterOK {
		return a.victim.must(&ipc.Register{Sock: a.victim.sock, Buffer: a.victim.buf, Len: 8, Access: abi.RightRead}).(*ipc.RegisterOK)
	}
	return []attack{
		{"sockets that are not its own", refused(unix.EBADF, &ipc.CloseSock{Sock: 1}, &ipc.CloseSock{Sock: ^uint32(0)},
			&ipc.SetRcvBuf{Sock: 1, Bytes: 1}, &ipc.Register{Sock: 1, Buffer: 1, Len: 1, Access: 1}), ""},
		{"no receive buffer", refused(unix.EINVAL, &ipc.SetRcvBuf{}), ""},
		{"regions that are not its own", func(a *attacker) {
			r := region(a)
			a.refused(&ipc.Release{Region: r.Region}, unix.EINVAL)
			a.refused(&ipc.Expose{Region: r.Region, Addr: hostAddr(0), Port: a.port}, unix.EINVAL)
			a.victim.must(&ipc.Release{Region: r.Region})
		}, ""},
		{"buffers that are not there", refused(unix.EINVAL, &ipc.Free{Buffer: 99}, &ipc.Free{Buffer: ^uint32(0)}), ""},
		{"registrations outside their buffer", func(a *attacker) {
			for _, r := range []ipc.Register{{Off: 64 << 10, Len: 1}, {Off: ^uint64(0), Len: 2}, {Len: ^uint64(0)}, {Len: 0}, {Off: 1, Len: 64 << 10}} {
				r.Sock, r.Buffer, r.Access = a.sock, a.buf, abi.RightRead
				a.refused(&r, unix.EINVAL)
			}
		}, ""},
		{"rights that do not exist", func(a *attacker) {
			for _, access := range []abi.Rights{0, 16, 65, ^abi.Rights(0), abi.UseOnce, abi.Open} {
				a.refused(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: access}, unix.EINVAL)
			}
		}, ""},
		{"buffers of all sizes", refused(unix.EINVAL, &ipc.Alloc{}, &ipc.Alloc{Size: 1 << 62}, &ipc.Alloc{Size: ^uint64(0)}), ""},
		{"addresses that are not the host's", refused(unix.EADDRNOTAVAIL, &ipc.Bind{Addr: hostAddr(1)}, &ipc.Bind{Addr: nobody(3)}), ""},
		{"ports that are not for sockets", refused(unix.EINVAL, &ipc.Bind{Addr: hostAddr(0), Port: 1}), ""},
		{"a port that is taken", refused(unix.EADDRINUSE, &ipc.Bind{Addr: hostAddr(0), Port: 30}), ""},
		{"grants to addresses nobody can have", func(a *attacker) {
			r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: abi.RightRead}).(*ipc.RegisterOK)
			for _, addr := range []string{"0.0.0.0", "224.0.0.1", "255.255.255.255", "fd00::1"} {
				a.refused(&ipc.Expose{Region: r.Region, Addr: netip.MustParseAddr(addr)}, unix.EINVAL)
			}
		}, ""},
		{"a buffer freed under its region", func(a *attacker) {
			a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: abi.RightRead})
			a.refused(&ipc.Free{Buffer: a.buf}, unix.EBUSY)
		}, ""},
		{"a region registered, granted and released again and again", func(a *attacker) {
			for range 300 {
				r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: abi.RightRead}).(*ipc.RegisterOK)
				a.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(1), Port: 20})
				if err := a.w.es[0].keys.release(a.w.es[0].keys.by[r.Region], func(error) {}); err != nil {
					a.w.t.Fatal(err)
				}
			}
		}, ""},
		{"grants to a host that is not there, taken back at once", func(a *attacker) {
			for range 100 {
				r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: abi.RightRead}).(*ipc.RegisterOK)
				a.must(&ipc.Expose{Region: r.Region, Addr: nobody(1), Port: 20})
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now())) // it is being connected to
				a.must(&ipc.Release{Region: r.Region})
			}
			if n := a.w.es[0].pools.ctls.Out; n > 5 {
				a.w.t.Errorf("%d internal messages wait", n)
			}
		}, ""},
		{"a socket closed with its ring full", func(a *attacker) {
			for a.seg.SubProducer().Free() > 0 && a.nextID < 250 {
				a.put(func(e *shm.Entry) { *e.Sub() = a.sub(none[shm.Sub]) })
			}
			a.must(&ipc.CloseSock{Sock: a.sock})
		}, ""},
		{"a second Hello, and answers as requests", func(a *attacker) {
			if _, err := a.w.es[0].Serve(a.cl, &ipc.Hello{}, new(RingPlace)); err == nil {
				a.w.t.Error("a second Hello was answered")
			}
		}, ""},
	}
}

func floodAttacks() []attack {
	return []attack{
		{"more sockets than it may have", func(a *attacker) {
			for range evilSockets - 1 {
				a.must(&ipc.Bind{Addr: hostAddr(0)})
			}
			for range 100 {
				a.refused(&ipc.Bind{Addr: hostAddr(0)}, unix.ENOBUFS)
			}
			a.victim.must(&ipc.Bind{Addr: hostAddr(0)})
		}, ""},
		{"more memory than it may have", func(a *attacker) {
			for range 100 {
				a.refused(&ipc.Alloc{Size: evilBytes}, unix.ENOBUFS)
			}
			a.victim.must(&ipc.Alloc{Size: evilBytes})
		}, ""},
		{"more destinations than it may have", func(a *attacker) {
			for i := uint32(1); i < 64; i++ {
				a.post(a.dest(func(d *shm.SubDest) { d.Slot, d.Port = i, uint16(1000+i) }))
				a.post(a.sub(func(s *shm.Sub) { s.Slot = i }))
			}
			a.w.run()
			if n := a.cl.acct.dests; n > evilDests {
				a.w.t.Errorf("%d destinations", n)
			}
		}, ""},
		{"more operations than it may have", func(a *attacker) {
			own := a.far.expose(0, 64, abi.RightWrite, a.opSide)
			a.w.run()
			for range 60 {
				a.submit(shm.Sub{}, a.op(abi.OpWrite, own.Cookie, 0))
			}
			a.w.run()
			refused := 0
			for _, st := range a.statuses() {
				if st == int(abi.StatusRemoteError) {
					refused++
				}
			}
			if refused != 60-evilOps {
				a.w.t.Errorf("%d operations refused, want %d", refused, 60-evilOps)
			}
		}, ""},
		{"messages nobody reads", func(a *attacker) {
			for range 200 {
				a.post(a.sub(func(s *shm.Sub) { s.Len = 60_000 }))
			}
		}, ""},
		{"empty messages nobody reads", func(a *attacker) {
			for range 240 {
				a.post(a.sub(func(s *shm.Sub) { s.Len = 0 }))
			}
		}, ""},
		{"messages to itself it does not read", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Port, d.Cell = hostAddr(0).As16(), a.port, 1 }))
			for range 200 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot, s.Len = 1, 60_000 }))
			}
		}, ""},
		{"messages to the victim's sockets", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Port, d.Cell = hostAddr(0).As16(), 30, 1 }))
			for range 100 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot = 1 }))
			}
		}, ""},
		{"cancels without end", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell = nobody(2).As16(), 1 }))
			for range 20 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot = 1 }))
			}
			for range 200 {
				a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Slot: 1} })
			}
		}, ""},
		{"slots opened and closed without end", func(a *attacker) {
			for i := range 60 {
				a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell, d.Port = nobody(i).As16(), uint32(1+i), 9 }),
					shm.SubDest{Kind: shm.KindCloseDest, Slot: 1})
			}
		}, ""},
		{"statuses it never takes", func(a *attacker) {
			for range 2000 {
				if free := slices.Index(a.cl.msgs, nil); free >= 0 {
					a.nextID = uint32(free)
					a.submit(shm.Sub{}, a.op(abi.OpWrite, 5, 0))
				}
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				for sr, ok := a.seg.SendRetConsumer(), true; ok; sr.Release() {
					_, ok = sr.Take()
				}
			}
			if n := a.cl.pendOps.N; n > int(a.cl.params.MaxMsgs) {
				a.w.t.Errorf("%d statuses wait in the daemon", n)
			}
		}, ""},
		{"notices it never takes", func(a *attacker) {
			for i := range 1000 {
				a.nextID %= 250
				a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Port, d.Cell = hostAddr(0).As16(), uint16(1000+i), 1 }),
					a.sub(func(s *shm.Sub) { s.Slot = 1 }), shm.SubDest{Kind: shm.KindCloseDest, Slot: 1})
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				for sr, ok := a.seg.SendRetConsumer(), true; ok; sr.Release() {
					_, ok = sr.Take()
				}
			}
			if n := a.cl.pendNote.N; n > 2*len(a.cl.slots)+1 {
				a.w.t.Errorf("%d destinations with notices wait in the daemon", n)
			}
			a.w.run()
			told := uint64(0)
			for range 100 { // what was folded is told, too
				for a.look(); len(a.notes) > 0; a.notes = a.notes[1:] {
					told += a.notes[0].Count
				}
				a.w.settle()
			}
			if told != 1000 {
				a.w.t.Errorf("%d of 1000 messages to nobody were told", told)
			}
		}, ""},
	}
}
