package main

import (
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/rows"
)

// terminal is what standard output shows tables on. The zero terminal is a file or a pipe:
// its tables have every column, no total and no colour.
type terminal struct{ width int }

func (t terminal) is() bool { return t.width > 0 }

// terminal is the terminal of standard output.
func (a *app) terminal() terminal {
	if a.screen == nil {
		return a.shown
	}
	w, _ := a.screen.size()
	return terminal{w}
}

// terminalAbout is what the manual says about tables on a terminal.
const terminalAbout = "On a terminal a list has a total and colours, and an error in the last column is cut to the terminal's width. Columns in which every row has 0, none or - are left out. " +
	"-o wide shows all columns, -columns those that it names. NO_COLOR or TERM=dumb in the environment turns colours off. Files and pipes get every column, uncut."

// blanks are the texts of cells that say nothing.
var blanks = []string{"0", "0 B", "0/0 B", "0s", "none", "-"}

// grid makes the table of list. On a terminal it has a total, and lacks columns in which
// every row is blank, unless they were chosen or -o wide is given.
func (p *plan[T]) grid(list []row[T], o *options, t terminal) grid {
	columns := p.text
	cells := make([][]string, len(list))
	for i, r := range list {
		for _, c := range columns {
			cells[i] = append(cells[i], c.text(r.item))
		}
	}
	if t.is() && !p.chosen && o.output != wide && len(list) > 0 {
		columns, cells = withoutBlanks(columns, cells)
	}
	g := grid{rows: cells, plain: o.noHeader}
	for _, c := range columns {
		g.head = append(g.head, c.head)
		g.right = append(g.right, p.number(&c))
	}
	if !t.is() {
		return g
	}
	if o.output != wide && len(columns) > 0 && columns[len(columns)-1].free {
		g.width = t.width
	}
	g.tone = func(row, column int) text.Color {
		if f := columns[column].tone; f != nil {
			return f(list[row].item)
		}
		return 0
	}
	if len(list) > 1 && !o.noHeader {
		g.total = total(columns, list)
	}
	return g
}

// withoutBlanks leaves out columns in which every cell is blank, but not the first one and
// those with ids.
func withoutBlanks[T any](columns []column[T], cells [][]string) (kept []column[T], out [][]string) {
	out = make([][]string, len(cells))
	for k, c := range columns {
		blank := func(row []string) bool { return slices.Contains(blanks, row[k]) }
		if k > 0 && !c.id && !slices.ContainsFunc(cells, func(row []string) bool { return !blank(row) }) {
			continue
		}
		kept = append(kept, c)
		for i := range cells {
			out[i] = append(out[i], cells[i][k])
		}
	}
	return kept, out
}

// total is the last row of a table. It is nil if no column has a total.
func total[T any](columns []column[T], list []row[T]) []string {
	line, any := make([]string, len(columns)), false
	for i, c := range columns {
		if c.total != nil && i > 0 {
			line[i], any = c.total(list), true
		}
	}
	if !any {
		return nil
	}
	line[0] = "total"
	return line
}

// number reports whether c is aligned to the right.
func (l *listing[T]) number(c *column[T]) bool {
	i, err := l.fields().Find(c.field)
	return err == nil && !c.left && l.fields().Fields[i].Kind == rows.Number
}

// sum is a column's total of the numbers f.
func sum[T any](f func(*T) uint64) func([]row[T]) string {
	return func(list []row[T]) string { return count(add(list, f)) }
}

// sumBytes is a column's total of the sizes f.
func sumBytes[T any](f func(*T) uint64) func([]row[T]) string {
	return func(list []row[T]) string { return bytesText(add(list, f)) }
}

// sumPair is the total of a column of messages and bytes.
func sumPair[T any](msgs, bytes func(*T) uint64) func([]row[T]) string {
	return func(list []row[T]) string { return pair(add(list, msgs), add(list, bytes)) }
}

func add[T any](list []row[T], f func(*T) uint64) (n uint64) {
	for _, r := range list {
		n += f(r.item)
	}
	return n
}

func pair(msgs, bytes uint64) string { return fmt.Sprintf("%d/%s", msgs, bytesText(bytes)) }

// Colours of states. 0 is the terminal's own.
const (
	good  = text.FgGreen
	busy  = text.FgYellow
	wrong = text.FgRed
)

// stateTone is the colour of a connection's state.
func stateTone(state string, wanted bool) text.Color {
	switch {
	case state == "up":
		return good
	case state == "connecting":
		return busy
	case wanted || state == "error":
		return wrong
	}
	return 0
}

// levelTone is the colour of an event's level.
func levelTone(level string) text.Color {
	switch level {
	case "warn":
		return busy
	case "error":
		return wrong
	}
	return 0
}
