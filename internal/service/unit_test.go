package service

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestExposure: the exposure that systemd-analyze security reports of the units' sandbox,
// in tenths, without and with verbs.conf for RDMA devices.
func TestExposure(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze: apt-get install -y --no-install-recommends systemd")
	}
	const units = "../../contrib/systemd"
	for _, tc := range []struct {
		name, most, allowed, forbidden string
	}{
		{"plain", "16", "✓ PrivateDevices=", "infiniband"},
		{"verbs", "20", "infiniband_verbs:rw", "✓ PrivateDevices="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			put := func(to, from string) {
				t.Helper()
				b := []byte("#!/bin/sh\n") // systemd checks that the programs of a unit exist
				if from != "" {
					var err error
					if b, err = os.ReadFile(filepath.Join(units, from)); err != nil {
						t.Fatal(err)
					}
				}
				to = filepath.Join(root, to)
				if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(to, b, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			put("usr/bin/rdsd", "")
			put("bin/kill", "")
			put("etc/systemd/system/rdsd.service", "rdsd.service")
			put("etc/systemd/system/rdsd.socket", "rdsd.socket")
			if tc.name == "verbs" {
				put("etc/systemd/system/rdsd.service.d/verbs.conf", "verbs.conf")
			}
			out, err := exec.Command(tool, "security", "--no-pager", "--offline=true", "--threshold="+tc.most, "--root="+root, "rdsd.service").CombinedOutput()
			if err != nil {
				t.Errorf("above %s: %v\n%s", tc.most, err, out)
			}
			if s := string(out); !strings.Contains(s, "Overall exposure level") || !strings.Contains(s, tc.allowed) || strings.Contains(s, tc.forbidden) {
				t.Errorf("not of this unit, %q and not %q:\n%s", tc.allowed, tc.forbidden, out)
			}
		})
	}
}

// TestUnitWatchdog: a virtual machine that stands still for a backup or a migration is not taken for a daemon that
// hangs. systemd gives its own services 3 minutes.
func TestUnitWatchdog(t *testing.T) {
	unit, err := os.ReadFile("../../contrib/systemd/rdsd.service")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^WatchdogSec=(\d+)min$`).FindSubmatch(unit)
	if m == nil {
		t.Fatal("no WatchdogSec= in minutes")
	}
	if n, _ := strconv.Atoi(string(m[1])); n < 3 {
		t.Errorf("WatchdogSec=%dmin", n)
	}
}
