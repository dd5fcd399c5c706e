package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Resource is something that a quota counts. Usage is counted for each user, over all its
// processes.
type Resource uint8

// Resources.
const (
	Clients         Resource = iota // attached processes
	Sockets                         // bound
	Destinations                    // open, of all sockets
	Operations                      // submitted and not yet settled
	Grants                          // of regions to peers' and this host's sockets
	RegisteredBytes                 // buffers for RDMA
	QueuedBytes                     // rings, tables and arenas, which hold the messages in progress
	NumResources
)

var resources = [NumResources]struct {
	name  string
	bytes bool
	max   uint64
	doc   string
}{
	Clients:         {"clients", false, 1 << 16, "Processes one user may have attached at a time."},
	Sockets:         {"sockets", false, 1 << 20, "Sockets one user may have bound at a time."},
	Destinations:    {"destinations", false, 1 << 30, "Destinations one user's sockets may have open at a time; those beyond wait, congested."},
	Operations:      {"operations", false, 1 << 30, "RDMA operations and atomics of one user under way at a time; one beyond ends at once with REMOTE_ERROR, ENOBUFS."},
	Grants:          {"grants", false, 1 << 30, "Grants of one user's regions to sockets, by Expose or by sending a cookie; one beyond is refused with ENOBUFS."},
	RegisteredBytes: {"registered_bytes", true, 1 << 40, "Memory of one user's buffers for RDMA."},
	QueuedBytes:     {"queued_bytes", true, 1 << 40, "Memory of one user's rings, tables and arenas: all it can have queued, sent and unread."},
}

// String is the resource's name, the last part of its key.
func (r Resource) String() string { return resources[r].name }

// Bytes reports whether the resource is counted in bytes.
func (r Resource) Bytes() bool { return resources[r].bytes }

// Unlimited is a quota that bounds nothing.
const Unlimited = math.MaxUint64

// Quota is how much of each resource one user may have.
type Quota [NumResources]uint64

// NoQuota bounds nothing.
func NoQuota() (q Quota) {
	for r := range q {
		q[r] = Unlimited
	}
	return q
}

// Quotas says how much of the daemon each user may have. The limits apply too.
type Quotas struct {
	User      Quota        // quota.clients and so on: of each user
	Overrides []Override   // quota.overrides
	Accounts  []CgroupRule // quota.accounts
}

// Override replaces some quotas for a user, for the processes of a group, or for an account
// of quota.accounts.
type Override struct {
	Who
	Account string // its label; "": the override is for Who
	Set     [NumResources]bool
	Quota   Quota // only the resources that are set
}

// For is the quota of a process of uid and gid in the account with a label, "" if it counts for
// its user. The first override for the label decides, then the first for the uid, then the
// first for the gid, then the defaults. A resource that one of these does not name is decided
// by the next. Trusted users have no quota except from an override for their label or uid.
func (q *Quotas) For(label string, uid, gid uint32, trusted bool) Quota {
	out := q.User
	if trusted {
		out = NoQuota()
	} else {
		q.apply(&out, func(o *Override) bool { return o.gid.is(gid) })
	}
	q.apply(&out, func(o *Override) bool { return o.uid.is(uid) })
	if label != "" {
		q.apply(&out, func(o *Override) bool { return o.Account == label })
	}
	return out
}

func (q *Quotas) apply(to *Quota, matches func(*Override) bool) {
	for i := range q.Overrides {
		o := &q.Overrides[i]
		if !matches(o) {
			continue
		}
		for r, set := range o.Set {
			if set {
				to[r] = o.Quota[r]
			}
		}
		return
	}
}

// id is the number of a user or group, or none.
type id struct {
	n   uint32
	set bool
}

func (i id) is(n uint32) bool { return i.set && i.n == n }

// Who is a user, or the processes of a group (their effective group when they attached).
// The zero value is everybody.
type Who struct{ uid, gid id }

// UID is the user uid.
func UID(uid uint32) Who { return Who{uid: id{uid, true}} }

// GID is the processes of group gid.
func GID(gid uint32) Who { return Who{gid: id{gid, true}} }

