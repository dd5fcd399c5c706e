package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// large is as much as a Header may have.
func large() rpc.Header {
	h := rpc.Header{}
	for i := range rpc.MaxHeaders {
		name := fmt.Sprintf("%02d", i)
		h[name] = strings.Repeat(name[1:], rpc.MaxHeaderBytes/rpc.MaxHeaders-2)
	}
	return h
}

// TestHeader: headers go both ways, with bodies of all kinds, and with errors.
func TestHeader(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		at, _ := serve(t, d, rpc.Methods{"headers": func(_ context.Context, r *rpc.Request) ([]byte, error) {
			r.Answer = r.Header
			if len(r.Body) == 1 {
				return nil, errors.New("odd")
			}
			if len(r.Body) == 2 {
				r.Answer = rpc.Header{"to": r.To.String(), "from": r.From.String()}
			}
			return r.Body, nil
		}}, rpc.ServerOptions{})
		for _, h := range []rpc.Header{nil, {}, {rpc.Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"empty": ""}, large()} {
			for _, n := range []int{0, 1, 1000, 128 << 10, 300 << 10} {
				r := &rpc.Request{To: at, Method: "headers", Header: h, Body: make([]byte, n)}
				got, err := c.Do(soon(t), r)
				if n == 1 && err == nil || n != 1 && (err != nil || len(got) != n) || !maps.Equal(r.Answer, h) {
					t.Errorf("%d headers, %d bytes: %d bytes, %v, %d headers", len(h), n, len(got), err, len(r.Answer))
				}
			}
		}
		r := &rpc.Request{To: at, Method: "headers", Header: rpc.Header{}, Body: []byte("ab")}
		if _, err := c.Do(soon(t), r); err != nil || r.Answer["to"] != at.String() || r.Answer["from"] != r.From.String() {
			t.Errorf("the addresses: %v, %v", r.Answer, err)
		}
	})
}

// TestHeaderBounds: a header beyond the bounds is an error that names the bound, at both ends.
func TestHeaderBounds(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := caller(t, d, never)
	many, long := large(), large()
	many["one"] = ""
	long["00"] += "x"
	answers := []rpc.Header{many, long, {"": ""}}
	at, _ := serve(t, d, rpc.Methods{"headers": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		r.Answer = answers[r.Body[0]]
		return nil, nil
	}}, rpc.ServerOptions{})
	for i, want := range []string{"33 headers, the limit is 32 (MaxHeaders)", "headers of 8193 bytes, the limit is 8192 (MaxHeaderBytes)", "a header's name has 1 to 255 bytes, not 0"} {
		is := rpc.ErrTooLarge
		if i == 2 {
			is = rds.ErrInvalid
		}
		if _, err := c.Do(soon(t), &rpc.Request{To: at, Method: "headers", Header: answers[i]}); !errors.Is(err, is) || !strings.Contains(err.Error(), want) {
			t.Errorf("a request: %v, want %s", err, want)
		}
		if _, err := c.Do(soon(t), &rpc.Request{To: at, Method: "headers", Header: rpc.Header{}, Body: []byte{byte(i)}}); !errors.Is(err, rpc.ErrTooLarge) || !strings.Contains(err.Error(), want) {
			t.Errorf("an answer: %v, want %s", err, want)
		}
	}
}

// TestUse: interceptors are called in their order at both ends, change what goes on, and see
// what comes back, of all three kinds of calls.
func TestUse(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	var mu sync.Mutex
	var seen []string
	note := func(what string) rpc.Interceptor {
		return func(next rpc.Handler) rpc.Handler {
			return func(ctx context.Context, r *rpc.Request) ([]byte, error) {
				mu.Lock()
				seen = append(seen, what)
				mu.Unlock()
				if r.Header == nil {
					r.Header = rpc.Header{}
				}
				r.Header["path"] += what
				out, err := next(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprintf("%s:%d,%v", what, len(out), err))
				return out, err
			}
		}
	}
	s := d.Bind(t, d.Open(t), 0)
	v := rpc.NewServer(s, rpc.Methods{"path": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		return []byte(r.Header["path"]), nil
	}}, rpc.ServerOptions{})
	v.Use(note("c"), note("d"))
	v.Use(note("e"))
	ended := make(chan error)
	go func() { ended <- v.Serve(context.Background()) }()
	c := caller(t, d, never)
	c.Use(note("a"))
	c.Use(note("b"))
	m, err := c.NewMemory(100)
	if err != nil {
		t.Fatal(err)
	}
	for i, call := range []func() ([]byte, error){
		func() ([]byte, error) { return c.Call(soon(t), s.LocalAddrPort(), "path", nil) },
		func() ([]byte, error) { return c.Do(soon(t), &rpc.Request{To: s.LocalAddrPort(), Method: "path"}) },
		func() ([]byte, error) {
			n, err := c.CallInto(soon(t), s.LocalAddrPort(), "path", nil, m)
			return bytes.Clone(m.Bytes()[:n]), err
		},
	} {
		seen = nil
		b, err := call()
		if got := strings.Join(seen, " "); err != nil || string(b) != "abcde" || got != "a b c d e e:5,<nil> d:5,<nil> c:5,<nil> b:5,<nil> a:5,<nil>" {
			t.Errorf("call %d: %q, %v: %s", i, b, err, got)
		}
	}
	seen = nil
	var call *rpc.CallError
	if _, err := c.Call(soon(t), s.LocalAddrPort(), "none", nil); !errors.Is(err, rpc.ErrNoMethod) || !errors.As(err, &call) || len(seen) != 4 || seen[3] != "a:0,no such method" {
		t.Errorf("a method that is not there: %v: %q", err, seen)
	}
	if err := v.Shutdown(soon(t)); err != nil {
		t.Error(err)
	}
	<-ended
}
