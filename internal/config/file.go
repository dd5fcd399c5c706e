package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parse applies the TOML document doc and notes in from where each key is set. It returns a
// FileError for each unknown key and bad value, with what is allowed.
func (c *Config) parse(file string, doc []byte, from Origins) error {
	if mark := byteOrderMark(doc); mark != "" {
		return fmt.Errorf("%s: not TOML: the file begins with %s; save it as UTF-8 without a byte order mark (BOM)", file, mark)
	}
	// The decoder checks the whole grammar and finds duplicate keys. The parser below finds
	// where each value is.
	var ignored map[string]any
	if err := toml.Unmarshal(doc, &ignored); err != nil {
		if de, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, col := de.Position()
			return fileError(file, doc, line, col, "not TOML: "+strings.TrimPrefix(de.Error(), "toml: "))
		}
		msg := strings.TrimPrefix(err.Error(), "toml: ")
		if line := again(doc, msg); line > 0 {
			return keyError(file, doc, line, "not TOML: "+msg)
		}
		return fmt.Errorf("%s: not TOML: %s", file, msg)
	}
	d := &document{file: file, doc: doc, keys: c.keys(), from: from}
	d.parser.Reset(doc)
	var table []string
	for d.parser.NextExpression() {
		switch e := d.parser.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = path(e)
			switch {
			case slices.ContainsFunc(d.keys, func(k key) bool { return k.name == strings.Join(table, ".") }):
				d.fail(first(e), "%q is a key, write %[1]s = with its value behind it, outside of other tables", strings.Join(table, "."))
			case !d.isTable(table):
				d.fail(first(e), "unknown table %q; allowed here: %s", strings.Join(table, "."), d.allowed(nil))
			case e.Kind == unstable.ArrayTable:
				d.fail(first(e), "%q is a table, write [%[1]s]", table[0])
			}
		case unstable.KeyValue:
			d.keyValue(table, e)
		}
	}
	if err := d.parser.Error(); err != nil {
		d.errs = append(d.errs, fmt.Errorf("%s: %w", file, err))
	}
	return errors.Join(d.errs...)
}

// byteOrderMark names the byte order mark that doc begins with. It is "" if there is none.
// TOML does not allow one, and no editor shows it.
func byteOrderMark(doc []byte) string {
	for _, m := range []struct{ mark, name string }{
		{"\xef\xbb\xbf", "the byte order mark of UTF-8 (EF BB BF)"},
		{"\xff\xfe", "the byte order mark of UTF-16 (FF FE)"},
		{"\xfe\xff", "the byte order mark of UTF-16 (FE FF)"},
	} {
		if bytes.HasPrefix(doc, []byte(m.mark)) {
			return m.name
		}
	}
	return ""
}

// twice matches the decoder's message about a name that is there twice. The message does
// not say where.
var twice = regexp.MustCompile(`^(?:key|table) (?:.*\.)?([^. ]+) (?:is already defined|already exists)`)

// again is the line of the last key or table with the name in msg, 0 if it is not found.
func again(doc []byte, msg string) int {
	m := twice.FindStringSubmatch(msg)
	if m == nil {
		return 0
	}
	at := regexp.MustCompile(`(?m)^[ \t]*(?:[^=#\n]*\.)?["']?`+regexp.QuoteMeta(m[1])+`["']?[ \t]*=|^[ \t]*\[+[^]\n]*\b`+regexp.QuoteMeta(m[1])+`[ \t]*\]`).FindAllIndex(doc, -1)
	if len(at) == 0 {
		return 0
	}
	return 1 + bytes.Count(doc[:at[len(at)-1][0]], []byte("\n"))
}

// document is a file that is being read.
type document struct {
	file   string
	doc    []byte
	parser unstable.Parser
	keys   []key
	from   Origins
	errs   []error
}

func (d *document) fail(at *unstable.Node, format string, args ...any) {
	pos := d.parser.Shape(at.Raw).Start
	d.errs = append(d.errs, fileError(d.file, d.doc, pos.Line, pos.Column, fmt.Sprintf(format, args...)))
}

// keyValue handles `key = value` in table.
func (d *document) keyValue(table []string, e *unstable.Node) {
	if len(table) > 0 && !d.isTable(table) {
		return // reported with the table's head
	}
	name := append(slices.Clip(table), path(e)...)
	dotted := strings.Join(name, ".")
	v := e.Value()
	i := slices.IndexFunc(d.keys, func(k key) bool { return k.name == dotted })
	switch {
	case i < 0 && d.isTable(name) && v.Kind == unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			d.keyValue(name, it.Node())
		}
		return
	case i < 0 && d.isTable(name):
		d.fail(first(e), "%q is a table; allowed in it: %s", dotted, d.allowed(name))
		return
	case i < 0:
		parent := name[:len(name)-1]
		if !d.isTable(parent) {
			parent = nil
		}
		d.fail(first(e), "unknown key %q%s; allowed here: %s", dotted, meant(dotted, d.keys, func(k key) string { return k.name }), d.allowed(parent))
		return
	}
	k := d.keys[i]
	items, ok := itemsOf(v, k.form)
	if !ok {
		d.fail(first(e), "%s: want %s; allowed: %s", k.name, k.form, k.allowed)
		return
	}
	if err := k.assign(items); err != nil {
		d.fail(first(e), "%s", err)
	}
	d.from[k.name] = fmt.Sprintf("%s:%d", d.file, d.parser.Shape(first(e).Raw).Start.Line)
}

// itemsOf returns the text or texts of v if v has the form that is wanted.
func itemsOf(v *unstable.Node, want form) ([]string, bool) {
	switch v.Kind {
	case unstable.String:
		return []string{string(v.Data)}, want&quoted != 0
	case unstable.Integer:
		return []string{string(v.Data)}, want&integer != 0
	case unstable.Array:
		items := []string{}
		for it := v.Children(); it.Next(); {
			if n := it.Node(); n.Kind == unstable.String {
				items = append(items, string(n.Data))
			} else if n.Kind != unstable.Comment {
				return nil, false
			}
		}
		return items, want == array
	}
	return nil, false
}

// path is the dotted key of a table or key-value expression.
func path(e *unstable.Node) []string {
	var parts []string
	for it := e.Key(); it.Next(); {
		parts = append(parts, string(it.Node().Data))
	}
	return parts
}

// first is the node of the first part of the key.
func first(e *unstable.Node) *unstable.Node {
	it := e.Key()
	it.Next()
	return it.Node()
}

func (d *document) isTable(name []string) bool {
	prefix := strings.Join(name, ".") + "."
	return slices.ContainsFunc(d.keys, func(k key) bool { return strings.HasPrefix(k.name, prefix) })
}

// allowed lists the keys that a table may have. nil is the top level.
func (d *document) allowed(table []string) string {
	prefix := ""
	if len(table) > 0 {
		prefix = strings.Join(table, ".") + "."
	}
	var names []string
	for _, k := range d.keys {
		if rest, ok := strings.CutPrefix(k.name, prefix); ok {
			names = append(names, rest)
		}
	}
	return strings.Join(names, ", ")
}
