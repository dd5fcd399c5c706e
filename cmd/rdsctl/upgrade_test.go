package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

// upgradeFrom is what daemons say of upgrades. Zero fields of u are those of daemon 4711 in
// its first generation, with one attempt.
func upgradeFrom(u ctl.Upgrade) ctl.Upgrade {
	if u.Generation == 0 {
		u.Generation = 1
	}
	if u.PID == 0 {
		u.PID = 4711
	}
	u.Version = fmt.Sprintf("v0.%d.0", u.Generation)
	return u
}

var upgradeOver = upgradeFrom(ctl.Upgrade{Generation: 2, PID: 4712, Attempt: 1, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	Took: time.Second, Pause: 41234567, From: "v0.1.0", State: 7})

func TestUpgrade(t *testing.T) {
	defer func(d time.Duration) { upgradeEvery = d }(upgradeEvery)
	upgradeEvery = time.Millisecond
	before := upgradeFrom(ctl.Upgrade{Error: "of an earlier time"})
	running := upgradeFrom(ctl.Upgrade{Attempt: 1, Running: true, Error: "of an earlier time"})
	adopting := upgradeFrom(ctl.Upgrade{Generation: 2, PID: 4712, Attempt: 1, Running: true})
	failed := upgradeFrom(ctl.Upgrade{Attempt: 1, Error: "hand-over: start: port 18634 is taken"})
	for name, tc := range map[string]struct {
		looks  []ctl.Upgrade
		err    error
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"done":     {looks: []ctl.Upgrade{before, running, running, adopting, upgradeOver}, stdout: "rdsd v0.2.0 serves, pid 4712, generation 2, after a pause of 41.2ms\n"},
		"begun":    {looks: []ctl.Upgrade{before}, args: []string{"-wait", "0"}, stdout: "upgrade 1 has begun; rdsctl status shows its end\n"},
		"failed":   {looks: []ctl.Upgrade{before, running, failed}, code: exitFailed, stderr: "rdsctl: daemon upgrade: hand-over: start: port 18634 is taken; the daemon (pid 4711) goes on\n"},
		"time":     {looks: []ctl.Upgrade{before, running}, args: []string{"-wait", "20ms"}, code: exitTimeout, stderr: "not done in time; it goes on, and the daemon (pid 4711) serves until then"},
		"ended":    {looks: []ctl.Upgrade{before, running, upgradeFrom(ctl.Upgrade{PID: 4713})}, code: exitFailed, stderr: "the daemon (pid 4711) has ended, and pid 4713 has started without taking over"},
		"another":  {looks: []ctl.Upgrade{before, running, upgradeFrom(ctl.Upgrade{Attempt: 2, Running: true})}, code: exitFailed, stderr: "another upgrade has begun since"},
		"busy":     {looks: []ctl.Upgrade{before}, err: fmt.Errorf("%w: upgrade 7 is in progress", syscall.EBUSY), code: exitFailed, stderr: "upgrade 7 is in progress\n"},
		"unable":   {looks: []ctl.Upgrade{before}, err: fmt.Errorf("%w: process 1 of a container", syscall.ENOTSUP), code: exitVersion, stderr: "process 1 of a container\n"},
		"relative": {looks: []ctl.Upgrade{before}, args: []string{"-binary", "rdsd"}, code: exitFailed, stderr: `"rdsd" is not an absolute path`},
		"negative": {args: []string{"-wait", "-1s"}, code: exitUsage, stderr: "-wait -1s is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &backend{upgrades: tc.looks, err: tc.err}
			code, stdout, stderr := runApp(t, direct{b, true}, append([]string{"daemon", "upgrade"}, tc.args...)...)
			if code != tc.code || stdout != tc.stdout || !strings.Contains(stderr, tc.stderr) || (tc.stderr == "") != (stderr == "") {
				t.Errorf("status %d, %q, %q", code, stdout, stderr)
			}
			if name == "negative" {
				return
			}
			b = &backend{upgrades: tc.looks, err: tc.err}
			code, stdout, _ = runApp(t, direct{b, true}, append([]string{"daemon", "upgrade", "-o", "json-v2"}, tc.args...)...)
			r, err := ctl.Parse([]byte(stdout), ctl.KindUpgrade)
			if code != tc.code || (err == nil) != (tc.code == exitOK) || err == nil && r.Upgrade.Attempt != 1 {
				t.Errorf("JSON: status %d, %v, %s", code, err, stdout)
			}
		})
	}
	code, _, stderr := runApp(t, direct{&backend{}, false}, "daemon", "upgrade")
	if code != exitPermission || !strings.Contains(stderr, "only root") {
		t.Errorf("another user: status %d, %q", code, stderr)
	}
}

