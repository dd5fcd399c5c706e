// Package krds has what package afrds and the tools made for kernel RDS need of package rds, and other programs do not: what
// the kernel's calls show in a form that package rds does not have. Package rds fills it in.
package krds

import (
	"time"

	"github.com/rdsd/rdsd/abi"
)

// Open is asked for beside the rights of rds.Access: everybody may use the region who shows its cookie, as in the kernel. The
// daemon does not grant it to users that keys.strict names. Other programs call rds.Region.Expose.
const Open = abi.Open

// Socket is what the kernel's calls do with a socket beside its methods in package rds.
type Socket interface {
	// SetCongMonitor chooses whether the socket collects reports for CongUpdates. A new socket does not. Turning the monitor
	// off drops the reports that were not taken.
	//
	// Source: RDS_CONG_MONITOR, net/rds/af_rds.c rds_cong_monitor.
	SetCongMonitor(on bool)
	// PreferAnybody is rds.Socket.SetAnybody(true) before the first send. With a daemon that is too old for it the socket's
	// destinations meet sockets instead, also after the client has opened again.
	PreferAnybody()
	// CongUpdates returns which destinations are no longer congested, as a mask in which the bit (port modulo 64) is set for
	// each, and clears the mask. It reports a destination once for all sends to it that failed with rds.ErrCongested since the
	// last report, if the monitor was on.
	//
	// A set bit may stand for another port with the same bit, and the port may be congested again: try to send. Wait for
	// reports with Congestion, or a poll descriptor. rds.WaitSet.Relief is exact.
	//
	// Source: RDS_CMSG_CONG_UPDATE, net/rds/recv.c rds_notify_cong.
	CongUpdates() uint64
	// Recv is rds.Socket.Recv into m, an *rds.Received, that does not wait. With peek the message stays in the queue. assembly
	// is how long the message took from its start until it was complete and queued, at most 4.29 s.
	//
	// Source: MSG_PEEK; RDS_MSG_RXPATH_LATENCY, net/rds/af_rds.c rds_recv_track_latency.
	Recv(m any, peek bool) (assembly time.Duration, err error)
}

var (
	// Of returns what the kernel's calls do with an *rds.Socket.
	Of func(socket any) Socket
	// Congestion returns a condition of an *rds.WaitSet beside its fields: CongUpdates has something to report.
	Congestion func(waitSet any) *bool
)

// Provide has package rds fill in what is here. It returns true, for a variable of a package.
func Provide(of func(socket any) Socket, congestion func(waitSet any) *bool) bool {
	Of, Congestion = of, congestion
	return true
}
