package config

import (
	"strings"
	"testing"
)

func cgroupRules(t testing.TB, texts ...string) *Policy {
	t.Helper()
	p := &Policy{}
	for _, text := range texts {
		r, err := parseCgroupRule(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseCgroupRule(r.String()); err != nil || again.String() != r.String() {
			t.Errorf("%q is printed as %q, which is read as %q, %v", text, r, again, err)
		}
		p.Quotas.Accounts = append(p.Quotas.Accounts, r)
	}
	return p
}

const (
	podUID  = "0f5e1a2b-3c4d-5e6f-7081-92a3b4c5d6e7"
	podUnit = "pod0f5e1a2b_3c4d_5e6f_7081_92a3b4c5d6e7.slice"
	scope   = "/cri-containerd-f00d.scope"
)

// TestLabels: what a process's cgroup makes of quota.accounts, with the paths that kubelets and
// systemd make.
func TestLabels(t *testing.T) {
	for _, tc := range []struct{ name, rules, cgroup, want string }{
		{"no rule", "", "0::/kubepods/pod" + podUID + "/f00d", ""},
		{"no file", "kubernetes", "", ""},

		// The driver systemd, with version 2.
		{"guaranteed", "kubernetes", "0::/kubepods.slice/kubepods-" + podUnit + scope, "pod" + podUID},
		{"burstable", "kubernetes", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-" + podUnit + scope, "pod" + podUID},
		{"best effort", "kubernetes", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-" + podUnit + "/crio-f00d.scope/container", "pod" + podUID},
		{"a static pod", "kubernetes", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podf00df00df00df00df00df00df00df00d.slice" + scope, "podf00df00df00df00df00df00df00df00d"},
		{"the class alone", "kubernetes", "0::/kubepods.slice/kubepods-burstable.slice", ""},
		{"no uid", "kubernetes", "0::/kubepods.slice/kubepods-pod.slice", ""},
		{"a pod's own cgroup of that name", "kubernetes", "0::/kubepods.slice/kubepods-" + podUnit + scope + "/kubepods.slice/kubepods-podother.slice", "pod" + podUID},
		{"a pod beside kubepods", "kubernetes", "0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-" + podUnit, ""},

		// The driver cgroupfs, with versions 2 and 1.
		{"guaranteed, cgroupfs", "kubernetes", "0::/kubepods/pod" + podUID + "/f00d", "pod" + podUID},
		{"burstable, cgroupfs", "kubernetes", "0::/kubepods/burstable/pod" + podUID + "/f00d", "pod" + podUID},
		{"version 1", "kubernetes", "12:pids:/kubepods/besteffort/pod" + podUID + "/f00d\n4:memory:/kubepods/besteffort/pod" + podUID + "/f00d\n1:name=systemd:/kubepods/besteffort/pod" + podUID + "/f00d\n", "pod" + podUID},
		{"both versions", "kubernetes", "4:memory:/kubepods/besteffort/pod" + podUID + "/f00d\n0::/system.slice/containerd.service\n", "pod" + podUID},
		{"without memory", "kubernetes", "9:cpu,cpuacct:/\n1:name=systemd:/kubepods/pod" + podUID + "\n0::/\n", "pod" + podUID},
		{"a pod in a guaranteed pod", "kubernetes", "0::/kubepods/podone/podtwo", "podone"},

		// The daemon in a container, with a cgroup namespace of its own.
		{"seen from a pod of the same class", "kubernetes", "0::/../../kubepods-burstable-" + podUnit + scope, "pod" + podUID},
		{"of another class", "kubernetes", "0::/../../../kubepods-besteffort.slice/kubepods-besteffort-" + podUnit + scope, "pod" + podUID},
		{"from a guaranteed pod", "kubernetes", "0::/../../kubepods-" + podUnit + scope, "pod" + podUID},
		{"from a service", "kubernetes", "0::/../../kubepods.slice/kubepods-" + podUnit + scope, "pod" + podUID},
		{"cgroupfs, from a pod", "kubernetes", "0::/../../pod" + podUID + "/f00d", "pod" + podUID},
		{"the daemon's own pod", "kubernetes", "0::/../cri-containerd-beef.scope", ""},
		{"the daemon's own container", "kubernetes", "0::/", ""},
		{"a user's cgroup, from a pod", "kubernetes", "0::/../../../../user.slice/user-1000.slice/user@1000.service/kubepods-" + podUnit, ""},
		{"nothing but above", "kubernetes", "0::/../../..", ""},

		// Units.
		{"a service", "/system.slice/*.service", "0::/system.slice/db.service", "db.service"},
		{"a service with processes below", "/system.slice/*.service", "0::/system.slice/db.service/worker", "db.service"},
		{"an instance", "/system.slice/*/db@*.service", `0::/system.slice/system-db.slice/db@a\x2db.service`, `db@a\x2db.service`},
		{"a user's session", "/user.slice/user-*.slice", "0::/user.slice/user-1000.slice/session-3.scope", "user-1000.slice"},
		{"a label", "/batch.slice batch", "0::/batch.slice/batch-a.slice/job.service", "batch"},
		{"the outermost decides", "/a/*/c inner|/a outer", "0::/a/b/c", "outer"},
		{"of two the first", "/a/* first|/a/b second", "0::/a/b", "first"},
		{"stars", "/a*b*c", "0::/aXbYbZc/d", "aXbYbZc"},
		{"stars apart", "/a*b*c", "0::/acb", ""},
		{"a part that overlaps", "/ab*ba", "0::/aba", ""},
		{"no more names", "/a/b/c", "0::/a/b", ""},
		{"another root", "/b/c", "0::/a/b/c", ""},

		// What an account cannot be called.
		{"a space", "/a/*", "0::/a/b c", ""},
		{"a control character", "/a/*", "0::/a/b\x1b[2J", ""},
		{"UTF-8", "/a/*", "0::/a/ä", ""},
		{"a comma", "/a/*", "0::/a/b,c", ""},
		{"the longest", "/a/*", "0::/a/" + strings.Repeat("x", MaxLabel), strings.Repeat("x", MaxLabel)},
		{"overlong", "/a/*", "0::/a/" + strings.Repeat("x", MaxLabel+1), ""},
		{"nonsense", "kubernetes|/a/*", "::::\n\n0\n0:\n0::\n:::/a/b\n0::a/b/../c", "b"},
	} {
		var rules []string
		if tc.rules != "" {
			rules = strings.Split(tc.rules, "|")
		}
		if got := cgroupRules(t, rules...).Label([]byte(tc.cgroup)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestOverrideOfNoAccount: an override for an account needs cgroups that have one.
func TestOverrideOfNoAccount(t *testing.T) {
	c := Default()
	if err := c.Set("quota.overrides", "account=batch sockets=1"); err != nil {
		t.Fatal(err)
	}
	getenv := func(string) string { return "" }
	if err := c.Finish(0, getenv); err == nil || !strings.Contains(err.Error(), `"account=batch sockets=1" names an account, and quota.accounts is empty`) {
		t.Error(err)
	}
	if err := c.Set("quota.accounts", "/batch.slice batch"); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(0, getenv); err != nil {
		t.Error(err)
	}
}

// FuzzLabel: a label is one that quota.overrides can name. What the owner of a cgroup makes below
// it changes no label.
func FuzzLabel(f *testing.F) {
	f.Add("/system.slice/*.service", "0::/system.slice/db.service", "a")
	f.Add("kubernetes", "4:memory:/kubepods/burstable/podx/y\n0::/../../kubepods-podx.slice", "kubepods-podz.slice")
	f.Add("/a*/b label", "1:name=systemd:/../a/b", "..")
	f.Fuzz(func(t *testing.T, rule, cgroup, below string) {
		r, err := parseCgroupRule(rule)
		if err != nil {
			return
		}
		if again, err := parseCgroupRule(r.String()); err != nil || again.String() != r.String() {
			t.Fatalf("%q is printed as %q: %v", rule, r, err)
		}
		p := &Policy{Quotas: Quotas{Accounts: []CgroupRule{r}}}
		label := p.Label([]byte(cgroup))
		if label == "" {
			return
		}
		if _, err := parseOverride("account=" + label + " sockets=1"); err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(cgroup, "\n")
		if one := p.Label([]byte(line)); one != "" && !strings.Contains(below, "\n") {
			if got := p.Label([]byte(strings.TrimRight(line, "/") + "/" + below)); got != one {
				t.Fatalf("below %q: %q, want %q", line, got, one)
			}
		}
	})
}
