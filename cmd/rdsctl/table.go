package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// gap is the number of blanks between two columns.
const gap = 2

// minCut is the width that the last column keeps when a terminal is too narrow.
const minCut = 12

// grid is a table for people. Its cells are printable.
type grid struct {
	head  []string
	right []bool // by column: aligned to the right; nil for none
	rows  [][]string
	total []string // a last row; nil for none
	plain bool     // without the header

	width int                              // of the terminal, to which the last column is cut; 0 cuts nothing
	tone  func(row, column int) text.Color // colour of a cell, 0 for none; nil for a table without colour
}

// rightFrom aligns all columns to the right but the first left ones.
func rightFrom(left, columns int) []bool {
	right := make([]bool, columns)
	for i := left; i < columns; i++ {
		right[i] = true
	}
	return right
}

// write writes the table. Package text decides whether colours are shown: NO_COLOR and
// TERM=dumb turn them off.
func (g *grid) write(w io.Writer) {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", gap)
	style.Format = table.FormatOptions{}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	g.cut()
	bold := text.Colors{}
	if g.tone != nil {
		bold = text.Colors{text.Bold}
	}
	configs := make([]table.ColumnConfig, len(g.head))
	for i := range configs {
		align := text.AlignLeft
		if g.right != nil && g.right[i] {
			align = text.AlignRight
		}
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, AlignFooter: align, ColorsHeader: bold, ColorsFooter: bold}
	}
	t.SetColumnConfigs(configs)
	if !g.plain {
		t.AppendHeader(cells(g.head))
	}
	for i, row := range g.rows {
		line := cells(row)
		if g.tone != nil {
			for k := range line {
				if c := g.tone(i, k); c != 0 {
					line[k] = c.Sprint(line[k])
				}
			}
		}
		t.AppendRow(line)
	}
	if g.total != nil {
		t.AppendFooter(cells(g.total))
	}
	if s := t.Render(); s != "" {
		fmt.Fprintln(w, s)
	}
}

func cells(row []string) table.Row {
	out := make(table.Row, len(row))
	for i, s := range row {
		out[i] = s
	}
	return out
}

// cut shortens the last column, so that lines fit the terminal's width.
func (g *grid) cut() {
	last := len(g.head) - 1
	if g.width == 0 || last < 1 {
		return
	}
	room := g.width
	for i := range last {
		widest := len(g.head[i])
		for _, row := range append(g.rows, g.total) {
			if row != nil {
				widest = max(widest, text.StringWidth(row[i]))
			}
		}
		room -= widest + gap
	}
	for _, row := range g.rows {
		row[last] = text.Snip(row[last], max(room, minCut), "…")
	}
}

// showTable writes rows under a header. right are the columns that hold numbers.
func showTable(w io.Writer, head []string, right []bool, rows [][]string) {
	g := grid{head: head, right: right, rows: rows}
	g.write(w)
}

// printable removes from text of clients and peers what could harm a terminal or a table's
// columns.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// cell is printable text of one line. It is never empty.
func cell(s, empty string) string {
	if s == "" {
		return empty
	}
	return strings.ReplaceAll(printable(s), "\n", " ")
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// bytesText is a size for people, with at most one decimal.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	s := strconv.FormatFloat(f, 'f', 1, 64)
	return fmt.Sprintf("%s %ciB", strings.TrimSuffix(s, ".0"), units[i])
}

// short is a duration with three significant digits.
func short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// ago is the time since since, with at most two units.
func ago(since, now time.Time) string {
	const day = 24 * time.Hour
	if since.IsZero() {
		return "never"
	}
	switch d := max(0, now.Sub(since)); {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	default:
		return short(d)
	}
}
