package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stress"
	stressed "github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
)

// runStress is the verb stress: its flags are rds-stress's.
func runStress(ctx context.Context, a *app, o *options, args []string) (int, error) {
	name := "rdsctl stress"
	if a.asOld {
		name = "rds-stress"
	}
	c, err := stress.Parse(args)
	if err != nil {
		return a.wrongStress(fmt.Errorf("%w; all flags: %s --help", err, name))
	}
	if c.Help {
		stress.Usage(a.stdout, name)
		return exitOK, nil
	}
	if c.Form != "" {
		o.output = output(c.Form)
	}
	if c.Socket != "" {
		o.socket = c.Socket
	}
	if err := c.Resolve(ctx); err != nil {
		if _, ok := errors.AsType[*stress.UsageError](err); ok {
			return a.wrongStress(err)
		}
		return a.fail(o, ctl.KindStress, err), nil
	}
	if c.Reset {
		lane := c.Options.TOS
		return a.ask(ctx, o, ctl.Request{Kind: ctl.KindPeerReset, Addr: c.Send, Lane: &lane}, a.showReset(c.Send)), nil
	}
	return a.stress(ctx, o, c), nil
}

// wrongStress reports a wrong command line. Under the name rds-stress the status is 1.
func (a *app) wrongStress(err error) (int, error) {
	if !a.asOld {
		return 0, usagef("stress: %v", err)
	}
	fmt.Fprintf(a.stderr, "rds-stress: %v\n", err)
	return exitFailed, nil
}

func (a *app) stress(ctx context.Context, o *options, c *stress.Command) int {
	env := stress.Env{
		Out: a.stdout, Err: a.stderr, Timing: a.stressTiming,
		Open: func(ctx context.Context) (*rds.Client, error) {
			return rds.Open(ctx, rds.Options{Socket: o.socket})
		},
		Counters: func(ctx context.Context) ([]stressed.Counter, error) { return a.counters(ctx, o) },
	}
	if o.output.machine() {
		env.Out = nil
	} else if a.asOld {
		env.Err = a.stdout // scripts read messages there
	}
	if c.ShowParams && env.Out != nil {
		c.PrintParams(env.Out)
	}
	r, err := stress.Run(ctx, env, c.Params)
	switch {
	case ctx.Err() != nil && r == nil:
		err = errors.New("interrupted before the test began")
	case c.Histogram && env.Out != nil && r != nil:
		stressed.Histogram(env.Out, &r.Buckets)
	}
	if r == nil {
		return a.fail(o, ctl.KindStress, err)
	}
	return a.printReport(o, report{Kind: ctl.KindStress, Stress: r}, err)
}

// counters are the daemon's counters.
func (a *app) counters(ctx context.Context, o *options) ([]stressed.Counter, error) {
	c, err := a.connect(ctx, o)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_, resp, err := call(ctx, c, o, ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		return nil, err
	}
	list := make([]stressed.Counter, len(resp.Status.Counters))
	for i, x := range resp.Status.Counters {
		list[i] = stressed.Counter{Name: x.Name, Value: x.Value}
	}
	return list, nil
}
