package main

import (
	"context"
	"encoding"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// checkState is the result of a check, and rdsctl's exit status. The values are those of
// monitoring plug-ins.
type checkState int

const (
	checkOK checkState = iota
	checkWarning
	checkCritical
	checkUnknown
)

var checkNames = [...]string{"ok", "warning", "critical", "unknown"}

func (s checkState) String() string { return checkNames[s] }

var _ encoding.TextMarshaler = checkOK

// MarshalText implements encoding.TextMarshaler.
func (s checkState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// checkResult is the result of a check with its reasons.
type checkResult struct {
	Check   string        `json:"check"`
	State   checkState    `json:"state"`
	Code    int           `json:"code"`
	Text    string        `json:"text"`
	Metrics []checkMetric `json:"metrics"`
}

// checkMetric is a figure with its thresholds, in base units.
type checkMetric struct {
	Name  string   `json:"name"` // with its unit
	Value float64  `json:"value"`
	Warn  *float64 `json:"warn"`
	Crit  *float64 `json:"crit"`
}

// checkKind is one thing that can be checked: an entry in the table below.
type checkKind struct {
	name, arg string
	summary   string
	unit      string // of -warn and -crit: "s", "%", "days", "" for a number, or "-" if the check takes none
	warn      float64
	crit      float64
	run       func(c *checker, arg string) error
}

func checkKinds() []checkKind {
	return []checkKind{
		{"daemon", "", "it answers, and its engine turns", "s", 0.5, 1, (*checker).daemon},
		{"health", "", "what doctor, top and the page find", "-", 0, 0, (*checker).health},
		{"peers", "", "peers that are not reached, do not ack, or were turned away", "", 1, 5, (*checker).peers},
		{"peer", "ADDR", "the connections to one peer", "-", 0, 0, (*checker).peer},
		{"socket", "ADDR:PORT", "it is bound, and read", "-", 0, 0, (*checker).socket},
		{"backlog", "", "age of the oldest message in progress", "s", 1, 10, (*checker).backlog},
		{"memory", "", "the fullest of memory limits and users' quotas", "%", 80, 95, (*checker).memory},
		{"cert", "", "when the certificate ends", "days", 14, 3, (*checker).cert},
		{"config", "", "the daemon runs with what its sources say", "-", 0, 0, (*checker).config},
	}
}

// checker runs one check.
type checker struct {
	*app
	ctx        context.Context
	o          *options
	warn, crit float64
	r          checkResult
}

func checkAbout() string {
	var b strings.Builder
	b.WriteString("Kinds, with their thresholds for warning and critical: ")
	for i, k := range checkKinds() {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(strings.TrimSpace(k.name+" "+k.arg) + ", " + k.summary)
		if k.unit != "-" {
			fmt.Fprintf(&b, " (%v and %v %s)", k.warn, k.crit, k.unit)
		}
	}
	b.WriteString(". Exit status, of this verb alone: 0 ok, 1 warning, 2 critical, 3 unknown (also: wrong usage).")
	return b.String()
}

func checkWords(ctx context.Context, a *app, o *options) (words []string) {
	for _, k := range checkKinds() {
		words = append(words, k.name)
	}
	return words
}

func checkVerb(fs *flag.FlagSet) action {
	warn := fs.String("warn", "", "`value` from which it is a warning, in the kind's unit (times also as 1.5s)")
	crit := fs.String("crit", "", "`value` from which it is critical")
	return func(ctx context.Context, a *app, o *options, arg string) int {
		words := strings.Fields(arg)
		kinds := checkKinds()
		i := slices.IndexFunc(kinds, func(k checkKind) bool { return k.name == words[0] })
		usage := func(format string, args ...any) int {
			fmt.Fprintf(a.stderr, "rdsctl: check: "+format+"\n", args...)
			return int(checkUnknown)
		}
		if i < 0 {
			return usage("unknown kind %q; there are: %s", words[0], strings.Join(checkWords(ctx, a, o), ", "))
		}
		k := kinds[i]
		switch {
		case k.arg != "" && len(words) != 2:
			return usage("%s wants %s", k.name, k.arg)
		case k.arg == "" && len(words) > 1:
			return usage("%s takes no argument, %q is one too many", k.name, words[1])
		case k.unit == "-" && *warn+*crit != "":
			return usage("%s has no thresholds", k.name)
		}
		c := &checker{app: a, ctx: ctx, o: o, warn: k.warn, crit: k.crit, r: checkResult{Check: k.name, Metrics: []checkMetric{}}}
		for _, t := range []struct {
			name, text string
			to         *float64
		}{{"warn", *warn, &c.warn}, {"crit", *crit, &c.crit}} {
			if t.text == "" {
				continue
			}
			n, err := threshold(t.text, k.unit)
			if err != nil {
				return usage("-%s: %v", t.name, err)
			}
			*t.to = n
		}
		arg = ""
		if len(words) > 1 {
			arg = words[1]
		}
		if err := k.run(c, arg); err != nil {
			if _, ok := errors.AsType[*usageError](err); ok {
				return usage("%v", err)
			}
			c.failed(err)
		}
		c.r.Code = int(c.r.State)
		if code := c.print(); code != exitOK {
			return int(checkUnknown)
		}
		return int(c.r.State)
	}
}

func threshold(s, unit string) (float64, error) {
	if unit == "s" {
		if d, err := time.ParseDuration(s); err == nil && d >= 0 {
			return d.Seconds(), nil
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number that is not negative", s)
	}
	return n, nil
}

// failed handles a daemon that cannot be asked. That is critical if the daemon is not there
// or stuck, else unknown.
func (c *checker) failed(err error) {
	c.r.State = checkUnknown
	if c.ctx.Err() != nil {
		c.r.Text = "interrupted"
		return
	}
	if code, _ := exitOf(err); code == exitNoDaemon || code == exitTimeout {
		c.r.State = checkCritical
	}
	c.r.Text = err.Error() + cure(err)
}

func (c *checker) ask(r ctl.Request) (*ctl.Response, error) {
	_, resp, err := c.once(c.ctx, c.o, r)
	return resp, err
}

// say raises the state and adds the reason.
func (c *checker) say(s checkState, format string, args ...any) {
	if s > c.r.State {
		c.r.State = s
		c.r.Text = ""
	}
	if s == c.r.State {
		if c.r.Text != "" {
			c.r.Text += "; "
		}
		c.r.Text += fmt.Sprintf(format, args...)
	}
}

// measure adds a figure and compares it with its thresholds. Larger is worse.
func (c *checker) measure(name string, v float64) checkState {
	c.r.Metrics = append(c.r.Metrics, checkMetric{name, v, &c.warn, &c.crit})
	switch {
	case v >= c.crit:
		return checkCritical
	case v >= c.warn:
		return checkWarning
	}
	return checkOK
}

func (c *checker) note(name string, v float64) {
	c.r.Metrics = append(c.r.Metrics, checkMetric{Name: name, Value: v})
}

func (c *checker) print() int {
	r := &c.r
	text := cell(r.Text, "nothing to say")
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	switch c.o.output.form() {
	case asJSON, jsonLines, asCSV:
		return c.printReport(c.o, report{Kind: ctl.KindCheck, Check: r}, nil)
	case nagios:
		var perf []string
		for _, m := range r.Metrics {
			p := m.Name + "=" + number(m.Value)
			if m.Warn != nil {
				p += ";" + number(*m.Warn) + ";" + number(*m.Crit)
			}
			perf = append(perf, p)
		}
		line := fmt.Sprintf("RDSD %s %s - %s", strings.ToUpper(r.Check), strings.ToUpper(r.State.String()), strings.ReplaceAll(text, "|", "/"))
		if len(perf) > 0 {
			line += " | " + strings.Join(perf, " ")
		}
		fmt.Fprintln(c.stdout, line)
	case prometheus:
		fmt.Fprintf(c.stdout, "# HELP rdsd_check_state State of a check: 0 ok, 1 warning, 2 critical, 3 unknown.\n# TYPE rdsd_check_state gauge\nrdsd_check_state{check=%q} %d\n", r.Check, r.Code)
		if len(r.Metrics) > 0 {
			fmt.Fprint(c.stdout, "# HELP rdsd_check_value Figures of a check, units in their names.\n# TYPE rdsd_check_value gauge\n")
		}
		for _, m := range r.Metrics {
			fmt.Fprintf(c.stdout, "rdsd_check_value{check=%q,name=%q} %s\n", r.Check, m.Name, number(m.Value))
		}
	default:
		fmt.Fprintf(c.stdout, "%s %s: %s\n", r.Check, r.State, text)
	}
	return exitOK
}
