package main

import (
	"fmt"
	"regexp"
	"strings"
)

// rule matches the names of skips that are expected.
type rule struct {
	stage, name *regexp.Regexp
	text        [2]string // STAGE, PACKAGE/TEST
	line        int
}

// parseRules reads lines of STAGE PACKAGE/TEST. * matches anything, # starts a comment. No line matches all
// that another one does.
func parseRules(text string) ([]rule, error) {
	var rules []rule
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			return nil, fmt.Errorf("expected skips, line %d: want STAGE PACKAGE/TEST, have %q", i+1, line)
		}
		r := rule{glob(f[0]), glob(f[1]), [2]string(f), i + 1}
		for _, o := range rules {
			if o.match(f[0], f[1]) || r.match(o.text[0], o.text[1]) {
				return nil, fmt.Errorf("expected skips, line %d: %s is what line %d names: leave one of them", i+1, strings.Join(f, " "), o.line)
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

func (r rule) match(stage, name string) bool {
	return r.stage.MatchString(stage) && r.name.MatchString(name)
}
