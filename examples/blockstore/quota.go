package main

import (
	"net/netip"
	"sync"
)

// quota bounds the requests in hand of each client. So a client whose host is gone cannot
// keep all buffers. It is safe for concurrent use.
type quota struct {
	limit int
	mu    sync.Mutex // guards used
	used  map[netip.AddrPort]int
}

func newQuota(limit int) *quota { return &quota{limit: limit, used: map[netip.AddrPort]int{}} }

// charge counts one more request of the client. It returns false, and counts nothing, if
// the client has limit requests in hand.
func (q *quota) charge(client netip.AddrPort) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[client] >= q.limit {
		return false
	}
	q.used[client]++
	return true
}

// uncharge counts one request of the client less.
func (q *quota) uncharge(client netip.AddrPort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[client]--; q.used[client] <= 0 {
		delete(q.used, client)
	}
}
