package main

import (
	"fmt"
	"regexp"
	"strings"
)

// rule matches the names of skips that are expected.
type rule struct{ stage, name *regexp.Regexp }

// parseRules reads lines of STAGE PACKAGE/TEST. * matches anything, # starts a comment.
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
		rules = append(rules, rule{glob(f[0]), glob(f[1])})
	}
	return rules, nil
}

func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

func (r rule) match(stage, name string) bool {
	return r.stage.MatchString(stage) && r.name.MatchString(name)
}
