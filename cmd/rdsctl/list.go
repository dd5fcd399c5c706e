package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/rows"
	"github.com/rdsd/rdsd/internal/stats"
)

// column is one column of a table for people.
type column[T any] struct {
	head  string // also, in lower case, its name for --columns
	field string // the field that --sort and --filter use for that name, "" for none
	wide  bool   // shown only with -o wide or in --columns
	text  func(*T) string
	id    bool                  // names something, so that 0 is no blank
	free  bool                  // text without bounds: as the last column, cut to the width of a terminal
	left  bool                  // aligned to the left, although the field is a number
	total func([]row[T]) string // of all rows, nil for none
	tone  func(*T) text.Color   // colour on a terminal, nil for none
}

// listing is a verb that shows one list of the daemon's answer. The list is the response's
// field with the kind's name.
type listing[T any] struct {
	kind    ctl.Kind
	items   func(*ctl.Response) []T
	columns []column[T]
	none    string                                // what a table without rows says
	after   func(*ctl.Response, *[]string)        // lines below the table
	offline func(*stats.ListReader) *ctl.Response // reads the daemon's mapped lists; nil if they do not have this list
	keep    func(*T) bool                         // which rows a flag of the verb keeps; nil keeps all

	set *rows.Set
}

// fields are the names for --columns, --sort and --filter. They are made once.
func (l *listing[T]) fields() *rows.Set {
	if l.set == nil {
		also := map[string]string{}
		for _, c := range l.columns {
			if c.field != "" {
				also[strings.ToLower(c.head)] = c.field
			}
		}
		l.set = rows.NewSet(reflect.TypeFor[T](), also)
	}
	return l.set
}

// names returns columns, then fields, for completion and the manual.
func (l *listing[T]) names() (columns, fields []string) {
	for _, c := range l.columns {
		columns = append(columns, strings.ToLower(c.head))
	}
	return columns, l.fields().Names()
}

// plan says which parts of a list are shown.
type plan[T any] struct {
	*listing[T]
	filter *rows.Filter
	order  *rows.Order
	text   []column[T]   // of tables
	shown  []*rows.Field // of the other forms
	chosen bool          // by --columns
}

// plan reads the options. Its errors are about usage.
func (l *listing[T]) plan(o *options) (*plan[T], error) {
	p := &plan[T]{listing: l}
	set := l.fields()
	var err error
	if p.filter, err = set.ParseFilter(o.filter); err != nil {
		return nil, err
	}
	if p.order, err = set.ParseOrder(o.sort); err != nil {
		return nil, err
	}
	if o.columns == "" {
		for _, c := range l.columns {
			if !c.wide || o.output == wide {
				p.text = append(p.text, c)
			}
		}
		for i := range set.Fields {
			p.shown = append(p.shown, &set.Fields[i])
		}
		return p, nil
	}
	p.chosen = true
	for name := range strings.SplitSeq(o.columns, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		i, err := set.Find(name)
		c, ok := l.column(name)
		switch {
		case ok:
		case err != nil:
			columns, _ := l.names()
			return nil, fmt.Errorf("columns: no column or field %q; there are: %s; %s", name, strings.Join(columns, " "), strings.Join(set.Names(), " "))
		default:
			f := &set.Fields[i]
			c = column[T]{head: strings.ToUpper(f.Name), field: f.Name, text: func(x *T) string { return cell(f.Value(x), "none") }}
		}
		p.text = append(p.text, c)
		if err == nil {
			p.shown = append(p.shown, &set.Fields[i])
		} else if o.output.machine() {
			return nil, fmt.Errorf("columns: %q is for tables only; fields are: %s", name, strings.Join(set.Names(), " "))
		}
	}
	return p, nil
}

func (l *listing[T]) column(name string) (column[T], bool) {
	for _, c := range l.columns {
		if strings.ToLower(c.head) == name {
			return c, true
		}
	}
	return column[T]{}, false
}

// row is an item: its JSON as it came, and parsed.
type row[T any] struct {
	item   *T
	raw    json.RawMessage
	values []string
}

// run asks and shows the answer. With --watch it repeats that. req need not have the kind and the
// limit.
func (l *listing[T]) run(ctx context.Context, a *app, o *options, req ctl.Request) int {
	req.Kind, req.Limit = l.kind, o.limit
	p, err := l.plan(o)
	if err != nil {
		return a.wrong(string(l.kind), "%v", err)
	}
	return a.repeat(ctx, o, func() int {
		if l.offline != nil && o.offline {
			return p.showOffline(a, o)
		}
		raw, resp, err := a.once(ctx, o, req)
		if err != nil {
			return a.fail(o, l.kind, err)
		}
		return p.show(a, o, raw, resp)
	})
}

