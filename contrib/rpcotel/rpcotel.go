package rpcotel

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/rds/rpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	scope = "github.com/rdsd/rdsd/contrib/rpcotel"
	// other is the rpc.method of a method that the server does not have.
	other = "_OTHER"
	// panicked is the error.type of a handler that did not return.
	panicked = "panicked"
	// maxText is how much of an error a span has, bytes, as in an rpc.Error.
	maxText = 1024
)

// The attributes that the semantic conventions do not have.
const (
	requestSize = attribute.Key("rds.request.size") // bytes
	answerSize  = attribute.Key("rds.answer.size")  // bytes
	leftOut     = attribute.Key("rds.headers.left_out")
)

// Options are the options of Server and Caller.
type Options struct {
	// TracerProvider makes the spans; nil means otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
	// Propagator writes and reads the headers; nil means propagation.TraceContext, which has
	// traceparent and tracestate.
	Propagator propagation.TextMapPropagator
}

// tracing is what interceptors have of Options.
type tracing struct {
	tracer  trace.Tracer
	headers propagation.TextMapPropagator
}

func newTracing(o Options) *tracing {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	return &tracing{o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), o.Propagator}
}

// Server returns an interceptor for rpc.Server.Use. It makes a span of each request that a
// handler gets, which is a child of the span that the request's headers name.
func Server(o Options) rpc.Interceptor {
	t := newTracing(o)
	return func(next rpc.Handler) rpc.Handler {
		return func(ctx context.Context, r *rpc.Request) ([]byte, error) { return t.serve(ctx, r, next) }
	}
}

// Caller returns an interceptor for rpc.Caller.Use. It makes a span of each call, which is a
// child of the span in the call's context, and names it in the request's headers.
func Caller(o Options) rpc.Interceptor {
	t := newTracing(o)
	return func(next rpc.Handler) rpc.Handler {
		return func(ctx context.Context, r *rpc.Request) ([]byte, error) { return t.call(ctx, r, next) }
	}
}

func (t *tracing) serve(ctx context.Context, r *rpc.Request, next rpc.Handler) ([]byte, error) {
	began := time.Now()
	arrived := r.Arrived
	if arrived.IsZero() || arrived.After(began) { // the clock was set back
		arrived = began
	}
	ctx, span := t.tracer.Start(t.headers.Extract(ctx, propagation.MapCarrier(r.Header)), utf8(r.Method),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(arrived), trace.WithAttributes(attributes(r, r.From,
			semconv.ClientAddress(r.From.Addr().String()), semconv.ClientPort(int(r.From.Port())))...))
	defer span.End(trace.WithStackTrace(true)) // adds the event of a panic, which goes on
	returned := false
	defer func() {
		if !returned {
			span.SetAttributes(semconv.ErrorTypeKey.String(panicked))
			span.SetStatus(codes.Error, "the handler panicked or ended its goroutine")
		}
	}()
	span.AddEvent("handler begins", trace.WithTimestamp(began))
	out, err := next(ctx, r)
	returned = true
	outcome := r.Outcome(ctx, err)
	end(span, out, err, outcome, outcome == rpc.Outcome(context.Canceled))
	return out, err
}

func (t *tracing) call(ctx context.Context, r *rpc.Request, next rpc.Handler) ([]byte, error) {
	ctx, span := t.tracer.Start(ctx, utf8(r.Method), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes(r, r.To)...))
	defer span.End()
	own := r.Header
	defer func() { r.Header = own }()
	var without []string
	if r.Header, without = t.inject(ctx, own); len(without) > 0 {
		span.SetAttributes(leftOut.StringSlice(without))
	}
	out, err := next(ctx, r)
	if own == nil && r.Header != nil && errors.Is(err, rpc.ErrVersion) {
		span.AddEvent("server without headers")
		r.Header = nil
		out, err = next(ctx, r)
	}
	if !r.Arrived.IsZero() {
		span.AddEvent("answer arrived", trace.WithTimestamp(r.Arrived))
	}
	if errors.Is(err, rpc.ErrNoMethod) {
		span.SetName(other)
		span.SetAttributes(semconv.RPCMethod(other), semconv.RPCMethodOriginal(utf8(r.Method)))
	}
	end(span, out, err, r.Outcome(ctx, err), false)
	return out, err
}

// attributes are those of both sides and more. peer is the other end.
func attributes(r *rpc.Request, peer netip.AddrPort, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, semconv.RPCSystemNameKey.String("rds"), semconv.RPCMethod(utf8(r.Method)),
		semconv.ServerAddress(r.To.Addr().String()), semconv.ServerPort(int(r.To.Port())),
		semconv.NetworkPeerAddress(peer.Addr().String()), semconv.NetworkPeerPort(int(peer.Port())),
		requestSize.Int(len(r.Body)))
}

// end notes what came of a call. wished says that an error is none of this side.
func end(span trace.Span, out []byte, err error, outcome string, wished bool) {
	span.SetAttributes(semconv.RPCResponseStatusCode(outcome))
	switch {
	case err == nil:
		span.SetAttributes(answerSize.Int(len(out)))
	case !wished:
		text := err.Error()
		span.SetAttributes(semconv.ErrorTypeKey.String(outcome))
		span.SetStatus(codes.Error, utf8(text[:min(len(text), maxText)]))
	}
}

// inject returns a copy of h with the headers of the span in ctx, or h if there are none, and
// the names of those that do not fit.
func (t *tracing) inject(ctx context.Context, h rpc.Header) (with rpc.Header, without []string) {
	add := propagation.MapCarrier{}
	t.headers.Inject(ctx, add)
	if len(add) == 0 {
		return h, nil
	}
	size := 0
	with = make(rpc.Header, len(h)+len(add))
	for name, value := range h {
		if _, ok := add[name]; !ok { // else it is replaced
			with[name] = value
			size += len(name) + len(value)
		}
	}
	names := slices.SortedFunc(maps.Keys(add), func(a, b string) int {
		if (a == rpc.Traceparent) != (b == rpc.Traceparent) { // it is the one that matters most
			return map[bool]int{true: -1, false: 1}[a == rpc.Traceparent]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		n := len(name) + len(add[name])
		if len(with) == rpc.MaxHeaders || size+n > rpc.MaxHeaderBytes {
			without = append(without, name)
			continue
		}
		with[name] = add[name]
		size += n
	}
	return with, without
}

// utf8 returns s as attributes and names must be: exporters drop all spans of a request with
// other bytes.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
