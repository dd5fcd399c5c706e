package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// upgradeEvery is how often rdsctl looks at an upgrade.
var upgradeEvery = 50 * time.Millisecond

func upgradeEntry() verb {
	return verb{name: "daemon upgrade", summary: "replace the running daemon by a new process of the installed program; applications notice a pause and nothing else", group: groupChange,
		prepare: upgradeVerb, forms: allForms,
		about: "The new daemon reads the configuration, opens what it needs and takes over sockets, messages, regions and statistics. Until it serves, the old daemon goes on after any " +
			"failure, and rdsctl says why the upgrade failed (status 1). Traces and captures end. docs/operations.md, Upgrade, has what is weaker with RDS/TCP and RDMA devices.",
		tries: []string{"daemon upgrade", "daemon upgrade -binary /opt/rdsd/new/rdsd -wait 1m", "daemon upgrade -o json"}}
}

func upgradeVerb(fs *flag.FlagSet) action {
	binary := fs.String("binary", "", "absolute `path` of the program to start (default: the path of the daemon's own program, where a new version may be); root or the daemon's user owns it")
	wait := fs.Duration("wait", 30*time.Second, "how `long` to wait until the new daemon serves; 0: only begin")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		if *wait < 0 {
			return a.wrong("daemon upgrade", "-wait %v is negative", *wait)
		}
		return a.upgrade(ctx, o, *binary, *wait)
	}
}

// upgrade begins an upgrade and waits for its end, at most as long as wait.
func (a *app) upgrade(ctx context.Context, o *options, binary string, wait time.Duration) int {
	deadline := time.Now().Add(wait)
	raw, begun, err := a.beginUpgrade(ctx, o, binary)
	if err != nil {
		return a.fail(o, ctl.KindUpgrade, err)
	}
	if wait == 0 {
		return a.showUpgrade(o, raw, begun)
	}
	w := upgradeWatch{app: a, o: o, begun: begun, deadline: deadline, answered: time.Now()}
	raw, now, err := w.end(ctx)
	if err != nil {
		return a.fail(o, ctl.KindUpgrade, err)
	}
	return a.showUpgrade(o, raw, now)
}

// beginUpgrade asks the daemon to begin. Its session has ended when it returns, because the
// daemon stops sessions before it hands over.
func (a *app) beginUpgrade(ctx context.Context, o *options, binary string) ([]byte, *ctl.Upgrade, error) {
	c, err := a.connect(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	// An older daemon knows neither the request nor its field program, and would complain of
	// the field. So the first request has no such field.
	if _, _, err := call(ctx, c, o, ctl.Request{Kind: ctl.KindUpgrade, Do: ctl.DoLook}); err != nil {
		return nil, nil, err
	}
	raw, r, err := call(ctx, c, o, ctl.Request{Kind: ctl.KindUpgrade, Do: ctl.DoBegin, Program: binary})
	if err != nil {
		return nil, nil, err
	}
	return raw, r.Upgrade, nil
}

// upgradeWatch waits for the end of an upgrade.
type upgradeWatch struct {
	*app
	o        *options
	begun    *ctl.Upgrade // when it was begun
	deadline time.Time
	answered time.Time // when a daemon was there last
}

// end returns what the new daemon says of the upgrade, or why there is none. Each look has a
// connection of its own: one that stays would be handed over, too.
func (w *upgradeWatch) end(ctx context.Context) ([]byte, *ctl.Upgrade, error) {
	for pause(ctx, min(upgradeEvery, max(0, time.Until(w.deadline)))) {
		o := *w.o
		o.timeout = min(o.timeout, max(time.Until(w.deadline), upgradeEvery))
		raw, r, err := w.once(ctx, &o, ctl.Request{Kind: ctl.KindUpgrade, Do: ctl.DoLook})
		if ctx.Err() != nil {
			break
		}
		if over, err := w.judge(r, err); over {
			if err != nil {
				return nil, nil, err
			}
			return raw, r.Upgrade, nil
		}
		if !time.Now().Before(w.deadline) {
			return nil, nil, &ctl.Error{Code: ctl.CodeTimeout, Message: w.left(err)}
		}
	}
	return nil, nil, errors.New("interrupted; the upgrade goes on: rdsctl status shows its end")
}

// judge decides whether the upgrade is over, from what a look has brought. err is why it
// failed.
func (w *upgradeWatch) judge(r *ctl.Response, err error) (over bool, failure error) {
	now := time.Now()
	_, answered := errors.AsType[*ctl.Error](err)
	switch {
	case answered:
		return true, err
	case errors.Is(err, context.DeadlineExceeded): // it stands still, or waits for a process
		w.answered = now
		return false, nil
	case err != nil:
		return now.Sub(w.answered) > w.o.timeout, err
	}
	w.answered = now
	u := r.Upgrade
	fail := func(format string, args ...any) (bool, error) {
		return true, &ctl.Error{Code: ctl.CodeFailed, Message: "daemon upgrade: " + fmt.Sprintf(format, args...)}
	}
	switch {
	case u.Attempt < w.begun.Attempt:
		return fail("the daemon (pid %d) has ended, and pid %d has started without taking over; its log says why", w.begun.PID, u.PID)
	case u.Generation > w.begun.Generation:
		return !u.Running, nil
	case u.Attempt > w.begun.Attempt:
		return fail("it failed, the daemon (pid %d) goes on, and another upgrade has begun since: rdsctl events says why it failed", u.PID)
	case !u.Running:
		return fail("%s; the daemon (pid %d) goes on", u.Error, u.PID)
	}
	return false, nil
}

// left says what is known when the time is over. err is that of the last look.
func (w *upgradeWatch) left(err error) string {
	if err != nil {
		return fmt.Sprintf("daemon upgrade: not done in time, and no answer: %v", err)
	}
	return fmt.Sprintf("daemon upgrade: not done in time; it goes on, and the daemon (pid %d) serves until then: rdsctl status shows its end", w.begun.PID)
}

func (a *app) showUpgrade(o *options, raw []byte, u *ctl.Upgrade) int {
	if o.output.machine() {
		return a.printJSON(o, json.RawMessage(raw))
	}
	if u.Running {
		fmt.Fprintf(a.stdout, "upgrade %d has begun; rdsctl status shows its end\n", u.Attempt)
		return exitOK
	}
	fmt.Fprintf(a.stdout, "rdsd %s serves, pid %d, generation %d, after a pause of %v\n", printable(u.Version), u.PID, u.Generation, ctl.Rounded(u.Pause))
	return exitOK
}

// upgradeText sums up the last upgrade in a line of the status. It is "" if there was none.
func upgradeText(u *ctl.Upgrade) string {
	s := fmt.Sprintf("generation %d", u.Generation)
	switch {
	case u.Attempt == 0:
		return ""
	case u.At.IsZero():
	case u.Error != "":
		s += fmt.Sprintf("; the last one failed at %s: %s", u.At.UTC().Format(time.DateTime), printable(u.Error))
	default:
		s += fmt.Sprintf("; took over at %s after a pause of %v", u.At.UTC().Format(time.DateTime), ctl.Rounded(u.Pause))
		if u.From != "" {
			s += " from rdsd " + printable(u.From)
		}
		if u.State != 0 { // 0: of a daemon that does not say it
			s += fmt.Sprintf(", state version %d", u.State)
		}
	}
	if u.Running {
		s += fmt.Sprintf("; upgrade %d is in progress", u.Attempt)
	}
	return s
}
