//go:build !aeron

package main

import "github.com/rdsd/rdsd/bench/worker"

// aeronRoles returns nothing: this build is without Aeron's driver.
func aeronRoles() map[string]func(*worker.Worker) error { return nil }
