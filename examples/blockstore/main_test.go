package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct {
		args string
		says string
	}{
		{"", "usage:"},
		{"frob", `no verb "frob"`},
		{"serve", "0 arguments, want FILE"},
		{"serve -nosuch f", "-nosuch"},
		{"serve -buffers 1 f", "-buffers"},
		{"serve -block 100 f", "-block 100"},
		{"copy-out 127.0.0.1", "1 arguments, want REMOTE FILE"},
		{"copy-out localhost f", "no host names"},
		{"copy-out -window 0 127.0.0.1 f", "-window"},
		{"copy-in -bind nowhere f 127.0.0.1", "-bind"},
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), strings.Fields(c.args), &out, &errs); code != exitUsage {
			t.Errorf("%q: status %d, want %d", c.args, code, exitUsage)
		}
		if !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q: %q lacks %q", c.args, errs.String(), c.says)
		}
		if out.Len() > 0 {
			t.Errorf("%q: wrote %q to standard output", c.args, out.String())
		}
	}
}

func TestServeOfMissingFile(t *testing.T) {
	var errs strings.Builder
	if code := run(t.Context(), []string{"serve", t.TempDir() + "/missing"}, &errs, &errs); code != exitFailed {
		t.Errorf("status %d, want %d", code, exitFailed)
	}
	if !strings.Contains(errs.String(), "missing: no such file") {
		t.Errorf("%q does not name the file", errs.String())
	}
}

func TestNoDaemon(t *testing.T) {
	var errs strings.Builder
	sock := t.TempDir() + "/none.sock"
	if code := run(t.Context(), []string{"copy-out", "-socket", sock, "127.0.0.1", t.TempDir() + "/f"}, &errs, &errs); code != exitFailed {
		t.Errorf("status %d, want %d", code, exitFailed)
	}
	if !strings.Contains(errs.String(), sock) {
		t.Errorf("%q does not name the path tried", errs.String())
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"127.0.0.2", "127.0.0.2:4000"},
		{"127.0.0.2:77", "127.0.0.2:77"},
		{"::1", "[::1]:4000"},
		{"[::1]:77", "[::1]:77"},
		{"[::1]", "[::1]:4000"},
	} {
		got, err := store.ParseRemote(c.in, netip.Addr{})
		if err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %s", c.in, got, err, c.want)
		}
	}
	if got, err := store.LocalFor("", netip.MustParseAddrPort("127.0.0.1:4000")); err != nil || !got.Addr().IsLoopback() || got.Port() != 0 {
		t.Errorf("towards loopback: %v, %v", got, err)
	}
}
