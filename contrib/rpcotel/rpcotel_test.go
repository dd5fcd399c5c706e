package rpcotel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/contrib/rpcotel"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pair is a server and a caller on two hosts, whose spans are kept in memory.
type pair struct {
	at     netip.AddrPort
	caller *rpc.Caller
	tracer trace.Tracer
	spans  *tracetest.InMemoryExporter
	log    bytes.Buffer // that of the server, complete after stop
	stop   func()
}

func newPair(t *testing.T, methods rpc.Methods, more ...sdk.TracerProviderOption) *pair {
	t.Helper()
	p := &pair{spans: tracetest.NewInMemoryExporter()}
	provider := sdk.NewTracerProvider(append(more, sdk.WithSyncer(p.spans))...)
	p.tracer = provider.Tracer("test")
	o := rpcotel.Options{TracerProvider: provider}
	ds := rdstest.StartDaemons(t, 2)
	s := ds[0].Bind(t, ds[0].Open(t), 0)
	server := rpc.NewServer(s, methods, rpc.ServerOptions{Log: slog.New(slog.NewTextHandler(&p.log, nil))})
	server.Use(rpcotel.Server(o))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background()) }()
	p.at, p.caller = s.LocalAddrPort(), rpc.NewCaller(ds[1].Bind(t, ds[1].Open(t), 0), rpc.CallerOptions{})
	p.caller.Use(rpcotel.Caller(o))
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = p.caller.Close()
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-ended
	}
	t.Cleanup(p.stop)
	return p
}

// take returns the spans since the last time, by their kind: one of each at most.
func (p *pair) take(t *testing.T) (server, client tracetest.SpanStub) {
	t.Helper()
	defer p.spans.Reset()
	for _, s := range p.spans.GetSpans() {
		to := &client
		if s.SpanKind == trace.SpanKindServer {
			to = &server
		}
		if to.SpanContext.IsValid() {
			t.Errorf("a second span: %s, %s", s.SpanKind, s.Name)
		}
		*to = s
	}
	return server, client
}

// check compares attributes of a span, some of them: one that must not be there is "".
func check(t *testing.T, s *tracetest.SpanStub, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, a := range s.Attributes {
		got[string(a.Key)] = a.Value.String()
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s %s: %s is %q, want %q: %v", s.SpanKind, s.Name, name, got[name], v, got)
		}
	}
}

func event(s *tracetest.SpanStub, name string) (at time.Time, attributes []attribute.KeyValue) {
	for _, e := range s.Events {
		if e.Name == name {
			return e.Time, e.Attributes
		}
	}
	return time.Time{}, nil
}

var methods = rpc.Methods{
	"echo": func(_ context.Context, r *rpc.Request) ([]byte, error) { return r.Body, nil },
	"headers": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		return fmt.Append(nil, map[string]string(r.Header)), nil
	},
	"fail":      func(context.Context, *rpc.Request) ([]byte, error) { return nil, errors.New("no \xff luck") },
	"panic":     panics,
	"goexit":    func(context.Context, *rpc.Request) ([]byte, error) { runtime.Goexit(); return nil, nil },
	"by\xfftes": func(context.Context, *rpc.Request) ([]byte, error) { return nil, nil },
}

func panics(context.Context, *rpc.Request) ([]byte, error) { panic("the secret") }

