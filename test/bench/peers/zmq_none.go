//go:build !zmq

package main

import "github.com/rdsd/rdsd/test/bench/worker"

// zmqRoles returns nothing: this build is without libzmq.
func zmqRoles() map[string]func(*worker.Worker) error { return nil }
