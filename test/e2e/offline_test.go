package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
)

// TestOfflineLists compares rdsctl's lists with -offline with the daemon's answers. A stopped
// daemon answers nothing, but what it last published can be read. The same is true for a daemon
// that was killed.
func TestOfflineLists(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		h, o := hosts[0], hosts[1]
		a, b := h.bind(h.open(), 4000), o.bind(o.open(), 5000)
		h.bind(h.open(), 4001)
		for range 3 { // nobody reads the datagram that comes back
			if _, err := a.SendTo(make([]byte, 1000), o.at(5000)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.SendTo(make([]byte, 3000), h.at(4000)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "all is delivered", func() error { // so that there is a connection to reset
			if p := h.peer(o); p == nil {
				return errors.New("no connection")
			} else if p.State != "up" || p.QueuedMessages+p.UnackedMessages > 0 {
				return fmt.Errorf("%+v", *p)
			}
			return nil
		})
		if err := h.reset(o); err != nil {
			t.Fatal(err)
		}
		if _, err := a.SendTo(make([]byte, 10), o.at(5000)); err != nil {
			t.Fatal(err)
		}

		var socks, peers ctl.Response
		eventually(t, "the lists say what the daemon says", func() error {
			socks, peers = h.rdsctlJSON("sockets"), h.rdsctlJSON("peers")
			s, p := h.rdsctlJSON("sockets", "-offline"), h.rdsctlJSON("peers", "-offline")
			for i := range peers.Peers {
				peers.Peers[i].Why, peers.Peers[i].Limitable = "", "" // not in the statistics mapping
			}
			switch {
			case !s.Offline || !p.Offline || s.AsOf.IsZero() || s.Unlisted+p.Unlisted > 0:
				return fmt.Errorf("%+v, %+v", s, p)
			case len(socks.Sockets) != 2 || socks.Sockets[0].RecvBytes != 9000 || !reflect.DeepEqual(s.Sockets, socks.Sockets):
				return fmt.Errorf("sockets\n%+v offline, the daemon says\n%+v", s.Sockets, socks.Sockets)
			case len(peers.Peers) != 1 || peers.Peers[0].Resets != 1 || peers.Peers[0].UnackedMessages > 0 || !reflect.DeepEqual(p.Peers, peers.Peers):
				return fmt.Errorf("peers\n%+v offline, the daemon says\n%+v", p.Peers, peers.Peers)
			}
			return nil
		})

		same := func(what string, code int) {
			t.Helper()
			for kind, want := range map[string]any{"sockets": socks.Sockets, "peers": peers.Peers} {
				p := startProcess(t, nil, program("rdsctl"), kind, "-offline", "-socket", h.sock, "-o", "json-v2")
				var r ctl.Response
				if got := p.wait(); got != code {
					t.Errorf("%s, %s: status %d, %s", what, kind, got, p.log())
				}
				if err := json.Unmarshal([]byte(p.stdout()), &r); err != nil {
					t.Fatal(err)
				}
				var got any = r.Sockets
				if kind == "peers" {
					got = r.Peers
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s %+v, want %+v", what, kind, got, want)
				}
			}
		}
		h.pause()
		p := startProcess(t, nil, program("rdsctl"), "peers", "-socket", h.sock, "-timeout", "100ms")
		if code := p.wait(); code != 6 {
			t.Errorf("stopped, and asked: status %d, %s", code, p.log())
		}
		same("stopped", 0)
		h.Resume()

		h.Kill()
		same("killed", 3)
		h.start()
		if s := h.rdsctlJSON("sockets", "-offline"); len(s.Sockets) != 0 {
			t.Errorf("a new daemon has %+v", s.Sockets)
		}
	})
}
