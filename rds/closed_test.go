package rds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestToldWhileClosing: what comes while a socket closes and waits can be read
// afterwards, and its high-water mark does not fall, whichever way it ends.
func TestToldWhileClosing(t *testing.T) {
	for name, last := range map[string]func(s *Socket){
		"socket": func(s *Socket) {},
		"client": func(s *Socket) { s.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b, local, _, r := rdmaPair(t, noSpin)
				to := b.LocalAddrPort()
				first := write(t, a, to, r, local, true)
				d.do(func() { d.holdOps = true })
				id := write(t, a, to, r, local, true)
				if _, err := a.Send(context.Background(), &Message{Payload: []byte("x"), Addr: stuckAt(1), ZeroCopy: true, ZeroCopyCookie: 5}); err != nil {
					t.Fatal(err)
				}
				closed := make(chan error, 1)
				go func() { closed <- a.CloseWait(bg()) }()
				synctest.Wait()
				if hwm := a.HWM(to.Addr()); hwm != first || len(closed) > 0 {
					t.Errorf("mark %d while closing, want %d", hwm, first)
				}
				d.do(func() {
					d.release(func(*fakeMsg) bool { return true }, func(m fakeMsg) {
						if m.ops == nil {
							d.notice(m.slot, shm.NoticeNoSocket, 1)
						}
						d.end(m, abi.StatusSuccess, 0)
					})
				})
				if err := <-closed; !errors.Is(err, NoSocket) || errors.Is(err, Dropped) {
					t.Fatal(err)
				}
				last(a)
				comps, notices, cookies := make([]Completion, 4), make([]Notice, 4), make([]uint32, 4)
				if n := a.Completions(comps); n != 2 || comps[1].ID != id || comps[1].Status != Success {
					t.Errorf("completions %+v", comps[:n])
				}
				if n := a.Notices(notices); n != 1 || notices[0].Kind != NoSocket {
					t.Errorf("notices %+v", notices[:n])
				}
				if n := a.ZeroCopyDone(cookies); n != 1 || cookies[0] != 5 {
					t.Errorf("cookies %v", cookies[:n])
				}
				if hwm := a.HWM(to.Addr()); hwm != id {
					t.Errorf("mark %d after the close, want %d", hwm, id)
				}
			})
		})
	}
}

// TestMarkAfterEnd: the high-water mark of a socket whose client was closed
// stays what it was.
func TestMarkAfterEnd(t *testing.T) {
	_, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	id := write(t, a, to, r, local, true)
	if _, err := a.Barrier(bg(), to.Addr(), id); err != nil {
		t.Fatal(err)
	}
	a.c.Close()
	if hwm := a.HWM(to.Addr()); hwm != id {
		t.Errorf("mark %d after the client's end, want %d", hwm, id)
	}
}

// TestMarkUnasked: the high-water mark of a closed socket is what it was, also if
// nobody had asked for it before.
func TestMarkUnasked(t *testing.T) {
	d, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	id := write(t, a, to, r, local, true)
	d.do(func() {})
	a.Close()
	if hwm := a.HWM(to.Addr()); hwm != id {
		t.Errorf("mark %d after the close, want %d", hwm, id)
	}
}
