// Package rpcprom counts the calls of package rds/rpc for Prometheus: how many, how long, how
// large, and what came of them, at servers and callers. It is a module of its own, so that
// rds/rpc does not need Prometheus' client.
//
//	calls, err := rpcprom.New(rpcprom.Options{})
//	prometheus.MustRegister(calls)
//
//	// the server
//	server := rpc.NewServer(socket, methods, rpc.ServerOptions{Refused: calls.Refused})
//	server.Use(calls.Server)
//
//	// a caller
//	caller.Use(calls.Caller)
//
// One Metrics serves all servers and callers of a process.
//
//	rds_rpc_server_duration_seconds{method,outcome}  histogram: how long handlers ran
//	rds_rpc_server_wait_seconds{method}              histogram: how long requests that the host had waited for a handler
//	rds_rpc_server_request_bytes{method}             histogram
//	rds_rpc_server_answer_bytes{method}              histogram, of calls whose outcome is ok
//	rds_rpc_server_running{method}                   handlers that run now
//	rds_rpc_server_refused_total{outcome}            requests that got no handler
//	rds_rpc_caller_duration_seconds{method,outcome}  histogram: how long calls took
//	rds_rpc_caller_request_bytes{method}             histogram
//	rds_rpc_caller_answer_bytes{method}              histogram, of calls whose outcome is ok
//	rds_rpc_caller_running                           calls that wait for their answers now
//
// An outcome is a word of rpc.Request.Outcome, or "panicked" for a handler that panicked or
// ended its goroutine. Methods beyond Options.MaxMethods, and those that a server does not
// have, share the method "_OTHER", so the number of series is bounded whatever a program calls.
//
// For one outcome, the share of calls that fail, and the time that 99 of 100 take:
//
//	sum by (method) (rate(rds_rpc_server_duration_seconds_count{outcome="failed"}[5m]))
//	sum(rate(rds_rpc_caller_duration_seconds_count{outcome!="ok"}[5m])) / sum(rate(rds_rpc_caller_duration_seconds_count[5m]))
//	histogram_quantile(0.99, sum by (le) (rate(rds_rpc_caller_duration_seconds_bucket[5m])))
//
// Not covered by docs/stability.md: any release may change this package.
package rpcprom
