package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// variant is a broken form of one file: see package mutant.
type variant struct {
	name   string
	from   string // the file that it was read from
	file   string // the file that it changes
	checks []check
	change []change
}

// check is a test that has to catch a variant.
type check struct{ variant, pkg, test string }

// change is a line: ' ' one that stays, '-' one that goes, '+' one that comes.
type change struct {
	op   byte
	text string
	n    int // number of the line in the variants' file
}

// load reads all variants of the tree.
func load(root string) (vs []variant, err error) {
	files, err := filepath.Glob(filepath.Join(root, "test", "mutant", "variants", "*.diff"))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		some, err := parse(f, string(text))
		if err != nil {
			return nil, err
		}
		for _, v := range some {
			if seen[v.name] {
				return nil, fmt.Errorf("%s: there are two variants %s", f, v.name)
			}
			seen[v.name] = true
		}
		vs = append(vs, some...)
	}
	return vs, nil
}

var (
	headLine  = regexp.MustCompile(`^([a-z]+(?:-[a-z]+)*): .`)
	placeLine = regexp.MustCompile(`^([\w/]+\.(?:go|c))((?: [\w/]+\.Test\S+)+)$`)
)

// parse reads the variants in text, which is that of the file from.
func parse(from, text string) (vs []variant, err error) {
	for i, line := range strings.Split(text, "\n") {
		v := &variant{}
		if len(vs) > 0 {
			v = &vs[len(vs)-1]
		}
		head, place := headLine.FindStringSubmatch(line), placeLine.FindStringSubmatch(line)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case strings.ContainsRune(" -+", rune(line[0])) && v.file != "":
			v.change = append(v.change, change{line[0], line[1:], i + 1})
		case place != nil && v.name != "" && v.file == "":
			v.file = place[1]
			for c := range strings.FieldsSeq(place[2]) {
				pkg, test, _ := strings.Cut(c, ".")
				v.checks = append(v.checks, check{v.name, pkg, test})
			}
		case head != nil && (len(vs) == 0 || v.change != nil):
			vs = append(vs, variant{name: head[1], from: from})
		default:
			return nil, fmt.Errorf("%s:%d: %q is not expected here", from, i+1, line)
		}
	}
	return vs, nil
}

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// isC reports whether the file is one of the C compiler. See compiler.
func isC(name string) bool { return strings.HasSuffix(name, ".c") }

// place returns the directive that names the place of the line that follows, for the compiler's messages.
func place(file, name string, line int) string {
	if isC(file) {
		return fmt.Sprintf("#line %d %q\n", line, name)
	}
	return fmt.Sprintf("//line %s:%d\n", name, line)
}

// instrument returns the text of the file name with the changes of all of vs. Its line
// directives have the compiler name the variants' files.
func instrument(name, text string, vs []variant) (string, error) {
	if !isC(name) {
		clause := packageClause.FindStringIndex(text)
		if clause == nil {
			return "", fmt.Errorf("%s has no package clause", name)
		}
		text = text[:clause[1]] + `; import "github.com/rdsd/rdsd/test/mutant"` + text[clause[1]:]
	}
	lines := strings.SplitAfter(text, "\n")
	comes := make([]string, len(lines)) // in front of the line
	goes := make([]bool, len(lines))
	for _, v := range vs {
		if err := v.apply(lines, comes, goes); err != nil {
			return "", fmt.Errorf("%s: variant %s, of %s: %w", v.from, v.name, v.file, err)
		}
	}
	var out strings.Builder
	for i, line := range lines {
		if out.WriteString(comes[i]); comes[i] != "" || i > 0 && goes[i-1] {
			out.WriteString(place(name, name, i+1))
		}
		if !goes[i] {
			out.WriteString(line)
		}
	}
	return out.String(), nil
}

// apply notes which lines come and go in a file.
func (v *variant) apply(lines, comes []string, goes []bool) error {
	at, err := v.find(lines)
	if err != nil {
		return err
	}
	conditions := 0
	for _, c := range v.change {
		switch c.op {
		case '+':
			conditions += strings.Count(c.text, "BROKEN")
			on := "mutant.On"
			if isC(v.file) {
				on = "mutant_on"
			}
			text := strings.ReplaceAll(c.text, "BROKEN", on+"("+strconv.Quote(v.name)+")")
			comes[at[0]] += place(v.file, v.from, c.n) + text + "\n"
		case '-':
			if goes[at[0]] {
				return fmt.Errorf("another variant changes the line %q", c.text)
			}
			goes[at[0]] = true
			fallthrough
		default:
			at = at[1:]
		}
	}
	if conditions != 1 {
		return fmt.Errorf("BROKEN is there %d times", conditions)
	}
	return nil
}

// find returns the numbers of the lines that are not blank, from v's first one to the file's end.
func (v *variant) find(lines []string) ([]int, error) {
	var want []string
	for _, c := range v.change {
		if c.op != '+' {
			want = append(want, strings.TrimSpace(c.text))
		}
	}
	var at []int
	for i, line := range lines {
		if strings.TrimSpace(line) != "" {
			at = append(at, i)
		}
	}
	var found [][]int
	for i := range at {
		k := 0
		for k < len(want) && i+k < len(at) && strings.TrimSpace(lines[at[i+k]]) == want[k] {
			k++
		}
		if k > 0 && k == len(want) {
			found = append(found, append(at[i:], len(lines)-1))
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("its lines are at %d places", len(found))
	}
	return found[0], nil
}

// overlay writes each file that has variants, with all of them, to dir. It returns the file for
// the go command's flag -overlay. Files in C are for compiler.
func overlay(root, dir string, vs []variant) (string, error) {
	of := map[string][]variant{}
	for _, v := range vs {
		of[v.file] = append(of[v.file], v)
	}
	replace := map[string]string{}
	for file, vs := range of {
		name := filepath.Join(root, filepath.FromSlash(file))
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("%s: variant %s: %w", vs[0].from, vs[0].name, err)
		}
		broken, err := instrument(name, string(text), vs)
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if isC(file) {
			to = filepath.Join(dir, "c", name) // where compiler's script looks
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return "", err
			}
		} else {
			replace[name] = to
		}
		if err := os.WriteFile(to, []byte(broken), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// inC is what the C compiler includes ahead of a file with variants.
const inC = `#include <stdlib.h>
#include <string.h>
static inline int mutant_on(const char *name)
{
	const char *on = getenv("RDSD_MUTANT");
	return on && !strcmp(on, name);
}
`

// ccScript compiles the copies of the files that have variants, instead of the product's.
const ccScript = `#!/bin/sh
for arg do
	shift
	case $arg in
	*.c)
		file=$(realpath "$arg")
		if [ -e "DIR/c$file" ]; then
			arg=DIR/c$file
			set -- "$@" -include DIR/mutant.h -iquote "$(dirname "$file")"
		fi
		;;
	esac
	set -- "$@" "$arg"
done
exec CC "$@"
`

// compiler writes a script to dir, which has overlay's copies, and returns its name. As CC it has tests that call the C
// compiler build the variants in.
func compiler(dir string) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	name := filepath.Join(dir, "cc")
	script := strings.NewReplacer("DIR", dir, "exec CC", "exec "+cc).Replace(ccScript)
	if err := os.WriteFile(filepath.Join(dir, "mutant.h"), []byte(inC), 0o600); err != nil {
		return "", err
	}
	return name, os.WriteFile(name, []byte(script), 0o700) //nolint:gosec // a script is run
}
