package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

// caller is a connection to a daemon's control service.
type caller interface {
	// Call sends one request and returns the whole response.
	Call(ctx context.Context, req []byte) ([]byte, error)
	Close() error
}

// connect opens the control service within the time-out.
func (a *app) connect(ctx context.Context, o *options) (caller, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := a.dial(ctx, o.socket)
	if err != nil {
		return nil, o.explain(err)
	}
	return c, nil
}

// call asks one question on c.
func call(ctx context.Context, c caller, o *options, r ctl.Request) ([]byte, *ctl.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	r.Schema = ctl.Schema
	req, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	raw, err := c.Call(ctx, req)
	if err != nil {
		return nil, nil, o.explain(err)
	}
	resp, err := ctl.Parse(raw, r.Kind)
	return raw, resp, err
}

// explain says what to do about a daemon that does not answer.
func (o *options) explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the daemon did not answer within %v; rdsctl status --offline shows whether it is stuck", o.timeout)
	}
	return err
}

// ask runs a verb that is one question: the answer as JSON, or as show prints
// it.
func (a *app) ask(ctx context.Context, o *options, r ctl.Request, show func(*ctl.Response)) int {
	c, err := a.connect(ctx, o)
	if err != nil {
		return a.fail(o, r.Kind, err)
	}
	defer c.Close()
	raw, resp, err := call(ctx, c, o, r)
	if err != nil {
		return a.fail(o, r.Kind, err)
	}
	if o.output == "json" {
		// As it came, so that what a newer daemon added is not lost.
		return a.printJSON(json.RawMessage(raw))
	}
	show(resp)
	return exitOK
}

// fail reports err on standard error and, for -o json, as the response's error
// on standard output.
func (a *app) fail(o *options, kind ctl.Kind, err error) int {
	code := exitFailed
	answer, ok := errors.AsType[*ctl.Error](err)
	if !ok {
		answer = &ctl.Error{Code: ctl.CodeFailed, Message: err.Error()}
	}
	if errors.Is(err, ipc.ErrNoDaemon) {
		code = exitNoDaemon
		answer.Code = ctl.CodeNoDaemon
	}
	if o.output == "json" {
		a.printJSON(&ctl.Response{Schema: ctl.Schema, Kind: kind, Error: answer})
	}
	fmt.Fprintf(a.stderr, "rdsctl: %s\n", printable(err.Error()))
	return code
}

func (a *app) printJSON(v any) int {
	raw, err := json.Marshal(v)
	var b bytes.Buffer
	if err == nil {
		err = json.Indent(&b, raw, "", "  ")
	}
	if err == nil {
		b.WriteByte('\n')
		_, err = a.stdout.Write(b.Bytes())
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
		return exitFailed
	}
	return exitOK
}
