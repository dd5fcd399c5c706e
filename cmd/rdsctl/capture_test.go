package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// TestCaptureVerb: what the daemon is asked, where the bytes go, and who may not.
func TestCaptureVerb(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(file, []byte("what was there before"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args         []string
		admin        bool
		code         int
		stdout, errs string
		spec         ctl.CaptureSpec
	}{
		{[]string{"-w", "-"}, true, exitOK, "pcapng", "3 frames, 4 dropped, 6 bytes", ctl.CaptureSpec{Buffer: ctl.DefaultCaptureBuffer, Max: ctl.DefaultCaptureMax, Duration: ctl.DefaultCaptureTime}},
		{[]string{"-w", file, "-peer", "127.0.0.2", "-port", "4000", "-snap", "96", "-d", "1s", "-buffer", "1048576", "-max", "5000"}, true, exitOK, "", "to 1 peers, such as 10.9.0.2",
			ctl.CaptureSpec{Peer: netip.MustParseAddr("127.0.0.2"), Port: 4000, Snap: 96, Buffer: 1 << 20, Max: 5000, Duration: time.Second}},
		{[]string{"-w", filepath.Join(filepath.Dir(file), "none", "x")}, true, exitNotFound, "", "no such file", ctl.CaptureSpec{}},
		{[]string{"-w", "-"}, false, exitPermission, "", "only root and the daemon's own user", ctl.CaptureSpec{}},
		{nil, true, exitUsage, "", "-w FILE is missing", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-port", "70000"}, true, exitUsage, "", "is no port", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-d", "0s"}, true, exitUsage, "", "more than 0", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-snap", "7"}, true, exitFailed, "", "below 64 bytes", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-buffer", "7"}, true, exitFailed, "", "is not between", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-max", "0"}, true, exitUsage, "", "more than 0", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-max", "4095"}, true, exitFailed, "", "the least is 4096", ctl.CaptureSpec{}},
		{[]string{"-w", "-", "-d", "2h"}, true, exitFailed, "", "is not between", ctl.CaptureSpec{}},
	} {
		b := &backend{}
		code, stdout, stderr := runApp(t, direct{b, c.admin}, append([]string{"capture"}, c.args...)...)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.errs) {
			t.Errorf("%q: status %d\n%s%s", c.args, code, stdout, stderr)
		}
		if code == exitOK && (len(b.captured) != 1 || b.captured[0] != c.spec) {
			t.Errorf("%q asks for %+v", c.args, b.captured)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "pcapng" {
		t.Errorf("%q, %v", b, err)
	}
	if i, err := os.Stat(file); err != nil || i.Mode() != 0o600 {
		t.Errorf("%v, %v", i, err)
	}
}

// A file that another user made is refused and stays as it is: its owner could read the
// capture.
func TestCaptureFileOfAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(file, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openCapture(file, os.Geteuid()+1); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "owns it") {
		t.Error(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || string(b) != "theirs" {
		t.Errorf("%q, %v", b, err)
	}
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
}
