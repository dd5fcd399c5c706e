package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// TestOutcome: each error of a call has a word of its own, within a CallError and with details,
// and an error that only resembles one has another.
func TestOutcome(t *testing.T) {
	seen := map[string]error{}
	for _, err := range []error{nil, &rpc.Error{Text: "x", Errno: syscall.ENOSYS}, rpc.ErrNoSocket, rpc.ErrLost, rpc.ErrBusy, rpc.ErrShutdown,
		rpc.ErrNoMethod, rpc.ErrTooLarge, rpc.ErrNotGranted, rpc.ErrVersion, rpc.ErrProtocol, rpc.ErrMemory, context.DeadlineExceeded,
		context.Canceled, rds.ErrClosed, rds.ErrDaemonGone, rds.ErrSession, rds.ErrInvalid, rds.Reason(0), syscall.EAGAIN} {
		word := rpc.Outcome(err)
		if was, ok := seen[word]; ok || word == "" || strings.ToLower(word) != word {
			t.Errorf("%v is %q, as is %v", err, word, was)
		}
		seen[word] = err
		if err == nil {
			continue
		}
		if got := rpc.Outcome(&rpc.CallError{Method: "m", Err: fmt.Errorf("more: %w", err)}); got != word {
			t.Errorf("within a CallError %v is %q, want %q", err, got, word)
		}
	}
	for word, want := range map[string]error{"ok": nil, "no_method": rpc.ErrNoMethod, "deadline": context.DeadlineExceeded} {
		if got, ok := seen[word]; !ok || got != want {
			t.Errorf("%s is %v, want %v", word, got, want)
		}
	}
}

// TestRefused: the server is told of each request that it refuses, with the word that its
// caller has for it.
func TestRefused(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	var mu sync.Mutex
	var refused []string
	at, _ := serve(t, d, rpc.Methods{"echo": echo}, rpc.ServerOptions{MaxRequest: 10, Refused: func(r *rpc.Request, err error) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, fmt.Sprint(r.Method, " ", r.From, " ", r.To, " ", rpc.Outcome(err)))
	}})
	c := caller(t, d, never)
	var from string
	c.Use(func(next rpc.Handler) rpc.Handler {
		return func(ctx context.Context, r *rpc.Request) ([]byte, error) {
			from = r.From.String()
			return next(ctx, r)
		}
	})
	var want []string
	for _, r := range []struct {
		method string
		body   int
		err    error
	}{{"echo", 10, nil}, {"none", 0, rpc.ErrNoMethod}, {"echo", 11, rpc.ErrTooLarge}} {
		_, err := c.Call(soon(t), at, r.method, make([]byte, r.body))
		if !errors.Is(err, r.err) {
			t.Fatalf("%s with %d bytes: %v, want %v", r.method, r.body, err, r.err)
		}
		if err != nil {
			want = append(want, fmt.Sprint(r.method, " ", from, " ", at, " ", rpc.Outcome(err)))
		}
	}
	other := make([]byte, 40) // a request of version 9, and one with a method that is not there
	other[0], other[1], other[8] = 9, 1, 1
	short := append([]byte(nil), other...)
	short[0], short[2] = 1, 200
	s := d.Bind(t, d.Open(t), 0)
	for _, b := range [][]byte{other, short} {
		if _, err := s.SendTo(b, at); err != nil {
			t.Fatal(err)
		}
		if err := s.Recv(soon(t), &rds.Received{Payload: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	want = append(want, fmt.Sprint(" ", s.LocalAddrPort(), " ", at, " version"), fmt.Sprint(" ", s.LocalAddrPort(), " ", at, " protocol"))
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(refused, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("refused:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// TestRequestOutcome: what an interceptor calls the outcome, at both sides, and that it knows
// when request and answer arrived.
func TestRequestOutcome(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		words, began := make(chan string, 2), make(chan struct{})
		times := make(chan time.Time, 2)
		note := func(next rpc.Handler) rpc.Handler {
			return func(ctx context.Context, r *rpc.Request) ([]byte, error) {
				out, err := next(ctx, r)
				times <- r.Arrived
				words <- r.Outcome(ctx, err)
				return out, err
			}
		}
		s := d.Bind(t, d.Open(t), 0)
		v := rpc.NewServer(s, rpc.Methods{
			"echo": echo,
			"fail": func(context.Context, *rpc.Request) ([]byte, error) { return nil, fmt.Errorf("asked: %w", rpc.ErrBusy) },
			"wait": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
				close(began)
				<-ctx.Done()
				return nil, errors.New("no time")
			},
		}, rpc.ServerOptions{})
		v.Use(note)
		ended := make(chan error)
		go func() { ended <- v.Serve(context.Background()) }()
		c.Use(note)
		for _, tt := range []struct {
			method, word string
			body         int
		}{{"echo", "ok", 0}, {"echo", "ok", 300 << 10}, {"fail", "failed", 0}, {"wait", "canceled", 0}} {
			ctx, cancel := context.WithCancel(soon(t))
			if tt.method == "wait" {
				go func() { <-began; cancel() }()
			}
			before := time.Now()
			r := &rpc.Request{To: s.LocalAddrPort(), Method: tt.method, Body: make([]byte, tt.body)}
			_, _ = c.Do(ctx, r)
			cancel()
			if served, called := <-words, <-words; served != tt.word || called != tt.word {
				t.Errorf("%s: %q at the server, %q at the caller, want %q", tt.method, served, called, tt.word)
			}
			request, answer := <-times, <-times
			if tt.method == "wait" { // the caller's interceptor may be the first to say so
				if request.IsZero() == answer.IsZero() || !r.Arrived.IsZero() {
					t.Errorf("%s: %v and %v arrived, %v", tt.method, request, answer, r.Arrived)
				}
			} else if after := time.Now(); before.Sub(request) > patience || request.After(after) || answer.After(after) || !answer.Equal(r.Arrived) {
				// A daemon notes when a turn began, which may be before what arrives in it was sent.
				t.Errorf("%s: the request arrived %v, the answer %v, %v: it was sent after %v", tt.method, request, answer, r.Arrived, before)
			}
		}
		if err := v.Shutdown(soon(t)); err != nil {
			t.Error(err)
		}
		<-ended
	})
}
