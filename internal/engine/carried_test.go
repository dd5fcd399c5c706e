package engine

import (
	"encoding/binary"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestAimAtomic: the target's daemon checks what the initiator's should have checked, and does
// not take a key that serves another region by now for the one that was granted.
func TestAimAtomic(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(64, 64, abi.RightRead|abi.RightAtomic, a)
	readable := b.expose(128, 64, abi.RightRead, a)
	once := b.expose(256, 64, abi.RightAtomic|abi.UseOnce, a)
	own := b.must(&ipc.Register{Sock: b.sock, Buffer: b.buf, Off: 192, Len: 64, Access: abi.RightAtomic}).(*ipc.RegisterOK)
	a.submit(shm.Sub{Len: 1})
	w.run()
	host := hostOf(b.e.peers.all[0])
	req := func(r *ipc.RegisterOK, off uint64) wire.Atomic {
		return wire.Atomic{RKey: uint32(r.Cookie), Region: b.e.keys.by[uint32(r.Cookie)].number, Addr: r.Cookie>>32 + off,
			Kind: wire.AtomicFetchAdd, CompareAdd: 1}
	}
	aim := func(name string, q wire.Atomic, dport uint16, want wire.AtomicStatus) {
		t.Helper()
		st := host.AimAtomic(nil, &wire.Header{DPort: dport}, &q)
		if st != want {
			t.Errorf("%s: %d, want %d", name, st, want)
		}
		if st == wire.AtomicDone {
			host.RunAtomic(nil, &q, false)
		}
	}
	another, far, odd := req(r, 0), req(r, 57), req(r, 4)
	another.Region++
	below := req(r, 0)
	below.Addr -= 8
	aim("right", req(r, 56), b.port, wire.AtomicDone)
	aim("for one use", req(once, 0), b.port, wire.AtomicDone)
	aim("another region of this key", another, b.port, wire.AtomicAccess)
	aim("no such key", wire.Atomic{RKey: 1, Region: 1}, b.port, wire.AtomicAccess)
	aim("beyond the end", far, b.port, wire.AtomicAccess)
	aim("below the region", below, b.port, wire.AtomicAccess)
	aim("unaligned", odd, b.port, wire.AtomicAlign)
	aim("without the right", req(readable, 0), b.port, wire.AtomicAccess)
	aim("not granted", req(own, 0), b.port, wire.AtomicAccess)
	aim("no memory and no socket", another, 9, wire.AtomicNobody)
	if w := binary.NativeEndian.Uint64(b.mem[64+56:]); w != 0 {
		t.Errorf("an atomic that was not to run left %d", w)
	}
	released := req(r, 0)
	if err := b.release(r.Region); err != nil {
		t.Fatal(err)
	}
	aim("released", released, b.port, wire.AtomicAccess)
}

// TestCarriedAcrossBreak: an atomic whose connection breaks has run once when the peer is back,
// however long that takes, and its word is the caller's only then.
func TestCarriedAcrossBreak(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightAtomic, a)
	a.submit(shm.Sub{Len: 1})
	w.run()
	binary.NativeEndian.PutUint64(b.mem[8:], 40)
	op := a.args(a.op(abi.OpFetchAdd, r.Cookie, 8), shm.AtomicEntry{CompareAdd: 2})
	turn := func() {
		w.turnAll()
		w.net.Step()
	}
	const rounds = 20
	for i := range rounds {
		a.submit(shm.Sub{Len: 2}, op)
		for range i { // later in each round
			turn()
		}
		ResetPeers(a.e, b.e.addrs.all[0].addr, nil, nil)
		if i%2 == 1 {
			turn()
			ResetPeers(b.e, a.e.addrs.all[0].addr, nil, nil)
		}
		w.run()
		w.run()
		if got := binary.NativeEndian.Uint64(b.mem[8:]); got != 40+2*uint64(i+1) {
			t.Fatalf("round %d: the word is %d", i, got)
		}
		if old := binary.NativeEndian.Uint64(a.mem); old != 40+2*uint64(i) {
			t.Fatalf("round %d: the old value is %d", i, old)
		}
		if a.hwm() != uint64(i+1) {
			t.Fatalf("round %d: HWM %d", i, a.hwm())
		}
	}
	for i, st := range a.statuses() {
		if st != int(abi.StatusSuccess) {
			t.Errorf("operation %d: status %d", i+1, st)
		}
	}
	w.clean2(a, b)
}
