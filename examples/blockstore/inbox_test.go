package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rdstest"
)

// TestInbox: a grant ends with the next one and when it is idle, but not while a WRITE of
// it is in hand.
func TestInbox(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	b := newInbox(c, d.Bind(t, c, 0), 4096, 3, time.Hour, slog.New(slog.DiscardHandler))
	defer b.close()
	granted := func(session uint64, want store.Status) uint32 {
		t.Helper()
		m, cookie, f := b.grant(t.Context(), session)
		wantStatus(t, "grant", f, want)
		if f == nil && (cookie == 0 || m.Window != 3 || m.BlockSize != 4096) {
			t.Errorf("granted %+v, cookie %#x", m, cookie)
		}
		return uint32(m.Block)
	}
	push := func(session uint64, number, buffer uint32, want store.Status) *request {
		t.Helper()
		r := &request{Message: store.Message{Session: session, Window: number<<16 | buffer, Length: 100}}
		wantStatus(t, "push", b.begin(r), want)
		return r
	}
	push(7, 0, 0, store.StatusGrantOver)
	first := granted(7, store.StatusOK)
	push(7, first, 3, store.StatusBad)
	push(8, first, 2, store.StatusGrantOver)
	r := push(7, first, 2, store.StatusOK)
	if len(r.pushed) != 100 || &r.pushed[0] != &b.mem[2*4096] {
		t.Error("the bytes of a push are elsewhere than pushed")
	}
	granted(8, store.StatusBusy)
	push(7, first, 1, store.StatusGrantOver) // the grant is over, and waits for its last WRITE
	b.end(r)
	b.end(r) // of no effect
	second := granted(8, store.StatusOK)
	push(7, first, 1, store.StatusGrantOver)
	push(8, first, 1, store.StatusGrantOver)
	r = push(8, second, 1, store.StatusOK)

	// The idle timer expires grants as well, beside this test.
	locked := func(do func()) {
		b.granting.Lock()
		defer b.granting.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		do()
	}
	locked(func() { b.keep = 0 })
	b.expire()
	locked(func() {
		if b.region == nil {
			t.Error("buffers were taken back while a WRITE is in hand")
		}
	})
	b.end(r)
	b.expire()
	locked(func() {
		if b.region != nil || b.buf != nil {
			t.Error("idle buffers were not taken back")
		}
	})
	push(8, second, 1, store.StatusGrantOver)
	locked(func() {
		if b.grace != 0 {
			t.Errorf("the next grant lasts at least %v, although this one was used", b.grace)
		}
	})

	// A grant that ends before a push arrives makes the next one last longer.
	granted(8, store.StatusOK)
	locked(func() { b.keep, b.used = time.Hour, time.Now().Add(-2*time.Hour) })
	b.expire()
	locked(func() {
		if b.region != nil || b.grace != mostGrace {
			t.Errorf("after a grant that was not used the next one lasts at least %v, want %v", b.grace, mostGrace)
		}
		b.keep = time.Nanosecond
	})
	number := granted(8, store.StatusOK)
	b.expire()
	push(8, number, 1, store.StatusOK)
}
