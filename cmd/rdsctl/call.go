package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/loadgen"
	stressed "github.com/rdsd/rdsd/internal/stress/report"
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

// call sends one request on c.
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

// once is connect and call.
func (a *app) once(ctx context.Context, o *options, r ctl.Request) ([]byte, *ctl.Response, error) {
	c, err := a.connect(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	return call(ctx, c, o, r)
}

// stuck is the error of a daemon that does not answer.
type stuck struct{ after time.Duration }

func (e *stuck) Error() string {
	return fmt.Sprintf("the daemon did not answer within %v; rdsctl status --offline shows whether it is stuck", e.after)
}

func (e *stuck) Is(target error) bool { return target == context.DeadlineExceeded }

// explain adds to err what to do about a daemon that does not answer.
func (o *options) explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &stuck{o.timeout}
	}
	return err
}

// ask runs a verb that is one request. It prints the answer as JSON or with show.
func (a *app) ask(ctx context.Context, o *options, r ctl.Request, show func(*ctl.Response)) int {
	raw, resp, err := a.once(ctx, o, r)
	if err != nil {
		return a.fail(o, r.Kind, err)
	}
	if o.output.machine() {
		// Print the answer as it came, so that fields of a newer daemon are kept.
		return a.printJSON(o, json.RawMessage(raw))
	}
	show(resp)
	return exitOK
}

// report is what a verb found, as a document: like ctl.Response, with the report of one verb of
// rdsctl alone.
type report struct {
	Schema string           `json:"schema"`
	Kind   ctl.Kind         `json:"kind"`
	Doctor []finding        `json:"doctor,omitempty"`
	Check  *checkResult     `json:"check,omitempty"`
	Bench  *loadgen.Report  `json:"bench,omitempty"`
	Stress *stressed.Report `json:"stress,omitempty"`
	Error  *ctl.Error       `json:"error,omitempty"`
}

// printReport prints r, if the form is for programs. err is why the verb failed, which
// printReport also reports on standard error.
func (a *app) printReport(o *options, r report, err error) int {
	code := exitOK
	r.Schema = ctl.Schema
	if err != nil {
		code = exitFailed
		r.Error = &ctl.Error{Code: ctl.CodeFailed, Message: err.Error()}
		fmt.Fprintf(a.stderr, "rdsctl: %s: %s\n", r.Kind, printable(err.Error()))
	}
	if o.output.machine() {
		code = max(code, a.printJSON(o, &r))
	}
	return code
}

// fail reports err on standard error. For JSON it also prints it on standard output, as the
// error of a response.
func (a *app) fail(o *options, kind ctl.Kind, err error) int {
	code, name := exitOf(err)
	if o.output.json() {
		answer, ok := errors.AsType[*ctl.Error](err)
		if !ok {
			answer = &ctl.Error{Code: name, Message: err.Error()}
		}
		a.printJSON(o, &ctl.Response{Schema: ctl.Schema, Kind: kind, Error: answer})
	}
	fmt.Fprintf(a.stderr, "rdsctl: %s%s\n", printable(err.Error()), cure(err))
	return code
}

// printJSON prints one document. With jsonl it is one line, with csv one line for each
// value.
func (a *app) printJSON(o *options, v any) int {
	raw, err := json.Marshal(v)
	if err == nil && !o.output.old() && o.output != asCSV {
		raw, err = numbersToStrings(raw)
	}
	var b bytes.Buffer
	if err == nil {
		switch o.output.form() {
		case jsonLines:
			err = json.Compact(&b, raw)
		case asCSV:
			err = fieldsCSV(&b, raw)
		default:
			err = json.Indent(&b, raw, "", "  ")
		}
	}
	if err == nil {
		if o.output != asCSV {
			b.WriteByte('\n')
		}
		_, err = a.stdout.Write(b.Bytes())
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
		return exitFailed
	}
	return exitOK
}
