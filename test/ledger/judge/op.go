package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/test/ledger/book"
)

// operation is one RDMA operation or atomic.
type operation struct {
	kind     string // "write", "read", "add", "swap"
	region   uint64
	off, len uint32
	crc      uint32 // of what a write stores, or a read must return
	compare  uint64 // what a swap compares with
	id       uint64

	status   string // "" as long as it has none
	errno    uint64
	statusAt int64
	seen     bool   // local memory was looked at when the mark had passed
	local    uint64 // CRC-32C of what was read, or the old value of an atomic
}

// addOutcome adds a record about the outcome of an operation.
func (j *Judge) addOutcome(l *life, r book.Record) {
	m := l.message(r.Seq)
	var o *operation
	if m != nil {
		o = m.ops[r.C&1]
	}
	if o == nil {
		j.violate(Violation{Rule: "status", Life: l.id, Seq: r.Seq, Text: fmt.Sprintf("%v: %s of an operation of message %d, which has none", l, r.Kind, r.Seq)})
		return
	}
	switch r.Kind {
	case book.Status:
		if o.status != "" {
			j.wrong("status", l, m, "has a second status %q of its %s, behind %q", r.Text, o.kind, o.status)
			return
		}
		o.status, o.errno, o.statusAt = r.Text, r.B, r.At
		j.report.Statuses[r.Text]++
	case book.Local:
		o.seen, o.local = true, r.A
	case book.Touched:
		j.wrong("mark", l, m, "changed local memory of its %s after the high-water mark had passed it", o.kind)
	}
}

// judgeOperations judges that statuses are exact and agree with what arrived.
func (j *Judge) judgeOperations(l *life) {
	for i := range l.msgs {
		m := &l.msgs[i]
		if m.failed || !m.operates() {
			continue
		}
		for _, o := range m.ops {
			if o != nil {
				j.judgeStatus(l, m, o)
				j.judgeCause(l, m, o)
			}
		}
		if a, b := m.ops[0], m.ops[1]; a != nil && b != nil && a.status != "" && b.status != "" && (a.status == "success") != (b.status == "success") {
			j.wrong("status", l, m, "has two operations with one fate, %q and %q", a.status, b.status)
		}
	}
}

func (j *Judge) judgeStatus(l *life, m *message, o *operation) {
	forbidden := j.forbids(l, m, o)
	switch o.status {
	case "":
		if l.heardAll() && m.accepted() {
			j.wrong("status", l, m, "has no status of its %s, though nothing was left to wait for", o.kind)
		}
	case "success":
		if forbidden != "" {
			j.wrong("access", l, m, "has the status success, though %s", forbidden)
		}
		if o.kind == "read" && o.seen && uint32(o.local) != o.crc {
			j.wrong("data", l, m, "read something else: CRC %#x instead of %#x", o.local, o.crc)
		}
	case "remote error", "dropped", "other error":
		if m.at != nil {
			j.wrong("status", l, m, "was received by %v, the status of its %s is %q", m.at, o.kind, o.status)
		}
		if o.status != "dropped" {
			j.judgeRefusal(l, m, o, forbidden)
		}
	}
}

// judgeCause judges that UNKNOWN, CANCELED and OTHER_ERROR have a cause.
func (j *Judge) judgeCause(l *life, m *message, o *operation) {
	switch o.status {
	case "unknown":
		if !m.has(book.FlagLimit) && (l.addr.Addr() == m.dst.Addr() || !j.restarted(m.dst.Addr(), m.begun-causeBound, o.statusAt)) { // the end of the daemon may not have been noticed at once
			j.wrong("status", l, m, "has the status %q of its %s, though its peer did not begin anew and it had no limit", o.status, o.kind)
		}
	case "canceled":
		if !l.cancelled(m, never) && l.close == 0 {
			j.wrong("status", l, m, "has the status %q of its %s, which nobody cancelled", o.status, o.kind)
		}
	case "other error":
		j.wrong("status", l, m, "has the status %q of its %s", o.status, o.kind)
	}
}

const (
	eacces  = 13
	einval  = 22
	erange  = 34
	enobufs = 105
)

// judgeRefusal judges that an operation was refused for a fault of its own, and by its own
// daemon, so that no device ever gets a bad request.
func (j *Judge) judgeRefusal(l *life, m *message, o *operation, forbidden string) {
	r := j.regions[o.region]
	switch {
	case o.errno == 0 && l.addr.Addr() == m.dst.Addr() && r != nil && r.release != 0 && r.release <= o.statusAt:
		// On one host the daemon is both ends. It was about to copy.
	case o.errno == 0 && (o.kind == "add" || o.kind == "swap") && r != nil && (r.release != 0 && r.release <= o.statusAt || r.owner.end.early <= o.statusAt):
		// The message carried it, and found that the region is gone.
	case o.errno == 0 && o.len > maxPiece && r != nil && (r.release != 0 && r.release <= o.statusAt || r.owner.end.early <= o.statusAt):
		// Its daemon refused a later piece of it.
	case o.errno == 0:
		j.wrong("refusal", l, m, "has the status %q of its %s without an errno: its daemon let a request pass that a device refused", o.status, o.kind)
	case o.errno == enobufs:
		j.wrong("refusal", l, m, "ended for a quota that nothing here reaches")
	case r == nil:
	case r.release != 0 && r.release <= o.statusAt, r.owner.end.early <= o.statusAt:
	case r.rights&useOnce != 0 && r.uses > 1:
	case forbidden != "" && (o.errno == erange || o.errno == eacces || o.errno == einval):
	case j.restarted(l.addr.Addr(), r.at, o.statusAt), j.restarted(m.dst.Addr(), r.at, o.statusAt):
	default:
		j.wrong("refusal", l, m, "has the status %q of its %s with errno %d, though the region is there and was granted", o.status, o.kind, o.errno)
	}
}

