package rows

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type owner struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

type hexID uint64

func (h hexID) MarshalText() ([]byte, error) { return []byte("x"), nil }

type record struct {
	Addr    netip.Addr    `json:"addr,omitzero"`
	Since   time.Time     `json:"since,omitzero"`
	Bytes   uint64        `json:"size_bytes"`
	Seq     uint64        `json:"seq,string"`
	Age     time.Duration `json:"age_ns"`
	Up      bool          `json:"up"`
	Owner   owner         `json:"owner"`
	Quota   *uint64       `json:"quota"`
	ID      hexID         `json:"id"`
	List    []int         `json:"list"`
	Hidden  int           `json:"-"`
	private int
}

func values(s *Set, r *record) []string {
	out := make([]string, len(s.Fields))
	for i := range s.Fields {
		out[i] = s.Fields[i].Value(r)
	}
	return out
}

func TestFields(t *testing.T) {
	s := NewSet(reflect.TypeFor[record](), map[string]string{"process": "owner.pid"})
	want := "addr since size_bytes seq age_ns up owner.pid owner.name quota id"
	if got := strings.Join(s.Names(), " "); got != want {
		t.Errorf("fields %s, want %s", got, want)
	}
	seven := uint64(7)
	r := &record{Addr: netip.MustParseAddr("::1"), Since: time.Unix(1, 5), Bytes: 1 << 63, Age: time.Second, Up: true, Owner: owner{3, "a"}, Quota: &seven, private: 1}
	if got, want := strings.Join(values(s, r), " "), "::1 1970-01-01T00:00:01.000000005Z 9223372036854775808 0 1000000000 true 3 a 7 x"; got != want {
		t.Errorf("values %s, want %s", got, want)
	}
	if got, want := strings.Join(values(s, &record{}), " "), "  0 0 0 false 0   x"; got != want {
		t.Errorf("values of nothing %q, want %q", got, want)
	}
	for name, want := range map[string]string{"pid": "owner.pid", "OWNER.PID": "owner.pid", "process": "owner.pid", "size": "size_bytes", "age": "age_ns"} {
		if i, err := s.Find(name); err != nil || s.Fields[i].Name != want {
			t.Errorf("%s is %d, %v, want %s", name, i, err, want)
		}
	}
	if _, err := s.Find("sise"); err == nil || !strings.Contains(err.Error(), `no field "sise"; there are: addr since`) {
		t.Errorf("unknown name: %v", err)
	}
	if got := string(s.Fields[8].JSON("")) + string(s.Fields[2].JSON("5")) + string(s.Fields[7].JSON("a\"")); got != `null5"a\""` {
		t.Errorf("JSON %s", got)
	}
}

func TestFilter(t *testing.T) {
	s := NewSet(reflect.TypeFor[record](), nil)
	r := &record{Addr: netip.MustParseAddr("10.0.0.7"), Since: time.Unix(1000, 0), Bytes: 64 << 10, Age: 1500 * time.Microsecond, Up: true, Owner: owner{3, "Data/base"}}
	v := values(s, r)
	for text, want := range map[string]bool{
		"": true, "addr=10.0.0.7": true, "addr=10.0.0.0/24": true, "addr!=10.0.0.0/24": false, "addr=10.1.0.0/16": false,
		"addr<10.0.0.8": true, "size=64KiB": true, "size>64k": false, "size>=65536": true, "size<1G": true,
		"age>1ms": true, "age<=1.5ms": true, "age>2000000": false, "up=yes": true, "up!=true": false,
		"pid=3,up=no": false, "pid=3, up=yes": true, "name=Data/*": true, "name=data*": false, "name~BASE": true, "name!~x": true,
		"since<2020-01-01T00:00:00Z": true, "quota=5": false, "quota!=5": true, "quota=": true, "name=": false, "name>A": true,
	} {
		f, err := s.ParseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := f.Match(v); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for text, want := range map[string]string{
		"addr":            "want NAME=VALUE",
		"=3":              "want NAME=VALUE",
		"pid!3":           "want NAME=VALUE",
		"pod=3":           `no field "pod"; there are: `,
		"pid=x":           `"x" is not a number`,
		"size=5X":         "is not a size",
		"age=5X":          "nor a duration",
		"up=maybe":        "neither yes nor no",
		"addr=host":       "unable to parse IP",
		"addr=1.2/33":     "ParsePrefix",
		"addr<10.0.0.0/8": "a network is = or !=",
		"since=now":       "is not an instant",
		"name=[":          "syntax error in pattern",
		"pid=3,":          "want NAME=VALUE",
	} {
		if _, err := s.ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestSort(t *testing.T) {
	s := NewSet(reflect.TypeFor[record](), nil)
	list := []*record{
		{Bytes: 9, Addr: netip.MustParseAddr("10.0.0.10"), Owner: owner{1, "a"}},
		{Bytes: 10, Addr: netip.MustParseAddr("10.0.0.9"), Owner: owner{2, "a"}},
		{Bytes: 1<<63 + 1, Owner: owner{3, "b"}, Since: time.Unix(5, 0)},
		{Bytes: 1 << 63, Owner: owner{4, "b"}, Since: time.Unix(5, 1)},
	}
	for text, want := range map[string][]int{
		"": {1, 2, 3, 4}, "size": {1, 2, 4, 3}, "-size": {3, 4, 2, 1}, "addr": {3, 4, 2, 1}, "-name,size": {4, 3, 1, 2}, "-since": {4, 3, 1, 2},
	} {
		o, err := s.ParseOrder(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		l := slices.Clone(list)
		Sort(l, o, func(r *record) []string { return values(s, r) })
		var got []int
		for _, r := range l {
			got = append(got, r.Owner.PID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if _, err := s.ParseOrder("size,-none"); err == nil || !strings.Contains(err.Error(), `sort: no field "none"`) {
		t.Errorf("unknown: %v", err)
	}
}
