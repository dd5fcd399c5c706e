package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// TestSilentPeer stops a daemon with SIGSTOP. Its TCP connections stay, so only the time limit
// shows that it is silent. Its peer must get PeerDown, the mark must pass what was posted, and
// the messages must arrive when the daemon goes on.
func TestSilentPeer(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2, withArgs("-peers-silence", "1s"))
		here, there := hosts[0], hosts[1]
		ch, ct := here.open(), there.open()
		sock, peer := here.bind(ch, 6000), there.bind(ct, 6000)
		mem := newTarget(t, ct, peer, 4096, rds.AllowRead).expose(t, sock.LocalAddrPort())
		granted(t, peer, sock)
		local, err := ch.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		read := func() *rds.RDMA {
			return &rds.RDMA{Cookie: mem.reg.Cookie(), Local: []rds.Segment{{Buf: local, Len: 4096}}, Notify: true}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sock.RDMARead(ctx, peer.LocalAddrPort(), read()); err != nil {
			t.Fatal(err)
		}

		there.pause()
		defer there.Resume()
		id, err := sock.Send(context.Background(), &rds.Message{Addr: peer.LocalAddrPort(), Payload: []byte("late"), Op: read()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sock.Barrier(ctx, there.addr(), id); err != nil {
			t.Errorf("the mark: %v", err)
		}
		if _, err := sock.Wait(ctx, rds.WaitSet{Notice: true}); err != nil {
			t.Errorf("the notice: %v", err)
		}
		var n [4]rds.Notice
		if k := sock.Notices(n[:]); k != 1 || n[0].Kind != rds.PeerDown {
			t.Errorf("notices %+v", n[:k])
		}

		there.Resume()
		c, err := sock.WaitOp(ctx, there.addr(), id)
		if err != nil || c.Status != rds.Dropped && c.Status != rds.Success {
			t.Errorf("%v %v, want DROPPED or SUCCESS", c.Status, err)
		}
		if err := sock.RDMARead(ctx, peer.LocalAddrPort(), read()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
