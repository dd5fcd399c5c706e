package main

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/rdsd/rdsd/rds"
)

// operation is one RDMA write of the server, the answer to a large READ, from before it is submitted
// until its status is known.
type operation struct {
	request
	buf *rds.Buffer
}

// operations is the table of operations in flight, by token, and the server's counts. It is
// safe for concurrent use.
type operations struct {
	mu     sync.Mutex // guards the fields below
	next   uint64
	flying map[uint64]*operation
	issued map[netip.Addr]uint64 // last operation id per destination
	counts serveStats
}

func newOperations() *operations {
	return &operations{flying: map[uint64]*operation{}, issued: map[netip.Addr]uint64{}}
}

// add registers op and returns its token.
func (o *operations) add(op *operation) (token uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next++
	o.flying[o.next] = op
	return o.next
}

// started records the id of op, and counts op.
func (o *operations) started(op *operation, id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := op.from.Addr()
	o.issued[a] = max(o.issued[a], id)
	o.counts.Operations++
	o.counts.Reads++
}

// countRead counts a READ that was answered without an operation.
func (o *operations) countRead() {
	o.mu.Lock()
	o.counts.Reads++
	o.mu.Unlock()
}

func (o *operations) countWrite() {
	o.mu.Lock()
	o.counts.Writes++
	o.mu.Unlock()
}

// take removes the operation with the token and returns it; nil if there is none.
func (o *operations) take(token uint64) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.flying[token]
	delete(o.flying, token)
	return op
}

func (o *operations) count(s rds.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch s {
	case rds.Success:
		o.counts.Success++
	case rds.Dropped:
		o.counts.Dropped++
	case rds.Unknown:
		o.counts.Unknown++
	default:
		o.counts.OtherStatus++
	}
}

func (o *operations) countFailed() {
	o.mu.Lock()
	o.counts.Failed++
	o.mu.Unlock()
}

// flies reports whether an operation is in flight.
func (o *operations) flies() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.flying) > 0
}

// stats returns the counts; hwm is (*rds.Socket).HWM.
func (o *operations) stats(hwm func(netip.Addr) uint64) serveStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.counts
	st.Destinations = []destStats{}
	for a, id := range o.issued {
		st.Destinations = append(st.Destinations, destStats{a.String(), id, hwm(a)})
	}
	slices.SortFunc(st.Destinations, func(a, b destStats) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	return st
}
