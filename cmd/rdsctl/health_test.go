package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rdstest"
)

func TestCheck(t *testing.T) {
	gone := &backend{err: errors.New("boom")}
	same := &backend{same: true}
	for _, tc := range []struct {
		args string
		b    *backend
		code checkState
		want string
	}{
		{"check daemon", nil, checkWarning, "daemon warning: beware?[31m\n"},
		{"check health", nil, checkWarning, "health warning: 127.0.0.1:4000 is full: db[12] does not read, for 1m5s; senders here wait for 127.0.0.2:5000, which is full; "},
		{"check peers", nil, checkOK, "peers ok: 1 of 1 connections are up\n"},
		{"check peer 127.0.0.2", nil, checkOK, "peer ok: lane 0 is up\n"},
		{"check peer 127.0.0.3", nil, checkCritical, "peer critical: no connection to 127.0.0.3 was ever made\n"},
		{"check socket 127.0.0.1:4000", nil, checkWarning, "socket warning: 127.0.0.1:4000 of a?[2Jb?c[12] is congested: 3 bytes are not read\n"},
		{"check socket 127.0.0.1:1", nil, checkCritical, "socket critical: 127.0.0.1:1 is not bound\n"},
		{"check backlog", nil, checkWarning, "the oldest message, of 127.0.0.1:4000, is 1.5s old and waits for: receiver\n"},
		{"check backlog -warn 2s", nil, checkOK, "backlog ok: "},
		{"check backlog -crit 1", nil, checkCritical, "backlog critical: "},
		{"check memory", nil, checkOK, "memory ok: registered memory: 64 MiB of 4 GiB (2 %)\n"},
		{"check memory -warn 1%", nil, checkWarning, "memory warning: "},
		{"check cert -o nagios", nil, checkOK, "RDSD CERT OK - CN=host until 2027-01-02"},
		{"check cert -warn 100000", nil, checkWarning, "cert warning"},
		{"check config", nil, checkWarning, "config warning: spin waits for rdsctl config reload; stats waits for a restart; beware\n"},
		{"check config", same, checkOK, "config ok: the daemon runs with what its sources say\n"},
		{"check config", gone, checkCritical, "config critical: a reload or restart would fail: boom\n"},
		{"check peers", gone, checkUnknown, "peers unknown: boom\n"},
		{"check backlog -o nagios", nil, checkWarning, " | backlog_bytes=3277 oldest_seconds=1.5;1;10\n"},
		{"check backlog -o prometheus", nil, checkWarning, `rdsd_check_state{check="backlog"} 1` + "\n"},
		{"check peers -o prometheus", nil, checkOK, `rdsd_check_value{check="peers",name="connections_up"} 1` + "\n"},
		{"check memory -o text", nil, checkOK, "memory ok"},
	} {
		b := tc.b
		if b == nil {
			b = &backend{}
		}
		code, stdout, stderr := runApp(t, direct{b, true}, strings.Fields(tc.args)...)
		if code != int(tc.code) || !strings.Contains(stdout, tc.want) || stderr != "" {
			t.Errorf("%s: status %d, %q, got %s", tc.args, code, stderr, stdout)
		}
	}
	code, stdout, _ := runApp(t, direct{&backend{}, true}, "check", "backlog", "-o", "json-v2")
	var got struct {
		Schema string
		Check  struct {
			State   string
			Code    int
			Metrics []checkMetric
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 || got.Schema != ctl.Schema || got.Check.State != "warning" ||
		got.Check.Code != 1 || len(got.Check.Metrics) != 2 || *got.Check.Metrics[1].Crit != 10 {
		t.Errorf("JSON: %v, %s", err, stdout)
	}
	for args, want := range map[string]string{
		"check":                     "KIND is missing",
		"check deamon":              `unknown kind "deamon"; there are: daemon, health, peers`,
		"check peer":                "peer wants ADDR",
		"check peer 10.0.0.300":     `"10.0.0.300" is not a host's name or IP address`,
		"check socket 127.0.0.1":    "is not ADDR:PORT",
		"check daemon now":          `daemon takes no argument, "now" is one too many`,
		"check config -warn 1":      "config has no thresholds",
		"check backlog -warn often": `-warn: "often" is not a number`,
		"check backlog -crit -1s":   "is not a number that is not negative",
		"check daemon -o xml":       "-o xml: want table, wide, json, jsonl, csv, nagios or prometheus",
		"check daemon -critical 1":  "flag provided but not defined",
	} {
		code, stdout, stderr := runApp(t, direct{&backend{}, true}, strings.Fields(args)...)
		if code != int(checkUnknown) || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %q, %q", args, code, stdout, stderr)
		}
	}
	for _, tc := range []struct {
		c    caller
		code checkState
		want string
	}{
		{silent{}, checkCritical, "did not answer within"},
		{answer(`{"schema":"rdsd.v9"}`), checkUnknown, "use the rdsctl that came"},
	} {
		if code, stdout, _ := runApp(t, tc.c, "check", "daemon", "-timeout", "1ms"); code != int(tc.code) || !strings.Contains(stdout, tc.want) {
			t.Errorf("status %d, %q", code, stdout)
		}
	}
	if code, stdout, _ := runSocket(t, "check", "daemon", "-socket", t.TempDir()+"/none"); code != int(checkCritical) || !strings.Contains(stdout, ipc.ErrNoDaemon.Error()) {
		t.Errorf("no daemon: status %d, %q", code, stdout)
	}
}

func TestDoctor(t *testing.T) {
	ds := rdstest.StartDaemons(t, 1)
	code, stdout, stderr := runSocket(t, "doctor", "-socket", ds[0].Socket())
	if code != exitOK || stderr != "" {
		t.Errorf("status %d, %q, %s", code, stderr, stdout)
	}
	for _, want := range []string{"ok      daemon      rdsd ", "engine", ds[0].Addr().String() + " is this host's", "judgement   all is well"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	code, stdout, _ = runSocket(t, "doctor", "-socket", t.TempDir()+"/none")
	if code != exitFailed || !strings.Contains(stdout, "wrong   daemon") || !strings.Contains(stdout, "fix: start rdsd") {
		t.Errorf("no daemon: status %d, %s", code, stdout)
	}
	code, stdout, _ = runApp(t, silent{}, "doctor", "-timeout", "1ms", "-o", "json-v2")
	if code != exitFailed || !strings.Contains(stdout, `"kind": "doctor"`) || !strings.Contains(stdout, "rdsctl bundle first") {
		t.Errorf("stuck: status %d, %s", code, stdout)
	}

	// The findings of doctor about a daemon.
	d := &doctor{proc: t.TempDir(), sys: t.TempDir()}
	must := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(d.proc+"/modules", "rds_tcp 1\nrds 2 0\n")
	must(d.proc+"/7/limits", "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         65536  65536  bytes\n")
	must(d.sys+"/class/infiniband/mlx5_0/x", "")
	s := &ctl.Status{PID: 7, Transports: []ctl.Choice{{Name: "verbs", Used: true}}, TLS: ctl.TLS{Subject: "CN=x", Expires: time.Now()}, Warnings: []string{"beware"},
		Engine: ctl.EngineInfo{Late: time.Minute},
		Users:  []ctl.User{{UID: new(uint32(8)), Unreceived: ctl.Usage{Used: 18, Quota: new(uint64(20))}}, {UID: new(uint32(9)), Unreceived: ctl.Usage{Used: 17, Quota: new(uint64(20))}}}}
	d.kernel()
	d.devices(s)
	d.limits(s)
	d.status(s)
	d.judged(&ctl.Facts{Now: time.Now(), Status: s})
	var all []string
	for _, f := range d.found {
		all = append(all, f.State+" "+f.Check)
	}
	if fix := d.found[0].Fix; !strings.Contains(fix, "rmmod rds_tcp rds,") || !strings.Contains(d.found[0].Text, "CVE-2026-43494") {
		t.Errorf("the kernel's module: %+v", d.found[0])
	}
	want := "note kernel, ok adapters, wrong memlock, ok transport, wrong engine, wrong quota, note warning, ok peers"
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("found %s\nwant  %s", got, want)
	}
}

// untar reads a bundle.
func untar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil || h.Mode != 0o600 {
			t.Fatal(err, h.Mode)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(b)
	}
}

