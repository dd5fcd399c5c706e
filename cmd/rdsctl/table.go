package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table writes rows in aligned columns under a header.
func table(w io.Writer, header []string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if header != nil {
		fmt.Fprintln(tw, strings.Join(header, "\t"))
	}
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush()
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

// ago is the time since since. Above ten seconds it has whole seconds.
func ago(since, now time.Time) string {
	if since.IsZero() {
		return "never"
	}
	d := max(0, now.Sub(since))
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return short(d)
}
