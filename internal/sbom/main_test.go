package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestSBOM reads the bill of materials of a program that has modules: this test.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	write := func() []byte {
		var out bytes.Buffer
		if err := run(&out, "1700000000", "v9.9.9", []string{self, self}); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	text := write()
	if !bytes.Equal(text, write()) {
		t.Error("written twice, the documents differ")
	}
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("serial number %q, time %q: want none, and that of the epoch", bom.SerialNumber, bom.Metadata.Timestamp)
	}
	if c := bom.Metadata.Component; c.Name != "rdsd" || c.Version != "v9.9.9" {
		t.Errorf("it is about %s %s", c.Name, c.Version)
	}
	parts := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		parts[c.Name] = c
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("this test has no modules")
	}
	for _, m := range info.Deps {
		c := parts[m.Path]
		if c.Version != m.Version || c.Hashes == nil || len((*c.Hashes)[0].Value) != 64 {
			t.Errorf("%s %s is written as %+v", m.Path, m.Version, c)
		}
		if p := *c.Properties; p[0].Value != filepath.Base(self) {
			t.Errorf("%s is linked into %+v", m.Path, p)
		}
	}
	if parts["std"].Version != strings.TrimPrefix(info.GoVersion, "go") || parts["uplot"].Version == "" {
		t.Errorf("Go's library is %+v, the status page's %+v", parts["std"], parts["uplot"])
	}
	if n := len(*(*bom.Dependencies)[0].Dependencies); n != len(info.Deps)+2 || len(*bom.Components) != n {
		t.Errorf("%d dependencies and %d components, want %d", n, len(*bom.Components), len(info.Deps)+2)
	}
}

func TestSBOMErrors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ epoch, program, want string }{
		{"", self, "git log -1 --format=%ct"},
		{"yesterday", self, "git log -1 --format=%ct"},
		{"1700000000", "main.go", "go build"},
		{"1700000000", "no-such-file", "no such file"},
		{"1700000000", self, "top of the tree"}, // the test's directory is not
	} {
		var out bytes.Buffer
		if err := run(&out, tc.epoch, "v9.9.9", []string{tc.program}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("epoch %q, %s: %v, want %q", tc.epoch, tc.program, err, tc.want)
		}
	}
}