// maxPiece is how many bytes of an operation go to a peer at a time.
const maxPiece = 1 << 20

// restarted reports whether the daemon of host was ended in from..to.
func (j *Judge) restarted(host netip.Addr, from, to int64) bool {
	return slices.ContainsFunc(j.ends[host], func(e span) bool { return e.early <= to && e.late >= from })
}

// Rights of a region, as in package rds.
const (
	allowRead = 1 << iota
	allowWrite
	allowAtomic
	useOnce
)

// revoked is the time in ns after which nobody has the keys of a socket that has ended. The
// daemon breaks the connection to a peer that keeps one for 5 s (docs/protocol.md), and daemons
// are stopped for a while. Unlike Release, Close does not wait for that. Until then an operation
// with a message is DROPPED, because the socket is not there. A silent one may be SUCCESS.
const revoked = 10_000_000_000

// forbids returns why o must not succeed, or "" if it may.
func (j *Judge) forbids(l *life, m *message, o *operation) string {
	r := j.regions[o.region]
	need := map[string]uint64{"read": allowRead, "write": allowWrite, "add": allowAtomic, "swap": allowAtomic}[o.kind]
	switch {
	case r == nil:
		return fmt.Sprintf("nobody registered region %#x", o.region)
	case r.rights&need == 0:
		return fmt.Sprintf("the region's rights %#x do not include a %s", r.rights, o.kind)
	case uint64(o.off)+uint64(o.len) > r.len:
		return fmt.Sprintf("it ends at %d of a region of %d bytes", uint64(o.off)+uint64(o.len), r.len)
	case r.grantee.Addr() != l.addr.Addr() || r.grantee.Port() != 0 && r.grantee != l.addr:
		return fmt.Sprintf("the region was granted to %v", r.grantee)
	case r.freed != 0 && r.freed < m.begun:
		return "Release of the region had returned before it was sent"
	case o.status == "success" && !m.has(book.FlagSilent) && r.owner.end.late < m.begun, r.owner.end.late < m.begun-revoked:
		return fmt.Sprintf("the region's owner, %v, had ended before it was sent", r.owner)
	}
	return ""
}

// judgeMarks judges that the high-water mark never falls, passes no operation that was not
// issued, and passes settled ones in bounded time.
func (j *Judge) judgeMarks(l *life) {
	byHost := map[netip.Addr][]*operation{}
	of := map[*operation]*message{}
	for i := range l.msgs {
		m := &l.msgs[i]
		for _, o := range m.ops {
			if o != nil && m.accepted() {
				byHost[m.dst.Addr()] = append(byHost[m.dst.Addr()], o)
				of[o] = m
			}
		}
	}
	for host, marks := range l.marks {
		if uint64(len(byHost[host])) < marks[len(marks)-1].value && l.end.early == never {
			j.violate(Violation{Rule: "mark", Life: l.id, Text: fmt.Sprintf("%v: the mark to %v is %d, %d operations were sent there", l, host, marks[len(marks)-1].value, len(byHost[host]))})
		}
		for i, k := range marks[1:] {
			if k.value < marks[i].value {
				j.violate(Violation{Rule: "mark", Life: l.id, Text: fmt.Sprintf("%v: the mark to %v fell from %d to %d", l, host, marks[i].value, k.value)})
			}
		}
	}
	for host, ops := range byHost {
		slices.SortFunc(ops, func(a, b *operation) int { return int(int64(a.id) - int64(b.id)) })
		j.judgePassing(l, host, ops, of)
	}
}

// judgePassing judges when the marks to a host passed ops. ops must be in the order of their
// ids.
func (j *Judge) judgePassing(l *life, host netip.Addr, ops []*operation, of map[*operation]*message) {
	marks := l.marks[host]
	settled := int64(0) // when the last of the operations so far had its status
	for _, o := range ops {
		if o.status == "" {
			return
		}
		settled = max(settled, o.statusAt)
		for len(marks) > 0 && marks[0].value < o.id {
			marks = marks[1:]
		}
		seen := int64(never)
		if len(marks) > 0 {
			seen = marks[0].at
		}
		by := settled + markBound
		if seen > by && min(l.end.early, j.settled, j.last) > by {
			j.wrong("mark", l, of[o], "has the id %d to %v; all up to it had their statuses, the mark had not passed it %d s later", o.id, host, markBound/1e9)
			return
		}
	}
}
