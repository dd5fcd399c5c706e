package rds

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// atomicPair is two sockets, local memory, and a region of eight words.
func atomicPair(t testing.TB) (d *fakeDaemon, a, b *Socket, local *Buffer, word func(i int) *uint64, r *Region) {
	d, a, b = pair(t, noSpin)
	local = mustAlloc(t, a.c, 4096)
	remote := mustAlloc(t, b.c, 64)
	r, err := b.Register(remote, 0, 64, AllowAtomic)
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, 8)
	return d, a, b, local, func(i int) *uint64 {
		words[i] = binary.NativeEndian.Uint64(remote.Bytes()[8*i:])
		return &words[i]
	}, r
}

// TestAtomicForms: each form does what it says to the word, and returns the
// value before.
func TestAtomicForms(t *testing.T) {
	_, a, b, _, word, r := atomicPair(t)
	const all = ^uint64(0)
	for i, tt := range []struct {
		op        Atomic
		old, want uint64
	}{
		{Atomic{Add: 41}, 0, 41},
		{Atomic{Add: all}, 41, 40},
		{Atomic{Add: 0xff, NoCarry: 0x80}, 40, 39}, // the low byte wraps
		{Atomic{CmpSwap: true, Compare: 39, Swap: 1 << 40}, 39, 1 << 40},
		{Atomic{CmpSwap: true, Compare: 39, Swap: 7}, 1 << 40, 1 << 40},
		{Atomic{CmpSwap: true, Masked: true, Compare: 0xab00, CompareMask: 0xff, Swap: all, SwapMask: 0xf}, 1 << 40, 1<<40 | 0xf},
		{Atomic{CmpSwap: true, Masked: true, Swap: 5, SwapMask: all}, 1<<40 | 0xf, 5}, // compares nothing
		{Atomic{CmpSwap: true, Masked: true}, 5, 5},                                   // only reads
	} {
		tt.op.Cookie, tt.op.RemoteOff = r.Cookie(), 16
		old, err := a.Atomic(bg(), b.LocalAddrPort(), &tt.op)
		if err != nil || old != tt.old || *word(2) != tt.want {
			t.Errorf("%d: %+v: %v, old %#x want %#x, now %#x want %#x", i, tt.op, err, old, tt.old, *word(2), tt.want)
		}
	}
	if *word(1) != 0 || *word(3) != 0 {
		t.Error("a neighbour changed")
	}
}

// TestTwoOperations: a message with a write and an atomic runs both, tells of
// both and is delivered.
func TestTwoOperations(t *testing.T) {
	_, a, b, local, _, _ := atomicPair(t)
	remote := mustAlloc(t, b.c, 4096)
	r, err := b.Register(remote, 0, 4096, AllowRead|AllowWrite|AllowAtomic)
	if err != nil {
		t.Fatal(err)
	}
	to := b.LocalAddrPort()
	copy(local.Bytes()[16:], "datamore")
	binary.NativeEndian.PutUint64(remote.Bytes()[8:], 100)
	for _, segs := range [][]Segment{{{local, 16, 4}}, {{local, 16, 4}, {local, 20, 4}}, make([]Segment, 9)} {
		n := 0
		for i := range segs {
			if segs[i].Buf == nil {
				segs[i] = Segment{local, 16, 4}
			}
			n += segs[i].Len
		}
		m := Message{Payload: []byte("both"), Addr: to,
			Op:     &RDMA{Write: true, Cookie: r.Cookie(), RemoteOff: 512, Local: segs, Token: 1, Notify: true},
			Atomic: &Atomic{Cookie: r.Cookie(), RemoteOff: 8, Local: Segment{local, 8, 8}, Add: 1, Token: 2, Notify: true}}
		before := binary.NativeEndian.Uint64(remote.Bytes()[8:])
		id, err := a.Send(context.Background(), &m)
		if err != nil || m.OpID == 0 || m.AtomicID != m.OpID+1 || id != m.AtomicID {
			t.Fatal(id, m.OpID, m.AtomicID, err)
		}
		mustRecv(t, b, "both")
		if _, err := a.Barrier(bg(), to.Addr(), id); err != nil {
			t.Fatal(err)
		}
		for want, op := range map[uint64]uint64{1: m.OpID, 2: m.AtomicID} {
			if c, err := a.WaitOp(bg(), to.Addr(), op); err != nil || c.Token != want || c.Err() != nil {
				t.Errorf("%+v, %v", c, err)
			}
		}
		if old := binary.NativeEndian.Uint64(local.Bytes()[8:]); old != before {
			t.Errorf("old value %d, want %d", old, before)
		}
		if now := binary.NativeEndian.Uint64(remote.Bytes()[8:]); now != before+1 {
			t.Errorf("value %d, want %d", now, before+1)
		}
		if got := string(remote.Bytes()[512 : 512+n]); n > 4 && got[:4] != "data" {
			t.Errorf("wrote %q", got)
		}
	}
}

