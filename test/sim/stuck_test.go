package sim

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/stats"
)

// crowdWork is the work of an engine, in units that do not depend on the machine.
type crowdWork struct {
	Turns       int    // turns that found work
	Descriptors uint64 // messages taken from submission rings
	Sends       uint64 // SENDs posted
	Recvs       uint64 // SENDs received
	Sent        uint64 // payload bytes copied into SENDs, or posted
	Events      uint64 // messages copied into clients' arenas, and their events
	Local       uint64 // messages delivered on the same host
	Congestion  uint64 // congestion maps sent and received
	Held        uint64 // bytes in the daemon's overflow now
}

func (h *crowdHost) work(now int64) crowdWork {
	h.e.PublishStats(engine.Wall(wall0 + now))
	s := &h.st.C
	w := crowdWork{Turns: h.turns, Descriptors: s[stats.SendQueued], Sends: s[stats.SendFrames], Recvs: s[stats.RecvFrames],
		Events: s[stats.RecvQueued], Local: s[stats.LocalMessages], Held: s[stats.HeldBytes],
		Congestion: s[stats.CongUpdateQueued] + s[stats.CongUpdateReceived]}
	for _, i := range engine.Conns(h.e) {
		w.Sent += i.Stats.SendBytes
	}
	return w
}

func (w crowdWork) since(o crowdWork) crowdWork {
	return crowdWork{w.Turns - o.Turns, w.Descriptors - o.Descriptors, w.Sends - o.Sends, w.Recvs - o.Recvs, w.Sent - o.Sent,
		w.Events - o.Events, w.Local - o.Local, w.Congestion - o.Congestion, w.Held - o.Held}
}

// crowdResult is what the load took, in time and work.
type crowdResult struct {
	done       int64 // virtual ns until the readers had everything
	p99, worst int64 // virtual ns from the time a message was due until it was read
	wait       int
	work       [2]crowdWork // by host, for the whole load
	settled    [2]crowdWork // by host, after settleAfter
	lane       [2]conn.Stats
	late       []int64 // latencies of the messages due after settleAfter
}

// settleAfter is the virtual time by which the stuck receiver is full.
const settleAfter = 2_000_000

func (c *crowd) play() (r crowdResult) {
	c.took = make([]int64, crowdLoad)
	for range 100 {
		c.tick()
	}
	c.first = c.now() + crowdTick
	var begun, mid [2]crowdWork
	for i, h := range c.hosts {
		begun[i] = h.work(c.now())
	}
	for total := 0; total < crowdLoad; {
		if c.now() > c.due(crowdLoad)+100_000_000 {
			c.t.Fatalf("%d of %d messages arrived, %d sent", total, crowdLoad, c.next)
		}
		c.tick()
		c.send()
		c.pour(1 << 30)
		if total = 0; c.next == crowdLoad {
			for _, n := range c.got {
				total += n
			}
		}
		if at := c.now() - c.first; at >= settleAfter && at < settleAfter+crowdTick {
			for i, h := range c.hosts {
				mid[i] = h.work(c.now())
			}
		}
	}
	r.done, r.wait = c.now()-c.first, c.wait
	for i, h := range c.hosts {
		w := h.work(c.now())
		r.work[i], r.settled[i] = w.since(begun[i]), w.since(mid[i])
		for _, n := range engine.Conns(h.e) {
			if n.Lane == 1 {
				r.lane[i] = n.Stats
			}
		}
	}
	r.late = c.took[settleAfter/crowdGap:]
	all := slices.Sorted(slices.Values(c.took))
	r.p99, r.worst = all[len(all)*99/100], all[len(all)-1]
	return r
}

// stuckCases are the places where messages to the stuck receiver end up.
var stuckCases = []struct {
	name                  string
	rcvBuf, hardCap, over int
	refuses               bool
}{
	{name: "congested", rcvBuf: 16 << 10}, // the daemon keeps all messages
	{name: "over its hard limit", rcvBuf: 8 << 10, hardCap: 4 << 10, refuses: true},
	{name: "no memory for it", rcvBuf: 1 << 20, over: 64 << 10, refuses: true},
}

// TestStuckReceiver has one of 64 receivers of a socket not read, alone or with its whole
// process, while its sender floods it. The others get their messages as without the flood: at
// the same virtual times, for the same work of both engines. When the stuck receiver reads
// again, it gets all of the flood.
func TestStuckReceiver(t *testing.T) {
	for _, where := range []string{"other host", "same host", "other lane"} {
		for _, k := range stuckCases {
			if testing.Short() && !(k.refuses && k.over == 0) {
				continue
			}
			o := crowdOptions{local: where == "same host", lanes: where == "other lane", rcvBuf: k.rcvBuf,
				Config: engine.Config{HardCap: k.hardCap, OverflowBytes: k.over}}
			alone := newCrowd(t, o)
			want := alone.play()
			alone.close()
			o.stuck = true
			for _, o.dead = range []bool{false, true} {
				what := "socket"
				if o.dead {
					what = "process"
				}
				t.Run(where+"/"+k.name+"/"+what, func(t *testing.T) {
					c := newCrowd(t, o)
					got := c.play()
					c.checkStuck(k.refuses)
					c.compare(&got, &want)
					c.recover()
					c.close()
				})
			}
		}
	}
}