// show prints one answer.
func (p *plan[T]) show(a *app, o *options, raw []byte, resp *ctl.Response) int {
	items := p.items(resp)
	if o.output.json() {
		return p.showJSON(a, o, raw, items)
	}
	list := p.rows(items, nil)
	if o.output == asCSV {
		return p.csv(a, o, list)
	}
	if t := a.terminal(); len(list) > 0 || !t.is() || p.none == "" {
		g := p.grid(list, o, t)
		g.write(a.stdout)
	}
	var notes []string
	if len(items) == 0 && p.none != "" {
		notes = append(notes, p.none)
	}
	if p.after != nil {
		p.after(resp, &notes)
	}
	if resp.Offline {
		notes = append(notes, fmt.Sprintf("as of %s, from the daemon's lists", resp.AsOf.Local().Format(time.DateTime+".000")))
	}
	if resp.Unlisted > 0 {
		notes = append(notes, fmt.Sprintf("%d more are not in the lists", resp.Unlisted))
	}
	if resp.Truncated {
		notes = append(notes, "there is more: --limit")
	}
	for _, n := range notes {
		fmt.Fprintln(a.stderr, printable(n))
	}
	return exitOK
}

// showJSON prints one answer as JSON or as lines of JSON.
func (p *plan[T]) showJSON(a *app, o *options, raw []byte, items []T) int {
	if o.output.form() == asJSON && o.filter == "" && o.sort == "" && !p.chosen && p.keep == nil {
		// Print the answer as it came, so that fields of a newer daemon are kept.
		return a.printJSON(o, json.RawMessage(raw))
	}
	var envelope map[string]json.RawMessage
	var raws []json.RawMessage
	err := json.Unmarshal(raw, &envelope)
	if err == nil {
		err = json.Unmarshal(envelope[string(p.kind)], &raws)
	}
	if err == nil && len(raws) != len(items) {
		err = fmt.Errorf("the daemon's answer has no list %q", p.kind)
	}
	if err != nil {
		return a.fail(o, p.kind, err)
	}
	list := p.rows(items, raws)
	if o.output.form() == jsonLines {
		for _, r := range list {
			if code := a.printJSON(o, p.object(&r)); code != exitOK {
				return code
			}
		}
		return exitOK
	}
	objects := make([]json.RawMessage, len(list))
	for i := range list {
		objects[i] = p.object(&list[i])
	}
	out, err := json.Marshal(objects)
	if err != nil {
		return a.fail(o, p.kind, err)
	}
	envelope[string(p.kind)] = out
	return a.printJSON(o, envelope)
}

// rows are the items that pass the filter, sorted. raws may be nil.
func (p *plan[T]) rows(items []T, raws []json.RawMessage) []row[T] {
	var list []row[T]
	for i := range items {
		if p.keep != nil && !p.keep(&items[i]) {
			continue
		}
		r := row[T]{item: &items[i]}
		if raws != nil {
			r.raw = raws[i]
		}
		for k := range p.set.Fields {
			r.values = append(r.values, p.set.Fields[k].Value(r.item))
		}
		if p.filter.Match(r.values) {
			list = append(list, r)
		}
	}
	rows.Sort(list, p.order, func(r row[T]) []string { return r.values })
	return list
}

// object is r as it came, or only its chosen fields.
func (p *plan[T]) object(r *row[T]) json.RawMessage {
	if !p.chosen {
		return r.raw
	}
	b := []byte{'{'}
	for i, f := range p.shown {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(f.Name)
		b = append(append(append(b, name...), ':'), f.JSON(f.Value(r.item))...)
	}
	return append(b, '}')
}

func (p *plan[T]) csv(a *app, o *options, list []row[T]) int {
	w := csv.NewWriter(a.stdout)
	line := make([]string, len(p.shown))
	if !o.noHeader {
		for i, f := range p.shown {
			line[i] = f.Name
		}
		_ = w.Write(line)
	}
	for _, r := range list {
		for i, f := range p.shown {
			line[i] = printable(f.Value(r.item))
		}
		_ = w.Write(line)
	}
	w.Flush()
	o.noHeader = true // with -watch, later lines belong to the same table
	if err := w.Error(); err != nil {
		fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// verb makes l's entry in the table of verbs.
func (l *listing[T]) verb(v verb) verb {
	v.forms, v.names, v.watch = allForms, l.names, true
	v.offline = v.offline || l.offline != nil
	if v.prepare == nil {
		v.prepare = func(*flag.FlagSet) action {
			return func(ctx context.Context, a *app, o *options, _ string) int { return l.run(ctx, a, o, ctl.Request{}) }
		}
	}
	return v
}
