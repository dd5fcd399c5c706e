package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// TestPanic: a handler that panics or ends its goroutine costs its caller the answer and the
// server nothing. The log says why, and the caller is not told.
func TestPanic(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := caller(t, d, never)
	var log bytes.Buffer
	at, stop := serve(t, d, rpc.Methods{
		"echo":   echo,
		"panic":  func(context.Context, *rpc.Request) ([]byte, error) { panic("the secret") },
		"goexit": func(context.Context, *rpc.Request) ([]byte, error) { runtime.Goexit(); return nil, nil },
	}, rpc.ServerOptions{Handlers: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, method := range []string{"panic", "goexit", "panic"} {
		var failed *rpc.Error
		if _, err := c.Call(soon(t), at, method, nil); !errors.As(err, &failed) || failed.Text == "" || strings.Contains(failed.Text, "secret") {
			t.Errorf("%s: %v", method, err)
		}
		if _, err := c.Call(soon(t), at, "echo", nil); err != nil {
			t.Errorf("a call after %s: %v", method, err)
		}
	}
	stop() // the log is complete
	for _, want := range []string{"level=ERROR", "method=panic", "the secret", "panic_test.go", "method=goexit"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, &log)
		}
	}
}
