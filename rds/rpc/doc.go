// Package rpc is request and reply over package rds: a server has methods, a caller calls
// them by name and gets an answer or an error.
//
//	// the server
//	err := rpc.Serve(ctx, socket, rpc.Methods{
//		"greet": func(ctx context.Context, r *rpc.Request) ([]byte, error) {
//			return append([]byte("hello "), r.Body...), nil
//		},
//	}, rpc.ServerOptions{})
//
//	// a caller, on any host
//	c := rpc.NewCaller(socket, rpc.CallerOptions{})
//	answer, err := c.Call(ctx, server, "greet", []byte("world"))
//
// Bodies are bytes: how they are encoded is the application's business.
//
// # What a call means
//
// A request runs at most once. Call returns when the answer is there, when ctx ends, or
// when no answer can come any more:
//
//   - At once if the host is not reached (rds.Reason) or no socket is bound there
//     (ErrNoSocket).
//   - At once if the daemon there restarted before it had the request (ErrLost).
//   - At once if the server is shutting down (ErrShutdown), or ended while the handler ran
//     (ErrLost).
//   - Within CallerOptions.Probe or so if the server took the request and died, or has
//     no answer for it any more (ErrNoSocket, ErrLost): a Caller asks for calls that
//     wait.
//   - A connection that breaks ends no call, if the first attempt to connect again
//     succeeds.
//
// A call that ended with ErrNoSocket or ErrLost may have run. Ask again only if running twice
// does no harm, or if the server finds out: put a request id of your own into the body or the
// Header, and have the server keep the ids that have run where they outlast its process.
//
// The deadline of ctx travels with the request, as the time that is left, so clocks need
// not agree. If ctx ends first, the server ends the handler's context, and no answer
// travels.
//
// # The end of a server
//
// Server.Shutdown lets the handlers that run answer, and refuses everything else. A server
// whose context ends or whose Shutdown takes too long ends the contexts of its handlers.
// What a handler answers still goes to its caller. Serve closes its socket, so each call
// ends, with or without a deadline.
//
// # Large bodies
//
// Up to 128 KiB a request travels in its message. The server reads a longer one by RDMA
// from memory that Call makes for it. A longer answer of Call comes in several messages.
// With CallInto the server writes an answer of more than 32 KiB into memory of the
// caller, by RDMA, and the message of the answer follows the last piece.
//
// # Headers and interceptors
//
// A request and its answer can have headers (Header, Caller.Do), such as the trace that they
// belong to (Traceparent). Interceptors see each call, on both sides: Server.Use and
// Caller.Use. The example of Interceptor is an observer. Two modules have interceptors that are
// ready: contrib/rpcprom makes histograms for Prometheus, contrib/rpcotel makes spans for
// OpenTelemetry and links those of caller and server. Outcome and Request.Outcome are words for
// labels.
//
// # Limits
//
// A server runs ServerOptions.Handlers handlers at a time, queues further requests, and
// refuses those beyond the queue (ErrBusy). One caller has at most
// ServerOptions.PerCaller of the handlers and a part of the queue, and callers whose
// requests wait take turns. A caller may have any number of calls in progress; when its
// socket's send buffer is full or the server congested, Call waits.
//
// The package uses the exported parts of package rds alone. wire.go has the formats of the
// messages. They have a version, and each side refuses one that it does not know
// (ErrVersion). Requests with headers are of version 2, all others of version 1.
package rpc