// set handles the fields uid= and gid=.
func (w *Who) set(key, value string) (known bool, err error) {
	var to *id
	switch key {
	case "uid":
		to = &w.uid
	case "gid":
		to = &w.gid
	default:
		return false, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return true, fmt.Errorf("%s=%s: want a number (id -u NAME, getent group NAME show it)", key, value)
	}
	*to = id{uint32(n), true}
	return true, nil
}

// everybody is the zero Who as a word.
const everybody = "everybody"

// parseWho reads who keys.strict is about.
func parseWho(s string) (w Who, err error) {
	if s == everybody {
		return w, nil
	}
	err = eachField(strings.Fields(s), func(key, value string) error {
		known, err := w.set(key, value)
		if err == nil && !known {
			err = fmt.Errorf("%s= is nobody, there are uid, gid", key)
		}
		return err
	})
	if err == nil && w.uid.set == w.gid.set {
		err = errors.New("want uid=, gid= or " + everybody)
	}
	if err != nil {
		return w, fmt.Errorf("%q: %w", s, err)
	}
	return w, nil
}

// String is w as keys.strict has it.
func (w Who) String() string {
	if w == (Who{}) {
		return everybody
	}
	return strings.Join(w.fields(), " ")
}

func (w Who) fields() (out []string) {
	if w.uid.set {
		out = append(out, fmt.Sprintf("uid=%d", w.uid.n))
	}
	if w.gid.set {
		out = append(out, fmt.Sprintf("gid=%d", w.gid.n))
	}
	return out
}

// eachField calls set for every key=value of words. Each key may come once.
func eachField(words []string, set func(key, value string) error) error {
	seen := map[string]bool{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok || value == "":
			return fmt.Errorf("%q is not of the form key=value", w)
		case seen[key]:
			return fmt.Errorf("%s= is given twice", key)
		}
		seen[key] = true
		if err := set(key, value); err != nil {
			return err
		}
	}
	return nil
}

func parseOverride(s string) (o Override, err error) {
	set := 0
	err = eachField(strings.Fields(s), func(key, value string) error {
		if known, err := o.Who.set(key, value); known {
			return err
		}
		if key == "account" {
			if o.Account = value; !validLabel(value) {
				return fmt.Errorf("account=%.300s: want a label of quota.accounts, at most %d visible ASCII characters without a comma", value, MaxLabel)
			}
			return nil
		}
		for r := range NumResources {
			if key != r.String() {
				continue
			}
			n, err := r.parse(value)
			if err != nil {
				return err
			}
			o.Set[r], o.Quota[r] = true, n
			set++
			return nil
		}
		return fmt.Errorf("%s= is no quota, there are %s", key, resourceNames())
	})
	whose := 0
	for _, is := range []bool{o.uid.set, o.gid.set, o.Account != ""} {
		if is {
			whose++
		}
	}
	switch {
	case err != nil:
	case whose != 1:
		err = errors.New("want one of uid=, gid= and account=")
	case set == 0:
		err = fmt.Errorf("no quota, give at least one of %s", resourceNames())
	}
	if err != nil {
		return o, fmt.Errorf("%q: %w", s, err)
	}
	return o, nil
}

func resourceNames() string {
	var names []string
	for r := range NumResources {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// parse reads a quota for r.
func (r Resource) parse(s string) (uint64, error) {
	n, err := parseSize(s)
	if !r.Bytes() {
		n, err = strconv.ParseUint(s, 10, 64)
	}
	switch {
	case err != nil && r.Bytes():
		return 0, fmt.Errorf(`%v=%s: want a size, as in 4194304 or 4MiB`, r, s)
	case err != nil:
		return 0, fmt.Errorf("%v=%s: want a number", r, s)
	case n > resources[r].max:
		return 0, fmt.Errorf("%v=%s: at most %s", r, s, r.format(resources[r].max))
	}
	return n, nil
}

func (r Resource) format(n uint64) string {
	if r.Bytes() {
		return formatSize(n)
	}
	return strconv.FormatUint(n, 10)
}

// String is the override as it is written in quota.overrides.
func (o Override) String() string {
	words := o.fields()
	if o.Account != "" {
		words = append(words, "account="+o.Account)
	}
	for r := range NumResources {
		if o.Set[r] {
			words = append(words, r.String()+"="+r.format(o.Quota[r]))
		}
	}
	return strings.Join(words, " ")
}
