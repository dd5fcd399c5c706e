package engine

import (
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/shm"
)

// downsAndUps takes how many PeerDown and PeerUp r is notified of.
func (r *raw) downsAndUps() (downs, ups uint64) {
	for _, ev := range r.events() {
		switch n := ev.Notice(); {
		case n.Kind != shm.EvNotice:
		case n.Notice == shm.NoticePeerDown:
			downs += n.Count
		case n.Notice == shm.NoticePeerUp:
			ups += n.Count
		}
	}
	return downs, ups
}

// A pause that breaks off a connection, or a handshake, is no PeerDown. If the connection had
// broken before, its destinations get the PeerUp that belongs to that when it is up again. Of a
// break that the pause finds in progress they get neither.
func TestHaltInHandshake(t *testing.T) {
	for name, at := range map[string]func(*conn.Conn) bool{
		"up":         (*conn.Conn).Ready,
		"handshake":  func(c *conn.Conn) bool { return c.State() == conn.Up && !c.Ready() },
		"connecting": func(c *conn.Conn) bool { return c.State() == conn.Connecting },
		"breaking":   func(c *conn.Conn) bool { return c.State() == conn.Error },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, Config{})
			r, srv := w.attach(0, smallParams()), w.attach(1, smallParams())
			srv.bind(10)
			s := r.bind(9)
			r.open(s, 0, 0, hostAddr(1), 10)
			r.sendMsg(s, 0, 0, 10)
			w.run()
			e := w.es[0]
			c := e.peers.all[0].c.to.(*byQP).Conn
			c.Reset(w.net.Now(), errAdmin)
			r.sendMsg(s, 0, 10, 10) // so there is a reason to connect
			for n := 0; !at(c); n++ {
				w.turnAll()
				if !w.net.Step() {
					w.net.At(w.net.Now()+1000, func() {})
				}
				if n > 100_000 {
					t.Fatalf("%v", c.State())
				}
			}
			w.still(0)
			if c.State() != conn.Down {
				t.Fatalf("%v", c.State())
			}
			e.Resume()
			w.wait(1_000_000_000)
			want := uint64(1)
			if name == "breaking" {
				want = 0
			}
			if downs, ups := r.downsAndUps(); downs != want || ups != want || !c.Ready() {
				t.Errorf("%d PeerDown and %d PeerUp, %v", downs, ups, c.State())
			}
		})
	}
}
