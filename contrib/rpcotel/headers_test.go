package rpcotel_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/contrib/rpcotel"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
)

// TestForeign: a server takes the headers of a caller that has another library, and does without
// those that are no trace.
func TestForeign(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0] // ends after the server, which waits until its answers are acked
	p := newPair(t, methods)
	c := rpc.NewCaller(d.Bind(t, d.Open(t), 0), rpc.CallerOptions{})
	defer c.Close()
	for _, tt := range []struct {
		h             rpc.Header
		parent, state string
	}{
		{rpc.Header{"traceparent": traceparent, "tracestate": "a=1,b=2", "mine": "x"}, parentID, "a=1,b=2"},
		{rpc.Header{"traceparent": traceparent}, parentID, ""},
		{rpc.Header{"traceparent": traceparent, "tracestate": "\xff" + strings.Repeat("=", 8000)}, parentID, ""},
		{nil, "", ""},
		{rpc.Header{}, "", ""},
		{rpc.Header{"tracestate": "a=1"}, "", ""},
		{rpc.Header{"traceparent": "", "tracestate": "a=1"}, "", ""},
		{rpc.Header{"traceparent": traceparent[:54]}, "", ""},
		{rpc.Header{"traceparent": strings.ToUpper(traceparent)}, "", ""},
		{rpc.Header{"traceparent": "00-" + strings.Repeat("0", 32) + "-" + parentID + "-01"}, "", ""},
		{rpc.Header{"traceparent": strings.Repeat("\xff", 8000)}, "", ""},
	} {
		had := maps.Clone(tt.h)
		r := &rpc.Request{To: p.at, Method: "headers", Header: tt.h}
		got, err := c.Do(soon(t), r)
		if err != nil || string(got) != fmt.Sprint(map[string]string(had)) {
			t.Errorf("%.100q: the handler had %.100q, %v", had, got, err)
		}
		server, _ := p.take(t)
		parent := trace.SpanID{}.String()
		if tt.parent != "" {
			parent = tt.parent
		}
		if got := server.Parent.SpanID().String(); got != parent || server.SpanContext.TraceState().String() != tt.state {
			t.Errorf("%.100q: parent %s, state %q", had, got, server.SpanContext.TraceState())
		}
		if (server.SpanContext.TraceID().String() == traceID) != (tt.parent != "") || !server.SpanContext.IsValid() {
			t.Errorf("%.100q: trace %s", had, server.SpanContext.TraceID())
		}
	}
}

// TestHeadersFit: the program's headers travel with those of the trace. Of these, what does not
// fit is left out, traceparent last, and the call goes on.
func TestHeadersFit(t *testing.T) {
	p := newPair(t, methods)
	state, err := trace.ParseTraceState("a=" + strings.Repeat("1", 200))
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(soon(t), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state}))
	many := func(n int) rpc.Header {
		h := rpc.Header{}
		for i := range n {
			h[fmt.Sprint("h", i)] = "v"
		}
		return h
	}
	const both = len("traceparent") + len(traceparent) + len("tracestate") + 202
	for _, tt := range []struct {
		h       rpc.Header
		leftOut string
	}{
		{rpc.Header{}, ""},
		{rpc.Header{"traceparent": "replaced", "mine": "x"}, ""},
		{many(rpc.MaxHeaders - 2), ""},
		{many(rpc.MaxHeaders - 1), `["tracestate"]`},
		{many(rpc.MaxHeaders), `["traceparent","tracestate"]`},
		{rpc.Header{"long": strings.Repeat("x", rpc.MaxHeaderBytes-both-4)}, ""},
		{rpc.Header{"long": strings.Repeat("x", rpc.MaxHeaderBytes-both-3)}, `["tracestate"]`},
		{rpc.Header{"long": strings.Repeat("x", rpc.MaxHeaderBytes-4)}, `["traceparent","tracestate"]`},
	} {
		had := maps.Clone(tt.h)
		r := &rpc.Request{To: p.at, Method: "headers", Header: tt.h}
		got, err := p.caller.Do(ctx, r)
		server, client := p.take(t)
		if err != nil || !maps.Equal(r.Header, had) {
			t.Fatalf("%d headers: %v, afterwards %d", len(had), err, len(r.Header))
		}
		for name, value := range had {
			if name != rpc.Traceparent && !strings.Contains(string(got), name+":"+value) {
				t.Errorf("the handler has no %s: %.200s", name, got)
			}
		}
		check(t, &client, map[string]string{"rds.headers.left_out": tt.leftOut})
		if linked := server.Parent.SpanID() == client.SpanContext.SpanID(); linked == strings.Contains(tt.leftOut, "traceparent") {
			t.Errorf("%d headers, left out %s: linked %v", len(had), tt.leftOut, linked)
		}
		if has := server.SpanContext.TraceState().Len() > 0; has == (tt.leftOut != "") {
			t.Errorf("%d headers, left out %s: state %q", len(had), tt.leftOut, server.SpanContext.TraceState())
		}
	}
}

