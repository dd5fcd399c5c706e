package config

import (
	"net/netip"
	"strings"
	"testing"
)

func policy(t *testing.T, doc string, owner uint32) *Policy {
	t.Helper()
	c := Default()
	if err := c.parse("f", []byte(doc), Origins{}); err != nil {
		t.Fatal(err)
	}
	return c.Policy(owner, nil)
}

func TestQuotaFor(t *testing.T) {
	p := policy(t, `
[quota]
sockets = 10
operations = 20
overrides = ["gid=100 sockets=11 operations=21", "gid=100 sockets=99", "uid=1 sockets=12", "uid=500 destinations=3", "uid=0 sockets=1", "gid=0 operations=1", "account=batch sockets=13"]
accounts = ["/batch.slice batch"]`, 500)
	for _, tc := range []struct {
		uid, gid uint32
		label    string
		want     [3]uint64 // sockets, operations, destinations
	}{
		{2, 2, "", [3]uint64{10, 20, 1 << 17}},
		{2, 100, "", [3]uint64{11, 21, 1 << 17}}, // the first override for the group
		{1, 2, "", [3]uint64{12, 20, 1 << 17}},
		{1, 100, "", [3]uint64{12, 21, 1 << 17}}, // what the user's does not name is the group's
		{500, 100, "", [3]uint64{Unlimited, Unlimited, 3}},
		{0, 0, "", [3]uint64{1, Unlimited, Unlimited}},
		{2, 2, "other", [3]uint64{10, 20, 1 << 17}},
		{1, 100, "batch", [3]uint64{13, 21, 1 << 17}}, // the account's comes first
		{500, 100, "batch", [3]uint64{13, Unlimited, 3}},
	} {
		q := p.Quota(p.Account(tc.uid, tc.label), tc.uid, tc.gid)
		if got := [3]uint64{q[Sockets], q[Operations], q[Destinations]}; got != tc.want {
			t.Errorf("uid %d, gid %d, %q: %v, want %v", tc.uid, tc.gid, tc.label, got, tc.want)
		}
	}
	if q := NoPolicy().Quota(UserAccount(7), 7, 7); q != NoQuota() {
		t.Errorf("no policy: %v", q)
	}
}

// With the default quotas, one user alone cannot take all that the limits allow.
func TestDefaultQuotasLeaveHalf(t *testing.T) {
	c := Default()
	q, l := c.Quota.User, c.Limits
	if q[Clients] > uint64(l.MaxClients)/2 || q[Sockets] > uint64(l.MaxSockets)/2 || q[RegisteredBytes] > l.MaxRegisteredBytes/2 {
		t.Errorf("quota %v, limits %+v", q, l)
	}
	if q[Sockets] < 65534 {
		t.Errorf("%d sockets: all ports of an address are 65534", q[Sockets])
	}
}

func TestMayBind(t *testing.T) {
	const doc = `
[bind]
rules = [
  "allow uid=1000 address=10.0.0.0/24 port=80",
  "deny port=2-1023",
  "allow gid=50",
  "deny uid=500 port=9999",
  "deny uid=0 address=fd00::1",
  "deny address=10.9.0.1 port=4000-4999",
]
`
	for _, tc := range []struct {
		uid, gid uint32
		addr     string
		port     uint16
		want     string // in the error; "" = allowed
		deny     string // with bind.default = deny; "" = as want
	}{
		{1000, 1, "10.0.0.1", 80, "", ""},
		{1000, 1, "10.0.1.1", 80, "rule 2 of bind.rules (deny port=2-1023) denies uid 1000, gid 1 this port", ""},
		{1001, 1, "10.0.0.1", 80, "rule 2", ""},
		{1001, 50, "10.0.0.1", 1023, "rule 2", ""},
		{1001, 50, "10.9.0.1", 4000, "", ""}, // rule 3 before rule 6
		{1001, 51, "10.9.0.1", 4000, "rule 6 of bind.rules (deny address=10.9.0.1 port=4000-4999)", ""},
		{1001, 51, "10.9.0.1", 5000, "", "no rule of bind.rules allows uid 1001, gid 51 this port, and bind.default is deny"},
		{500, 51, "10.9.0.1", 4000, "", ""}, // the daemon's own user: only rules with its uid apply
		{500, 51, "10.9.0.1", 9999, "rule 4", ""},
		{500, 51, "10.9.0.1", 80, "", ""},
		{0, 0, "10.0.0.1", 80, "", ""},
		{0, 0, "fd00::1", 80, "rule 5 of bind.rules (deny uid=0 address=fd00::1)", ""},
		{1001, 51, "fd00::1", 5000, "", "no rule"},
	} {
		for _, def := range []string{"allow", "deny"} {
			want := tc.want
			if def == "deny" && tc.deny != "" {
				want = tc.deny
			}
			p := policy(t, doc+"default = \""+def+"\"", 500)
			err := p.MayBind(tc.uid, tc.gid, netip.MustParseAddr(tc.addr), tc.port)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%+v, default %s: %v", tc, def, err)
			}
		}
	}
}

// NextPort agrees with MayBind everywhere.
func TestNextPort(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	for _, doc := range []string{
		``,
		`bind.default = "deny"`,
		`bind.rules = ["allow port=100-200", "deny port=50-300"]`,
		`bind.default = "deny"` + "\n" + `bind.rules = ["deny port=65535", "allow port=65000-65535", "allow uid=9 port=3", "allow address=10.0.0.2 port=4"]`,
		`bind.default = "deny"` + "\n" + `bind.rules = ["allow port=0-1"]`,
	} {
		p := policy(t, doc, 500)
		want, ok := uint16(0), false
		for port := 65535; port >= 0; port-- {
			if p.MayBind(7, 7, addr, uint16(port)) == nil {
				want, ok = uint16(port), true
			}
			if got, gotOK := p.NextPort(7, 7, addr, uint16(port)); gotOK != ok || ok && got != want {
				t.Fatalf("%s: from %d: %d %v, want %d %v", doc, port, got, gotOK, want, ok)
			}
		}
	}
}

func FuzzRule(f *testing.F) {
	f.Add("allow uid=1 gid=2 address=10.0.0.0/8 port=1-2")
	f.Add("deny address=::1 port=65535")
	f.Add("uid=1 sockets=3 registered_bytes=1GiB")
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := parseRule(s); err == nil {
			if again, err := parseRule(r.String()); err != nil || again != r {
				t.Errorf("%q: %v, %v", r, again, err)
			}
		}
		if o, err := parseOverride(s); err == nil {
			if again, err := parseOverride(o.String()); err != nil || again != o {
				t.Errorf("%q: %v, %v", o, again, err)
			}
		}
	})
}
