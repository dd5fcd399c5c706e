package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// form is how a value is written in TOML.
type form uint8

const (
	quoted form = 1 << iota
	integer
	array
)

func (f form) String() string {
	switch f {
	case quoted:
		return "a string"
	case integer:
		return "a number"
	case array:
		return "a list of strings"
	}
	return "a number or a string"
}

// value sets and prints one field. set gets exactly one item unless form is array.
type value struct {
	form form
	set  func(items []string) error
	get  func() string
}

// scalar is a value with one item.
func scalar(f form, set func(string) error, get func() string) value {
	return value{f, func(items []string) error { return set(items[0]) }, get}
}

func splitList(k key, s string) []string {
	if k.form != array {
		return []string{s}
	}
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func text(p *string) value {
	return scalar(quoted, func(s string) error {
		if strings.ContainsRune(s, 0) {
			return errors.New("a NUL byte")
		}
		*p = s
		return nil
	}, func() string { return *p })
}

// choice and number are not inlined, so that keys do not have a copy each.
//
//go:noinline
func choice[T ~string](p *T, allowed ...T) value {
	return scalar(quoted, func(s string) error {
		for _, a := range allowed {
			if T(s) == a {
				*p = a
				return nil
			}
		}
		return fmt.Errorf("%q is none of these", s)
	}, func() string { return string(*p) })
}

//go:noinline
func number[T ~uint16 | ~int | ~uint64](p *T, lo, hi uint64) value {
	return scalar(integer, func(s string) error {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return fmt.Errorf("%q is no such number", s)
		}
		if n < lo || n > hi {
			return fmt.Errorf("%d is out of range", n)
		}
		*p = T(n)
		return nil
	}, func() string { return strconv.FormatUint(uint64(*p), 10) })
}

func list[T interface{ String() string }](p *[]T, parse func(string) (T, error)) value {
	return value{array, func(items []string) error {
		out := make([]T, 0, len(items))
		for _, s := range items {
			v, err := parse(s)
			if err != nil {
				return err
			}
			out = append(out, v)
		}
		*p = out
		return nil
	}, func() string {
		var s []string
		for _, v := range *p {
			s = append(s, v.String())
		}
		return strings.Join(s, ",")
	}}
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return a, fmt.Errorf("%q is not an IP address", s)
	case a.Zone() != "":
		return a, fmt.Errorf("%q has a zone: link-local addresses are not supported, use a global or a unique local one (fd00::/8)", s)
	}
	return a.Unmap(), nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a network in CIDR form", s)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%q has bits set beyond its prefix, meant is perhaps %q", s, p.Masked())
	}
	return p, checkScope(p)
}

// checkScope fails if p has link-local IPv6 addresses only.
func checkScope(p netip.Prefix) error {
	switch a := p.Addr(); {
	case !a.Is6() || !a.IsLinkLocalUnicast():
		return nil
	case p.IsSingleIP():
		return fmt.Errorf("%v is one of the link-local addresses, which mean %s", a, linkLocal)
	case p.Bits() >= 10:
		return fmt.Errorf("%v is a network of link-local addresses, which mean %s", p, linkLocal)
	}
	return nil
}

const linkLocal = "nothing without an interface (zone) and are not supported; use global or unique local addresses (fd00::/8)"

func addrPort(p *netip.AddrPort) value {
	return scalar(quoted, func(s string) error {
		if s == "" {
			*p = netip.AddrPort{}
			return nil
		}
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return fmt.Errorf("%q is not an IP address and port", s)
		}
		*p = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
		return nil
	}, func() string {
		if !p.IsValid() {
			return ""
		}
		return p.String()
	})
}

func duration(p *time.Duration, lo, hi time.Duration) value {
	return scalar(quoted, func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration", s)
		}
		if d < lo || d > hi {
			return fmt.Errorf("%v is out of range", d)
		}
		*p = d
		return nil
	}, func() string { return p.String() })
}

func mode(p *fs.FileMode) value {
	return scalar(quoted, func(s string) error {
		m, err := strconv.ParseUint(s, 8, 32)
		if err != nil || m > 0o777 {
			return fmt.Errorf("%q are no permissions", s)
		}
		*p = fs.FileMode(m)
		return nil
	}, func() string { return fmt.Sprintf("%04o", uint32(*p)) })
}

func level(p *slog.Level) value {
	names := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	return scalar(quoted, func(s string) error {
		l, ok := names[s]
		if !ok {
			return fmt.Errorf("%q is none of these", s)
		}
		*p = l
		return nil
	}, func() string { return strings.ToLower(p.String()) })
}

var units = []struct {
	suffix string
	shift  uint
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}, {"", 0}}

// size is like number.
//
//go:noinline
func size(p *uint64, lo, hi uint64) value {
	return scalar(quoted|integer, func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n < lo || n > hi {
			return fmt.Errorf("%s is out of range", s)
		}
		*p = n
		return nil
	}, func() string { return formatSize(*p) })
}

func parseSize(s string) (uint64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 0, 64)
		if err != nil || n > math.MaxUint64>>u.shift {
			return 0, fmt.Errorf("%q is not a size", s)
		}
		return n << u.shift, nil
	}
	panic("config: the last unit matches everything")
}

func formatSize(n uint64) string {
	for i := len(units) - 3; i >= 0; i-- {
		if u := units[i]; n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatUint(n>>u.shift, 10) + u.suffix
		}
	}
	return strconv.FormatUint(n, 10)
}

// orOff is v for a field that may be 0 (off) or at least lo. p is the field.
func orOff(v value, p *uint64, lo uint64) value {
	set := v.set
	v.set = func(items []string) error {
		old := *p
		if err := set(items); err != nil {
			return err
		}
		if *p != 0 && *p < lo {
			*p = old
			return fmt.Errorf("%s is out of range", items[0])
		}
		return nil
	}
	return v
}
