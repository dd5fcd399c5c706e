// Command bench-peers has the messaging libraries with which the bench compares rdsd: NATS, gRPC,
// ZeroMQ, Aeron, libfabric and UCX. The bench starts it in one of its roles for each process of a measurement. It is a Go
// module of its own, so that rdsd does not depend on these libraries.
//
// Package test/bench/worker has the protocol between a role and the bench.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// roles returns what a process of this program can do, by name.
func roles() map[string]func(*worker.Worker) error {
	all := map[string]func(*worker.Worker) error{
		"nats-hub": natsHub, "nats-echo": natsEcho, "nats-ping": natsPing,
		"nats-sink": natsSink, "nats-source": natsSource,
		"nats-reply": natsReply, "nats-reply-sink": natsReplySink, "nats-request": natsRequest, "nats-many": natsMany,
		"grpc-echo": grpcEcho, "grpc-sink": grpcSink, "grpc-ping": grpcPing, "grpc-many": grpcMany,
	}
	maps.Copy(all, zmqRoles())
	maps.Copy(all, wayRoles())
	maps.Copy(all, aeronRoles())
	return all
}

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == worker.Arg:
		os.Exit(worker.Main(os.Args[2:], roles()))
	case len(os.Args) == 2 && os.Args[1] == "roles":
		for _, r := range slices.Sorted(maps.Keys(roles())) {
			fmt.Println(r)
		}
	default:
		fmt.Fprintln(os.Stderr, "bench-peers: the bench starts this program; `bench-peers roles` lists its roles")
		os.Exit(2)
	}
}
