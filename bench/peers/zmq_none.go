//go:build !zmq

package main

import "github.com/rdsd/rdsd/bench/worker"

// zmqRoles is empty in a build without libzmq.
func zmqRoles() map[string]func(*worker.Worker) error { return nil }
