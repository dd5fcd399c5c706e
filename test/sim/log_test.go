package sim

import (
	"fmt"
	"strings"

	"github.com/rdsd/rdsd/internal/engine"
)

// event is one line of a run's history: the virtual time in µs, the host, what happened, and up
// to three numbers whose meaning depends on what happened.
type event struct {
	at      int64
	host    int
	kind    string
	a, b, c int64
	text    string
}

func (e *event) String() string {
	s := fmt.Sprintf("%14.3f  h%d  %-10s %8d %8d %8d", float64(e.at)/1e3, e.host, e.kind, e.a, e.b, e.c)
	if e.text != "" {
		s += "  " + e.text
	}
	return s
}

const keptEvents = 50

// history keeps the last events of a run and a digest of all.
type history struct {
	last [keptEvents]event
	n    int
	hash uint64
	echo func(string) // with -sim.trace
}

func (h *history) add(e event) {
	h.last[h.n%keptEvents] = e
	h.n++
	for _, x := range [...]uint64{uint64(e.at), uint64(e.host), uint64(e.a), uint64(e.b), uint64(e.c)} {
		h.hash = (h.hash ^ x) * 0x100000001b3
	}
	h.hash = (h.hash ^ uint64(len(e.kind))<<16 ^ uint64(e.kind[0])<<8 ^ uint64(e.kind[len(e.kind)-1])) * 0x100000001b3
	if h.echo != nil {
		h.echo(e.String())
	}
}

func (h *history) String() string {
	var b strings.Builder
	for i := max(0, h.n-keptEvents); i < h.n; i++ {
		b.WriteString(h.last[i%keptEvents].String())
		b.WriteByte('\n')
	}
	return b.String()
}

// violation is the panic value that a broken rule ends the run with.
type violation struct{ rule, text string }

func (v *violation) Error() string { return v.rule + ": " + v.text }

// broken ends the run with a violation.
func broken(rule, format string, args ...any) {
	panic(&violation{rule, fmt.Sprintf(format, args...)})
}

func (w *world) log(h *host, kind string, a, b, c int64) { w.logText(h, kind, a, b, c, "") }

func (w *world) logText(h *host, kind string, a, b, c int64, text string) {
	n := -1
	if h != nil {
		n = h.n
	}
	w.hist.add(event{at: w.net.Now(), host: n, kind: kind, a: a, b: b, c: c, text: text})
}

// ruleOf returns the rule that check finds broken, "" if none.
func ruleOf(check func()) (rule string) {
	defer func() {
		if p := recover(); p != nil {
			rule = p.(*violation).rule
		}
	}()
	check()
	return ""
}

// state lists what every daemon still has.
func (w *world) state() (s []string) {
	for _, h := range w.hosts {
		if h.up {
			s = append(s, fmt.Sprintf("host %d: %q", h.n, engine.Leaks(h.e)))
		}
	}
	return s
}
