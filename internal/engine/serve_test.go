package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// TestRequestsBehindRing: a control request that ends something is handled
// behind the descriptors that were submitted before it and name it.
func TestRequestsBehindRing(t *testing.T) {
	t.Run("free", func(t *testing.T) {
		const big, many = 60 << 10, 6 // more than one turn takes from one client
		for _, hosts := range []int{2, 1} {
			w, a, b := opPair(t, hosts)
			w.run()
			for range many {
				a.submit(shm.Sub{Flags: shm.SubFromBuf, Buf: a.buf, Len: big})
			}
			asked := 0
			a.at.Run = func(f func()) { asked++; f() }
			_, err := a.call(&ipc.Free{Buffer: a.buf})
			if a.alive(true); hosts == 2 && !errors.Is(err, unix.EBUSY) || hosts == 1 && err != nil || asked < 2 {
				t.Errorf("%d hosts: Free of a buffer with messages: %v, in %d turns", hosts, err, asked)
			}
			w.run()
			if b.look(); len(b.msgs) != many {
				t.Errorf("%d hosts: %d messages", hosts, len(b.msgs))
			}
			if hosts == 2 {
				a.must(&ipc.Free{Buffer: a.buf})
			}
			w.clean2(a, b)
		}
	})
	t.Run("release", func(t *testing.T) {
		w, a, b := opPair(t, 2)
		w.run()
		r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 64, Access: abi.RightWrite}).(*ipc.RegisterOK)
		a.submit(shm.Sub{Cookie: r.Cookie})
		if err := a.release(r.Region); err != nil {
			t.Fatal(err)
		}
		w.run()
		if b.look(); len(b.msgs) != 1 || b.msgs[0].Cookie != r.Cookie || a.e.st.C[stats.GrantsSent] != 1 {
			t.Errorf("%d messages, %d grants sent before the release", len(b.msgs), a.e.st.C[stats.GrantsSent])
		}
		w.clean2(a, b)
	})
	t.Run("expose", func(t *testing.T) {
		const lane = 3
		w, a, b := opPair(t, 2)
		sock := a.bind(11)
		r := a.must(&ipc.Register{Sock: sock, Buffer: a.buf, Len: 64, Access: abi.RightWrite}).(*ipc.RegisterOK)
		a.put(func(e *shm.Entry) {
			*e.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: sock, Slot: 1, Cell: 1, Port: b.port, Lane: lane, Addr: hostAddr(1).As16(), Gen: 1}
		})
		a.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(1), Port: b.port})
		for _, p := range a.e.peers.all {
			if p.lane == lane && p.ctls != 1 || p.lane != lane && p.ctls != 0 {
				t.Errorf("%d grants for lane %d", p.ctls, p.lane)
			}
		}
		w.run()
		w.clean2(a, b)
	})
}
