package engine

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/shm"
)

// looker asks an engine what rdsctl asks.
type looker struct {
	t *testing.T
	Inspector
	view ctl.View
}

func (w *world) looker(e *Engine) looker {
	return looker{w.t, e.Inspect(func(f func()) error { f(); return nil }), ctl.View{May: func(uint32) bool { return true }, Limit: 100}}
}

// lists wants datagrams of these lengths listed last in a queue.
func (l looker) lists(queue string, total int, last ...uint64) {
	l.t.Helper()
	ms, more, err := l.Messages(l.view, queue)
	if err != nil || more || len(ms) != total {
		l.t.Fatalf("%q lists %d datagrams, %v, %v, want %d", queue, len(ms), more, err, total)
	}
	var got []uint64
	for _, m := range ms[total-len(last):] {
		got = append(got, m.Bytes)
	}
	if !slices.Equal(got, last) {
		l.t.Errorf("%q lists datagrams of %d bytes, want %d", queue, got, last)
	}
	v := l.view
	v.Limit = total - 1
	if ms, more, err := l.Messages(v, queue); len(ms) != v.Limit || !more || err != nil {
		l.t.Errorf("%q lists %d of %d with a limit of %d, more: %v, %v", queue, len(ms), total, v.Limit, more, err)
	}
}

// backlog wants these figures of the only entry of a direction.
func (l looker) backlog(direction string, want ctl.BacklogInfo) {
	l.t.Helper()
	bs, _, err := l.Backlog(l.view)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, x := range bs {
		if x.Direction != direction {
			continue
		}
		got := ctl.BacklogInfo{QueuedMessages: x.QueuedMessages, QueuedBytes: x.QueuedBytes, UnackedMessages: x.UnackedMessages,
			UnackedBytes: x.UnackedBytes, UnreadMessages: x.UnreadMessages, UnreadBytes: x.UnreadBytes}
		if got != want {
			l.t.Errorf("backlog %+v, want %+v", got, want)
		}
		return
	}
	l.t.Errorf("no backlog of direction %s", direction)
}

// drain wants these figures of what is under way.
func (l looker) drain(messages, bytes, unread uint64) {
	l.t.Helper()
	if d, err := l.Drain(netip.Addr{}, ctl.DrainLook); err != nil || d.Messages != messages || d.Bytes != bytes || d.Unread != unread {
		l.t.Errorf("drain %+v, %v, want %d messages of %d bytes, %d bytes unread", d, err, messages, bytes, unread)
	}
}

// TestRunListed: what rdsctl lists of runs that wait to be sent, are sent and not acked,
// and are not read, in the receiver's memory and in the daemon's, is their datagrams.
func TestRunListed(t *testing.T) {
	w, a, b := opPair(t, 2)
	from, to := w.looker(a.e), w.looker(b.e)

	a.submitRun(10, 0, 30)
	a.e.Turn(w.net.Now(), Wall(w.net.Now())) // the connection is not up yet
	from.lists(ctl.QueueSend, 3, 10, 0, 30)
	from.backlog("send", ctl.BacklogInfo{QueuedMessages: 3, QueuedBytes: 40})
	from.drain(3, 40, 0)

	w.run()
	to.lists(ctl.QueueRecv, 3, 10, 0, 30)
	to.backlog("recv", ctl.BacklogInfo{UnreadMessages: 3, UnreadBytes: 40})
	to.drain(0, 0, 40)

	a.submitRun(11, 12)
	w.pass(1*ms, a.e)
	from.lists(ctl.QueueRetrans, 2, 11, 12)
	from.backlog("send", ctl.BacklogInfo{UnackedMessages: 2, UnackedBytes: 23})

	w.run()
	const small = 40 // more than the socket's share of receive ids
	for range small {
		a.submit(shm.Sub{Len: 1})
	}
	w.run()
	a.submitRun(7, 8, 9)
	w.run()
	if b.cl.socks[b.sock].over.N == 0 {
		t.Fatal("nothing waits in daemon memory")
	}
	to.lists(ctl.QueueRecv, 3+2+small+3, 7, 8, 9)
	to.backlog("recv", ctl.BacklogInfo{UnreadMessages: 3 + 2 + small + 3, UnreadBytes: 40 + 23 + small + 24})
	if got := b.all(); len(got) != 3+2+small+3 || !slices.Equal(got[:5], []int{10, 0, 30, 11, 12}) {
		t.Errorf("datagrams of %d bytes came", got)
	}
	w.idle(a, b)
	w.clean2(a, b)
}