func TestBundle(t *testing.T) {
	ds := rdstest.StartDaemons(t, 1)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	code, stdout, stderr := runSocket(t, "bundle", file, "-stacks", "-socket", ds[0].Socket())
	if code != exitOK || stdout != file+"\n" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
	if s, err := os.Stat(file); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", s, err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := untar(t, f)
	for name, want := range map[string]string{
		"versions.json": `"kernel"`, "status.json": `"kind": "status"`, "config.json": `"peers.allow"`, "sockets.json": `"sockets": []`, "peers.json": `"peers"`,
		"backlog.json": `"backlog"`, "events.json": `"events"`, "errors.json": `"errors"`, "stacks.txt": "goroutine ", "statistics.json": `"offline": true`,
		"doctor.json": `"doctor"`, "process/limits": "Max open files", "index.json": `"status.json"`, "host/meminfo": "MemTotal",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %s: %.300q", name, want, files[name])
		}
	}
	// It does not replace a file, and says so.
	if code, _, stderr := runSocket(t, "bundle", file, "-socket", ds[0].Socket()); code != exitFailed || !strings.Contains(stderr, "file exists") {
		t.Errorf("again: status %d, %q", code, stderr)
	}
	// Without -stacks the archive has none. It can go to standard output.
	code, stdout, _ = runSocket(t, "bundle", "-", "-socket", ds[0].Socket())
	if files := untar(t, bytes.NewBufferString(stdout)); code != exitOK || files["stacks.txt"] != "" || files["status.json"] == "" {
		t.Errorf("to standard output: status %d, %d files", code, len(files))
	}
	// If the daemon does not answer, the archive still has the rest.
	code, stdout, stderr = runApp(t, silent{}, "bundle", "-", "-timeout", "1ms")
	if files := untar(t, bytes.NewBufferString(stdout)); code != exitTimeout || files["doctor.json"] == "" || !strings.Contains(files["index.json"], "did not answer") ||
		!strings.Contains(stderr, "without status.json") {
		t.Errorf("stuck: status %d, %q", code, stderr)
	}
}
