package version

import (
	"runtime/debug"
	"testing"
)

func TestOfModule(t *testing.T) {
	for _, tc := range []struct {
		version string
		ok      bool
		want    string
	}{
		{"v0.2.0", true, "v0.2.0"},
		{"(devel)", true, "devel"},
		{"", true, "devel"},
		{"v0.2.0", false, "devel"},
	} {
		if got := ofModule(&debug.BuildInfo{Main: debug.Module{Version: tc.version}}, tc.ok); got != tc.want {
			t.Errorf("%q, %v: %q, want %q", tc.version, tc.ok, got, tc.want)
		}
	}
}
