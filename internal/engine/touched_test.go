package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs/sim"
	"golang.org/x/sys/unix"
)

// touching makes two sides whose devices have threads that touch every second region for 50 ms after its end.
func touching(t *testing.T) (*world, *opSide, *opSide) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 1})
	w.run() // there is a queue pair
	w.net.Timing.LetGo = sim.Range{Min: 50e6, Max: 50e6}
	return w, a, b
}

// endTouched ends regions of a buffer of s until a thread touches that of the last one, which it returns.
func (s *opSide) endTouched() (r *region) {
	for ks := s.e.keys; !s.w.net.Device(hostAddr(0)).Touches(); {
		reg := s.must(&ipc.Register{Sock: s.sock, Buffer: s.buf, Len: 64, Access: abi.RightRead}).(*ipc.RegisterOK)
		r = ks.by[reg.Region]
		ks.releaseRegion(r)
	}
	return r
}

// waitsUntouched asks f for something that is to wait for threads. It returns how often it did, of 16 times.
func (w *world) waitsUntouched(f func(done func(error))) int {
	w.t.Helper()
	waited := 0
	for range 16 {
		done, from := false, w.net.Now()
		f(func(error) { done = true })
		for !done && w.net.Now() < from+200e6 {
			if w.turnAll(); !w.net.Step() {
				w.net.At(w.net.Now()+1e6, func() {})
			}
		}
		if !done {
			w.t.Fatal("never told")
		}
		if w.net.Now() >= from+50e6 {
			waited++
		}
	}
	return waited
}

// TestReleaseUntouched: Release is answered when no thread touches the memory, also if the region's one use has ended it.
func TestReleaseUntouched(t *testing.T) {
	w, a, b := touching(t)
	ks := w.es[0].keys
	for name, use := range map[string]bool{"unused": false, "used": true} {
		waited := w.waitsUntouched(func(done func(error)) {
			reg := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 64, Access: abi.RightRead | abi.UseOnce}).(*ipc.RegisterOK)
			r := ks.by[reg.Region]
			want := error(nil)
			if use {
				r.ended, want = true, unix.EINVAL
				ks.releaseRegion(r)
			}
			if ks.by[reg.Region] == nil {
				done(nil)
				return
			}
			regions := a.cl.acct.regions
			if err := ks.release(r, func(err error) {
				if !errors.Is(err, want) || a.cl.acct.regions != regions-1 {
					t.Errorf("%s: %v, %d regions of %d", name, err, a.cl.acct.regions, regions)
				}
				done(err)
			}); err != nil {
				t.Fatal(err)
			}
		})
		if waited == 0 || waited == 16 {
			t.Errorf("%s: %d of 16 waited for a thread", name, waited)
		}
	}
	w.clean2(a, b)
}

// TestFreeUntouched: a buffer's memory is given back when no thread touches it.
func TestFreeUntouched(t *testing.T) {
	w, a, b := touching(t)
	waited := w.waitsUntouched(func(done func(error)) {
		buf := a.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
		mem := a.cl.buffers[buf]
		free := mem.onFree
		mem.onFree = func() { free(); done(nil) }
		w.es[0].keys.freeBuffer(mem, nil)
	})
	if waited == 0 || waited == 16 {
		t.Errorf("%d of 16 waited for a thread", waited)
	}
	w.clean2(a, b)
}

// TestEndUntouched: the memory that a process shares is given back when no thread touches it.
func TestEndUntouched(t *testing.T) {
	w, a, b := touching(t)
	port := uint16(100)
	waited := w.waitsUntouched(func(done func(error)) {
		r := w.attach(0, smallParams())
		port++
		r.bind(port)
		free := r.cl.onFree
		r.cl.onFree = func() { free(); done(nil) }
		r.at.Close()
	})
	if waited == 0 || waited == 16 {
		t.Errorf("%d of 16 waited for a thread", waited)
	}
	w.clean2(a, b)
}

// TestHaltUntouched: an engine stands still when no thread touches memory, also without a queue pair to wait for.
func TestHaltUntouched(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a := w.opSide(0, 10)
	w.run()
	w.net.Timing.LetGo = sim.Range{Min: 50e6, Max: 50e6}
	e, dev := w.es[0], w.net.Device(hostAddr(0))
	a.endTouched()
	e.Halt()
	for n := 0; !e.Halted(); n++ {
		if w.turnAll(); n > 10 { // time stands still in more turns than a pause takes
			w.net.Step()
		}
	}
	if dev.Touches() {
		t.Error("it stands, and a thread touches memory")
	}
	e.Resume()
	w.run()
	w.clean(a.raw)
}

// TestReleasingEmpties: a queue pair that has failed is destroyed when no thread has something of it.
func TestReleasingEmpties(t *testing.T) {
	w, a, b := touching(t)
	e, dev := w.es[0], w.net.Device(hostAddr(0))
	a.endTouched()
	p := e.peers.all[0]
	p.c.Reset(e.now, unix.ECONNRESET)
	for p.c.State() == conn.Error {
		if w.turnAll(); !w.net.Step() {
			w.net.At(w.net.Now()+1e6, func() {})
		}
	}
	if dev.Touches() {
		t.Error("it is destroyed, and a thread has something of it")
	}
	w.run()
	w.clean2(a, b)
}

// TestRetiredOnce: a region that has ended already does not keep the chore that ends such regions.
func TestRetiredOnce(t *testing.T) {
	w, a, b := touching(t)
	e := w.es[0]
	r := a.endTouched()
	e.keys.retiring.Add(&r.inDead, r)
	e.chores.Begin(&e.keys.retiring.Chore)
	for range 10 {
		w.turnAll()
	}
	if n := e.keys.retiring.N; n != 0 || e.chores.Open() != 0 {
		t.Errorf("%d regions are to end for ever, %d chores open", n, e.chores.Open())
	}
	e.keys.retiring.Del(&r.inDead)
	w.run()
	w.clean2(a, b)
}

// TestRestartedReleasing: a new instance of a peer is not believed while a thread may still place what the old one has sent.
func TestRestartedReleasing(t *testing.T) {
	w, a, b := touching(t)
	e := w.es[0]
	a.endTouched()
	p := e.peers.all[0]
	other := e.peers.newPeer(p.remote, lanePath(1))
	if e.peers.restarted(other) || p.c.State() != conn.Error || e.st.C[stats.PeerRestarts] != 0 {
		t.Errorf("the connection is %v, %d restarts", p.c.State(), e.st.C[stats.PeerRestarts])
	}
	for p.c.State() == conn.Error {
		if w.turnAll(); !w.net.Step() {
			w.net.At(w.net.Now()+1e6, func() {})
		}
	}
	if !e.peers.restarted(other) || e.st.C[stats.PeerRestarts] != 1 {
		t.Error("it is not believed afterwards")
	}
	w.run()
	w.clean2(a, b)
}
