package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rdstest"
)

// wellFormed is what is wrong with text in this form. It is "" if nothing is.
func wellFormed(form output, text string) string {
	switch form {
	case asJSON:
		var doc struct{ Schema, Kind string }
		if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.Schema != schema || doc.Kind == "" {
			return "not one document with schema and kind"
		}
	case jsonLines:
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) || line[0] != '{' {
				return "not an object a line"
			}
		}
	case asCSV: // a header, and as many fields in each line
		all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(all) < 1 || slices.Contains(all[0], "") {
			return "not CSV with a header"
		}
	default:
		if text == "" {
			return "nothing"
		}
	}
	return ""
}

// Each verb with -o prints each form that its help names. The others refuse the flag.
func TestEveryForm(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	for _, v := range verbs() {
		if v.raw != nil {
			continue // TestStress
		}
		args := strings.Fields(v.name)
		var c caller = direct{&backend{pings: []time.Duration{7}}, true}
		switch v.name {
		case "check":
			args = append(args, "peers")
		case "ping":
			args = append(args, "127.0.0.2", "-c", "1")
		case "bench":
			args = append(args, "-d", "1ms", "-warmup", "0s", "-socket", d.Socket())
		case "completion":
			args = append(args, "bash")
		case "trace merge":
			a, b := life(7, false, time.Second, 10, 60, 100)
			args = append(args, traceFile(t, a), traceFile(t, b))
		case "config validate", "bundle":
			args = append(args, filepath.Join(t.TempDir(), "new"))
		default:
			if strings.Contains(v.args, "ADDR") {
				args = append(args, "127.0.0.2")
			}
		}
		if len(v.forms) == 0 {
			if code, stdout, stderr := runApp(t, c, append(args, "-o", "json-v2")...); code != exitUsage || stdout != "" || !strings.Contains(stderr, "-o") {
				t.Errorf("%s -o json: status %d, %q, %q", v.name, code, stdout, stderr)
			}
			continue
		}
		for _, form := range allForms {
			if !slices.Contains(v.forms, form) {
				t.Errorf("%s has no -o %s", v.name, form)
				continue
			}
			with := append(slices.Clone(args), "-o", string(form))
			code, stdout, stderr := runApp(t, c, with...)
			if v.name == "bench" {
				var out, errs bytes.Buffer
				a := &app{stdout: &out, stderr: &errs, dial: dial}
				code, stdout, stderr = a.run(t.Context(), with), out.String(), errs.String()
			}
			if v.name == "doctor" { // what it finds depends on the host
				code = exitOK
			}
			if bad := wellFormed(form, stdout); code != exitOK || stderr != "" || bad != "" {
				t.Errorf("%v: status %d, %q: %s: %s", with, code, stderr, bad, stdout)
			}
		}
	}
}

func TestFieldsCSV(t *testing.T) {
	for doc, want := range map[string]string{
		`{"a":1,"b":{"c":"x,\"y","d":[true,{"e":null}]},"f":[],"g":{}}`: "a,1\nb.c,\"x,\"\"y\"\nb.d.0,true\nb.d.1.e,\nf,\ng,\n",
		`{"n":9223372036854775808,"x":"a\u001bb"}`:                      "n,9223372036854775808\nx,a?b\n",
	} {
		var b bytes.Buffer
		if err := fieldsCSV(&b, []byte(doc)); err != nil || b.String() != "field,value\n"+want {
			t.Errorf("%s: %v, %q", doc, err, &b)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":`, `{"a":1,]`, `[1,`} {
		if err := fieldsCSV(&bytes.Buffer{}, []byte(bad)); err == nil {
			t.Errorf("%q is a document", bad)
		}
	}
}

// A table that is repeated has only one header in forms for programs.
func TestWatchCSV(t *testing.T) {
	ctx, cancel := testContext(t)
	n := 0
	c := counting{direct{&backend{}, true}, func() {
		if n++; n == 3 {
			cancel()
		}
	}}
	code, stdout, stderr := runAppIn(ctx, c, "sockets", "-watch", "10ms", "-columns", "port", "-o", "csv")
	if code != exitOK || stdout != "port\n4000\n4000\n4000\n" || stderr != "" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
}

// -changed shows the same keys in each form.
func TestConfigChanged(t *testing.T) {
	for _, form := range []string{"table", "json", "jsonl", "csv"} {
		code, all, _ := runApp(t, direct{&backend{}, true}, "config", "show", "-o", form)
		code2, changed, stderr := runApp(t, direct{&backend{}, true}, "config", "show", "-changed", "-o", form)
		if code != exitOK || code2 != exitOK || stderr != "" || len(changed) == 0 || len(changed) >= len(all) || wellFormed(output(form), changed) != "" {
			t.Errorf("%s: status %d, %q, %s", form, code2, stderr, changed)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"-version"}, {"--version"}, {"-V"}} {
		if code, stdout, stderr := runApp(t, nil, args...); code != exitOK || !strings.HasPrefix(stdout, "rdsctl ") || !strings.Contains(stdout, " go1.") || stderr != "" {
			t.Errorf("%v: status %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// rdsctl tells a daemon that cannot run from one that does not answer.
func TestHeldUp(t *testing.T) {
	proc := t.TempDir()
	for state, want := range map[string]string{
		"7 (a) b) T 1": "stopped by a signal: kill -CONT 7", "7 (a) t 1": "by a debugger", "7 (a) D 1": "waits in the kernel",
		"7 (a) S 1": "", "7 (a)": "", "": "",
	} {
		if err := os.MkdirAll(proc+"/7", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(proc+"/7/stat", []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := heldUp(proc, 7); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q", state, got)
		}
	}
	if got := heldUp(proc, 8); got != "" {
		t.Errorf("no process: %q", got)
	}
	if got := heldUp("/proc", os.Getpid()); got != "" {
		t.Errorf("process %s: %q", strconv.Itoa(os.Getpid()), got)
	}
}
