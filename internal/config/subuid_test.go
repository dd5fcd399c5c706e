package config

import (
	"math"
	"strings"
	"testing"
)

func someUsers(name string) (uint32, bool) {
	uid, ok := map[string]uint32{"alice": 1000, "bob": 1001, "root": 0}[name]
	return uid, ok
}

// TestAccount: what a subordinate uid has counts for the user that has it.
func TestAccount(t *testing.T) {
	subs, warnings := parseSubUIDs([]byte(`# comment
alice:100000:65536

bob:165536:2
alice:300000:1
1002:400000:10
nobody-knows:500000:10
nobody-knows:600000:10
root:700000:10
daemon-user:800000:5
bob:100000:3
alice:0:1
`), func(name string) (uint32, bool) {
		if name == "daemon-user" {
			return 500, true
		}
		return someUsers(name)
	})
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	p := &Policy{Owner: 500, Subs: subs, Quotas: Quotas{Overrides: []Override{{Who: UID(1000), Set: [NumResources]bool{Sockets: true}, Quota: Quota{Sockets: 7}}}}}
	for uid, want := range map[uint32]uint32{0: 0, 500: 500, 1000: 1000, 99999: 99999, 100000: 1000, 165535: 1000, 165536: 1001, 165537: 1001, 165538: 165538,
		300000: 1000, 300001: 300001, 400009: 1002, 500003: 500000, 600009: 500000, 700000: 700000, 700009: 700000, 800004: 800000, math.MaxUint32: math.MaxUint32} {
		if got := p.Account(uid, "no rules"); got != UserAccount(want) {
			t.Errorf("uid %d counts for %v, want %d", uid, got, want)
		}
	}
	if n := p.Quota(p.Account(100001, ""), 100001, 9)[Sockets]; n != 7 {
		t.Errorf("quota %d, want that of the user", n)
	}
}

// TestSubUIDWarnings: a bad line is named and does not count. The others do.
func TestSubUIDWarnings(t *testing.T) {
	for _, line := range []string{"alice", "alice:1", "alice:1:2:3", ":1:2", "alice:x:1", "alice:1:", "alice:-1:5", "alice:1:0", "alice:4294967295:2", "alice:4294967296:1", "alice:1:99999999999999999999"} {
		s, warnings := parseSubUIDs([]byte("bob:1000:1\n"+line+"\nbob:2000:1"), someUsers)
		if len(s) != 2 || len(warnings) != 1 || !strings.Contains(warnings[0], "line 2") {
			t.Errorf("%s: %v, %q", line, s, warnings)
		}
	}
	s, warnings := parseSubUIDs([]byte(strings.Repeat("alice:1:1\n", maxSubUIDFile/10+1)), someUsers)
	if len(s) != maxSubUIDFile/10 || len(warnings) != 1 {
		t.Errorf("a long file: %d lines, %q", len(s), warnings)
	}
	if s, warnings := parseSubUIDs([]byte(strings.Repeat("x\n", 1000)), someUsers); len(s) != 0 || len(warnings) != 8 {
		t.Errorf("%d lines, %d warnings", len(s), len(warnings))
	}
	if s, warnings := parseSubUIDs([]byte("alice:1:4294967295"), someUsers); len(s) != 1 || len(warnings) != 0 {
		t.Errorf("all uids: %v, %q", s, warnings)
	}
}

func FuzzSubUIDs(f *testing.F) {
	f.Add([]byte("alice:100000:65536\nx:1:2\n"))
	f.Add([]byte("1000:4294967295:1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _ := parseSubUIDs(text, someUsers)
		p := &Policy{Owner: 500, Subs: s}
		for _, r := range s {
			if r.lo > r.hi {
				t.Fatalf("range %d to %d", r.lo, r.hi)
			}
			for _, uid := range []uint32{r.lo, r.hi} {
				if got, ok := s.of(uid); !ok || !p.Trusts(uid) && p.userOf(uid) != got.owner && p.userOf(uid) != got.lo {
					t.Fatalf("uid %d counts for %d", uid, p.userOf(uid))
				}
			}
		}
		if !p.Trusts(0) || p.userOf(0) != 0 {
			t.Fatal("root does not count for itself")
		}
	})
}
