package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stress"
	"github.com/rdsd/rdsd/rdstest"
)

// stressApp is rdsctl with a stress test that starts at once.
func stressApp(out, errs *bytes.Buffer) *app {
	return &app{stdout: out, stderr: errs, dial: dial,
		stressTiming: stress.Timing{Start: time.Millisecond, BurnIn: -1, Drain: 100 * time.Millisecond, Interval: 100 * time.Millisecond}}
}

// waiting closes a channel when a text is written to it. By default it is the text that a
// passive side prints when it waits.
type waiting struct {
	bytes.Buffer
	text  string
	once  sync.Once
	ready chan struct{}
}

func (w *waiting) Write(p []byte) (int, error) {
	if w.text == "" {
		w.text = "waiting for incoming"
	}
	if bytes.Contains(p, []byte(w.text)) {
		w.once.Do(func() { close(w.ready) })
	}
	return w.Buffer.Write(p)
}

func TestStress(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	l, err := net.Listen("tcp", ds[1].Addr().String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(min(l.Addr().(*net.TCPAddr).Port, 60000))
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	// As an old script would run it: under the old name, with columns on standard output.
	var passiveOut, out, errs bytes.Buffer
	passiveErr := &waiting{ready: make(chan struct{})}
	passive := stressApp(&passiveOut, nil)
	passive.stderr = passiveErr
	var ends sync.WaitGroup
	ends.Go(func() {
		if code := passive.run(ctx, []string{"-socket", ds[1].Socket(), "stress", "-r", ds[1].Addr().String(), "-p", port, "-o", "json-v2"}); code != exitOK {
			t.Errorf("passive: status %d", code)
		}
	})
	select {
	case <-passiveErr.ready:
	case <-ctx.Done():
		t.Fatal("the passive side does not wait")
	}
	active := stressApp(&out, &errs)
	code := active.called(ctx, []string{"/usr/bin/rds-stress", "--socket", ds[0].Socket(), "-s", ds[1].Addr().String(), "-r", ds[0].Addr().String(), "-p", port,
		"-T1", "-v", "-D", "4k", "--show-histogram", "--show-params"})
	ends.Wait()
	if code != exitOK || errs.Len() != 0 {
		t.Errorf("status %d, %q", code, &errs)
	}
	for _, want := range []string{"negotiated options, tasks will start in 0.001 seconds\nStarting up....\ntsks ", "connecting to ", "RDMA size  4096", "tsks   tx/s", "(average)\n", "RTT histogram"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	var answer report
	if err := json.Unmarshal(passiveOut.Bytes(), &answer); err != nil || answer.Schema != ctl.Schema || answer.Kind != ctl.KindStress || answer.Error != nil ||
		answer.Stress == nil || !answer.Stress.Verified || answer.Stress.Role != "passive" || answer.Stress.Total.RequestsReceived == 0 {
		t.Errorf("%v\n%s", err, &passiveOut)
	}
}

func TestStressErrors(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	var out, errs bytes.Buffer
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"stress", "-x"}, exitUsage, "rdsctl: stress: -x: no such flag; all flags: rdsctl stress --help\n"},
		{[]string{"stress", "-s", "::1"}, exitUsage, "rdsctl: stress: ::1: rds-stress's protocol has IPv4 addresses only\n"},
		{[]string{"stress", "-s", d.Addr().String(), "-p", "1"}, exitFailed, "connection refused; start rdsctl stress or rds-stress at"},
		{[]string{"stress", "-s", d.Addr().String(), "--reset", "--socket", d.Socket()}, exitNotFound, "rdsctl: not found: no connection to"},
		{[]string{"stress", "-s", d.Addr().String(), "--reset", "--socket", d.Socket() + "x"}, exitNoDaemon, "rdsctl: no daemon found"},
	} {
		out.Reset()
		errs.Reset()
		if code := stressApp(&out, &errs).run(t.Context(), tc.args); code != tc.code || !strings.Contains(errs.String(), tc.want) || out.Len() != 0 {
			t.Errorf("%v: status %d, %q, %q", tc.args, code, &out, &errs)
		}
	}
	errs.Reset()
	if code := stressApp(&out, &errs).called(t.Context(), []string{"rds-stress", "-q", "x"}); code != 1 || !strings.HasPrefix(errs.String(), `rds-stress: -q: "x" is not a number`) {
		t.Errorf("as rds-stress: status %d, %q", code, &errs)
	}
	if code := stressApp(&out, &errs).run(t.Context(), []string{"help", "stress"}); code != exitOK || !strings.Contains(out.String(), "--rdma-bytes") {
		t.Errorf("help: status %d, %s", code, &out)
	}
	// A test that is interrupted while it waits for a peer has measured nothing, and says
	// so.
	ctx, cancel := context.WithCancel(t.Context())
	out.Reset()
	w := &waiting{ready: make(chan struct{})}
	a := stressApp(&out, nil)
	a.stderr = w
	go func() {
		<-w.ready
		cancel()
	}()
	code := a.run(ctx, []string{"stress", "-r", d.Addr().String(), "-p", "59999", "--socket", d.Socket()})
	if code != exitFailed || !strings.HasSuffix(w.String(), "rdsctl: interrupted before the test began\n") {
		t.Errorf("status %d, %q", code, w)
	}
}

func TestOldPing(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for _, tc := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"-c", "2", "-i", "1ms", ds[1].Addr().String()}, exitOK, "   2: ", ""},
		{[]string{"-c", "1", "-I", ds[0].Addr().String(), "-Q", "3", ds[1].Addr().String()}, exitOK, "   1: ", ""},
		{[]string{"-I", "192.0.2.1", ds[1].Addr().String()}, exitFailed, "", "cannot assign"},
		{[]string{"-i", "x", "::1"}, exitUsage, "", "rds-ping: -i: \"x\" is not an interval"},
		{nil, exitUsage, "", "usage: rds-ping"},
		{[]string{"-x"}, exitUsage, "", "not defined: -x"},
	} {
		var out, errs bytes.Buffer
		code := stressApp(&out, &errs).called(t.Context(), append([]string{"rds-ping", "-socket", ds[0].Socket()}, tc.args...))
		if code != tc.code || !strings.Contains(out.String(), tc.stdout) || !strings.Contains(errs.String(), tc.stderr) || tc.stdout == "" && out.Len() > 0 {
			t.Errorf("%v: status %d, %q, %q", tc.args, code, &out, &errs)
		}
	}
}
