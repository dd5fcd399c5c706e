package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// FileError is one mistake in a file, with its line and a caret below the place:
//
//	rdsd.toml:3:1: unknown key "prot"; ...
//	    3 | prot = 1
//	      | ^
type FileError struct {
	File         string
	Line, Column int // from 1; the column counts bytes
	Msg          string
	Source       string // the line
}

func (e *FileError) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
	if e.Source == "" {
		return s
	}
	number := fmt.Sprintf("%5d", e.Line)
	// The text before the caret has to be as wide as the text before the place, so tabs
	// stay tabs.
	before := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, e.Source[:min(e.Column-1, len(e.Source))])
	return s + "\n" + number + " | " + e.Source + "\n" + strings.Repeat(" ", len(number)) + " | " + before + "^"
}

// fileError is the FileError for a place in doc.
func fileError(file string, doc []byte, line, column int, msg string) *FileError {
	e := &FileError{File: file, Line: line, Column: column, Msg: msg}
	lines := strings.Split(string(doc), "\n")
	if src := strings.TrimRight(lines[min(max(line, 1), len(lines))-1], "\r"); len(src) <= 200 && utf8.ValidString(src) {
		e.Source = src
	}
	return e
}

// keyError is the fileError for the first word of a line.
func keyError(file string, doc []byte, line int, msg string) *FileError {
	e := fileError(file, doc, line, 1, msg)
	e.Column += len(e.Source) - len(strings.TrimLeft(e.Source, " \t"))
	return e
}

// meant is a hint if name is nearly the name of a key: ", meant is perhaps PORT".
func meant(name string, keys []key, nameOf func(key) string) string {
	best, most := "", len(name)/3+1
	for _, k := range keys {
		if d := distance(name, nameOf(k)); d <= most && d < len(name) {
			best, most = nameOf(k), d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", meant is perhaps %q", best)
}

// distance is the least number of bytes to insert, delete, change or swap with their
// neighbour that turns a into b.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	var old []int
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		old, before, row = before, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			same := 1
			if a[i] == b[j] {
				same = 0
			}
			row[j+1] = min(before[j]+same, before[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], old[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
