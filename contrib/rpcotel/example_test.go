package rpcotel_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/rdsd/rdsd/contrib/rpcotel"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// A server and a caller whose spans go to a collector by OTLP.
func Example() {
	ctx := context.Background()
	backend := newReceiver() // a program has the collector's address from OTEL_EXPORTER_OTLP_ENDPOINT
	defer backend.Close()
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(backend.URL+"/v1/traces"))
	must(err)
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter))
	otel.SetTracerProvider(provider)

	daemons, stop, err := rdstest.Start(1) // a program has an installed daemon
	must(err)
	defer stop()
	client, err := rds.Open(ctx, rds.Options{Socket: daemons[0].Socket()})
	must(err)
	defer client.Close()
	bind := func() *rds.Socket {
		s, err := client.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
		must(err)
		return s
	}

	socket := bind()
	server := rpc.NewServer(socket, rpc.Methods{"greet": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		return append([]byte("hello "), r.Body...), nil
	}}, rpc.ServerOptions{})
	server.Use(rpcotel.Server(rpcotel.Options{}))
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx) }()

	caller := rpc.NewCaller(bind(), rpc.CallerOptions{})
	defer caller.Close()
	caller.Use(rpcotel.Caller(rpcotel.Options{}))
	answer, err := caller.Call(ctx, socket.LocalAddrPort(), "greet", []byte("world"))
	must(err)
	fmt.Printf("%s\n", answer)

	must(server.Shutdown(ctx))
	<-ended
	must(provider.Shutdown(ctx)) // sends what is left
	for _, s := range backend.spans {
		fmt.Println(s.Name, s.Kind, "within another:", !bytes.Equal(s.ParentSpanId, nil))
	}
	// Output:
	// hello world
	// greet SPAN_KIND_SERVER within another: true
	// greet SPAN_KIND_CLIENT within another: false
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
