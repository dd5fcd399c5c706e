package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
)

// configured answers with a configuration that has a number of paths.
type configured string

func (c configured) Call(context.Context, []byte) ([]byte, error) {
	return json.Marshal(&ctl.Response{Schema: ctl.Schema, Kind: ctl.KindConfig, Config: []ctl.ConfigValue{{Key: "port", Value: "7"}, {Key: "peers.paths", Value: string(c)}}})
}

func (configured) Close() error { return nil }

// In Amazon EC2, which limits each TCP flow, doctor suggests several paths, unless there are some or connections go by an
// adapter.
func TestDoctorPaths(t *testing.T) {
	for _, tc := range []struct{ file, text, paths, want string }{
		{"sys_vendor", "Amazon EC2\n", "1", "note: Amazon EC2 limits each TCP flow to 5 Gbit/s,"},
		{"sys_vendor", "Amazon EC2\n", "4", "ok: Amazon EC2 limits each TCP flow, and peers.paths is 4"},
		{"sys_vendor", "Microsoft Corporation\n", "1", ""},
		{"sys_vendor", "QEMU\n", "1", ""},
		{"none", "", "1", ""},
	} {
		for _, adapter := range []bool{false, true} {
			app := &app{paths: []string{"/a.sock"}, dial: func(context.Context, string) (caller, error) { return configured(tc.paths), nil }}
			d := &doctor{app: app, ctx: t.Context(), o: &options{timeout: 1e9}, sys: t.TempDir()}
			dir := filepath.Join(d.sys, "class/dmi/id")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d.paths(&ctl.Status{Transports: []ctl.Choice{{Name: "verbs", Used: adapter}}})
			got := ""
			for _, f := range d.found {
				got += fmt.Sprintf("%s: %s", f.State, f.Text)
				if (f.State == findNote) != strings.Contains(f.Fix, "peers.paths = 4") {
					t.Errorf("%q: the fix is %q", tc.text, f.Fix)
				}
			}
			want := tc.want
			if adapter {
				want = ""
			}
			if !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%q with %s paths, adapter %v: %q, want %q", tc.text, tc.paths, adapter, got, want)
			}
		}
	}
}
