package main

import (
	"fmt"
	"strings"
)

// page is a manual page, independent of its form.
type page struct {
	name    string // "rdsctl-peers"
	section int
	summary string
	blocks  []block
}

// block is a part of a page. One of its fields is set.
type block struct {
	heading string
	text    string   // a paragraph
	code    []string // lines as they are
	terms   []term   // a list of terms and what they mean
	common  bool     // also in rdsctl's page, to which docs/cli refers instead
	flags   bool     // terms are flags, which docs/cli names
}

type term struct{ name, text string }

func (p *page) heading(s string) { p.blocks = append(p.blocks, block{heading: s}) }
func (p *page) text(format string, a ...any) {
	p.blocks = append(p.blocks, block{text: fmt.Sprintf(format, a...)})
}
func (p *page) code(lines ...string) { p.blocks = append(p.blocks, block{code: lines}) }
func (p *page) terms(terms []term)   { p.blocks = append(p.blocks, block{terms: terms}) }

// common marks the blocks that add adds as those that rdsctl's page has, too.
func (p *page) common(add func()) {
	n := len(p.blocks)
	add()
	for i := range p.blocks[n:] {
		p.blocks[n+i].common = true
	}
}

// roff is p as a page for man.
func (p *page) roff() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made by rdsctl %s: edit the program, not this.\n", manualVerb)
	fmt.Fprintf(&b, ".TH %s %d \"\" \"rdsd\" \"rdsd manual\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(p.name), p.section, roffText(p.name), roffText(p.summary))
	for _, x := range p.blocks {
		switch {
		case x.heading != "":
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(roffText(x.heading)))
		case x.code != nil:
			b.WriteString(".PP\n.nf\n.RS 4\n")
			for _, l := range x.code {
				b.WriteString(roffLine(l) + "\n")
			}
			b.WriteString(".RE\n.fi\n")
		case x.terms != nil:
			for _, t := range x.terms {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roffText(t.name), roffLine(t.text))
			}
		default:
			fmt.Fprintf(&b, ".PP\n%s\n", roffLine(x.text))
		}
	}
	return b.String()
}

// roffText escapes s, so that man prints it as it is.
func roffText(s string) string {
	s = strings.NewReplacer("\\", "\\e", "-", "\\-", "\n", " ", "'", "\\(aq", "`", "\\(ga", "µ", "\\(mc").Replace(s)
	return s
}

// roffLine escapes s as a line that must not begin with a request.
func roffLine(s string) string {
	s = roffText(s)
	if strings.HasPrefix(s, ".") {
		s = "\\&" + s
	}
	return s
}

// markdown is p as a page of docs/cli. What the pages have in common is in rdsctl.md alone.
func (p *page) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", strings.ReplaceAll(p.name, "rdsctl-", "rdsctl "), markText(p.summary))
	refer, named := false, false
	for _, x := range p.blocks {
		switch {
		case x.common && x.flags:
			b.WriteString(markFlags(x.terms))
			named = true
		case x.common:
			refer = true
		case x.heading != "":
			fmt.Fprintf(&b, "\n## %s\n", x.heading)
		case x.code != nil:
			fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.Join(x.code, "\n"))
		case x.terms != nil:
			b.WriteString(markTerms(x.terms))
		default:
			fmt.Fprintf(&b, "\n%s\n", markText(x.text))
		}
	}
	if refer && !named {
		b.WriteString("\nExit status and errors: [rdsctl](rdsctl.md#exit-status).\n")
	}
	return b.String()
}

// markTerms is a table of terms.
func markTerms(terms []term) string {
	var b strings.Builder
	b.WriteString("\n| | |\n|---|---|\n")
	for _, t := range terms {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(t.name, "|", "\\|"), markText(t.text))
	}
	return b.String()
}

// markFlags names the common flags among terms, and where they and the exit status are explained.
func markFlags(terms []term) string {
	var names []string
	for _, t := range terms {
		flag, _, _ := strings.Cut(t.name, " ")
		names = append(names, "`"+flag+"`")
	}
	return fmt.Sprintf("\n[Common flags, exit status](rdsctl.md#common-flags): %s.\n", strings.Join(names, ", "))
}

// markText escapes s, so that it has no markup.
func markText(s string) string {
	return strings.NewReplacer("|", "\\|", "*", "\\*", "<", "&lt;", "_", "\\_", "\n", " ").Replace(s)
}
