package engine

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// choosing is a device that chooses all keys itself, as an adapter does.
type choosing struct{ verbs.Device }

func (d choosing) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return struct{ verbs.PD }{pd}, err
}

// succeed has another engine take the place of engine i, which stands still. on returns the
// device of the next engine, made of one as before. sides are the clients.
func (w *world) succeed(i int, on func(verbs.Device) verbs.Device, c Config, sides ...*opSide) {
	w.t.Helper()
	heirs, state := w.follow(i, on, c, sides...)
	h := &handedOver{world: w, all: sides}
	if again := h.encode(w.es[i], heirs); !bytes.Equal(again, state) {
		w.t.Fatalf("read and written again it differs from byte %d on", differ(again, state))
	}
	w.es[i].Resume()
}

// follow is succeed with an engine that has not resumed, and whose state has not been compared.
func (w *world) follow(i int, on func(verbs.Device) verbs.Device, c Config, sides ...*opSide) (*InProcessHeirs, []byte) {
	w.t.Helper()
	h := &handedOver{world: w, all: sides}
	heirs, state := h.stateOf(w.es[i])
	for _, r := range w.es[i].devices.rails {
		_ = r.dev.Close()
	}
	e := w.bootOn(on(w.net.Device(hostAddr(i))), i, 99, c)
	if err := heirs.Adopt(e, state); err != nil {
		w.t.Fatal(err)
	}
	w.es[i] = e
	for _, s := range sides {
		s.e, s.cl = e, s.at.cl
	}
	return heirs, state
}

// TestHandoverOnAdapter: regions end if the device of the next engine chooses keys. Who was
// granted one is asked to give it back, so no operation breaks a connection off, and the key is
// nobody else's until then. All else goes on.
func TestHandoverOnAdapter(t *testing.T) {
	w := newWorld(t, 2, Config{})
	owner, user := w.opSide(0, 10), w.opSide(1, 20)
	here := w.opSide(0, 30)
	for _, s := range []*opSide{user, here} {
		s.open(s.sock, 0, 0, hostAddr(0), owner.port)
	}
	ours := owner.expose(0, 64, abi.RightWrite, user)
	local := owner.expose(64, 64, abi.RightWrite, here)
	theirs := user.expose(0, 64, abi.RightWrite, owner)
	owner.open(owner.sock, 0, 0, hostAddr(1), user.port)
	w.run()
	downs := w.es[1].peers.all[0].downs
	w.still(0)
	w.succeed(0, func(d verbs.Device) verbs.Device { return choosing{d} }, Config{}, owner, here)
	w.run()
	user.submit(shm.Sub{Len: 5}, user.op(abi.OpWrite, ours.Cookie, 8))
	here.submit(shm.Sub{}, here.op(abi.OpWrite, local.Cookie, 8))
	owner.submit(shm.Sub{Len: 5}, owner.op(abi.OpWrite, theirs.Cookie, 8))
	w.run()
	for _, c := range []struct {
		s    *opSide
		want abi.Status
	}{{user, abi.StatusRemoteError}, {here, abi.StatusRemoteError}, {owner, abi.StatusSuccess}} {
		if st := c.s.statuses(); len(st) != 1 || st[0] != int(c.want) {
			t.Errorf("port %d: statuses %v, want %v", c.s.port, st, c.want)
		}
	}
	if now := w.es[1].peers.all[0].downs; now != downs+1 {
		t.Errorf("the peer lost the connection %d times", now-downs)
	}
	for _, r := range []uint32{ours.Region, local.Region} {
		if err := owner.release(r); !errors.Is(err, unix.EINVAL) {
			t.Errorf("release: %v", err)
		}
	}
	if n := w.es[1].peers.all[0].grants.Len(); n != 0 {
		t.Errorf("the peer has %d grants", n)
	}
	again := owner.expose(0, 64, abi.RightWrite, user)
	w.run()
	user.submit(shm.Sub{Len: 5}, user.op(abi.OpWrite, again.Cookie, 8))
	w.run()
	if st := user.statuses(); st[1] != int(abi.StatusSuccess) {
		t.Errorf("an operation on a region of the new device ends with %v", st)
	}
}

// TestKeptKeys: on a host with an adapter and TCP, a region keeps its key if its address is on
// TCP alone. No other region gets the key of one that is lost.
func TestKeptKeys(t *testing.T) {
	cfg := Config{Instance: 1, Rand: func() uint64 { return 7 }, Alloc: func(n int) []byte { return make([]byte, n) }, StartSeq: func() uint64 { return 1 },
		RecvBufs: 256, CQE: 4096}
	block, err := stats.NewBlock(make([]uint64, stats.Size/8), stats.Info{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(choosing{softDevice(t)}, cfg, block)
	if err == nil {
		err = e.AddRail(softDevice(t), 256, 4096)
	}
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, 4096)
	var some verbs.Listener = nothing{}
	for _, c := range []struct {
		on   [2]verbs.Listener
		kept bool
	}{{[2]verbs.Listener{nil, some}, true}, {[2]verbs.Listener{some, some}, false}, {[2]verbs.Listener{some, nil}, false}} {
		mr, err := e.keys.regMRKey("", &localAddr{listeners: c.on}, mem, 0, verbs.AccessLocalWrite, 0x12345678)
		if kept := err == nil; kept != c.kept || kept && mr.RKey() != 0x12345678 || !kept && !errors.Is(err, errChooses) {
			t.Errorf("on %v: %v", c.on, err)
		}
		if mr != nil {
			_ = mr.Dereg()
		}
	}
	first, err := e.devices.regMR("", mem, 0, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	e.keys.by[first.RKey()] = &region{}
	if _, err := e.devices.onAll(first, mem, 0, 0); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a key that is in use: %v", err)
	}
}

type nothing struct{ verbs.Listener }
