package verbstest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// ReportEnv names a file that Run appends its verdicts to, one line for each
// statement: provider, statement, verdict (pass, deviation, n/a or FAIL), rule
// and reason, separated by tabs. scripts/conformance.sh makes a table of it.
const ReportEnv = "VERBS_CONFORMANCE"

// verdict of a case or statement; the worst of several counts.
type verdict uint8

const (
	notApplicable verdict = iota
	passed
	deviates
	failed
)

func (v verdict) String() string { return [...]string{"n/a", "pass", "deviation", "FAIL"}[v] }

// report collects the verdicts of one Run.
type report struct {
	mu       sync.Mutex
	provider string
	cases    map[string]verdict // by number
	why      map[string]string
}

func newReport() *report { return &report{cases: map[string]verdict{}, why: map[string]string{}} }

// number is the statement a case's name begins with.
func number(name string) string {
	n, _, _ := strings.Cut(name, " ")
	return n
}

func (r *report) add(name string, v verdict, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := number(name)
	if v >= r.cases[id] {
		r.cases[id] = v
		if why != "" {
			r.why[id] = why
		}
	}
}

// of is the verdict on a statement.
func (r *report) of(s *Statement) (verdict, string) {
	if s.NA != "" {
		return notApplicable, s.NA
	}
	best, why := r.cases[s.ID], r.why[s.ID]
	for _, id := range s.By {
		if v := r.cases[id]; v > best && (best == notApplicable || v == failed) {
			best, why = v, "shown by "+id
		}
	}
	if s.Contract != "" && best == passed {
		best, why = deviates, s.Contract
	}
	if best == passed {
		why = ""
	}
	return best, why
}

// write appends the lines to the file that ReportEnv names.
func (r *report) write(t *testing.T) {
	path := os.Getenv(ReportEnv)
	if path == "" {
		return
	}
	var b strings.Builder
	for i := range Statements {
		s := &Statements[i]
		v, why := r.of(s)
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", r.provider, s.ID, v, s.Rule, why)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(b.String())
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// checkStatements makes sure that the list is complete and that each statement
// has something to show for it.
func checkStatements(t *testing.T, cases []testCase) {
	t.Helper()
	have := map[string]bool{}
	for _, c := range cases {
		have[number(c.name)] = true
	}
	listed := map[string]bool{}
	for i := range Statements {
		s := &Statements[i]
		if want := fmt.Sprintf("A%d", i+1); s.ID != want {
			t.Fatalf("statement %s where %s is due", s.ID, want)
		}
		listed[s.ID] = true
		shown := have[s.ID]
		for _, id := range s.By {
			if !have[id] {
				t.Errorf("statement %s is to be shown by %s, which has no case", s.ID, id)
			}
			shown = true
		}
		if shown == (s.NA != "") {
			t.Errorf("statement %s: shown by a case: %v, not applicable: %q", s.ID, shown, s.NA)
		}
	}
	for id := range have {
		if id[0] == 'A' && !listed[id] {
			t.Errorf("a case of statement %s, which is not in the list", id)
		}
	}
}
