package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// drainEvery is how often rdsctl asks for the progress of a drain.
const drainEvery = 50 * time.Millisecond

func peerDrainVerb(fs *flag.FlagSet) action {
	keep := fs.Bool("keep", false, "do not break the empty connection off")
	wait := waitFlag(fs)
	return func(ctx context.Context, a *app, o *options, arg string) int {
		addr, code := a.address(ctx, o, "peer drain", arg)
		if code != exitOK {
			return code
		}
		return a.drain(ctx, o, addr, *wait, !*keep)
	}
}

func daemonDrainVerb(fs *flag.FlagSet) action {
	wait := waitFlag(fs)
	return func(ctx context.Context, a *app, o *options, _ string) int {
		return a.drain(ctx, o, netip.Addr{}, *wait, false)
	}
}

func waitFlag(fs *flag.FlagSet) *time.Duration {
	return fs.Duration("wait", 30*time.Second, "how `long` to wait until nothing is left; 0: only begin")
}

func peerResumeVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, arg string) int {
		addr, code := a.address(ctx, o, "peer resume", arg)
		if code != exitOK {
			return code
		}
		return a.resume(ctx, o, addr)
	}
}

func daemonResumeVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, _ string) int { return a.resume(ctx, o, netip.Addr{}) }
}

// drain begins a drain and waits for its end, at most as long as wait. With reset it then
// breaks the connections, which have nothing in progress any more.
func (a *app) drain(ctx context.Context, o *options, addr netip.Addr, wait time.Duration, reset bool) int {
	if wait < 0 {
		return a.wrong("drain", "-wait %v is negative", wait)
	}
	c, err := a.connect(ctx, o)
	if err != nil {
		return a.fail(o, ctl.KindDrain, err)
	}
	defer c.Close()
	deadline := time.Now().Add(wait)
	do := ctl.DrainBegin
	for {
		raw, r, err := call(ctx, c, o, ctl.Request{Kind: ctl.KindDrain, Addr: addr, Do: do})
		if ctx.Err() != nil {
			fmt.Fprintf(a.stderr, "rdsctl: interrupted; what is drained stays so: %s\n", resumeWith(addr))
			return exitFailed
		}
		if err != nil {
			return a.fail(o, ctl.KindDrain, err)
		}
		do = ctl.DrainLook
		d := r.Drain
		switch {
		case d.Done:
			if reset {
				if _, _, err := call(ctx, c, o, ctl.Request{Kind: ctl.KindPeerReset, Addr: addr}); err != nil {
					if code, _ := exitOf(err); code != exitNotFound {
						return a.fail(o, ctl.KindDrain, err)
					}
				}
			}
			return a.showDrain(o, raw, d)
		case wait == 0:
			return a.showDrain(o, raw, d)
		case !time.Now().Before(deadline):
			code := a.showDrain(o, raw, d)
			fmt.Fprintf(a.stderr, "rdsctl: not done within %v; it goes on: %s, or rdsctl backlog shows who has to act\n", wait, resumeWith(addr))
			return max(code, exitTimeout)
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(drainEvery, max(0, time.Until(deadline)))):
		}
	}
}

func (a *app) resume(ctx context.Context, o *options, addr netip.Addr) int {
	raw, r, err := a.once(ctx, o, ctl.Request{Kind: ctl.KindDrain, Addr: addr, Do: ctl.DrainResume})
	if err != nil {
		return a.fail(o, ctl.KindDrain, err)
	}
	return a.showDrain(o, raw, r.Drain)
}

func resumeWith(addr netip.Addr) string {
	if addr.IsValid() {
		return fmt.Sprintf("rdsctl peer resume %v ends it", addr)
	}
	return "rdsctl daemon resume ends it"
}

func (a *app) showDrain(o *options, raw []byte, d *ctl.Drain) int {
	if o.output.machine() {
		return a.printJSON(o, json.RawMessage(raw))
	}
	what := "daemon"
	if d.Addr.IsValid() {
		what = d.Addr.String()
	}
	left := fmt.Sprintf("%d messages (%s) and %d operations are left", d.Messages, bytesText(d.Bytes), d.Ops)
	switch {
	case !d.Drained:
		fmt.Fprintf(a.stdout, "%s: resumed\n", what)
	case d.Done:
		fmt.Fprintf(a.stdout, "%s: drained, nothing is left; %s\n", what, resumeWith(d.Addr))
		if d.Unread > 0 && !d.Addr.IsValid() {
			fmt.Fprintf(a.stdout, "%s: %s that arrived are not read yet\n", what, bytesText(d.Unread))
		}
	default:
		fmt.Fprintf(a.stdout, "%s: draining, %s\n", what, left)
	}
	return exitOK
}
