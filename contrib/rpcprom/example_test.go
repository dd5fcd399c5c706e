package rpcprom_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rdsd/rdsd/contrib/rpcprom"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// A server and a caller of one process, and what Prometheus scrapes of them.
func Example() {
	calls, err := rpcprom.New(rpcprom.Options{})
	check(err)
	prometheus.MustRegister(calls)

	daemons, stop, err := rdstest.Start(1) // a program has an installed daemon
	check(err)
	defer stop()
	client, err := rds.Open(context.Background(), rds.Options{Socket: daemons[0].Socket()})
	check(err)
	defer client.Close()
	bind := func() *rds.Socket {
		s, err := client.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
		check(err)
		return s
	}

	socket := bind()
	server := rpc.NewServer(socket, rpc.Methods{"greet": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		return append([]byte("hello "), r.Body...), nil
	}}, rpc.ServerOptions{Refused: calls.Refused})
	server.Use(calls.Server)
	ended := make(chan error)
	go func() { ended <- server.Serve(context.Background()) }()

	caller := rpc.NewCaller(bind(), rpc.CallerOptions{})
	defer caller.Close()
	caller.Use(calls.Caller)
	_, err = caller.Call(context.Background(), socket.LocalAddrPort(), "greet", []byte("world"))
	check(err)
	_, err = caller.Call(context.Background(), socket.LocalAddrPort(), "great", nil)
	fmt.Println(err != nil)
	check(server.Shutdown(context.Background()))
	<-ended

	page := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "rds_rpc_") && (strings.Contains(line, "duration_seconds_count") || strings.Contains(line, "refused")) {
			fmt.Print(line)
		}
	}
	// Output:
	// true
	// rds_rpc_caller_duration_seconds_count{method="_OTHER",outcome="no_method"} 1
	// rds_rpc_caller_duration_seconds_count{method="greet",outcome="ok"} 1
	// rds_rpc_server_duration_seconds_count{method="greet",outcome="ok"} 1
	// rds_rpc_server_refused_total{outcome="no_method"} 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
