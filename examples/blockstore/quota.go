package main

import (
	"net/netip"
	"sync"
)

// quota bounds the requests in hand per client, so that one whose host went
// away cannot keep all buffers. Safe for concurrent use.
type quota struct {
	limit int
	mu    sync.Mutex // guards used
	used  map[netip.AddrPort]int
}

func newQuota(limit int) *quota { return &quota{limit: limit, used: map[netip.AddrPort]int{}} }

// charge takes one; false if the client has its share in hand.
func (q *quota) charge(client netip.AddrPort) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[client] >= q.limit {
		return false
	}
	q.used[client]++
	return true
}

// uncharge gives one back.
func (q *quota) uncharge(client netip.AddrPort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[client]--; q.used[client] <= 0 {
		delete(q.used, client)
	}
}
