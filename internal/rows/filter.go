package rows

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Filter is a list of terms. A record passes if all of them hold.
type Filter struct{ terms []term }

type term struct {
	field int
	kind  Kind
	op    string
	text  string
	num   float64
	pfx   netip.Prefix
	addr  netip.Addr
	at    time.Time
}

// The longer operators come first: "<=" must not be read as "<".
var operators = []string{"!=", "!~", "<=", ">=", "=", "~", "<", ">"}

// ParseFilter reads NAME OP VALUE terms separated by commas. = and != compare; for text, *
// in VALUE matches anything, and for addresses VALUE may be a network (/bits). ~ and !~
// look for VALUE within the text. < <= > >= compare the order. Numbers of fields in _bytes
// may end in K, M or G (powers of 1024), those in _ns may be durations. Errors name the
// term.
func (s *Set) ParseFilter(text string) (*Filter, error) {
	f := &Filter{}
	if strings.TrimSpace(text) == "" {
		return f, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		t, err := s.parseTerm(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

func (s *Set) parseTerm(part string) (t term, err error) {
	at := strings.IndexAny(part, "=!~<>")
	if at <= 0 {
		return t, fmt.Errorf("filter %q: want NAME=VALUE, or != ~ !~ < <= > >= for the =", part)
	}
	rest := part[at:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			t.op = op
			break
		}
	}
	if t.op == "" {
		return t, fmt.Errorf("filter %q: want NAME=VALUE, or != ~ !~ < <= > >= for the =", part)
	}
	t.text = strings.TrimSpace(rest[len(t.op):])
	if t.field, err = s.Find(strings.TrimSpace(part[:at])); err != nil {
		return t, fmt.Errorf("filter %q: %w", part, err)
	}
	field := &s.Fields[t.field]
	t.kind = field.Kind
	switch {
	case t.op == "~" || t.op == "!~" || t.text == "":
		t.kind = Text
		return t, nil
	case t.kind == Number:
		t.num, err = number(field.Name, t.text)
	case t.kind == Bool:
		switch strings.ToLower(t.text) {
		case "true", "yes":
			t.text = "true"
		case "false", "no":
			t.text = "false"
		default:
			err = fmt.Errorf("%q is neither yes nor no", t.text)
		}
	case t.kind == Time:
		if t.at, err = time.Parse(time.RFC3339Nano, t.text); err != nil {
			err = fmt.Errorf("%q is not an instant such as 2006-01-02T15:04:05Z", t.text)
		}
	case t.kind == Addr && strings.Contains(t.text, "/"):
		if t.pfx, err = netip.ParsePrefix(t.text); err == nil && t.op != "=" && t.op != "!=" {
			err = fmt.Errorf("a network is = or !=, not %s", t.op)
		}
	case t.kind == Addr:
		t.addr, err = netip.ParseAddr(t.text)
		t.addr = t.addr.Unmap()
	case t.op != "=" && t.op != "!=":
		// Text compares by bytes.
	default:
		_, err = path.Match(t.text, "")
	}
	if err != nil {
		return t, fmt.Errorf("filter %q: %w", part, err)
	}
	return t, nil
}

// number reads a number in the unit of the field's name.
func number(field, text string) (float64, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, nil
	}
	if strings.HasSuffix(field, "_ns") {
		if d, err := time.ParseDuration(text); err == nil {
			return float64(d), nil
		}
		return 0, fmt.Errorf("%q is neither a number of nanoseconds nor a duration such as 1.5ms", text)
	}
	if strings.HasSuffix(field, "_bytes") {
		digits := strings.TrimRight(strings.ToUpper(text), "IB")
		for i, unit := range "KMGT" {
			if n, ok := strings.CutSuffix(digits, string(unit)); ok {
				if n, err := strconv.ParseFloat(n, 64); err == nil {
					return n * float64(uint64(1)<<(10*(i+1))), nil
				}
			}
		}
		return 0, fmt.Errorf("%q is not a size such as 4096 or 64KiB", text)
	}
	return 0, fmt.Errorf("%q is not a number", text)
}

// Match reports whether values, one for each field of the set, pass.
func (f *Filter) Match(values []string) bool {
	for i := range f.terms {
		if !f.terms[i].match(values[f.terms[i].field]) {
			return false
		}
	}
	return true
}

func (t *term) match(v string) bool {
	switch t.op {
	case "~":
		return strings.Contains(strings.ToLower(v), strings.ToLower(t.text))
	case "!~":
		return !strings.Contains(strings.ToLower(v), strings.ToLower(t.text))
	case "=":
		return t.equal(v)
	case "!=":
		return !t.equal(v)
	}
	c, ok := t.compare(v)
	if !ok {
		return false
	}
	switch t.op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func (t *term) equal(v string) bool {
	switch {
	case t.kind == Addr && t.pfx.IsValid():
		a, err := netip.ParseAddr(v)
		return err == nil && t.pfx.Contains(a)
	case t.kind == Text:
		ok, _ := path.Match(t.text, v)
		return ok || t.text == v
	}
	c, ok := t.compare(v)
	return ok && c == 0
}

// compare orders v and the term's value. It is false if v is not a value of the field's
// kind.
func (t *term) compare(v string) (int, bool) {
	switch t.kind {
	case Number:
		n, err := strconv.ParseFloat(v, 64)
		return cmp.Compare(n, t.num), err == nil
	case Time:
		at, err := time.Parse(time.RFC3339Nano, v)
		return at.Compare(t.at), err == nil
	case Addr:
		a, err := netip.ParseAddr(v)
		return a.Compare(t.addr), err == nil
	}
	return cmp.Compare(v, t.text), true
}

// Order is by which fields rows are sorted.
type Order struct{ keys []sortKey }

type sortKey struct {
	field int
	kind  Kind
	down  bool
}

// ParseOrder reads names separated by commas. -NAME sorts the largest first.
func (s *Set) ParseOrder(text string) (*Order, error) {
	o := &Order{}
	if strings.TrimSpace(text) == "" {
		return o, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name, down := strings.CutPrefix(strings.TrimSpace(name), "-")
		i, err := s.Find(name)
		if err != nil {
			return nil, fmt.Errorf("sort: %w", err)
		}
		o.keys = append(o.keys, sortKey{i, s.Fields[i].Kind, down})
	}
	return o, nil
}

// Sort sorts list, stably. values returns an element's values, one for each field.
func Sort[T any](list []T, o *Order, values func(T) []string) {
	if len(o.keys) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b T) int { return o.compare(values(a), values(b)) })
}

func (o *Order) compare(a, b []string) int {
	for _, k := range o.keys {
		c := compare(k.kind, a[k.field], b[k.field])
		if k.down {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// compare orders two values. Absent values come first.
func compare(k Kind, a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return -1
	case b == "":
		return 1
	}
	switch k {
	case Number:
		x, _ := strconv.ParseFloat(a, 64)
		y, _ := strconv.ParseFloat(b, 64)
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // floats are exact only up to 2^53
	case Time:
		x, _ := time.Parse(time.RFC3339Nano, a)
		y, _ := time.Parse(time.RFC3339Nano, b)
		return x.Compare(y)
	case Addr:
		x, _ := netip.ParseAddr(a)
		y, _ := netip.ParseAddr(b)
		return x.Compare(y)
	}
	return cmp.Compare(a, b)
}