// TestSpans: the spans of a call are one trace, have what the conventions ask for, and the times
// of the messages.
func TestSpans(t *testing.T) {
	p := newPair(t, methods)
	state, err := trace.ParseTraceState("vendor=value,other=1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, root := p.tracer.Start(trace.ContextWithRemoteSpanContext(soon(t), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})), "work")
	for _, n := range []int{5, 300 << 10} { // in the message, and read by RDMA
		r := &rpc.Request{To: p.at, Method: "echo", Body: make([]byte, n)}
		if _, err := p.caller.Do(ctx, r); err != nil || r.Header != nil {
			t.Fatal(err, r.Header)
		}
		server, client := p.take(t)
		if client.Parent.SpanID() != root.SpanContext().SpanID() || server.Parent.SpanID() != client.SpanContext.SpanID() || !server.Parent.IsRemote() {
			t.Errorf("parents: %v, %v", client.Parent, server.Parent)
		}
		if id := root.SpanContext().TraceID(); client.SpanContext.TraceID() != id || server.SpanContext.TraceID() != id {
			t.Errorf("traces: %v, %v", client.SpanContext, server.SpanContext)
		}
		if got := server.SpanContext.TraceState().String(); got != state.String() {
			t.Errorf("tracestate: %q", got)
		}
		for _, s := range []*tracetest.SpanStub{&server, &client} {
			check(t, s, map[string]string{"rpc.system.name": "rds", "rpc.method": "echo", "rpc.response.status_code": "ok", "error.type": "",
				"server.address": p.at.Addr().String(), "server.port": fmt.Sprint(p.at.Port()), "rds.request.size": fmt.Sprint(n), "rds.answer.size": fmt.Sprint(n)})
			if s.Name != "echo" || s.Status.Code != codes.Unset || s.InstrumentationScope.SchemaURL == "" {
				t.Errorf("%s: %q, %v, %v", s.SpanKind, s.Name, s.Status, s.InstrumentationScope)
			}
		}
		check(t, &server, map[string]string{"client.address": r.From.Addr().String(), "client.port": fmt.Sprint(r.From.Port()), "network.peer.port": fmt.Sprint(r.From.Port())})
		check(t, &client, map[string]string{"client.address": "", "network.peer.address": p.at.Addr().String()})
		begins, _ := event(&server, "handler begins")
		arrived, _ := event(&client, "answer arrived")
		// A daemon notes when a turn began, which may be before what arrives in it was sent.
		if begins.Before(server.StartTime) || server.EndTime.Before(begins) || client.StartTime.Sub(server.StartTime) > time.Minute {
			t.Errorf("the server has the request at %v, begins %v, ends %v: it was sent after %v", server.StartTime, begins, server.EndTime, client.StartTime)
		}
		if arrived.After(client.EndTime) || client.StartTime.Sub(arrived) > time.Minute {
			t.Errorf("the answer arrived at %v: the call took from %v to %v", arrived, client.StartTime, client.EndTime)
		}
	}
}

// TestErrors: what the spans say of calls that fail.
func TestErrors(t *testing.T) {
	p := newPair(t, methods)
	none := netip.AddrPortFrom(p.at.Addr(), p.at.Port()-1)
	for _, tt := range []struct {
		to             netip.AddrPort
		method         string
		word, name     string // of the caller's span
		served, status string // of the server's
	}{
		{p.at, "fail", "failed", "fail", "failed", "no \uFFFD luck"},
		{p.at, "panic", "failed", "panic", "panicked", "the handler panicked or ended its goroutine"},
		{p.at, "goexit", "failed", "goexit", "panicked", "the handler panicked or ended its goroutine"},
		{p.at, "none", "no_method", "_OTHER", "", ""},
		{none, "echo", "no_socket", "echo", "", ""},
	} {
		_, err := p.caller.Call(soon(t), tt.to, tt.method, nil)
		if rpc.Outcome(err) != tt.word {
			t.Fatalf("%s: %v", tt.method, err)
		}
		server, client := p.take(t)
		check(t, &client, map[string]string{"error.type": tt.word, "rpc.response.status_code": tt.word, "rpc.method": tt.name, "rds.answer.size": ""})
		if client.Name != tt.name || client.Status.Code != codes.Error || client.Status.Description == "" || server.SpanContext.IsValid() != (tt.served != "") {
			t.Errorf("%s: %q, %v, %v", tt.method, client.Name, client.Status, server.Name)
		}
		if tt.served == "" {
			continue
		}
		check(t, &server, map[string]string{"error.type": tt.served})
		if server.Status.Code != codes.Error || server.Status.Description != tt.status {
			t.Errorf("%s at the server: %v", tt.method, server.Status)
		}
		if at, attributes := event(&server, "exception"); at.IsZero() != (tt.method != "panic") ||
			!at.IsZero() && (!strings.Contains(fmt.Sprint(attributes), "the secret") || !strings.Contains(fmt.Sprint(attributes), "rpcotel_test.panics")) {
			t.Errorf("%s: exception %v, %v", tt.method, at, attributes)
		}
		if strings.Contains(fmt.Sprint(client), "secret") {
			t.Errorf("the caller was told: %v", client)
		}
	}
	if _, err := p.caller.Call(soon(t), p.at, "by\xfftes", nil); err != nil {
		t.Fatal(err)
	}
	if server, client := p.take(t); server.Name != "by\uFFFDtes" || client.Name != "by\uFFFDtes" {
		t.Errorf("a method that is no text: %q, %q", server.Name, client.Name)
	}
	p.stop()
	if log := p.log.String(); strings.Count(log, "level=ERROR") != 2 || !strings.Contains(log, "rpcotel_test.panics") {
		t.Errorf("the server's log has not each panic with its stack: %s", log)
	}
}

// TestCanceled: a call that its caller cancels is an error there, and none of the server.
func TestCanceled(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	p := newPair(t, rpc.Methods{"wait": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(soon(t))
	go func() { <-began; cancel() }()
	if _, err := p.caller.Call(ctx, p.at, "wait", nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-ended
	p.stop() // after the handler's span
	server, client := p.take(t)
	check(t, &client, map[string]string{"error.type": "canceled", "rpc.response.status_code": "canceled"})
	check(t, &server, map[string]string{"error.type": "", "rpc.response.status_code": "canceled"})
	if client.Status.Code != codes.Error || server.Status.Code != codes.Unset {
		t.Errorf("%v, %v", client.Status, server.Status)
	}
}
