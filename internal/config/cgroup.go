package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CgroupRule is one entry of quota.accounts: processes in cgroups that it matches count for
// an account of their own.
type CgroupRule struct {
	text  string
	paths []cgroupPath
	label string // "": each cgroup has its name for a label
}

// cgroupPath matches a cgroup and what is below it, from the root: a pattern for each name.
// A star stands for any part of a name.
type cgroupPath []string

// kubernetes is the entry for the pods of a kubelet.
const kubernetes = "kubernetes"

// podPaths are where a kubelet has pods, with the cgroup driver cgroupfs or systemd.
var podPaths = []cgroupPath{
	{"kubepods", "pod*"}, {"kubepods", "burstable", "pod*"}, {"kubepods", "besteffort", "pod*"},
	{"kubepods.slice", "kubepods-pod*.slice"},
	{"kubepods.slice", "kubepods-burstable.slice", "kubepods-burstable-pod*.slice"},
	{"kubepods.slice", "kubepods-besteffort.slice", "kubepods-besteffort-pod*.slice"},
}

// parseCgroupRule reads "kubernetes", "/PATH" or "/PATH LABEL".
func parseCgroupRule(s string) (r CgroupRule, err error) {
	r.text = strings.Join(strings.Fields(s), " ")
	if r.text == kubernetes {
		r.paths = podPaths
		return r, nil
	}
	path, label, labeled := strings.Cut(r.text, " ")
	names := strings.Split(path, "/")
	switch {
	case names[0] != "" || len(names) < 2:
		err = errors.New("want " + kubernetes + " or a path of a cgroup, as in /system.slice/*.service")
	case slices.ContainsFunc(names[1:], func(n string) bool { return n == "" || n == "." || n == ".." }):
		err = errors.New("an empty name, . or .. in the path")
	case slices.ContainsFunc(names[1:], func(n string) bool { return strings.Contains(n, "**") }):
		err = errors.New("** does not stand for several names: give the path from the root, with * for a name or a part of one")
	case !visible(path), labeled && !validLabel(label):
		err = fmt.Errorf("want a path, or a path and a label of at most %d visible ASCII characters without a comma", MaxLabel)
	}
	if err != nil {
		return r, fmt.Errorf("%.300q: %w", s, err)
	}
	r.paths, r.label = []cgroupPath{names[1:]}, label
	return r, nil
}

// String returns the rule as quota.accounts has it.
func (r CgroupRule) String() string { return r.text }

// hierarchies are the controllers of the lines of /proc/PID/cgroup that may name an account,
// the first one first. "" is version 2. Where both versions are mounted, a runtime may use
// only one of them.
var hierarchies = []string{"memory", "", "name=systemd"}

// Label is the label of a process with this /proc/PID/cgroup, "" if no rule matches. The
// rule that matches the outermost cgroup decides, so that a process cannot change its label by
// a cgroup of its own below. Of several such rules, the first decides.
func (p *Policy) Label(cgroup []byte) string {
	if len(p.Quotas.Accounts) == 0 {
		return ""
	}
	for _, h := range hierarchies {
		for line := range bytes.Lines(cgroup) {
			f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
			if len(f) != 3 || !slices.Contains(strings.Split(f[1], ","), h) {
				continue
			}
			if label := labelOf(p.Quotas.Accounts, f[2]); label != "" {
				return label
			}
		}
	}
	return ""
}

// labelOf is the label of the cgroup at path.
func labelOf(rules []CgroupRule, path string) (label string) {
	names := strings.Split(strings.Trim(path, "/"), "/")
	above := 0 // names that are not known: the daemon has a cgroup namespace of its own
	for above < len(names) && names[above] == ".." {
		above++
	}
	names = names[above:]
	depth := len(names) + 1
	for i := range rules {
		r := &rules[i]
		for _, c := range r.paths {
			if n := c.match(names, above > 0); n > 0 && n < depth {
				label, depth = r.labelFor(names[n-1]), n
			}
		}
	}
	if !validLabel(label) {
		return ""
	}
	return label
}

// labelFor is the label of the cgroup called name, "" if it has none.
func (r *CgroupRule) labelFor(name string) string {
	switch {
	case r.label != "":
		return r.label
	case r.text != kubernetes:
		return name
	}
	uid := strings.TrimPrefix(name, "pod")
	if _, escaped, systemd := strings.Cut(name, "-pod"); systemd { // where - in a name is written as _
		uid = strings.ReplaceAll(strings.TrimSuffix(escaped, ".slice"), "_", "-")
	}
	if uid == "" {
		return ""
	}
	return "pod" + uid
}

// match returns how many of names c matches, 0 if c does not match. If the names are those
// below an unknown ancestor of the daemon's cgroup, any number of the first names of c may
// be above them, but not all: the ancestors of the daemon are as trusted as the daemon.
func (c cgroupPath) match(names []string, below bool) int {
	most := 0
	if below {
		most = len(c) - 1
	}
	for d := most; d >= 0; d-- {
		rest := c[d:]
		if len(rest) <= len(names) && !slices.ContainsFunc(names[:len(rest)], func(n string) bool { return n == "" || n == ".." }) &&
			slices.EqualFunc(rest, names[:len(rest)], matchName) {
			return len(rest)
		}
	}
	return 0
}

// matchName reports whether pattern, in which a star is any text, is all of name.
func matchName(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name = after
	}
	return true
}