// TestOlderServer: a server that refuses headers gets the request without those of the trace, and
// one with headers of the program not.
func TestOlderServer(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0] // ends after the server, which waits until its answers are acked
	p := newPair(t, methods)
	s := d.Bind(t, d.Open(t), 0)
	defer s.Close()
	go func() { // answers as release 0.2: header of 32 bytes with version, kind, status, and id
		for m, err := range s.Messages(context.Background()) {
			if err != nil {
				return
			}
			answer := make([]byte, 32)
			copy(answer, []byte{1, 2})
			copy(answer[8:], m.Payload[8:16])
			if m.Payload[0] != 1 {
				answer[2] = 6 // it does not speak the version
			}
			_, _ = s.Send(context.Background(), &rds.Message{Payload: answer, Addr: m.Addr})
		}
	}()
	if _, err := p.caller.Call(soon(t), s.LocalAddrPort(), "m", nil); err != nil {
		t.Error(err)
	}
	_, client := p.take(t)
	check(t, &client, map[string]string{"rpc.response.status_code": "ok"})
	if at, _ := event(&client, "server without headers"); at.IsZero() {
		t.Errorf("events: %v", client.Events)
	}
	if _, err := p.caller.Do(soon(t), &rpc.Request{To: s.LocalAddrPort(), Method: "m", Header: rpc.Header{"mine": "x"}}); rpc.Outcome(err) != "version" {
		t.Errorf("with headers of the program: %v", err)
	}
}

// TestUntraced: without an SDK a call has no headers but those of a trace that its context has,
// and a trace that is not sampled has no spans but is passed on.
func TestUntraced(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	p := newPair(t, methods, sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
	got, err := p.caller.Call(soon(t), p.at, "headers", nil)
	if err != nil || !strings.HasPrefix(string(got), "map[traceparent:00-") || !strings.HasSuffix(string(got), "-00]") {
		t.Errorf("a trace that is not sampled: %s, %v", got, err)
	}
	c := rpc.NewCaller(d.Bind(t, d.Open(t), 0), rpc.CallerOptions{})
	defer c.Close()
	c.Use(rpcotel.Caller(rpcotel.Options{TracerProvider: noop.NewTracerProvider()}))
	if got, err := c.Call(soon(t), p.at, "headers", nil); err != nil || string(got) != "map[]" {
		t.Errorf("without an SDK: %s, %v", got, err)
	}
	id, _ := trace.TraceIDFromHex(traceID)
	parent, _ := trace.SpanIDFromHex(parentID)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: parent})
	if got, err := c.Call(trace.ContextWithSpanContext(soon(t), sc), p.at, "headers", nil); err != nil || string(got) != "map[traceparent:"+traceparent[:53]+"00]" {
		t.Errorf("without an SDK, within a trace: %s, %v", got, err)
	}
	if spans := p.spans.GetSpans(); len(spans) != 0 {
		t.Errorf("spans: %v", spans)
	}
}