// checkStuck checks that the receiver was flooded, and that what the daemon keeps of the flood
// is bounded.
func (c *crowd) checkStuck(refuses bool) {
	c.t.Helper()
	x, to := c.stuck, c.hosts[len(c.hosts)-1]
	if x.congested < 1000 || x.sent < stuckBurst || x.got != 0 {
		c.t.Errorf("the flood: %d accepted, %d congested, %d read", x.sent, x.congested, x.got)
	}
	if n := to.st.C[stats.RefusedSent]; (n > 0) != refuses {
		c.t.Errorf("%d messages were refused", n)
	}
	const longestRun = 16<<10 + 256 // that package rds sends, with its record
	over, perMsg := c.opt.OverflowBytes, uint64(crowdSize+256)
	if over == 0 {
		over = 64 << 20
	}
	limit := min(uint64(x.sent)*perMsg, uint64(over/2)+longestRun)
	if c.opt.HardCap > 0 {
		limit = min(limit, uint64(c.opt.rcvBuf+c.opt.HardCap))
	}
	if held := to.st.C[stats.HeldBytes]; held > limit {
		c.t.Errorf("the daemon holds %d bytes for it, more than %d", held, limit)
	}
	if queued := c.hosts[0].st.C[stats.QueuedBytes]; queued > 2*crowdSndBuf {
		c.t.Errorf("%d bytes wait at its sender", queued)
	}
}

// compare checks that the load cost no more than without the stuck receiver.
//
// When the stuck receiver is full, virtual times must be equal to the nanosecond. The work must
// be equal too, with two exceptions. There may be an ack more or less, because the flood has
// shifted which messages ask for one. And the engine looks at the stuck process's ring, at
// intervals that double.
//
// Until the receiver is full, the engines also have the work of the messages that the flood got
// in: at most one SEND for each, and a few with congestion maps, notices and acks.
func (c *crowd) compare(got, want *crowdResult) {
	c.t.Helper()
	t, x := c.t, c.stuck
	if got.done != want.done || got.wait != 0 || want.wait != 0 {
		t.Errorf("the load took %d µs, %d ticks without room; alone %d µs, %d", got.done/1000, got.wait, want.done/1000, want.wait)
	}
	if !slices.Equal(got.late, want.late) {
		t.Error("messages took longer when the stuck one was full")
	}
	if got.p99 > want.p99 || got.worst > want.worst+crowdTick {
		t.Errorf("latency: %d ns p99, %d worst; alone %d, %d", got.p99, got.worst, want.p99, want.worst)
	}
	for i := range c.hosts {
		t.Logf("host %d: %+v, alone %+v", i, got.work[i], want.work[i])
		a, b := got.settled[i], want.settled[i]
		near(t, "turns with work", i, a.Turns, b.Turns, 8)
		near(t, "SENDs", i, int(a.Sends), int(b.Sends), 2)
		near(t, "SENDs received", i, int(a.Recvs), int(b.Recvs), 2)
		a.Turns, a.Sends, a.Recvs = b.Turns, b.Sends, b.Recvs
		if a != b {
			t.Errorf("host %d, when the stuck one was full: %+v, alone %+v", i, a, b)
		}

		a, b = got.work[i], want.work[i]
		flood := uint64(x.sent)
		near(t, "turns with work in all", i, a.Turns, b.Turns, 32)
		near(t, "SENDs in all", i, int(a.Sends), int(b.Sends), 64)
		near(t, "SENDs received in all", i, int(a.Recvs), int(b.Recvs), 64)
		if i == 0 && a.Descriptors != b.Descriptors+flood || i == 1 && a.Descriptors != 0 {
			t.Errorf("host %d took %d descriptors, alone %d, the flood has %d", i, a.Descriptors, b.Descriptors, flood)
		}
		const notice = 16
		if i == 0 && !c.opt.local && a.Sent != b.Sent+flood*crowdSize || i == 1 && a.Sent > b.Sent+flood*notice {
			t.Errorf("host %d sent %d bytes of payload, alone %d, the flood has %d messages", i, a.Sent, b.Sent, flood)
		}
		if a.Events < b.Events || a.Events > b.Events+flood || a.Congestion > 2 {
			t.Errorf("host %d: %d events, alone %d; %d congestion maps", i, a.Events, b.Events, a.Congestion)
		}
	}
	// The other lane has no work for the flood but the congestion map.
	for i := range want.lane {
		if a, b := got.lane[i], want.lane[i]; c.opt.lanes {
			near(t, "SENDs of the other lane", i, int(a.SendFrames), int(b.SendFrames), 2)
			near(t, "SENDs received on the other lane", i, int(a.RecvFrames), int(b.RecvFrames), 2)
			if a.SendBytes != b.SendBytes || a.RecvBytes != b.RecvBytes || a.RecvRefused+a.Refusals != 0 {
				t.Errorf("host %d, the other lane: %+v, alone %+v", i, a, b)
			}
		}
	}
}

// near checks that got is between want-1 and want+extra.
func near(t *testing.T, what string, host, got, want, extra int) {
	t.Helper()
	if got < want-1 || got > want+extra {
		t.Errorf("host %d: %d %s, alone %d", host, got, what, want)
	}
}

// recover has the stuck receiver read while the flood goes on for a while. It must get every
// message once and in order, at the pace at which it reads.
func (c *crowd) recover() {
	c.t.Helper()
	x := c.stuck
	x.awake = true
	total := x.sent + 2000
	for n := 0; x.got < total; n++ {
		if n == 100_000 {
			c.t.Fatalf("the stuck receiver got %d of %d messages after it began to read, %d were sent", x.got, total, x.sent)
		}
		c.pour(total)
		c.tick()
	}
}
