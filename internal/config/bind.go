package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// Verdict is a decision of the bind policy.
type Verdict string

// Verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Bind says who may bind which address and port. The first rule that matches decides. If
// none does, Default decides.
type Bind struct {
	Rules   []Rule  // bind.rules
	Default Verdict // bind.default; "" is Allow
}

// Rule is one rule of the policy. It matches a bind if all its parts match.
type Rule struct {
	Verdict Verdict
	Who
	Addr   netip.Prefix // the zero value matches any address
	Lo, Hi uint16       // ports; 0 to 65535 matches any
}

// names reports whether the rule is about a process of uid and gid. Only a rule with a
// trusted user's own uid is about that user.
func (r *Rule) names(uid, gid uint32, trusted bool) bool {
	switch {
	case trusted && !r.uid.set:
		return false
	case r.uid.set && r.uid.n != uid, r.gid.set && r.gid.n != gid:
		return false
	}
	return true
}

func (r *Rule) covers(addr netip.Addr) bool { return !r.Addr.IsValid() || r.Addr.Contains(addr) }

// check returns nil if a process of uid and gid may bind port at addr. Otherwise the error
// names the rule that forbids it.
func (b *Bind) check(uid, gid uint32, trusted bool, addr netip.Addr, port uint16) error {
	for i := range b.Rules {
		r := &b.Rules[i]
		if port < r.Lo || port > r.Hi || !r.covers(addr) || !r.names(uid, gid, trusted) {
			continue
		}
		if r.Verdict == Allow {
			return nil
		}
		return fmt.Errorf("rule %d of bind.rules (%v) denies uid %d, gid %d this port", i+1, r, uid, gid)
	}
	if b.Default == Deny && !trusted {
		return fmt.Errorf("no rule of bind.rules allows uid %d, gid %d this port, and bind.default is deny", uid, gid)
	}
	return nil
}

// next is the lowest port from p on that check allows.
func (b *Bind) next(uid, gid uint32, trusted bool, addr netip.Addr, p uint16) (port uint16, ok bool) {
	for {
		if b.check(uid, gid, trusted, addr, p) == nil {
			return p, true
		}
		// The answer changes only at the first port of a rule and just behind its last
		// port.
		at := uint32(math.MaxUint16 + 1)
		for i := range b.Rules {
			r := &b.Rules[i]
			for _, x := range [...]uint32{uint32(r.Lo), uint32(r.Hi) + 1} {
				if x > uint32(p) {
					at = min(at, x)
				}
			}
		}
		if at > math.MaxUint16 {
			return 0, false
		}
		p = uint16(at)
	}
}

func parseRule(s string) (r Rule, err error) {
	r.Hi = math.MaxUint16
	words := strings.Fields(s)
	if len(words) == 0 {
		return r, errors.New("an empty rule")
	}
	if r.Verdict = Verdict(words[0]); r.Verdict != Allow && r.Verdict != Deny {
		return r, fmt.Errorf("%q: a rule begins with allow or deny", s)
	}
	err = eachField(words[1:], func(key, value string) error {
		if known, err := r.Who.set(key, value); known {
			return err
		}
		switch key {
		case "address":
			return r.setAddr(value)
		case "port":
			return r.setPorts(value)
		}
		return fmt.Errorf("%s= is nothing a rule knows, there are uid, gid, address, port", key)
	})
	if err != nil {
		return r, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

func (r *Rule) setAddr(s string) (err error) {
	r.Addr, err = parseNetwork("address", s)
	return err
}

func (r *Rule) setPorts(s string) error {
	lo, hi, ok := strings.Cut(s, "-")
	if !ok {
		hi = lo
	}
	from, err := strconv.ParseUint(lo, 10, 16)
	to, err2 := strconv.ParseUint(hi, 10, 16)
	if err != nil || err2 != nil || from > to {
		return fmt.Errorf("port=%s: want a port or a range, as in 4000-4999", s)
	}
	r.Lo, r.Hi = uint16(from), uint16(to)
	return nil
}

// String is the rule as it is written in bind.rules.
func (r Rule) String() string {
	words := append([]string{string(r.Verdict)}, r.fields()...)
	switch {
	case !r.Addr.IsValid():
	case r.Addr.IsSingleIP():
		words = append(words, "address="+r.Addr.Addr().String())
	default:
		words = append(words, "address="+r.Addr.String())
	}
	switch {
	case r.Lo == 0 && r.Hi == math.MaxUint16:
	case r.Lo == r.Hi:
		words = append(words, fmt.Sprintf("port=%d", r.Lo))
	default:
		words = append(words, fmt.Sprintf("port=%d-%d", r.Lo, r.Hi))
	}
	return strings.Join(words, " ")
}