// A daemon from before upgrades says that it does not know them, with and without a path.
func TestUpgradeOfOldDaemon(t *testing.T) {
	old := older(func(req []byte) []byte {
		if strings.Contains(string(req), "program") {
			return []byte(`{"schema":"rdsd.v2","kind":"","error":{"code":"bad_request","message":"request: json: unknown field \"program\""}}`)
		}
		return []byte(`{"schema":"rdsd.v2","kind":"upgrade","error":{"code":"unknown_kind","message":"unknown request \"upgrade\"; this daemon knows [status]"}}`)
	})
	for _, args := range [][]string{nil, {"-binary", "/opt/rdsd"}} {
		code, stdout, stderr := runApp(t, old, append([]string{"daemon", "upgrade"}, args...)...)
		if code != exitVersion || stdout != "" || !strings.Contains(stderr, `unknown request "upgrade"`) || !strings.Contains(stderr, "the daemon is older than this rdsctl: restart it") {
			t.Errorf("%v: status %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// older is a daemon that answers with a function.
type older func(req []byte) []byte

func (f older) Call(_ context.Context, req []byte) ([]byte, error) { return f(req), nil }
func (older) Close() error                                         { return nil }

// replaced is a daemon that another one takes over from, as its control socket shows it.
type replaced struct {
	backend
	begun  atomic.Bool
	broken atomic.Int32 // connections that are to be broken off during the hand-over
}

func (r *replaced) Upgrade() ctl.Upgrade {
	if r.begun.Load() {
		return upgradeOver
	}
	return upgradeFrom(ctl.Upgrade{})
}

func (r *replaced) BeginUpgrade(string) (ctl.Upgrade, error) {
	r.begun.Store(true)
	return upgradeFrom(ctl.Upgrade{Attempt: 1, Running: true}), nil
}

// closing is a session that counts as open until it is closed.
type closing struct {
	caller
	open *int
}

func (c closing) Close() error {
	*c.open--
	return c.caller.Close()
}

// rdsctl has one session at a time, and none while it waits. Connections that break do not end
// the wait.
func TestUpgradeOverSocket(t *testing.T) {
	r := &replaced{}
	r.broken.Store(3)
	asks := service(t, r)
	path := server(t, func(c *ipc.Conn) {
		if !r.begun.Load() || r.broken.Add(-1) < 0 {
			asks(c)
		}
	})
	open, sessions := 0, 0
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, dial: func(ctx context.Context, path string) (caller, error) {
		if open > 0 {
			t.Error("two sessions")
		}
		c, err := dial(ctx, path)
		if err == nil {
			open++
			sessions++
		}
		return closing{c, &open}, err
	}}
	code := a.run(t.Context(), []string{"daemon", "upgrade", "-socket", path})
	if code != exitOK || !strings.HasPrefix(out.String(), "rdsd v0.2.0 serves, pid 4712") || errs.Len() > 0 {
		t.Errorf("status %d, %q, %q", code, &out, &errs)
	}
	if open != 0 || sessions != 2 || r.broken.Load() != -1 {
		t.Errorf("%d sessions are open, %d answered, %d connections were to be broken", open, sessions, r.broken.Load())
	}
}

// A daemon that is gone for longer than -timeout ends the wait, and one that does not answer
// in time does not.
func TestUpgradeWithoutAnswer(t *testing.T) {
	o := newOptions()
	begun := upgradeFrom(ctl.Upgrade{Attempt: 1, Running: true})
	w := upgradeWatch{o: o, begun: &begun, answered: time.Now()}
	gone := fmt.Errorf("%w: /run/rdsd/rdsd.sock", ipc.ErrNoDaemon)
	if over, _ := w.judge(nil, gone); over {
		t.Error("a daemon that was there a moment ago")
	}
	w.answered = time.Now().Add(-2 * o.timeout)
	if over, err := w.judge(nil, &stuck{time.Second}); over {
		t.Errorf("a daemon that does not answer: %v", err)
	}
	w.answered = time.Now().Add(-2 * o.timeout)
	if over, err := w.judge(nil, gone); !over || !errors.Is(err, ipc.ErrNoDaemon) {
		t.Errorf("a daemon that is gone: %v, %v", over, err)
	}
	ctx, cancel := testContext(t)
	cancel()
	b := &backend{upgrades: []ctl.Upgrade{begun}}
	code, _, stderr := runAppIn(ctx, counting{direct{b, true}, func() {}}, "daemon", "upgrade")
	if code != exitFailed || !strings.Contains(stderr, "the upgrade goes on") {
		t.Errorf("interrupted: status %d, %q", code, stderr)
	}
}

func TestUpgradeText(t *testing.T) {
	failed := upgradeOver
	failed.Error, failed.From = "no port\x1b", ""
	silent := upgradeOver
	silent.State = 0
	again := upgradeOver
	again.Attempt, again.Running = 2, true
	first := upgradeFrom(ctl.Upgrade{Attempt: 1, Running: true})
	for _, tc := range []struct {
		u    ctl.Upgrade
		want string
	}{
		{upgradeFrom(ctl.Upgrade{}), ""},
		{first, "generation 1; upgrade 1 is in progress"},
		{upgradeOver, "generation 2; took over at 2026-01-02 03:04:05 after a pause of 41.2ms from rdsd v0.1.0, state version 7"},
		{failed, "generation 2; the last one failed at 2026-01-02 03:04:05: no port?"},
		{silent, "generation 2; took over at 2026-01-02 03:04:05 after a pause of 41.2ms from rdsd v0.1.0"},
		{again, "generation 2; took over at 2026-01-02 03:04:05 after a pause of 41.2ms from rdsd v0.1.0, state version 7; upgrade 2 is in progress"},
	} {
		if got := upgradeText(&tc.u); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
