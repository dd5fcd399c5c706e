//go:build !ofi && !ucx

package main

import "github.com/rdsd/rdsd/test/bench/worker"

// wayRoles returns nothing: this build is without libfabric and UCX.
func wayRoles() map[string]func(*worker.Worker) error { return nil }
