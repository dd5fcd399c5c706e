// Package rows prepares lists of records for output: it finds the fields of a record's JSON
// by name, as text that can be printed, compared, filtered and sorted.
package rows

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Kind says how values of a field compare.
type Kind uint8

const (
	Text Kind = iota
	Number
	Bool
	Time
	Addr
)

// Field is one value of a record. A field of an object within an object is named by both
// names, joined by a dot.
type Field struct {
	Name string
	Kind Kind
	path []int
}

// Fields lists the fields of t, a struct, in the order of its JSON. Lists and maps are left
// out.
func Fields(t reflect.Type) []Field { return appendFields(nil, t, "", nil) }

func appendFields(out []Field, t reflect.Type, prefix string, path []int) []Field {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		at := append(append([]int(nil), path...), i)
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		kind, leaf := kindOf(ft)
		switch {
		case leaf:
			out = append(out, Field{prefix + name, kind, at})
		case ft.Kind() == reflect.Struct && f.Anonymous && name == "":
			out = appendFields(out, ft, prefix, at)
		case ft.Kind() == reflect.Struct:
			out = appendFields(out, ft, prefix+name+".", at)
		}
	}
	return out
}

var textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()

func kindOf(t reflect.Type) (Kind, bool) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return Time, true
	case reflect.TypeFor[netip.Addr]():
		return Addr, true
	}
	if t.Implements(textMarshaler) {
		return Text, true
	}
	switch t.Kind() {
	case reflect.Bool:
		return Bool, true
	case reflect.String:
		return Text, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return Number, true
	}
	return 0, false
}

// Value is the text of f in record, a struct or a pointer to one: its JSON without quotes,
// or "" if it is absent.
func (f *Field) Value(record any) string {
	v := reflect.ValueOf(record)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	for _, i := range f.path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return ""
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Time:
		if x.IsZero() {
			return ""
		}
		return x.UTC().Format(time.RFC3339Nano)
	case netip.Addr:
		if !x.IsValid() {
			return ""
		}
		return x.String()
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil {
			return ""
		}
		return string(b)
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10)
	}
	return strconv.FormatInt(v.Int(), 10)
}

// JSON is value, a text of f, as JSON. It is null if value is "".
func (f *Field) JSON(value string) json.RawMessage {
	switch {
	case value == "" && f.Kind != Text:
		return json.RawMessage("null")
	case f.Kind == Number, f.Kind == Bool:
		return json.RawMessage(value)
	}
	b, err := json.Marshal(value)
	if err != nil { // of a string: never
		return json.RawMessage("null")
	}
	return b
}

// Set is the fields of a kind of record, and further names for them.
type Set struct {
	Fields []Field
	alias  map[string]int
}

// NewSet is the Set of the fields of t. also maps further names to names of fields.
func NewSet(t reflect.Type, also map[string]string) *Set {
	s := &Set{Fields: Fields(t), alias: map[string]int{}}
	add := func(name string, i int) {
		if j, ok := s.alias[name]; ok && j != i {
			i = -1 // ambiguous, so it names neither field
		}
		s.alias[name] = i
	}
	for i, f := range s.Fields {
		last := f.Name[strings.LastIndexByte(f.Name, '.')+1:]
		add(last, i)
		for _, unit := range []string{"_bytes", "_ns"} {
			if short, ok := strings.CutSuffix(last, unit); ok {
				add(short, i)
			}
		}
	}
	for i, f := range s.Fields {
		s.alias[f.Name] = i
	}
	for name, of := range also {
		i, ok := s.alias[of]
		if !ok {
			panic(fmt.Sprintf("rows: %s stands for %s, which is no field of %v", name, of, t))
		}
		s.alias[name] = i
	}
	return s
}

// Find is the index of the field called name.
func (s *Set) Find(name string) (int, error) {
	i, ok := s.alias[strings.ToLower(name)]
	switch {
	case !ok:
		return 0, fmt.Errorf("no field %q; there are: %s", name, strings.Join(s.Names(), " "))
	case i < 0:
		return 0, fmt.Errorf("%q may be one of several fields; there are: %s", name, strings.Join(s.Names(), " "))
	}
	return i, nil
}

// Names are the fields' own names.
func (s *Set) Names() []string {
	names := make([]string, len(s.Fields))
	for i := range s.Fields {
		names[i] = s.Fields[i].Name
	}
	return names
}
