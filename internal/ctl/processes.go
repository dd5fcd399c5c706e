package ctl

import (
	"cmp"
	"time"

	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
)

// Owner is the process that holds a socket.
type Owner struct {
	PID  int    `json:"pid"`
	UID  uint32 `json:"uid"`
	Name string `json:"name"` // the name that the client gave when it attached
	// Account is the label of the account of quota.accounts that the process counts for. It is
	// empty if that is its user, and offline.
	Account string `json:"account,omitempty"`
}

// ProcessInfo sums up the sockets of one process. What closed sockets have sent and received
// is not in it.
type ProcessInfo struct {
	Owner     Owner  `json:"owner"`
	Sockets   uint64 `json:"sockets"`
	Congested uint64 `json:"congested_sockets"`

	SendMessages  uint64        `json:"send_queued_messages"`
	SendBytes     uint64        `json:"send_queued_bytes"`
	RecvBytes     uint64        `json:"recv_bytes"`
	Ops           uint64        `json:"ops_outstanding"`
	OldestUnacked time.Duration `json:"oldest_unacked_ns"`
	Sent          uint64        `json:"sent_messages"`
	SentBytes     uint64        `json:"sent_bytes"`
	Received      uint64        `json:"received_messages"`
	ReceivedBytes uint64        `json:"received_bytes"`
	Served
	MessageTime   Times `json:"message_time"`
	OperationTime Times `json:"operation_time"`

	// Unreceived counts the descriptors that were sent to the process, which it has not
	// received. Those of sessions that have ended, Ended, count until the process receives
	// them or is gone.
	Unreceived uint64 `json:"unreceived_descriptors"`
	Ended      uint64 `json:"ended_sessions"`
}

// Unreceived is a connection of a process that has not received descriptors.
type Unreceived struct {
	Owner       Owner
	Descriptors uint64
	Ended       bool // the session has ended
}

// Processes sums up sockets, and descriptors that were not received, by their processes, in the
// order of pids. A process that has attached under several names has a row for each.
func Processes(sockets []SocketInfo, unreceived []Unreceived) []ProcessInfo {
	type sums struct{ msgs, ops stats.Times }
	at := map[Owner]int{}
	out := []ProcessInfo{}
	var took []sums
	of := func(o Owner) (int, *ProcessInfo) {
		k, ok := at[o]
		if !ok {
			k = len(out)
			at[o] = k
			out, took = append(out, ProcessInfo{Owner: o}), append(took, sums{})
		}
		return k, &out[k]
	}
	for i := range unreceived {
		_, p := of(unreceived[i].Owner)
		p.Unreceived += unreceived[i].Descriptors
		if unreceived[i].Ended {
			p.Ended++
		}
	}
	for i := range sockets {
		s := &sockets[i]
		k, p := of(s.Owner)
		p.Sockets++
		if s.Congested {
			p.Congested++
		}
		p.SendMessages += s.SendMessages
		p.SendBytes += s.SendBytes
		p.RecvBytes += s.RecvBytes
		p.Ops += s.Ops
		p.OldestUnacked = max(p.OldestUnacked, s.OldestUnacked)
		p.Sent += s.Sent
		p.SentBytes += s.SentBytes
		p.Received += s.Received
		p.ReceivedBytes += s.ReceivedBytes
		p.PlacedBytes += s.PlacedBytes
		p.ServedBytes += s.ServedBytes
		msgs, ops := s.MessageTime.Stats(), s.OperationTime.Stats()
		took[k].msgs.Merge(&msgs)
		took[k].ops.Merge(&ops)
	}
	for k := range out {
		out[k].MessageTime, out[k].OperationTime = TimesOf(&took[k].msgs), TimesOf(&took[k].ops)
	}
	lists.SortStable(out, func(a, b ProcessInfo) int {
		return cmp.Or(cmp.Compare(a.Owner.PID, b.Owner.PID), cmp.Compare(a.Owner.Name, b.Owner.Name))
	})
	return out
}
