// Package rpcotel makes OpenTelemetry spans of the calls of package rds/rpc, at callers and
// servers, and links them: the span of a handler is a child of its caller's. It is a module of
// its own, so that rds/rpc does not need OpenTelemetry.
//
//	// the server
//	server.Use(rpcotel.Server(rpcotel.Options{}))
//
//	// a caller
//	caller.Use(rpcotel.Caller(rpcotel.Options{}))
//
// Both use the program's TracerProvider (otel.SetTracerProvider), whose exporter sends the
// spans, as otlptracehttp does by OTLP. The example has all of it.
//
// # What travels
//
// A plain message of package rds carries a trace in rds.Message.Traceparent. The program puts it there
// and takes it out:
//
//	carrier := propagation.MapCarrier{}
//	propagation.TraceContext{}.Inject(ctx, carrier)
//	m.Traceparent = carrier["traceparent"]
//
//	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": received.Traceparent})
//
// A call carries its trace in the headers traceparent and tracestate, as W3C Trace Context
// says, so either end may be another library that sets or reads rpc.Header. Headers make a
// request one of version 2, which servers of release 0.2 refuse. Then the request, which did
// not run, is sent again without those of this package. Headers that do not fit into the bounds of
// an rpc.Header are left out: the trace ends there, and the call does not.
//
// # What a span has
//
// The name and rpc.method are the method. Attributes are those of the semantic conventions for
// RPC: rpc.system.name is "rds", rpc.response.status_code is a word of rpc.Request.Outcome,
// which is also the error.type, or that is "panicked". The addresses are server, client and
// network.peer. rds.request.size and rds.answer.size are bytes.
//
// The status is Error for every outcome but "ok", and at the server but "canceled", because
// that is the caller's wish. A handler that panics has an event with what it panicked with and
// the stack, which callers do not get.
//
// # Times
//
// A server's span begins when the request reached the daemon of its host, and the event
// "handler begins" ends its wait for a handler. A caller's span has the event "answer arrived"
// when the daemon of its host had the answer. Each is by the clock of its host. For what the
// daemons do in between, such as sending again, run rdsctl trace -local :PORT, with the
// port of the server's span, at both hosts: it follows messages only while it runs, so nothing
// is noted for calls when nobody looks.
//
// Not covered by docs/stability.md: any release may change this package.
package rpcotel
