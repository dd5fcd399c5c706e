package tidy

import (
	"regexp"
	"strings"
	"testing"
)

// notCovered is what the comment of a package says that no promise covers.
const notCovered = "Not covered by docs/stability.md: any release may change this package."

// TestStability: docs/stability.md names every package that a program outside the module can import,
// and the comment of a package says so if no promise covers it.
func TestStability(t *testing.T) {
	page := readDoc(t, "docs/stability.md")
	promised, rest, _ := strings.Cut(page, "## Not covered")
	own := regexp.MustCompile(`^(cmd|examples|internal|librds|preload|python|test)(/|$)`)
	for pkg, files := range packages(t) {
		if own.MatchString(pkg) || strings.Contains(pkg, "/internal/") || len(product(files)) == 0 {
			continue
		}
		named := func(text string) bool { return strings.Contains(text, "`"+pkg+"`") }
		says := strings.Contains(comment(files), notCovered)
		switch {
		case named(promised) && says:
			t.Errorf("%s: docs/stability.md promises something, its comment that nothing is", pkg)
		case named(rest) && !says:
			t.Errorf("%s: its comment does not say: %s", pkg, notCovered)
		case !named(promised) && !named(rest):
			t.Errorf("%s: docs/stability.md does not name it", pkg)
		}
	}
}

// comment returns the comment of a package, as one line.
func comment(files []*file) string {
	for _, f := range files {
		if !f.test() && f.ast.Doc != nil {
			return strings.Join(strings.Fields(f.ast.Doc.Text()), " ")
		}
	}
	return ""
}

// TestChangelog: each release of CHANGELOG.md has its date and commit, and at most 40 lines.
func TestChangelog(t *testing.T) {
	sections := strings.Split(readDoc(t, "CHANGELOG.md"), "\n## ")
	dated := regexp.MustCompile(`\d{4}-\d\d-\d\d`)
	commit := regexp.MustCompile("[Cc]ommit ([0-9a-f]{7}|of the tag `v)")
	for _, s := range sections[1:] {
		title, _, _ := strings.Cut(s, "\n")
		if n := strings.Count(strings.TrimSpace(s), "\n") + 1; n > 40 {
			t.Errorf("CHANGELOG.md, %s: %d lines, want at most 40: the rest is in commits", title, n)
		}
		if title != "Unreleased" && !strings.HasSuffix(title, "(unreleased)") && (!dated.MatchString(title) || !commit.MatchString(s)) {
			t.Errorf("CHANGELOG.md, %s: no date or no commit", title)
		}
	}
}

// TestImageTag: the manifests and the chart name the image of the newest release.
func TestImageTag(t *testing.T) {
	newest := regexp.MustCompile(`(?m)^## (\d\S*),`).FindStringSubmatch(readDoc(t, "CHANGELOG.md"))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no release")
	}
	for name, want := range map[string]string{
		"rdsd.yaml":        "image: rdsd:" + newest[1],
		"client.yaml":      "image: rdsd:" + newest[1],
		"chart/Chart.yaml": "appVersion: " + newest[1],
	} {
		if !regexp.MustCompile(regexp.QuoteMeta(want) + `\s`).MatchString(readDoc(t, "contrib/kubernetes/"+name)) {
			t.Errorf("contrib/kubernetes/%s: no %q (scripts/release.sh writes it)", name, want)
		}
	}
}
