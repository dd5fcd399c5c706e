package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/rdsd/rdsd/internal/ctl"
)

// schema names the form of the JSON that rdsctl prints. It is that of the daemon's answers
// (ctl.Schema), which -o json-v2 prints as they are, but for one thing: what has 64 bits is a
// string, as in protobuf's JSON, because JavaScript and others read a number as a double. A name
// of a field has one form everywhere.
const schema = "rdsd.v3"

// wideNames are the names of fields with 64 bits.
var wideNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	seen := map[reflect.Type]bool{}
	addWide(reflect.TypeFor[ctl.Response](), names, seen)
	addWide(reflect.TypeFor[report](), names, seen)
	return names
})

// addWide adds the names of t's fields with 64 bits, and of what they consist of.
func addWide(t reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	if t = element(t); t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && !f.Anonymous {
			continue // not a field of the document
		}
		switch e := element(f.Type); {
		case e.Implements(reflect.TypeFor[encoding.TextMarshaler]()), e.Implements(reflect.TypeFor[json.Marshaler]()):
		case e.Kind() == reflect.Int64, e.Kind() == reflect.Uint64:
			names[name] = true
		default:
			addWide(e, names, seen)
		}
	}
}

// element is what a value of type t consists of.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// indented is v as a document for people and programs, in rdsctl's schema.
func indented(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err == nil {
		raw, err = numbersToStrings(raw)
	}
	var b bytes.Buffer
	if err == nil {
		err = json.Indent(&b, raw, "", "  ")
	}
	return b.Bytes(), err
}

// numbersToStrings writes a document of the daemon's schema in that of rdsctl.
func numbersToStrings(doc []byte) ([]byte, error) { return rewrite(doc, ctl.Schema, schema, true) }

// stringsToNumbers writes a document of rdsctl's schema in that of the daemon, and one that is in it
// already as it is.
func stringsToNumbers(doc []byte) ([]byte, error) { return rewrite(doc, schema, ctl.Schema, false) }

// rewrite writes doc with schema to instead of from, and what has 64 bits as strings or as numbers.
func rewrite(doc []byte, from, to string, quote bool) ([]byte, error) {
	r := rewriter{from: from, to: to, quote: quote, in: json.NewDecoder(bytes.NewReader(doc))}
	r.in.UseNumber()
	if err := r.value(""); err != nil {
		return nil, err
	}
	if _, err := r.in.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one document: %w", err)
	}
	return r.out.Bytes(), nil
}

type rewriter struct {
	in       *json.Decoder
	out      bytes.Buffer
	from, to string
	quote    bool
}

// wide64 reports whether a field has 64 bits. A column's name may have those of the objects around it.
func wide64(name string) bool { return wideNames()[name[strings.LastIndexByte(name, '.')+1:]] }

// value writes the next value, of a field with this name or in a list there.
func (r *rewriter) value(name string) error {
	if name == "check" {
		var as json.RawMessage // it has no wide numbers, and a field named as one
		err := r.in.Decode(&as)
		r.out.Write(as)
		return err
	}
	tok, err := r.in.Token()
	if err != nil {
		return err
	}
	switch v := tok.(type) {
	case json.Delim:
		return r.several(v, name)
	case json.Number:
		if r.quote && wide64(name) {
			tok = v.String()
		}
	case string:
		switch {
		case name == "schema" && v == r.from:
			tok = r.to
		case !r.quote && wide64(name):
			tok = json.Number(v)
		}
	}
	return r.write(tok)
}

// several writes the values of an object or a list whose begin was read.
func (r *rewriter) several(begin json.Delim, name string) error {
	r.out.WriteByte(byte(begin))
	for n := 0; r.in.More(); n++ {
		if n > 0 {
			r.out.WriteByte(',')
		}
		if begin == '{' {
			key, err := r.in.Token()
			if err != nil {
				return err
			}
			name, _ = key.(string)
			if err := r.write(name); err != nil {
				return err
			}
			r.out.WriteByte(':')
		}
		if err := r.value(name); err != nil {
			return err
		}
	}
	end, err := r.in.Token()
	if err == nil {
		r.out.WriteString(fmt.Sprint(end))
	}
	return err
}

func (r *rewriter) write(tok json.Token) error {
	b, err := json.Marshal(tok)
	r.out.Write(b)
	return err
}
