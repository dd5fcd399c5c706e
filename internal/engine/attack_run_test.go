package engine

import (
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/shm"
)

// runAttacks are what no correct client does with a run's descriptor and its state. What
// its frames are is no reason to end a session: see TestRunMalformed.
func runAttacks() []attack {
	run := func(edit func(sub *shm.Sub, mem []byte)) func(*attacker) {
		return func(a *attacker) {
			sub, mem := a.newRun(100, 0, 64)
			edit(&sub, a.send[sub.Chunk*shm.Unit:][:shm.RunHead+len(mem)])
			a.post(sub)
		}
	}
	descriptor := func(edit func(sub *shm.Sub)) func(*attacker) {
		return run(func(sub *shm.Sub, _ []byte) { edit(sub) })
	}
	state := func(edit func(s shm.RunState) shm.RunState) func(*attacker) {
		return run(func(_ *shm.Sub, mem []byte) { w := shm.RunWord(mem); w.Open(edit(w.Load())) })
	}
	const datagram, payload = 1 << 20, 1 << 40 // one of each in a state
	out, bad, more := "outside the send arena", "state 0x", "a cookie, a limit, an incarnation or flags"
	return append([]attack{
		{"run outside the arena", descriptor(func(s *shm.Sub) { s.Chunk = 1 << 30 }), out},
		{"run whose chunk overflows", descriptor(func(s *shm.Sub) { s.Chunk = ^uint32(0) }), out},
		{"run over the window's end", descriptor(func(s *shm.Sub) { s.Chunk = shm.WindowSize/shm.Unit - 1 }), out},
		{"run of 4 GiB", descriptor(func(s *shm.Sub) { s.Len = ^uint32(0) }), out},
		{"run without memory", descriptor(func(s *shm.Sub) { s.Len = 0 }), out},
		{"run in less than its state", descriptor(func(s *shm.Sub) { s.Len = shm.RunHead - 1 }), out},
		{"run of a state at the window's end", run(func(s *shm.Sub, _ []byte) {
			s.Chunk, s.Len = shm.WindowSize/shm.Unit-1, shm.RunHead
		}), bad},
		{"run in a chunk of one byte less", descriptor(func(s *shm.Sub) { s.Len-- }), bad},
		{"run in too long a chunk", descriptor(func(s *shm.Sub) { s.Len = shm.MaxRun + 1 }), bad},
		{"run with a cookie", descriptor(func(s *shm.Sub) { s.Cookie = 1 }), more},
		{"run with a limit", descriptor(func(s *shm.Sub) { s.GiveUp = 1 }), more},
		{"run with an incarnation", descriptor(func(s *shm.Sub) { s.DstInc = 1 }), more},
		{"run with an offset", descriptor(func(s *shm.Sub) { s.Off = 1 }), more},
		{"run from a buffer", descriptor(func(s *shm.Sub) { s.Flags = shm.SubFromBuf }), more},
		{"run that asks for its ack in the descriptor", descriptor(func(s *shm.Sub) { s.Flags = shm.SubAckNow }), more},
		{"run with all flags", descriptor(func(s *shm.Sub) { s.Flags = 0xff }), more},
		{"run with a message id out of range", descriptor(func(s *shm.Sub) { s.MsgID = 256 }), "message id 256"},
		{"run to a slot that is not open", descriptor(func(s *shm.Sub) { s.Slot = 5 }), "slot 5 is not open"},
		{"run of no socket", descriptor(func(s *shm.Sub) { s.Sock = 77 }), ""},
		{"run of pings", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Port = 0 }))
			sub, _ := a.newRun(0, 0)
			sub.Slot = 1
			a.post(sub)
		}, "a run of pings"},
		{"run of nothing", state(func(shm.RunState) shm.RunState { return 0 }), bad},
		{"run longer than its chunk", state(func(s shm.RunState) shm.RunState { return s + 4 }), bad},
		{"run of more datagrams than fit", state(func(s shm.RunState) shm.RunState { return s + 42*datagram }), bad},
		{"run of fewer datagrams than its bytes are", state(func(s shm.RunState) shm.RunState { return s - 2*datagram }), bad},
		{"run of a byte too much", state(func(s shm.RunState) shm.RunState { return s + payload }), bad},
		{"run of too few bytes", state(func(s shm.RunState) shm.RunState { return s - 10*payload }), bad},
		{"run of everything", state(func(shm.RunState) shm.RunState { return ^shm.RunClosed }), bad},
		{"run that is closed", state(func(s shm.RunState) shm.RunState { return s | shm.RunClosed }), bad},
	}, rewriteAttacks()...)
}

// rewriteAttacks submit runs and write to them while they are under way.
func rewriteAttacks() []attack {
	return []attack{
		{"run submitted twice", func(a *attacker) {
			sub, _ := a.newRun(10, 20)
			again := sub
			again.MsgID = a.nextID
			a.post(sub, again) // closed when it was taken the first time
		}, "state 0x"},
		{"run opened again and submitted twice", func(a *attacker) {
			sub, mem := a.newRun(10, 20)
			w := shm.RunWord(a.send[sub.Chunk*shm.Unit:][:shm.RunHead+len(mem)])
			was := w.Load()
			for range 20 {
				a.post(sub)
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				w.Open(was)
				sub.MsgID = a.nextID
				a.nextID++
			}
		}, ""},
		{"frames rewritten on their way", func(a *attacker) {
			for i := range 40 {
				sub, mem := a.newRun(slices.Repeat([]int{900}, 2+i)...)
				a.post(sub)
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				badFrames[i%len(badFrames)].do(mem)
				a.w.run()
				for _, n := range a.far.datagrams() {
					if n > len(mem) {
						a.w.t.Errorf("a datagram of %d bytes came of a run of %d", n, len(mem))
					}
				}
			}
		}, ""},
		{"state rewritten after it was taken", func(a *attacker) {
			for range 20 {
				sub, mem := a.newRun(100, 200)
				a.post(sub)
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				shm.RunWord(a.send[sub.Chunk*shm.Unit:][:shm.RunHead+len(mem)]).Open(^shm.RunState(0))
				a.w.run()
				if n := a.far.datagrams(); !slices.Equal(n, []int{100, 200}) {
					a.w.t.Errorf("datagrams of %d bytes came", n)
				}
			}
		}, ""},
		{"runs to nobody, withdrawn", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell = netip.AddrFrom4([4]byte{127, 0, 0, 99}).As16(), 1 }))
			for range 40 {
				sub, mem := a.newRun(10, 20, 30)
				sub.Slot = 1
				a.post(sub)
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
				clear(mem)
			}
			a.post(shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 1})
			a.w.settle()
			if a.look(); len(a.back) != 40 {
				a.w.t.Errorf("%d of 40 runs came back", len(a.back))
			}
		}, ""},
	}
}
