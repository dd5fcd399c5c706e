package ibv

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestChoice checks that daemons with transport auto find each other by soft-RoCE. When one
// restarts with soft alone, the other falls back and reports that, whichever side connects.
func TestChoice(t *testing.T) {
	long(t)
	l := lab.Boot(t, lab.Config{Hosts: 2})
	l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.Build(t, "cmd/rdsctl"))
	l.Each(t, time.Minute, `
		lab_load rdma_rxe rdma_ucm ib_uverbs
		rdma link add rxe0 type rxe netdev eth0`)
	const long = 90 * time.Second
	start := func(h *lab.Host, transport string) *lab.Job {
		j := h.Start(t, "exec rdsd -socket /run/s -transport "+transport+" -listen $ME,127.0.0.1 -peers-allow 10.9.0.0/24 -tls-mode off")
		h.Run(t, long, "lab_wait 60 rdsctl -socket /run/s status")
		return j
	}
	goes := func(h *lab.Host, by, why string) {
		t.Helper()
		h.Run(t, long, "rdsctl -socket /run/s ping -timeout 20s -c 2 $PEER")
		var r struct {
			Peers []struct{ Transport, Why string }
		}
		out := h.Run(t, long, "rdsctl -socket /run/s peers -o json-v2")
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Peers) != 1 || r.Peers[0].Transport != by || !strings.Contains(r.Peers[0].Why, why) {
			t.Errorf("%v, want %s (%s): %s", err, by, why, out)
		} else {
			t.Logf("%s: by %s, %s", h.Name(), by, r.Peers[0].Why)
		}
	}
	a, b := start(l.A, "auto"), start(l.B, "auto")
	out := l.A.Run(t, long, "rdsctl -socket /run/s devices")
	t.Logf("\n%s", out)
	for _, want := range []string{"rxe0", "ACTIVE", "10.9.0.1", "verbs,soft", "no RDMA device belongs to lo"} {
		if !strings.Contains(out, want) {
			t.Errorf("devices: no %q", want)
		}
	}
	if strings.Contains(out, "warning: ") {
		t.Error("sysfs, netlink and rdmamap do not agree")
	}
	goes(l.A, "rxe0", "transport = auto")
	for _, begins := range []*lab.Host{l.A, l.B} {
		l.B.Run(t, long, "pkill -x rdsd")
		if r := b.Wait(long); r.Err() != nil {
			t.Error(r.Err())
		}
		l.A.Run(t, long, "pkill -x rdsd")
		if r := a.Wait(long); r.Err() != nil {
			t.Error(r.Err())
		}
		a, b = start(l.A, "auto"), start(l.B, "soft")
		why := "not verbs: "
		if begins == l.B {
			l.B.Run(t, long, "rdsctl -socket /run/s ping -timeout 20s -c 2 $PEER")
			why = "not verbs: the peer came by soft"
		}
		goes(l.A, "soft", why)
		if begins == l.A && !strings.Contains(a.Out(), "falls back to soft") {
			t.Errorf("no warning: %s", a.Out())
		}
	}
}
