package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// page is the manual page of one function of the C library.
type page struct {
	name      string
	prototype string
	text      []string // paragraphs of its comment
}

// function is a declaration in a header, behind its comment.
var function = regexp.MustCompile(`(?s)/\*((?:[^*]|\*[^/])*)\*/\n(?:#define [^\n]*\n)*RDS_API ([^;]*?\b(rds_\w+)\([^;]*\));`)

// pages finds the functions that a header declares.
func pages(header string) (ps []page) {
	for _, m := range function.FindAllStringSubmatch(header, -1) {
		ps = append(ps, page{name: m[3], prototype: m[2], text: paragraphs(m[1])})
	}
	return ps
}

// paragraphs are those of a comment, each on one line.
func paragraphs(comment string) (ps []string) {
	var now []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "*"))
		if line == "" && len(now) > 0 {
			ps, now = append(ps, strings.Join(now, " ")), nil
		} else if line != "" {
			now = append(now, line)
		}
	}
	if len(now) > 0 {
		ps = append(ps, strings.Join(now, " "))
	}
	return ps
}

// escape writes text so that roff shows it as it is.
func escape(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\e`), "-", `\-`)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// summary is what follows the function's name in the first sentence.
func (p *page) summary() string {
	first, _, _ := strings.Cut(strings.Join(p.text, " "), ". ")
	return strings.TrimSuffix(strings.TrimPrefix(first, p.name+" "), ".")
}

// roff is the page in the language of man.
func (p *page) roff() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 3 \"\" \"rdsd\" \"librds\"\n", strings.ToUpper(p.name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", p.name, escape(p.summary()))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n.B #include <rds/rds.h>\n.PP\n.B %s;\n.fi\n", escape(p.prototype))
	b.WriteString(".SH DESCRIPTION\n")
	for i, t := range p.text {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(escape(t) + "\n")
	}
	b.WriteString(".SH ERRORS\nA negative errno is returned on failure. The errors that every function can return are in\n.BR librds (7).\n")
	b.WriteString(".SH SEE ALSO\n.BR librds (7)\n")
	return b.String()
}

// writePages writes a page for each function of the headers in from to the folder to.
func writePages(from, to string) error {
	headers, err := filepath.Glob(filepath.Join(from, "*.h"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, h := range headers {
		text, err := os.ReadFile(h)
		if err != nil {
			return err
		}
		for _, p := range pages(string(text)) {
			if err := os.WriteFile(filepath.Join(to, p.name+".3"), []byte(p.roff()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
