package main

import (
	"bytes"
	"context"
	"slices"
	"testing"
)

// runAppIn is runApp until ctx ends.
func runAppIn(ctx context.Context, c caller, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, paths: []string{"/a.sock", "/b.sock"},
		dial: func(context.Context, string) (caller, error) { return c, nil }}
	code = a.run(ctx, args)
	return code, out.String(), errs.String()
}

func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// answer is a daemon that answers each request with the same text.
type answer string

func (s answer) Call(ctx context.Context, _ []byte) ([]byte, error) { return []byte(s), ctx.Err() }
func (answer) Close() error                                         { return nil }

// counting calls f before each call.
type counting struct {
	direct
	f func()
}

func (c counting) Call(ctx context.Context, req []byte) ([]byte, error) {
	c.f()
	return c.direct.Call(context.WithoutCancel(ctx), req)
}

func sameWords(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
