//go:build !aeron

package main

import "github.com/rdsd/rdsd/test/bench/worker"

// aeronRoles returns nothing: this build is without Aeron's driver.
func aeronRoles() map[string]func(*worker.Worker) error { return nil }
