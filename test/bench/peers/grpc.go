package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// rawCodec carries bytes as they are, so that what is measured is gRPC and no encoding.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

const grpcMethod = "/bench.Echo/Call"

// grpcEcho answers each request with its bytes.
func grpcEcho(w *worker.Worker) error { return grpcServe(w, w.Serve) }

// grpcSink is grpcEcho that measures.
func grpcSink(w *worker.Worker) error { return grpcServe(w, w.Count) }

func grpcServe(w *worker.Worker, run func(func() error) error) error {
	encoding.RegisterCodecV2(rawCodec{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var b []byte
			if err := decode(&b); err != nil {
				return nil, err
			}
			w.Msgs.Add(1)
			return &b, nil
		},
	}}}, struct{}{})
	if err := w.Ready(l.Addr().String()); err != nil {
		return err
	}
	defer s.Stop()
	return run(func() error { return s.Serve(l) })
}

// grpcDial connects to the server and returns a function that makes one call.
func grpcDial(w *worker.Worker) (*grpc.ClientConn, func() error, error) {
	encoding.RegisterCodecV2(rawCodec{})
	c, err := grpc.NewClient(w.Get("addr"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.CallContentSubtype("raw")))
	if err != nil {
		return nil, nil, fmt.Errorf("gRPC: %w", err)
	}
	size := w.Int("size")
	return c, func() error {
		req, answer := make([]byte, size), []byte(nil)
		err := c.Invoke(context.Background(), grpcMethod, &req, &answer)
		if grpcstatus.Code(err) == codes.Unavailable {
			return io.EOF // the server, which measures, ends first
		}
		return err
	}, w.Ready("client")
}

// grpcPing makes one call after the other.
func grpcPing(w *worker.Worker) error {
	c, call, err := grpcDial(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Trips(2, call)
}

// grpcMany makes calls from as many goroutines as the argument says.
func grpcMany(w *worker.Worker) error {
	c, call, err := grpcDial(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Together(func() (int, error) { return 1, call() })
}
