// Command bench-peers is the processes of messaging libraries that the bench
// measures rdsd beside. It is a module of its own: the product depends on none
// of them.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/rdsd/rdsd/bench/worker"
)

// roles are what processes of this program do, by name.
func roles() map[string]func(*worker.Worker) error {
	all := map[string]func(*worker.Worker) error{
		"nats-hub": natsHub, "nats-echo": natsEcho, "nats-ping": natsPing,
		"nats-sink": natsSink, "nats-source": natsSource,
	}
	maps.Copy(all, zmqRoles())
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
		fmt.Fprintln(os.Stderr, "bench-peers: started by the bench; `bench-peers roles` lists what it can be")
		os.Exit(2)
	}
}
