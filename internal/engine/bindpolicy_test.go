package engine

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

func policyWorld(t *testing.T, def config.Verdict, rules ...config.Rule) *world {
	return newWorld(t, 1, Config{Policy: &config.Policy{
		Quotas: config.Quotas{User: config.NoQuota()}, Bind: config.Bind{Rules: rules, Default: def}, Owner: 500}})
}

func TestBindPolicy(t *testing.T) {
	w := policyWorld(t, config.Allow,
		config.Rule{Verdict: config.Allow, Who: config.UID(1000), Lo: 80, Hi: 80},
		config.Rule{Verdict: config.Deny, Lo: 2, Hi: 1023},
		config.Rule{Verdict: config.Deny, Who: config.GID(9), Hi: math.MaxUint16},
	)
	ninth, err := w.attachAs(0, smallParams(), ipc.Cred{UID: 1001, GID: 9})
	if err != nil {
		t.Fatal(err)
	}
	a, b, root, own := w.as(1000), w.as(1001), w.as(0), w.as(500)
	for _, tc := range []struct {
		who  *raw
		port uint16
		want string
	}{
		{a, 80, ""}, {a, 81, "rule 2 of bind.rules (deny port=2-1023) denies uid 1000"}, {b, 80, "rule 2"}, {b, 1024, ""},
		{ninth, 2000, "rule 3 of bind.rules (deny gid=9) denies uid 1001, gid 9"}, {ninth, 0, "rule 2"}, // what it says of the first port
		{root, 81, ""}, {own, 82, ""}, {b, 1, "invalid argument"},
	} {
		_, err := tc.who.call(&ipc.Bind{Addr: hostAddr(0), Port: tc.port})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("uid %d, port %d: %v, want %q", tc.who.cl.user.UID, tc.port, err, tc.want)
		}
		if strings.HasPrefix(tc.want, "rule") && !errors.Is(err, unix.EACCES) {
			t.Errorf("uid %d, port %d: %v, want EACCES", tc.who.cl.user.UID, tc.port, err)
		}
	}
	w.clean(ninth, a, b, root, own)
}

// TestEphemeralPolicy: a port the daemon chooses is one that the policy allows.
func TestEphemeralPolicy(t *testing.T) {
	w := policyWorld(t, config.Deny,
		config.Rule{Verdict: config.Deny, Lo: 4004, Hi: 4005},
		config.Rule{Verdict: config.Allow, Who: config.UID(1000), Lo: 4000, Hi: 4009},
		config.Rule{Verdict: config.Allow, Who: config.UID(1000), Lo: 9000, Hi: 9000})
	a, b := w.as(1000), w.as(1001)
	got := map[uint16]bool{}
	for range 9 {
		p := a.must(&ipc.Bind{Addr: hostAddr(0)}).(*ipc.BindOK).Port
		if got[p] || p != 9000 && (p < 4000 || p > 4009 || p == 4004 || p == 4005) {
			t.Errorf("port %d", p)
		}
		got[p] = true
	}
	if _, err := a.call(&ipc.Bind{Addr: hostAddr(0)}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("all taken: %v", err)
	}
	if _, err := b.call(&ipc.Bind{Addr: hostAddr(0)}); !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "no rule of bind.rules allows uid 1001") {
		t.Errorf("none allowed: %v", err)
	}
	w.clean(a, b)
}

func TestNextFree(t *testing.T) {
	var l localAddr
	s := &socket{}
	for p := range uint32(1 << 16) {
		l.ports.Set(uint16(p), s)
	}
	free := func(ports ...uint16) {
		for _, p := range ports {
			l.ports.Set(p, nil)
		}
	}
	rnd := func(n uint64) func() uint64 { return func() uint64 { return n } }
	if p := l.freePort(rnd(5), anyPort); p != 0 {
		t.Errorf("full: %d", p)
	}
	free(0, 1)
	if p := l.freePort(rnd(0), anyPort); p != 0 {
		t.Errorf("only 0 and 1 free: %d", p)
	}
	free(2, 700, 65535)
	for _, tc := range []struct {
		from uint64
		want uint16
	}{{0, 2}, {2, 2}, {3, 700}, {700, 700}, {701, 65535}, {65535, 65535}} {
		if p := l.freePort(rnd(tc.from), anyPort); p != tc.want {
			t.Errorf("from %d: %d, want %d", tc.from, p, tc.want)
		}
	}
	l.ports.Set(65535, s)
	if p := l.freePort(rnd(701), anyPort); p != 2 {
		t.Errorf("round the end: %d", p)
	}
}
