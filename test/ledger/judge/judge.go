package judge

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/rdsd/rdsd/test/ledger/book"
)

// Bounds in time. They are long enough for a busy machine. A delay below a bound is not found.
const (
	// markBound is how long the high-water mark may take to be seen at N, after the last status
	// of operations 1 to N. No process is stopped for so long.
	markBound = int64(10 * time.Second)
	// noticeBound is how long an application may take to read a notice that is queued. A socket
	// that ended within this time after a send may not have read its notice.
	noticeBound = int64(3 * time.Second)
	// endBound is how long the sockets of a dead process may stay bound, if nobody binds their
	// ports earlier.
	endBound = int64(2 * time.Second)
	// causeBound is how long after a disturbance its consequences may show. A daemon allows 5 s
	// for a handshake or the answer to a REVOKE, and the application needs time to read the
	// notice.
	causeBound = int64(5*time.Second) + noticeBound
)

const never = math.MaxInt64

// Violation is a broken promise.
type Violation struct {
	Rule string
	Text string
	Life uint32 // whose message it is about, 0 for none
	Seq  uint64
	// Region it is about, 0 for none.
	Region uint64
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// Concerns reports whether r is a record of what v is about.
func (v Violation) Concerns(r book.Record) bool {
	switch r.Kind {
	case book.Region, book.Release, book.Freed, book.After, book.Words:
		return v.Region != 0 && r.A == v.Region
	case book.Recv, book.Data:
		return v.Seq != 0 && uint32(r.A) == v.Life && r.Seq == v.Seq
	case book.Bind, book.Close, book.Closed, book.Gone:
		return v.Life != 0 && r.Life == v.Life
	}
	return v.Seq != 0 && r.Life == v.Life && r.Seq == v.Seq
}

// Report is the result of a campaign.
type Report struct {
	Messages   int            // messages accepted
	Delivered  int            // how many of these were delivered
	Operations int            // operations of accepted messages
	Statuses   map[string]int // operations, by status
	Told       map[string]int // notices, by kind
	Excused    map[string]int // messages, by reason
	Violations []Violation
}

// Judge judges the records that are added. New makes one.
type Judge struct {
	lives   map[uint32]*life
	regions map[uint64]*region
	killed  map[int]*span // processes
	ends    map[netip.Addr][]span
	faults  []fault
	// upgrades are the times at which upgrades of a daemon began. Its own applications notice
	// nothing of them. Peers see a connection that breaks.
	upgrades map[netip.Addr][]int64
	settled  int64 // nothing was disturbed from this time on
	last     int64 // time of the last record
	report   Report
}

// span is when something ended: not before early, and not after late.
type span struct{ early, late int64 }

// fault is a disturbance of hosts, or of one process.
type fault struct {
	from, to int64
	host     netip.Addr
	process  int // the process that was stopped while its host was not touched; otherwise 0
}

// New returns a Judge without records.
func New() *Judge {
	return &Judge{lives: map[uint32]*life{}, regions: map[uint64]*region{}, killed: map[int]*span{}, ends: map[netip.Addr][]span{}, upgrades: map[netip.Addr][]int64{},
		settled: never, report: Report{Statuses: map[string]int{}, Told: map[string]int{}, Excused: map[string]int{}}}
}

// life is one socket from Bind to its end.
type life struct {
	id      uint32
	addr    netip.AddrPort
	lane    uint8
	binding int64 // when Bind was called
	bound   int64 // when Bind returned; never if its process ended before
	close   int64 // when Close was called
	lingers bool  // the socket was closed by CloseWait
	closed  int64
	waited  bool // CloseWait returned nil
	gone    int64
	end     span  // never if it did not end
	ended   int64 // when its process or daemon ended, never if neither did
	settled bool  // it was there, and quiet, at the end

	msgs    []message // message number i is at i-1
	got     []arrival // in the order in which they were received
	newest  int64     // latest time at which the send of a message that it received began
	told    map[netip.AddrPort]*told
	notices []notice
	cancels map[netip.AddrPort][]int64
	marks   map[netip.Addr][]mark
}

// message is what is known of one send.
type message struct {
	by         uint32 // life of its sender
	seq        uint64
	dst        netip.AddrPort
	size, crc  uint32
	flags      uint64
	begun      int64
	sent       int64 // 0 if the send failed or its outcome is not known
	failed     bool
	ops        [2]*operation // RDMA, atomic
	meant      uint32        // life that its DstInc names, 0 for none
	ackedAt    int64         // when its zero-copy cookie came back, 0 if it did not
	at         *life         // socket that received it
	receivedAt int64
}

func (m *message) accepted() bool     { return m.sent != 0 }
func (m *message) has(f uint64) bool  { return m.flags&f != 0 }
func (m *message) operates() bool     { return m.ops != [2]*operation{} }
func (m *message) mayBeWaiting() bool { return !m.failed && m.at == nil && !m.has(book.FlagSilent) }
func (m *message) first() *operation  { return m.operation(0) }
func (m *message) String() string {
	return fmt.Sprintf("message %d to %v of %d bytes", m.seq, m.dst, m.size)
}
func (m *message) statusOf() string { return m.first().statusOrNone() }
func (o *operation) statusOrNone() string {
	if o == nil {
		return ""
	}
	return o.status
}

// operation returns the first operation from index i on: 0 is the RDMA operation, 1 the atomic.
func (m *message) operation(i int) *operation {
	for _, o := range m.ops[i:] {
		if o != nil {
			return o
		}
	}
	return nil
}

// arrival is the result of one receive.
type arrival struct {
	at        int64
	from      netip.AddrPort
	life      uint32
	seq       uint64
	size, crc uint32
}

type mark struct {
	at    int64
	value uint64
}

// Add adds a record. The records of one log must be added in order, the logs in any order.
func (j *Judge) Add(r book.Record) {
	j.last = max(j.last, r.At)
	switch r.Kind {
	case book.Kill, book.Dead, book.Ending, book.Ended, book.Serving, book.Fault, book.Upgrade, book.Upgraded, book.Settled:
		j.addDisturbance(r)
		return
	case book.Binding:
		j.lives[r.Life] = &life{id: r.Life, addr: r.Peer, binding: r.At, bound: never, end: span{never, never}, ended: never,
			told: map[netip.AddrPort]*told{}, cancels: map[netip.AddrPort][]int64{}, marks: map[netip.Addr][]mark{}}
		return
	case book.Unbound:
		delete(j.lives, r.Life)
		return
	}
	l := j.lives[r.Life]
	if l == nil {
		j.violate(Violation{Rule: "log", Text: fmt.Sprintf("%s of life %d, which was never bound", r.Kind, r.Life)})
		return
	}
	switch r.Kind {
	case book.Bind:
		l.addr, l.lane, l.bound = r.Peer, uint8(r.A), r.At
	case book.Op, book.Try, book.Sent, book.Fail, book.Acked:
		j.addSend(l, r)
	case book.Status, book.Local, book.Touched:
		j.addOutcome(l, r)
	case book.Region, book.Release, book.Freed, book.After, book.Words, book.Data:
		j.addMemory(l, r)
	default:
		j.addLife(l, r)
	}
}

// addDisturbance adds a record of the program that ends and disturbs processes.
func (j *Judge) addDisturbance(r book.Record) {
	host := r.Peer.Addr()
	switch r.Kind {
	case book.Kill:
		j.killed[int(r.A)] = &span{r.At, never}
	case book.Dead:
		if s := j.killed[int(r.A)]; s != nil {
			s.late = r.At
		}
	case book.Ending:
		j.ends[host] = append(j.ends[host], span{r.At, never})
	case book.Ended:
		if e := j.ends[host]; len(e) > 0 {
			e[len(e)-1].late = r.At
		}
	case book.Serving:
		if e := j.ends[host]; len(e) > 0 {
			j.faults = append(j.faults, fault{from: e[len(e)-1].early, to: r.At, host: host})
		}
	case book.Fault:
		j.faults = append(j.faults, fault{from: r.At, to: r.At + int64(r.B), host: host, process: int(r.A)})
	case book.Upgrade:
		j.upgrades[host] = append(j.upgrades[host], r.At)
	case book.Upgraded: // for people who read the log
	case book.Settled:
		j.settled = r.At
	}
}

func (j *Judge) addLife(l *life, r book.Record) {
	switch r.Kind {
	case book.Close:
		l.close, l.lingers = r.At, r.A == 1
	case book.Closed:
		l.closed, l.waited = r.At, l.lingers && r.Text == ""
		if l.settled && r.Text != "" {
			j.violate(Violation{Rule: "close", Life: l.id, Text: fmt.Sprintf("%v: CloseWait at the end: %s", l, r.Text)})
		}
	case book.Gone:
		l.gone = r.At
	case book.Recv:
		l.got = append(l.got, arrival{r.At, r.Peer, uint32(r.A), r.Seq, uint32(r.B), uint32(r.C)})
	case book.Notice:
		j.addNotice(l, r)
	case book.Cancel:
		l.cancels[r.Peer] = append(l.cancels[r.Peer], r.At)
	case book.Mark:
		l.marks[r.Peer.Addr()] = append(l.marks[r.Peer.Addr()], mark{r.At, r.A})
	case book.Barrier:
		if l.settled = true; r.Text != "" {
			j.violate(Violation{Rule: "mark", Life: l.id, Text: fmt.Sprintf("%v: BarrierAll at the end: %s", l, r.Text)})
		}
	case book.Wrong:
		j.violate(Violation{Rule: "application", Life: l.id, Seq: r.Seq, Region: r.A, Text: fmt.Sprintf("%v: %s", l, r.Text)})
	default:
		j.violate(Violation{Rule: "log", Text: fmt.Sprintf("a record of kind %q", r.Kind)})
	}
}

// heardAll reports whether l waited until nothing that it had sent was outstanding, and then had
// the time to read its notices.
func (l *life) heardAll() bool {
	return l.settled || l.waited && l.ended > l.closed+noticeBound
}

func (l *life) String() string {
	return fmt.Sprintf("socket %d of process %d at %v, lane %d", l.id&(1<<12-1), book.ProcessOf(l.id), l.addr, l.lane)
}

func (j *Judge) violate(v Violation) { j.report.Violations = append(j.report.Violations, v) }

// Verdict judges what was added. It may be called only once.
func (j *Judge) Verdict() *Report {
	order := make([]*life, 0, len(j.lives))
	for _, l := range j.lives {
		order = append(order, l)
	}
	slices.SortFunc(order, func(a, b *life) int { return int(a.id) - int(b.id) })
	j.findEnds(order)
	j.countUses(order)
	j.deliver(order)
	for _, l := range order {
		j.judgeFlows(l)
		j.judgeNotices(l)
		j.judgeOperations(l)
		j.judgeMarks(l)
	}
	j.judgeRegions()
	return &j.report
}

// findEnds finds when each socket ended, as far as that is known: by its own Close, or with its
// process or daemon.
func (j *Judge) findEnds(order []*life) {
	at := map[netip.AddrPort][]*life{}
	for _, l := range order {
		if l.bound != never {
			at[l.addr] = append(at[l.addr], l)
		}
		if l.close != 0 && l.gone == 0 { // otherwise the daemon may have kept the socket for a while
			l.end = span{l.close, never}
			if l.closed != 0 {
				l.end.late = j.gone(l)
			}
		}
		l.ended = j.firstEnd(l)
		if k := j.killed[book.ProcessOf(l.id)]; k != nil && k.early < l.end.late {
			l.end = span{min(k.early, l.end.early), min(l.end.late, later(k.late, endBound))}
		}
		for _, e := range j.ends[l.addr.Addr()] {
			// A daemon that is ending may still bind: what was bound before it had ended has ended with it.
			if (e.early >= l.binding || l.bound < e.late && l.bound > e.early) && e.early < l.end.late {
				l.end = span{min(max(e.early, l.binding), l.end.early), min(l.end.late, e.late)}
			}
		}
		if l.gone != 0 && !j.ended(l.addr.Addr(), l.gone) {
			j.violate(Violation{Rule: "session", Life: l.id, Text: fmt.Sprintf("%v: its session ended though its daemon did not", l)})
		}
	}
	for _, all := range at { // no port is bound twice at the same time
		slices.SortFunc(all, func(a, b *life) int { return int(min(max(a.bound-b.bound, -1), 1)) })
		for i, l := range all[1:] {
			before := all[i]
			if before.end.early > l.bound {
				j.violate(Violation{Rule: "bind", Life: l.id, Text: fmt.Sprintf("%v was bound while life %d had the port", l, before.id)})
			}
			before.end.late = min(before.end.late, l.bound)
		}
	}
}

// gone returns the time by which l was closed, if its Close returned. A daemon that is ending
// may take messages for l until its own end.
func (j *Judge) gone(l *life) int64 {
	at := l.closed
	for _, e := range j.ends[l.addr.Addr()] {
		if e.early <= l.closed && e.late >= l.close {
			at = max(at, e.late)
		}
	}
	return at
}

// firstEnd returns when the process of l or its daemon ended for the first time after l was
// bound.
func (j *Judge) firstEnd(l *life) int64 {
	at := int64(never)
	if k := j.killed[book.ProcessOf(l.id)]; k != nil {
		at = k.early
	}
	for _, e := range j.ends[l.addr.Addr()] {
		if e.early >= l.binding {
			at = min(at, e.early)
		}
	}
	return at
}

func later(at, by int64) int64 {
	if at == never {
		return never
	}
	return at + by
}

// ended reports whether the daemon of host was ended shortly before at.
func (j *Judge) ended(host netip.Addr, at int64) bool {
	return slices.ContainsFunc(j.ends[host], func(e span) bool { return e.early <= at && at <= later(e.late, causeBound) })
}

// disturbed reports whether something happened to the daemon of a or b, or between them, in
// from..to or shortly before.
func (j *Judge) disturbed(a, b netip.Addr, from, to int64) bool {
	return slices.ContainsFunc(j.faults, func(f fault) bool {
		return f.from <= to && f.to >= from-causeBound && f.process == 0 && (f.host == a || f.host == b)
	})
}
