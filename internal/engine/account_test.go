package engine

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
)

// TestAccountsOfOneUser: processes of one user in two accounts have a quota and a share each. One
// account at its quota stops nobody in the other, and its processes of several users count together.
func TestAccountsOfOneUser(t *testing.T) {
	q := config.NoQuota()
	q[config.Sockets], q[config.RegisteredBytes] = 3, 2<<20
	limits := config.Quotas{User: q, Accounts: make([]config.CgroupRule, 1)}
	w := newWorld(t, 1, Config{Policy: &config.Policy{Quotas: limits, Owner: 500}, MaxPeers: 8})
	in := func(label string, uid uint32) *raw {
		r, err := w.attachAs(0, smallParams(), ipc.Cred{UID: uid, GID: uid, Label: label})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, also, b, alone := in("pod-a", 1000), in("pod-a", 1001), in("pod-b", 1000), in("", 1000)
	a.bind(10)
	a.bind(11)
	also.bind(12)
	for _, r := range []*raw{a, also} {
		_, err := r.call(&ipc.Bind{Addr: hostAddr(0), Port: 13})
		w.overQuota(err, config.Sockets)
		if err == nil || !strings.Contains(err.Error(), "account pod-a has 3") {
			t.Error(err)
		}
	}
	for port := range uint16(3) {
		b.bind(20 + port)
		alone.bind(30 + port)
	}
	a.must(&ipc.Alloc{Size: 2 << 20})
	_, err := also.call(&ipc.Alloc{Size: 4096})
	w.overQuota(err, config.RegisteredBytes)
	b.must(&ipc.Alloc{Size: 2 << 20})
	// The share: half of what is free, for each.
	as, bs := a.cl.socks[0].handle, b.cl.socks[0].handle
	for i := range uint32(6) {
		a.open(as, i, i, nobody(int(i)), 1000)
		b.open(bs, i, i, nobody(int(8+i)), 1000)
	}
	w.run()
	pods := w.es[0].users.accounts
	if n, m := pods[config.Account{Label: "pod-a"}].peers, pods[config.Account{Label: "pod-b"}].peers; n+m != 6 || n < 2 || m < 2 {
		t.Errorf("%d and %d peers of 8 were asked for", n, m)
	}
	if n := pods[config.UserAccount(1000)].sockets; n != 3 || len(pods) != 3 {
		t.Errorf("the user has %d sockets beside its pods, of %d accounts", n, len(pods))
	}
	a.at.Close()
	w.run()
	also.bind(10)
	also.bind(11)
	w.clean(also, b, alone)
}
