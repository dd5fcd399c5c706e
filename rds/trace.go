package rds

import (
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// RxTrace says where a received message spent its time.
//
// Source: RDS_MSG_RXPATH_LATENCY, net/rds/af_rds.c rds_recv_track_latency.
type RxTrace struct {
	HdrToStart time.Duration // from the arrival of its header to its start; always 0, because rdsd has no such step
	Assembly   time.Duration // from its start until it was complete and queued, at most 4.29 s
	Delivered  time.Duration // from then to this receive, by the wall clock
}

// SetRxTrace chooses whether receives set Message.Trace. A new socket does not.
func (s *Socket) SetRxTrace(on bool) { s.rxTrace.Store(on) }

func traceOf(e *shm.Event, now time.Time) RxTrace {
	return RxTrace{Assembly: time.Duration(e.Assembly), Delivered: max(0, time.Duration(now.UnixNano()-e.RecvTime))}
}