func TestBadAtomics(t *testing.T) {
	d, a, b, local, _, r := atomicPair(t)
	good := Atomic{Cookie: r.Cookie(), Local: Segment{local, 8, 8}}
	for name, tt := range map[string]struct {
		change func(*Atomic)
		want   error
	}{
		"cookie":          {func(a *Atomic) { a.Cookie = 0 }, syscall.EINVAL},
		"no memory":       {func(a *Atomic) { a.Local = Segment{} }, syscall.EINVAL},
		"unaligned":       {func(a *Atomic) { a.Local.Off = 4 }, syscall.EFAULT},
		"length":          {func(a *Atomic) { a.Local.Len = 16 }, syscall.EFAULT},
		"beyond":          {func(a *Atomic) { a.Local.Off = 4096 }, syscall.EINVAL},
		"masked add":      {func(a *Atomic) { a.Masked = true }, syscall.EINVAL},
		"mask not in use": {func(a *Atomic) { a.CmpSwap, a.SwapMask = true, 1 }, syscall.EINVAL},
	} {
		op := good
		tt.change(&op)
		_, err := a.Send(context.Background(), &Message{Addr: b.LocalAddrPort(), Atomic: &op})
		if !errors.Is(err, ErrInvalid) || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Send(context.Background(), &Message{Addr: b.LocalAddrPort(), Atomic: &good, Cookie: r.Cookie()}); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a cookie: %v", err)
	}
	if hwm := a.HWM(b.LocalAddrPort().Addr()); hwm != 0 {
		t.Errorf("mark %d after nothing", hwm)
	}
	// What the daemon decides.
	plain, err := b.Register(mustAlloc(t, b.c, 64), 0, 64, AllowRead|AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	to := b.LocalAddrPort()
	if _, err := a.Atomic(bg(), to, &Atomic{Cookie: plain.Cookie(), Add: 1}); !errors.Is(err, RemoteError) || !errors.Is(err, syscall.EACCES) {
		t.Errorf("without the right: %v", err)
	}
	if _, err := a.Atomic(bg(), to, &Atomic{CmpSwap: true, Cookie: r.Cookie(), RemoteOff: 4, Swap: 1}); !errors.Is(err, RemoteError) || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("unaligned at the target: %v", err)
	}
	var op *opError
	if _, err := a.Atomic(bg(), to, &Atomic{Cookie: 99, Add: 1}); !errors.As(err, &op) || op.Op != "atomic" || op.Addr != to {
		t.Errorf("%v", err)
	}
	if n := a.Completions(make([]Completion, 9)); n != 0 {
		t.Errorf("%d completions of synchronous calls", n)
	}
	d.do(func() {})
}

// TestSync: the calls return when the operation is locally complete and
// settled, and deliver no message.
func TestSync(t *testing.T) {
	_, a, b, local, remote, r := rdmaPair(t, noSpin)
	to := b.LocalAddrPort()
	copy(local.Bytes(), "there")
	op := RDMA{Cookie: r.Cookie(), RemoteOff: 64, Local: []Segment{{local, 0, 5}}}
	if err := a.RDMAWrite(bg(), to, &op); err != nil || string(remote.Bytes()[64:69]) != "there" {
		t.Fatal(err)
	}
	copy(remote.Bytes()[64:], "again")
	if err := a.RDMARead(bg(), to, &op); err != nil || string(local.Bytes()[:5]) != "again" {
		t.Fatal(err)
	}
	if op.Write || op.Notify || op.Silent {
		t.Errorf("the caller's operation changed: %+v", op)
	}
	if hwm := a.HWM(to.Addr()); hwm != 2 {
		t.Errorf("mark %d after two operations", hwm)
	}
	op.Local = nil
	if err := a.RDMAWrite(bg(), to, &op); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, _, err := tryRecv(b, nil); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("a synchronous call sent a message: %v", err)
	}
	if n := a.Completions(make([]Completion, 9)); n != 0 {
		t.Errorf("%d completions", n)
	}
}

// TestSyncContext: a call that is given up leaves an operation that nobody is
// told of, and its memory comes back when it is locally complete.
func TestSyncContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, _, word, r := atomicPair(t)
		to := b.LocalAddrPort()
		d.do(func() { d.holdOps = true })
		for range 3 {
			_, err := a.Atomic(timeout(t, time.Second), to, &Atomic{Cookie: r.Cookie(), Add: 1})
			var op *opError
			if !errors.As(err, &op) || !op.Timeout() {
				t.Fatal(err)
			}
		}
		d.do(func() {
			for _, m := range d.held {
				if m.sub.GiveUp != 1000 {
					t.Errorf("a limit of %d ms for a deadline in a second", m.sub.GiveUp)
				}
			}
		})
		w := &a.c.words
		if len(w.lent) != 3 || len(w.free) != wordsAtOnce-3 {
			t.Fatalf("%d words lent, %d free", len(w.lent), len(w.free))
		}
		d.do(func() {
			d.holdOps = false
			d.release(func(*fakeMsg) bool { return true }, d.finish)
		})
		old, err := a.Atomic(bg(), to, &Atomic{Cookie: r.Cookie(), Add: 1})
		if err != nil || old != 3 || *word(0) != 4 {
			t.Fatal(old, *word(0), err)
		}
		if len(w.lent) != 0 || len(w.free) != wordsAtOnce {
			t.Errorf("%d words lent, %d free", len(w.lent), len(w.free))
		}
		if n := a.Completions(make([]Completion, 9)); n != 0 {
			t.Errorf("%d completions nobody asked for", n)
		}
		// What gives up at the deadline is the context's error as well.
		d.do(func() { d.holdOps = true })
		ended := make(chan error)
		go func() {
			_, err := a.Atomic(timeout(t, time.Second), to, &Atomic{Cookie: r.Cookie(), Add: 1})
			ended <- err
		}()
		time.Sleep(time.Second) // and the call has not run since
		d.do(d.giveUp)
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		d.do(func() { d.holdOps = false })
		// A send that has to wait is bounded as well.
		if err := a.SetSndBuf(1); err != nil {
			t.Fatal(err)
		}
		d.do(func() { d.holdSends = true })
		mustSend(t, a, "x", b)
		if _, err := a.Atomic(timeout(t, time.Second), to, &Atomic{Cookie: r.Cookie(), Add: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
